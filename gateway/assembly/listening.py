"""The sockets of every listener: bound before any backend is asked, so that a taken port is found first.

Clients, operators and scrapes wait in them until somebody accepts: the data plane and the admin sites, which
have them from here. What has been handed over by another gateway, or by systemd, is used where it fits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple, final

from gateway.admin import bind_site
from gateway.assembly.plan import Plan
from gateway.dataplane.edge.listening_sockets import ListeningSockets


@final
class Sockets(NamedTuple):
    """Bound sockets, by who connects."""

    clients: ListeningSockets
    admin: ListeningSockets
    metrics: ListeningSockets | None
    """None: scrapes come to the admin listener."""


@asynccontextmanager
async def listening(plan: Plan) -> AsyncIterator[Sockets]:
    """Binds all or none. Raises `StartupError`. After a drain they are closed already, and those of the admin
    sites, too; after an error, or a start that fails, they are closed here."""
    handover, settings, admin = plan.handover, plan.settings, plan.settings.admin
    with ExitStack() as stack:
        clients = await handover.bind(settings.listen, plan.workers, settings.timeouts.drain)
        stack.callback(clients.close)
        metrics = None
        if admin.metrics_listen is not None:
            metrics = await bind_site(
                *admin.metrics_listen,
                handover.inheritance.metrics,
                name="listener for metrics",
                key="admin.metrics_listen",
            )
            stack.callback(metrics.close)
        for_operators = await bind_site(*admin.listen, handover.inheritance.admin)
        stack.callback(for_operators.close)
        yield Sockets(clients, for_operators, metrics)
