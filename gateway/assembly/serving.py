"""The last steps of a start and the first ones of an end: who may connect, and who is told so.

first facts  ->  the gateway that is taken over stops  ->  listen          `accept_clients`
ready, offered  ->  …  ->  stopping, nobody takes over  ->  drain          `in_service`
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.assembly.admin_listeners import AdminListeners
from gateway.assembly.first_facts import first_facts, has_offer
from gateway.assembly.parts import Parts
from gateway.handover.predecessor import Predecessor


async def accept_clients(parts: Parts, admin: AdminListeners) -> None:
    """Accept clients from now on. If this gateway takes over, the other one serves by the documents that are
    held here as well, until there is nothing left to wait for; then it stops, and this one goes on. Raises
    `StartupError`."""
    handover, agreement = parts.plan.handover, parts.agreed.agreement
    await first_facts(
        parts.plan.known.snapshot_holder, parts.prober, parts.plane, handover, parts.agreed.replication
    )
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
