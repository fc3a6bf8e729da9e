"""The last steps of a start and the first ones of an end: who may connect, and who is told so.

first facts  ->  the gateway that is taken over stops  ->  listen          `accept_clients`
ready, offered  ->  …  ->  stopping, nobody takes over  ->  drain          `in_service`

Clients are accepted once everybody who serves holds what the first probes brought. They wait in the sockets
meanwhile: those of systemd, or of a gateway that is taken over. Each wait has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.assembly.admin import AdminListeners
from gateway.assembly.parts import Parts
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import ServiceView
from gateway.handover.inheritance import FIRST_OFFER
from gateway.handover.predecessor import Predecessor

FIRST_PROBES: Final = 1.0
"""Seconds for which a gateway that has been restarted waits for its first probes before it serves."""


async def _first_facts(parts: Parts) -> None:
    """Wait for the probes of what was offered before, and until every live worker holds what they brought.

    What was offered before a restart is known to be served by somebody first. A gateway that takes over waits
    for them while the other one serves. Where clients wait in sockets of systemd, nothing may be known any
    more of what was offered: they wait for the first offer. Without the last wait `listen` would overtake the
    update that holds the offer.
    """
    plan, replication = parts.plan, parts.agreed.replication
    holder, handover = plan.known.snapshot_holder, plan.handover
    waited_for = handover.clients_wait()
    offered = [name for name, view in holder.current.views.items() if waited_for or has_offer(view)]
    probed = parts.prober.probed(offered)
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
                await _offers(holder, offered)
    await parts.plane.in_force()


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


async def accept_clients(parts: Parts, admin: AdminListeners) -> None:
    """Accept clients from now on. If this gateway takes over, the other one serves by the records that are
    held here as well, until there is nothing left to wait for; then it stops, and this one goes on. Raises
    `StartupError`."""
    handover, agreement = parts.plan.handover, parts.agreed.agreement
    await _first_facts(parts)
    if handover.taken is not None:
        await handover.taken.ready()
        # In this order: the state file has nobody else now, and operators see what is about to serve.
        if parts.keeper is not None:
            parts.keeper.resume()
        await admin.start()
    await parts.plane.listen()
    await handover.serving(agreement.release)


@asynccontextmanager
async def in_service(parts: Parts, admin: AdminListeners) -> AsyncIterator[None]:
    """Tells the service manager that this gateway serves, and lets the next one take over.

    On the way out it drains, before any other part is left: meanwhile backends are probed, offers move, and
    operators see it all. An error waits for no request. Neither does a start that fails: it never comes here.
    """
    plan, plane = parts.plan, parts.plane
    plan.service_manager.ready(lambda: _status_line(parts))
    _offer_hand_over(parts, admin)
    failed, drain = True, plan.settings.timeouts.drain
    try:
        yield
        failed = False
    finally:
        plan.service_manager.stopping(0.0 if failed else drain)
        # Before clients are refused: who would take over must not inherit sockets that nobody serves.
        await plan.handover.give_up()
        if plan.handover.is_handed_over:
            await admin.stop()  # who has a connection here finds the new gateway so
        if not failed:
            await plane.stop_accepting()
            parts.sockets.clients.close()  # who connects now is refused, unless somebody else has them
            await plane.drain(drain)


def _offer_hand_over(parts: Parts, admin: AdminListeners) -> None:
    """The next gateway may take over from now on. Without a state file it does not find this one."""
    plan, state_file = parts.plan, parts.plan.known.state_file
    if state_file is None or parts.keeper is None:
        return
    plan.handover.offer(
        Predecessor(
            agreement=parts.agreed.agreement,
            snapshot_holder=plan.known.snapshot_holder,
            reloader=parts.reloader,
            state_file=state_file,
            keeper=parts.keeper,
            sockets=parts.sockets.clients,
            data_plane=parts.plane,
            sites=admin.sites,
            service_manager=plan.service_manager,
            end=plan.handover.handed_over,
        )
    )


def _status_line(parts: Parts) -> str:
    """For the service manager: what is served, and whether the file is in force."""
    views, config = parts.plan.known.snapshot_holder.current.views.values(), parts.reloader.config
    serving = sum(map(has_offer, views))
    line = f"{serving} of {len(views)} services have an offer, configuration {config.hash}"
    return f"the last reload was refused: {config.error}; {line}" if config.error else line
