"""The admin listener and, where it is configured, the one for metrics: they share what may be connected.

Made when everything that they show and command is there, and closed before any of that: a command under way
ends while what it changes still runs, and no later one comes. Knows no endpoint: `admin` has them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import final

from gateway.admin import AdminSite, create_app, create_metrics_app
from gateway.assembly.admin_context import admin_context
from gateway.assembly.counting import now
from gateway.assembly.parts import Parts
from gateway.runtime.process import admin_connections
from gateway.telemetry.series.process import OfProcess


@final
class AdminListeners:
    """Both listeners, on sockets that are bound."""

    def __init__(self, parts: Parts) -> None:
        limit, context, metrics = admin_connections(), admin_context(parts), parts.plan.metrics

        def count_error(reason: str) -> None:
            metrics.count(OfProcess.admin_errors, reason)

        self.sites: dict[str, AdminSite] = {}
        """Listeners by name, in the order in which they start."""
        if parts.sockets.metrics is not None:
            limit //= 2
            self.sites["metrics"] = AdminSite(
                create_metrics_app(context), parts.sockets.metrics, count_error, limit=limit
            )
        self.sites["admin"] = AdminSite(
            create_app(context),
            parts.sockets.admin,
            count_error,
            certificates=parts.certificates.of_admin,
            limit=limit,
        )

    async def start(self) -> None:
        """Accept operators and scrapes from now on."""
        for site in self.sites.values():
            await site.start()

    async def stop(self) -> None:
        """Accept nobody any more, and close all connections."""
        for site in self.sites.values():
            await site.stop()

    def connections(self) -> dict[str, tuple[int, int]]:
        """Open connections and their limit, by listener."""
        return {name: site.connections for name, site in self.sites.items()}

    @property
    def url(self) -> str:
        """The bound address of the admin listener, as a URL."""
        return self.sites["admin"].url

    @property
    def metrics_url(self) -> str | None:
        """The same of the listener for metrics, if there is one."""
        return self.sites["metrics"].url if "metrics" in self.sites else None


@asynccontextmanager
async def admin_listeners(parts: Parts) -> AsyncIterator[AdminListeners]:
    """Lets the metrics read the parts, and accepts operators and scrapes. In a take-over the other gateway
    goes on doing that: `serving` starts the listeners of this one when it has stopped."""
    listeners = AdminListeners(parts)
    parts.plan.metrics.watch(parts.plan.known.snapshot_holder, lambda: now(parts, listeners.connections()))
    async with AsyncExitStack() as stack:
        for site in listeners.sites.values():
            stack.push_async_callback(site.stop)
        if parts.plan.handover.taken is None:
            await listeners.start()
        yield listeners
