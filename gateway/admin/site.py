"""Listener for operators or scrapers on a bound socket. Started and stopped once; in between another process
may accept from the socket. `api` and `commands` have its endpoints, `connection` the limits for its clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import time
from typing import Final, final

from aiohttp import web

from gateway.admin.connection import PROTOCOL_ARGUMENTS, AdminConnection, Connections, ErrorLog
from gateway.dataplane.edge.listeners import stop_servers
from gateway.dataplane.edge.listening_sockets import BACKLOG, Inherited, ListeningSockets
from gateway.runtime.process import admin_connections
from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates

SHUTDOWN_TIMEOUT: Final = 1.0
"""Maximum seconds for responses in progress when the listener stops; they are made from memory."""

ACCEPTED_AT_ONCE: Final = 8
"""Number of connections that asyncio accepts before it handles any; each takes a descriptor until then."""


async def bind_site(
    host: str,
    port: int,
    inherited: Iterable[Inherited] = (),
    *,
    name: str = "admin listener",
    key: str = "admin.listen",
) -> ListeningSockets:
    """Binds the socket of a site; port 0 takes any free one. Clients wait in its queue until the site
    accepts. `inherited` are sockets that listen already; `name` and `key` are for messages. Raises
    `StartupError` if the address cannot be bound."""
    return await ListeningSockets.bind((Listen(host, port),), 1, inherited, whose=f"the {name} ", key=key)


@final
class AdminSite:
    """Listener that serves `app` on `sockets`, which it closes, over TLS with `certificates`. `count_error`
    is called with the reason of every error, one of `series.process.ADMIN_ERRORS`. `limit` of connections: by
    default all that the process has for this. `wall_clock` gives seconds since the epoch."""

    def __init__(
        self,
        app: web.Application,
        sockets: ListeningSockets,
        count_error: Callable[[str], None],
        *,
        certificates: ServerCertificates | None = None,
        limit: int | None = None,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._certificates = certificates
        self._limit = limit or admin_connections()
        self._wall_clock = wall_clock
        self._errors = ErrorLog(count_error)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_TIMEOUT, **PROTOCOL_ARGUMENTS)
        self._connections: Connections | None = None
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []
        self._new_protocol: Callable[[], asyncio.BaseProtocol] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self._sockets.addresses[0]

    @property
    def sockets(self) -> list[Inherited]:
        """Listening sockets of this listener, for the gateway that takes over from this one."""
        return self._sockets.all()

    @property
    def url(self) -> str:
        host, port = self.address
        scheme = "http" if self._certificates is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> tuple[int, int]:
        """Number of open connections, and their limit."""
        used = 0 if self._connections is None else len(self._connections.open)
        return used, self._limit

    async def start(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._connections = connections = Connections(
            limit=self._limit,
            errors=self._errors,
            server=server,
            certificates=self._certificates,
            wall_clock=self._wall_clock,
        )
        self._new_protocol = lambda: AdminConnection(connections)
        await self.listen()

    async def listen(self) -> None:
        """Starts to accept clients, also again after `stop_accepting`."""
        assert self._new_protocol is not None
        loop = asyncio.get_running_loop()
        for _, sock in self._sockets.of_slot(0):
            server = await loop.create_server(self._new_protocol, sock=sock.dup(), backlog=ACCEPTED_AT_ONCE)
            self._servers.append(server)
            sock.listen(BACKLOG)  # `backlog` is also the kernel's queue: too short for a burst

    async def stop_accepting(self) -> None:
        """Stops accepting clients. New ones wait while any process has the sockets; others are served."""
        await stop_servers(self._servers)
        self._servers.clear()

    async def stop(self) -> None:
        """Closes the listener; responses in progress have `SHUTDOWN_TIMEOUT` seconds."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._sockets.close()
        if self._new_protocol is not None:
            self._new_protocol = None
            await self._runner.cleanup()
        if self._connections is not None:
            self._connections.abort()
        self._errors.close()
