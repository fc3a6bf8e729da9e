"""The last steps of a start and the first ones of an end: accepting clients, and the drain.

    first facts  ->  the gateway that is taken over stops  ->  listen          `accept_clients`
    ready, offered  ->  …  ->  stopping, no more take-over  ->  drain          `in_service`

Clients are accepted once every worker holds the results of the first probes. Until then they wait in the
sockets of systemd, or of a gateway that is taken over. Each wait has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.assembly.admin import AdminListeners
from gateway.assembly.parts import Parts
from gateway.handover.inheritance import FIRST_OFFER
from gateway.handover.predecessor import Predecessor

FIRST_PROBES: Final = 1.0
"""Seconds for which a restarted gateway waits for its first probes before it serves."""


async def _first_facts(parts: Parts) -> None:
    """Wait for the probes of services that were offered before, until every live worker holds the results.

    So before the first request, some backend is known to serve what was offered before a restart. A gateway
    that takes over waits while the other one serves. Clients in sockets of systemd wait for the first offer
    even if nothing is saved. Without the last wait `listen` would overtake the update with the offer.
    """
    plan, replication = parts.plan, parts.agreed.replication
    holder, handover = plan.known.snapshot_holder, plan.handover
    waited_for = handover.clients_wait()
    offered = [name for name, view in holder.current.views.items() if waited_for or view.offer.is_made]
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
                await holder.until(lambda now: all(now.views[name].offer.is_made for name in offered))
    await parts.plane.in_force()


async def accept_clients(parts: Parts, admin: AdminListeners) -> None:
    """Accept clients. In a take-over the other gateway serves, by the same records, until there is nothing
    left to wait for; then it stops, and this one goes on. Raises `StartupError`."""
    handover, agreement = parts.plan.handover, parts.agreed.agreement
    await _first_facts(parts)
    if handover.taken is not None:
        await handover.taken.ready()
        # In this order: no other process writes the state file now, and operators see this gateway before it
        # serves.
        if parts.late_parts.keeper is not None:
            parts.late_parts.keeper.resume()
        await admin.start()
    await parts.plane.listen()
    await handover.serving(agreement.release)


@asynccontextmanager
async def in_service(parts: Parts, admin: AdminListeners) -> AsyncIterator[None]:
    """Notifies the service manager that this gateway serves, and lets the next one take over. On the way out
    it drains, while all other parts still run. After an error it waits for no request."""
    plan, plane = parts.plan, parts.plane
    plan.service_manager.ready(lambda: _status_line(parts))
    _offer_hand_over(parts, admin)
    failed, drain = True, plan.settings.timeouts.drain
    try:
        yield
        failed = False
    finally:
        plan.service_manager.stopping(0.0 if failed else drain)
        # Before clients are refused: the next gateway must not inherit sockets that no process serves.
        await plan.handover.give_up()
        if plan.handover.is_handed_over:
            await admin.stop()  # operators reconnect, to the new gateway
        if not failed:
            await plane.stop_accepting()
            parts.sockets.clients.close()  # new clients are refused, unless another process has the sockets
            await plane.drain(drain)


def _offer_hand_over(parts: Parts, admin: AdminListeners) -> None:
    """Let the next gateway take over. Without a state file it cannot find this one."""
    plan, state_file, keeper = parts.plan, parts.plan.known.state_file, parts.late_parts.keeper
    if state_file is None or keeper is None:
        return
    plan.handover.offer(
        Predecessor(
            agreement=parts.agreed.agreement,
            snapshot_holder=plan.known.snapshot_holder,
            reloader=parts.reloader,
            state_file=state_file,
            keeper=keeper,
            sockets=parts.sockets.clients,
            data_plane=parts.plane,
            sites=admin.sites,
            service_manager=plan.service_manager,
            end=plan.handover.handed_over,
        )
    )


def _status_line(parts: Parts) -> str:
    """The status line for the service manager: services with an offer, the configuration in force."""
    views, config = parts.plan.known.snapshot_holder.current.views.values(), parts.reloader.config
    serving = sum(view.offer.is_made for view in views)
    line = f"{serving} of {len(views)} services have an offer, configuration {config.hash}"
    return f"the last reload was refused: {config.error}; {line}" if config.error else line
