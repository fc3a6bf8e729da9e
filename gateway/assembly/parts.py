"""The parts of one gateway as one value, for the admin listeners, scrapes and hand-overs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from gateway.assembly.agreements import GatewayAgreement, LateParts
from gateway.assembly.listeners import Certificates, Sockets
from gateway.assembly.plan import Plan
from gateway.assembly.telemetry import Samplers
from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.telemetry.history import History
from gateway.telemetry.status import StateWrites
from gateway.workers.data_plane import DataPlane


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a gateway. `running` makes this when all of them are there."""

    plan: Plan
    history: History
    certificates: Certificates
    sockets: Sockets
    late_parts: LateParts
    agreed: GatewayAgreement
    plane: DataPlane
    samplers: Samplers
    prober: Prober
    certificate_watch: CertificateWatch
    reloader: Reloader

    def state_writes(self) -> StateWrites | None:
        """Statistics of the state file's writes so far; None: there is no state file."""
        keeper = self.late_parts.keeper
        return None if keeper is None else keeper.writes()
