"""Makes how what is offered comes to be agreed on: by this gateway alone, or by several replicas.

one process                     views without documents (`Documents` for the time of a take-over)
several workers, or an engine   `Documents`
several replicas                `Replication`, over a store
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from gateway import __version__
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.documents import Documents, restored_documents
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.agreed import NOT_JOINED, NOTHING_AGREED, Agreed
from gateway.core.fleet.offer_state import SavedState
from gateway.settings import AgreementSettings, Settings

if TYPE_CHECKING:
    from gateway.controlplane.replication.replication import Replication


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementParts:
    """What an agreement is made of. The callables are called when it runs."""

    settings: Settings
    snapshot_holder: SnapshotHolder
    saved: Mapping[str, SavedState]
    alone: bool
    """Only this process serves."""
    held: Callable[[str], int | None]
    in_flight: Callable[[], Mapping[str, int]]
    deadlines: Callable[[Mapping[str, float]], None]
    orphans: Callable[[], bool]
    save: Callable[[], Awaitable[bool]] | None


def begins_with(settings: Settings, *, alone: bool) -> Agreed | None:
    """With what a service begins that is new."""
    if settings.agreement is not None:
        return NOT_JOINED
    return None if alone else NOTHING_AGREED


def make_agreement(parts: AgreementParts) -> tuple[Agreement, Replication | None]:
    """The agreement that the settings ask for, and the same object again if it is one of several replicas."""
    if parts.settings.agreement is not None:
        replication = _replication(parts, parts.settings.agreement)
        return replication, replication
    documents = Documents(
        parts.snapshot_holder,
        parts.held,
        restored=restored_documents(parts.saved),
        alone=parts.alone,
        orphans=parts.orphans,
        save=parts.save,
    )
    return documents, None


def _replication(parts: AgreementParts, replicas: AgreementSettings) -> Replication:
    """Its rooms are imported where there are several replicas."""
    from gateway.controlplane.replication.replication import Replication  # noqa: PLC0415
    from gateway.controlplane.stores.etcd import EtcdStore  # noqa: PLC0415

    host = socket.gethostname()
    return Replication(
        parts.snapshot_holder,
        EtcdStore(replicas.etcd, replicas.ttl),
        replicas,
        held=parts.held,
        in_flight=parts.in_flight,
        deadlines=parts.deadlines,
        restored=parts.saved,
        orphans=parts.orphans,
        save=parts.save,
        name=host,
        host=host,
        release=__version__,
    )
