"""The accepting side of the listening sockets: one asyncio server for each socket.

    ListeningSockets -> a duplicate -> asyncio server -> `ListenerFilter.connect` for each connection

This module binds nothing and removes no file of a Unix socket: `listening_sockets` does. It knows nothing of
what happens on a connection.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable
from typing import Any, Final, cast, final

from gateway.dataplane.edge.accept_phase import ListenerFilter
from gateway.dataplane.edge.listening_sockets import BACKLOG, reason_of
from gateway.errors import StartupError

_TURNS: Final = 3
"""Loop iterations until asyncio has registered an accepted connection."""
_LEAVES_FILE: Final[dict[str, Any]] = {} if sys.version_info < (3, 13) else {"cleanup_socket": False}
"""Options with which asyncio leaves the file of a Unix socket, on which others still listen."""


@final
class Listeners:
    """All asyncio servers of one worker."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []

    async def open(self, listener: ListenerFilter, sock: socket.socket) -> None:
        """Accept clients from a bound socket, which stays the caller's. Raises `StartupError`."""
        loop, own = asyncio.get_running_loop(), sock.dup()
        try:
            if sock.family == socket.AF_UNIX:
                server = await loop.create_unix_server(
                    listener.connect, sock=own, backlog=BACKLOG, **_LEAVES_FILE
                )
            else:
                server = await loop.create_server(listener.connect, sock=own, backlog=BACKLOG)
        except OSError as error:
            own.close()
            raise StartupError(f"cannot listen on {listener.listen}: {reason_of(error)}") from error
        self._servers.append(server)

    async def stop(self) -> None:
        """Stop accepting clients, and lose no accepted connection."""
        await stop_servers(self._servers)

    def close(self) -> None:
        """Close the asyncio servers, so that no more clients are accepted."""
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        """Wait until every accepted connection has ended. Call it after `close`."""
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()


async def stop_servers(servers: Iterable[asyncio.Server]) -> None:
    """Close asyncio servers, and lose no accepted connection. asyncio makes the transport of a connection one
    loop iteration after accepting it. If its server is closed in between, nobody closes the connection, and
    its client waits."""
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS):  # waiting connections are reset if no other process has the socket
        await asyncio.sleep(0)
    for server in servers:
        for sock in cast(Any, server).sockets:  # a tuple, or a list on uvloop: compiled code refuses one
            loop.remove_reader(sock.fileno())  # no effect on uvloop, which loses no connection
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    for server in servers:
        server.close()
    for _ in range(_TURNS):  # on uvloop, until the protocols have their connections
        await asyncio.sleep(0)
