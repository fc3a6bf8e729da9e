"""The connections of one worker to one backend for one service: made, kept idle and reused.

Failures to connect end here: reported to the exchange as a `Failure`, and observed as a fact about the
backend. The bytes on a connection are read by `backend_connection`. What to do without a connection is
decided by the exchange.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from gateway.core.fleet.fleet import ConnectFailed
from gateway.dataplane.backend_connection import BackendConnection
from gateway.dataplane.failures import Failure

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend
    from gateway.dataplane.context import Context
    from gateway.dataplane.exchange import Exchange

VERIFY_AFTER: Final = 1.0
"""Seconds of idleness after which a connection is verified before it is used again."""
_LOCAL_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
_LOCAL_RESOLVER_ERRNOS: Final = frozenset({socket.EAI_SYSTEM, socket.EAI_MEMORY})


@final
class BackendPool:
    """All connections of one worker to one backend for one service."""

    def __init__(self, context: Context, service: str, backend: Backend) -> None:
        self.context = context
        self.service = service
        self.backend = backend
        self.idle: list[BackendConnection] = []
        self.connections: set[BackendConnection] = set()
        self.closed = False
        self._connecting: set[asyncio.Task[None]] = set()

    def acquire(self, *, verify: bool) -> BackendConnection | None:
        """An idle connection; None: there is none, make one.

        It is the one that was used last, since that is the least likely to have been closed. `verify`: the
        request cannot be sent twice, so check first whether the backend has just closed the connection. One
        that was idle for longer than `VERIFY_AFTER` is always checked: the backend's own idle timeout may
        have closed it.
        """
        idle, context = self.idle, self.context
        verify_before = context.now + context.timeouts.backend_idle - VERIFY_AFTER
        while idle:
            connection = idle.pop()
            if connection.transport.is_closing():
                continue
            if (verify or connection.deadline < verify_before) and connection.peer_closed():
                connection.transport.abort()
                continue
            return connection
        return None

    def connect(self, exchange: Exchange) -> None:
        """Make a connection and pass it to `exchange`, or report the failure to it."""
        task = asyncio.get_running_loop().create_task(self._connect(exchange, monotonic()))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange, began: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.context.timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: BackendConnection(self), self.backend.host, self.backend.port
                )
        except TimeoutError:
            self._connect_failed(began)
            exchange.on_failure(Failure.CONNECT_TIMEOUT)
        except (OSError, UnicodeError) as error:  # refused, unreachable, no such name, no descriptor left
            if not _is_local_shortage(error):
                self._connect_failed(began)
            exchange.on_failure(Failure.CONNECT)
        else:
            sock = connection.transport.get_extra_info("socket")
            if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if exchange.wants_connection:
                exchange.on_connection(connection)
            else:  # the exchange has ended meanwhile
                connection.deadline = self.context.now + self.context.timeouts.backend_idle
                self.idle.append(connection)

    def _connect_failed(self, began: float) -> None:
        """Report the fact, unless the pool was closed: then nothing uses this address any more."""
        if not self.closed:
            self.context.observe(self.service, self.backend.name, ConnectFailed(began))

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


def _is_local_shortage(error: OSError | UnicodeError) -> bool:
    """Whether the gateway itself lacked descriptors, ports or memory: no fact about the backend."""
    if isinstance(error, socket.gaierror):
        return error.errno in _LOCAL_RESOLVER_ERRNOS
    return isinstance(error, OSError) and error.errno in _LOCAL_ERRNOS
