"""The parts of one gateway as one value, for those that work on several of them: what people see, what a
scrape reads, what is handed over. `running` makes it when all are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from gateway.assembly.agreements import Agreed
from gateway.assembly.certificates import Certificates
from gateway.assembly.late_parts import LateParts
from gateway.assembly.listening import Sockets
from gateway.assembly.plan import Plan
from gateway.assembly.telemetry import Samplers
from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.controlplane.state.keeper import StateKeeper
from gateway.telemetry.history import History
from gateway.telemetry.status import StateWrites
from gateway.workers.data_plane import DataPlane


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of a gateway, each of which is there."""

    plan: Plan
    history: History
    certificates: Certificates
    sockets: Sockets
    late_parts: LateParts
    agreed: Agreed
    keeper: StateKeeper | None
    """None: no `state` is configured."""
    plane: DataPlane
    samplers: Samplers
    prober: Prober
    certificate_watch: CertificateWatch
    reloader: Reloader

    def state_writes(self) -> StateWrites | None:
        """How writing the state file goes; None: there is none."""
        return None if self.keeper is None else self.keeper.writes()
