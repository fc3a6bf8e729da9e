"""How what is offered comes to be agreed on: by this gateway alone, or by several replicas.

one process                     views without records (`WorkerAgreement` for the time of a take-over)
several workers, or an engine   `WorkerAgreement`
several replicas                `Replication`, over a store

It is made before those who serve by it (`late_parts`), and closed after them.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, final

from gateway import __version__
from gateway.assembly.late_parts import LateParts
from gateway.assembly.plan import Plan
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.worker_agreement import WorkerAgreement, restored_records
from gateway.core.agreement.attachment import Registered
from gateway.settings import AgreementSettings
from gateway.telemetry.neighbours import AgreementReport

if TYPE_CHECKING:
    from gateway.controlplane.replication.replication import Replication


@final
class Agreed(NamedTuple):
    """The agreement that the settings ask for."""

    agreement: Agreement
    replication: Replication | None
    """The same object if it is one of several replicas; None: this gateway stands alone."""

    def report(self) -> AgreementReport | None:
        """How this replica stands to the others; None: this gateway stands alone."""
        return None if self.replication is None else self.replication.report()

    def registrations(self) -> Mapping[str, Registered]:
        """Registrations of this replica, for the state file."""
        return {} if self.replication is None else self.replication.registrations()


def make_agreement(plan: Plan, late_parts: LateParts) -> Agreed:
    """The agreement, not started. It asks `late_parts` for nothing before it is."""
    if plan.settings.agreement is not None:
        replication = _replication(plan, late_parts, plan.settings.agreement)
        agreed = Agreed(replication, replication)
    else:
        restored = restored_records(plan.known.saved)
        agreement = WorkerAgreement(
            plan.known.snapshot_holder,
            late_parts.held,
            restored=restored,
            alone=plan.alone,
            # One that stood alone has left no records, and no workers.
            orphans=plan.handover.orphans_left if restored or not plan.alone else lambda: False,
            save=None if plan.known.state_file is None else late_parts.save,
        )
        agreed = Agreed(agreement, None)
    plan.handover.orphans_ended = agreed.agreement.acknowledged
    return agreed


@asynccontextmanager
async def agreeing(agreed: Agreed) -> AsyncIterator[None]:
    """Closes the agreement on the way out: when nobody is served any more, because a replica signs off with
    that, and before the state file, into which it signs off. `begin_to_agree` starts it."""
    try:
        yield
    finally:
        await agreed.agreement.close()


def begin_to_agree(plan: Plan, agreed: Agreed) -> None:
    """Give every view its record: all followers are in their cell, nothing is saved yet, nobody serves.

    In a take-over the other gateway serves by records that are restored here. They stand still from the
    beginning: even the first steps, which are taken at once, must not be ahead of what it serves.
    """
    if plan.handover.taken is not None:
        agreed.agreement.hold(everything=False)
    agreed.agreement.start()


def _replication(plan: Plan, late_parts: LateParts, replicas: AgreementSettings) -> Replication:
    """Its rooms are imported where there are several replicas."""
    from gateway.controlplane.replication.replication import Replication  # noqa: PLC0415
    from gateway.controlplane.stores.etcd import EtcdStore  # noqa: PLC0415

    host = socket.gethostname()
    return Replication(
        plan.known.snapshot_holder,
        EtcdStore(replicas.etcd, replicas.ttl),
        replicas,
        held=late_parts.held,
        in_flight=late_parts.in_flight,
        deadlines=late_parts.deadlines,
        restored=plan.known.saved,
        orphans=plan.handover.orphans_left,
        save=None if plan.known.state_file is None else late_parts.save,
        name=host,
        host=host,
        release=__version__,
    )
