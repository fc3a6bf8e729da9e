"""The admin listener and, where it is configured, the one for metrics: they share what may be connected.

Knows no endpoint: `admin` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import final

from gateway.admin import AdminContext, AdminSite, create_app, create_metrics_app
from gateway.dataplane.listening_sockets import Inherited
from gateway.process import admin_connections
from gateway.settings import AdminSettings
from gateway.telemetry.metrics import Metrics
from gateway.tls.server import ServerCertificates


@final
class AdminListeners:
    """Both of them, after `bind`."""

    def __init__(
        self,
        settings: AdminSettings,
        context: AdminContext,
        metrics: Metrics,
        certificates: ServerCertificates | None,
    ) -> None:
        limit = admin_connections()
        self._metrics_site: AdminSite | None = None
        if settings.metrics_listen is not None:
            limit //= 2
            self._metrics_site = AdminSite(
                create_metrics_app(context),
                *settings.metrics_listen,
                metrics.admin_error,
                limit=limit,
                name="listener for metrics",
                key="admin.metrics_listen",
            )
        self._admin = AdminSite(
            create_app(context),
            settings.host,
            settings.port,
            metrics.admin_error,
            certificates=certificates,
            limit=limit,
        )

    async def bind(self, stack: AsyncExitStack, inherited: Mapping[str, Iterable[Inherited]]) -> None:
        """Take the addresses; nobody is accepted yet. `stack` stops both. `inherited`: sockets of the gateway
        before this one, by the name of the site. Raises `StartupError`."""
        for name, site in self.sites().items():
            await site.bind(inherited.get(name, ()))
            stack.push_async_callback(site.stop)

    async def start(self) -> None:
        """Accept operators and scrapes from now on."""
        for site in self.sites().values():
            await site.start()

    async def stop(self) -> None:
        """Whoever has a connection finds the next gateway."""
        for site in self.sites().values():
            await site.stop()

    def sites(self) -> dict[str, AdminSite]:
        """Those that there are, by name, in the order in which they start."""
        sites = {"metrics": self._metrics_site, "admin": self._admin}
        return {name: site for name, site in sites.items() if site is not None}

    def connections(self) -> dict[str, tuple[int, int]]:
        """Open ones and their limit, by listener."""
        return {name: site.connections for name, site in self.sites().items()}

    @property
    def url(self) -> str:
        """The bound address of the admin listener, as a URL."""
        return self._admin.url

    @property
    def metrics_url(self) -> str | None:
        """That of the listener for metrics, if there is one."""
        return None if self._metrics_site is None else self._metrics_site.url
