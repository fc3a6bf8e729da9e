"""The connections of one worker to one backend for one service: made, kept idle and reused.

Failures to connect end here: reported to the exchange as a `Failure`, and observed as a fact about the
backend. The bytes on a connection are read by `backend_connection`. What to do without a connection is
decided by the exchange.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final

from gateway.core.fleet.fleet import ConnectFailed
from gateway.dataplane.backend_connection import BackendConnection
from gateway.dataplane.failures import Failure

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend
    from gateway.dataplane.context import Context

_LOCAL_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a backend's host, at least one, in the order in which they are to be tried. Raises
`OSError` if none is known. It waits for a name server only when a name is new."""


class ConnectionUser(Protocol):
    """An attempt, as the pool sees it."""

    @property
    def ended(self) -> bool:
        """It needs no connection any more."""

    def on_connection(self, connection: BackendConnection) -> None:
        """A connection was made."""

    def on_failure(self, failure: Failure) -> None:
        """None could be made."""


@final
class BackendPool:
    """All connections of one worker to one backend for one service."""

    def __init__(self, context: Context, service: str, backend: Backend, resolve: Resolve) -> None:
        self._resolve = resolve
        self.context = context
        self.service = service
        self.backend = backend
        self.idle: list[BackendConnection] = []
        self.connections: set[BackendConnection] = set()
        self.closed = False
        self._connecting: set[asyncio.Task[None]] = set()

    def acquire(self, *, verify: bool) -> BackendConnection | None:
        """An idle connection; None: there is none, make one.

        It is the one that was used last, since that is the least likely to have been closed. A connection is
        looked at directly before a request is written; `verify`: now as well.
        """
        idle = self.idle
        while idle:
            connection = idle.pop()
            if verify and connection.readable():
                connection.abandon()
            elif not connection.is_closing():
                return connection
        return None

    def connect(self, user: ConnectionUser) -> None:
        """Make a connection and pass it to `user`, or report the failure to it."""
        task = asyncio.get_running_loop().create_task(self._connect(user, monotonic()))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, user: ConnectionUser, began: float) -> None:
        try:
            connection = await self._connect_to_any(self.context.timeouts.connect)
        except TimeoutError:
            self._connect_failed(began)
            user.on_failure(Failure.CONNECT_TIMEOUT)
        except OSError as error:  # refused, unreachable, no address known, no descriptor left
            if not _is_local_shortage(error):
                self._connect_failed(began)
            user.on_failure(Failure.CONNECT)
        else:
            sock = connection.transport.get_extra_info("socket")
            if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if user.ended:
                self.on_idle(connection)
            else:
                user.on_connection(connection)

    async def _connect_to_any(self, seconds: float) -> BackendConnection:
        """A connection to the first address that takes it. Each has an equal share of the time that is left,
        so that one that never answers does not keep the others from being tried."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            *others, last = await self._resolve(self.backend.host)
            for tried, address in enumerate(others):
                share = (deadline - loop.time()) / (len(others) + 1 - tried)
                with suppress(OSError):  # a TimeoutError is one, too
                    async with asyncio.timeout(share):
                        return await self._connect_to(address)
            return await self._connect_to(last)

    async def _connect_to(self, address: str) -> BackendConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: BackendConnection(self), address, self.backend.port
        )
        return connection

    def _connect_failed(self, began: float) -> None:
        """Report the fact, unless the pool was closed: then nothing uses this address any more."""
        if not self.closed:
            self.context.observe(self.service, self.backend.name, ConnectFailed(began))

    def on_connection_made(self, connection: BackendConnection) -> None:
        """The connection is open."""
        self.connections.add(connection)

    def on_idle(self, connection: BackendConnection) -> None:
        """The connection can carry the next request, unless the pool was closed meanwhile."""
        if self.closed:
            connection.close()
            return
        connection.deadline = self.context.now + self.context.timeouts.backend_idle
        self.idle.append(connection)

    def on_connection_lost(self, connection: BackendConnection) -> None:
        """The connection is closed."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def counts(self) -> tuple[int, int]:
        """The numbers of idle and active connections."""
        return len(self.idle), len(self.connections) - len(self.idle)

    def close(self) -> None:
        """Close idle connections now, and each of the others when its response has ended."""
        self.closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the idle connections."""
        for connection in self.idle:
            connection.transport.close()
        self.idle.clear()

    def abort(self) -> None:
        """Close everything at once."""
        self.closed = True
        for task in self._connecting:
            task.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()


def _is_local_shortage(error: OSError) -> bool:
    """Whether the gateway itself lacked descriptors, ports or memory: no fact about the backend."""
    return error.errno in _LOCAL_ERRNOS
