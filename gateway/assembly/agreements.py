"""The agreement on what is offered: of one process, of its workers, or of several replicas.

    one process                     views without records (`WorkerAgreement` during a take-over)
    several workers, or an engine   `WorkerAgreement`
    several replicas                `Replication`, over a store

    agreement  ->  LateParts  ->  data plane, engine, state file
               <-  acknowledged, to_save

The agreement asks data plane, engine and state keeper what they hold, and they need it to be made. So it is
made first, with `LateParts`; they are put there as they are made, and it starts when all are there
(`running`). It is closed after them.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, final

from gateway import __version__
from gateway.assembly.plan import Plan
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.reload import Reloader
from gateway.controlplane.state.keeper import StateKeeper
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.controlplane.worker_agreement import WorkerAgreement, restored_records
from gateway.core.agreement.attachment import Registered
from gateway.settings import AgreementSettings
from gateway.telemetry.neighbours import AgreementReport, EngineReport, with_engine
from gateway.workers.data_plane import DataPlane

if TYPE_CHECKING:
    from gateway.controlplane.replication.replication import Replication
    from gateway.engines.haproxy.driver import HaproxyDriver


@final
class LateParts:
    """Parts of the gateway that are made after the agreement, which asks them. Each is None until made."""

    def __init__(self) -> None:
        self.plane: DataPlane | None = None
        self.engine: HaproxyDriver | None = None
        self.keeper: StateKeeper | None = None
        """The keeper of the state file; None also if no `state` is configured."""
        self.reloader: Reloader | None = None
        self.usage: UsageKeeper | None = None

    def held(self, service: str) -> int | None:
        """The lowest seq of a service's agreed record in workers and engine; None: neither holds one."""
        each = [one.held(service) for one in (self.plane, self.engine) if one is not None]
        return min((held for held in each if held is not None), default=None)

    def in_flight(self) -> Mapping[str, int]:
        """Requests in flight by member key, those of the engine included."""
        return with_engine({} if self.plane is None else self.plane.in_flight_by_member, self.engine_report())

    def engine_report(self) -> EngineReport | None:
        """The report of the engine beside the gateway; None: there is none."""
        return None if self.engine is None else self.engine.report()

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """Send every worker the times until which this replica may refuse versions, by service."""
        assert self.plane is not None, "the agreement starts when there is a data plane"
        self.plane.deadlines(deadlines)

    async def save(self) -> bool:
        """Write the state file. Returns whether it has been written."""
        return self.keeper is not None and await self.keeper.write()

    def kill(self) -> None:
        """Kill all worker processes, because this process ends now, perhaps while it starts."""
        if self.plane is not None:
            self.plane.kill()


@final
class GatewayAgreement(NamedTuple):
    """The agreement on what is offered that the settings ask for: of workers, or of replicas."""

    agreement: Agreement
    replication: Replication | None
    """The agreement between replicas, which is `agreement`, if this gateway is one of several; else None."""

    def report(self) -> AgreementReport | None:
        """The report of this replica on the agreement; None: there are no other replicas."""
        return None if self.replication is None else self.replication.report()

    def registrations(self) -> Mapping[str, Registered]:
        """The registrations of this replica in the store, by service, for the state file."""
        return {} if self.replication is None else self.replication.registrations()


def make_agreement(plan: Plan, late_parts: LateParts) -> GatewayAgreement:
    """Make the agreement on what is offered, without starting it."""
    if plan.settings.agreement is not None:
        replication = _replication(plan, late_parts, plan.settings.agreement)
        agreed = GatewayAgreement(replication, replication)
    else:
        restored = restored_records(plan.known.saved)
        agreement = WorkerAgreement(
            plan.known.snapshot_holder,
            late_parts.held,
            restored=restored,
            alone=plan.alone,
            # A gateway without workers has left no records, and no orphans.
            orphans=plan.handover.orphans_left if restored or not plan.alone else lambda: False,
            save=None if plan.known.state_file is None else late_parts.save,
        )
        agreed = GatewayAgreement(agreement, None)
    plan.handover.orphans_ended = agreed.agreement.acknowledged
    return agreed


@asynccontextmanager
async def agreeing(agreed: GatewayAgreement) -> AsyncIterator[None]:
    """Closes the agreement on the way out: after the data plane, because a replica signs off when it serves
    nobody, and before the state file, to which that is written. `begin_to_agree` starts it."""
    try:
        yield
    finally:
        await agreed.agreement.close()


def begin_to_agree(plan: Plan, agreed: GatewayAgreement) -> None:
    """Start the agreement, which gives every view its record. In a take-over, where the other gateway serves
    by the same records, they do not move at first: no step must be ahead of what it serves."""
    if plan.handover.taken is not None:
        agreed.agreement.hold(everything=False)
    agreed.agreement.start()


def _replication(plan: Plan, late_parts: LateParts, replicas: AgreementSettings) -> Replication:
    from gateway.controlplane.replication.replication import Replication  # noqa: PLC0415
    from gateway.controlplane.stores.etcd import EtcdStore  # noqa: PLC0415

    host = socket.gethostname()
    return Replication(
        plan.known.snapshot_holder,
        EtcdStore(replicas.etcd, replicas.ttl),
        replicas,
        held=late_parts.held,
        deadlines=late_parts.deadlines,
        restored=plan.known.saved,
        orphans=plan.handover.orphans_left,
        save=None if plan.known.state_file is None else late_parts.save,
        name=host,
        host=host,
        release=__version__,
    )
