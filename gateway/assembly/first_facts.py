"""When clients may be accepted after a start: once everybody who serves holds what the first probes brought.

    Prober  ->  SnapshotHolder  ->  offers  ->  every live worker has acknowledged  ->  listen

Clients wait in the sockets meanwhile: those of systemd, or of a gateway that is taken over. Each wait has an
end. Accepts nobody itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gateway.controlplane.prober import Prober
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import ServiceView
from gateway.handover.handover import Handover
from gateway.handover.inheritance import FIRST_OFFER
from gateway.workers.data_plane import DataPlane

if TYPE_CHECKING:
    from gateway.controlplane.replication.replication import Replication

FIRST_PROBES: Final = 1.0
"""Seconds for which a gateway that has been restarted waits for its first probes before it serves."""


async def first_facts(
    snapshot_holder: SnapshotHolder,
    prober: Prober,
    data_plane: DataPlane,
    handover: Handover,
    replication: Replication | None,
) -> None:
    """Wait for the probes of what was offered before, and until every live worker holds what they brought.

    What was offered before a restart is known to be served by somebody first. A gateway that takes over waits
    for them while the other one serves. Where clients wait in sockets of systemd, nothing may be known any
    more of what was offered: they wait for the first offer. Without the last wait `listen` would overtake the
    update that holds the offer.
    """
    views = snapshot_holder.current.views
    waited_for = handover.clients_wait()
    offered = [name for name, view in views.items() if waited_for or has_offer(view)]
    probed = prober.probed(offered)
    if handover.taken is not None:
        await handover.taken.probed(probed)
        if replication is not None:
            await replication.joined()  # else `/readyz` would be 503 for that long afterwards
    else:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_PROBES):
                await probed
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_OFFER if waited_for else FIRST_PROBES):
                await _offers(snapshot_holder, offered)
    await data_plane.in_force()


async def _offers(snapshot_holder: SnapshotHolder, services: Collection[str]) -> None:
    """Wait until each of these services has an offer."""
    changed = asyncio.Event()
    unsubscribe = snapshot_holder.subscribe(lambda before, after: changed.set())
    try:
        while not all(has_offer(snapshot_holder.current.views[name]) for name in services):
            changed.clear()
            await changed.wait()
    finally:
        unsubscribe()


def has_offer(view: ServiceView) -> bool:
    """Whether requests of this service can be negotiated, or need not be."""
    return bool(view.offer.versions) or view.offer.transparent
