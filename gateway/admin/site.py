"""The admin listener's socket: started once, stopped once. What it serves is in `api` and `commands`, what it
bears of its clients in `connection`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final, final

from aiohttp import web

from gateway.admin.connection import AdminConnection, Connections, Deadlines
from gateway.admin.error_log import ErrorLog
from gateway.errors import StartupError
from gateway.process import admin_connections

SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that responses under way may take when the listener stops; they are made from memory."""

HEAD_TIME: Final = 5.0
"""Seconds from the first byte of a head to its end, and from the connection to that first byte."""

BODY_TIME: Final = 5.0
"""Seconds from the end of the head to the end of the body: a command has some 30 bytes."""

RESPONSE_TIME: Final = 30.0
"""Seconds that a client may leave a response unread: Prometheus gives a scrape up after 10 by default."""

IDLE_TIME: Final = 25.0
"""Seconds that an authorised connection is kept for its next request. Scrapes every 15 s keep theirs. It is
no usual interval of scrapes, so that a request rarely meets a connection that closes."""

QUEUE: Final = 1024
"""Connections that the kernel completes before they are accepted, as for clients of the data plane: a client
beyond it would try again after a second."""

ACCEPTED_AT_ONCE: Final = 8
"""asyncio accepts so many before it looks at any of them, and each takes a descriptor until then."""


@final
class AdminSite:
    """Serves `app` on `host:port` (port 0: any free one). `count_error` is called with the reason of every
    error, one of `telemetry.counters.ADMIN_ERRORS`."""

    def __init__(
        self, app: web.Application, host: str, port: int, count_error: Callable[[str], None] = lambda _: None
    ) -> None:
        self._host = host
        self._port = port
        self._errors = ErrorLog(count_error)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_TIMEOUT)
        self._connections: Connections | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The bound address; only between `start` and `stop`."""
        assert self._server is not None
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def start(self) -> None:
        """Raises `StartupError` if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        deadlines = Deadlines(HEAD_TIME, BODY_TIME, RESPONSE_TIME, IDLE_TIME)
        connections = self._connections = Connections(admin_connections(), deadlines, self._errors)
        try:
            self._server = await loop.create_server(
                lambda: AdminConnection(server, connections, loop=loop),
                self._host,
                self._port,
                backlog=ACCEPTED_AT_ONCE,
            )
        except OSError as error:
            await self._runner.cleanup()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            where = f"[{self._host}]" if ":" in self._host else self._host
            raise StartupError(
                f"the admin listener cannot listen on {where}:{self._port}: {reason.lower()}; "
                "is another gateway running? set admin.listen to another address"
            ) from error
        for listening in self._server.sockets:
            # `backlog` is also the kernel's queue, which would be too short for a burst.
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(QUEUE)

    async def stop(self) -> None:
        """Close it; responses under way have `SHUTDOWN_TIMEOUT` seconds."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await self._runner.cleanup()
        if self._connections is not None:
            self._connections.abort()
        self._errors.close()
