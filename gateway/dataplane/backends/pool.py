"""Connections of one worker to one backend for one service: made, kept idle and reused.

A failure to connect is reported to the attempt as a `Failure`, and observed as a fact about the backend.
`backends.connection` reads the bytes; the exchange decides what to do without a connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

from gateway.core.fleet.fleet import ConnectFailed
from gateway.dataplane.backends.connection import BackendConnection, ConnectionHome, ResponseReceiver
from gateway.dataplane.local_responses.failures import Failure
from gateway.dataplane.sockets.tcp import keep_asking
from gateway.telemetry.series.backend import OfBackend
from gateway.tls.client import SHUTDOWN_TIME, reason_of

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend
    from gateway.core.fleet.service import Service
    from gateway.dataplane.context import Context

log = logging.getLogger("skewgate.backend")

_OWN_SHORTAGE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
"""Errors of connecting that show a lack of descriptors, ports or memory here: no fact about the backend."""
ONCE_TIME: Final = 600.0
"""Seconds for which a backend that was found out of step gets one request per connection."""
_OUT_OF_STEP: Final = {
    "surplus": "it sends bytes that answer no request",
    "misplaced": "it has answered a request with the response to an earlier one",
}

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Resolves a backend's host to its addresses, at least one, in the order to try them. Raises `OSError` if
none is known. Waits for a name server only if the name is new."""


class ConnectionRoom(Protocol):
    """Interface through which a connection pool asks for file descriptors."""

    def backend_opens(self, connection: BackendConnection, /) -> bool:
        """Whether a backend connection gets a file descriptor, which is counted until `backend_closed`."""

    def backend_closed(self, connection: BackendConnection, /) -> None:
        """Stop counting a backend connection that is closed or could not be made."""


@final
class ConnectionPool(ConnectionHome):
    """All connections of one worker to one backend for one service."""

    def __init__(
        self, context: Context, service: str, backend: Backend, resolve: Resolve, room: ConnectionRoom
    ) -> None:
        self._resolve = resolve
        self._room = room
        self.context = context
        self.service = service
        self.backend = backend
        self.idle: list[BackendConnection] = []
        self.connections: set[BackendConnection] = set()
        self.closed = False
        self.id_mark = context.request_ids.mark
        self._has_exceptions = False
        """Whether this connection pool is closed, or its backend was found out of step with the requests."""
        self._once_until = 0.0
        """Time, by the coarse clock, until which each connection to this backend carries one request, and all
        that is received is acknowledged at once. 0: the backend was never out of step."""
        self._connecting: dict[asyncio.Task[None], ResponseReceiver] = {}

    def acquire(self, *, verify: bool) -> BackendConnection | None:
        """Take the idle connection that was used last, which is the least likely to have been closed; None if
        there is none. `verify`: ask the kernel now whether it is unused; `BackendConnection.write` asks in
        any case."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            if verify and connection.readable():
                connection.note_surplus()
                connection.abandon()
            elif not connection.is_closing():
                return connection
        return None

    def connect(self, user: ResponseReceiver, service: Service) -> None:
        """Connect to the backend, and pass the connection or the failure to `user`."""
        if self.backend.max_connections:
            leases = self.context.leases
            most = self.backend.max_connections
            if leases is not None:
                most = leases.get(f"{self.service}/{self.backend.name}", 0)
            self._make_room(most)
        task = asyncio.get_running_loop().create_task(self._connect(user, service, self.context.clock()))
        self._connecting[task] = user
        task.add_done_callback(self._connecting.pop)

    def _make_room(self, most: int) -> None:
        """Close an unused backend connection if there are `most` of them. Requests in flight are fewer."""
        if len(self.connections) + len(self._connecting) < most:
            return
        if self.idle:
            self.close_oldest()
        elif unused := [task for task, user in self._connecting.items() if user.ended]:
            unused[0].cancel()

    def trim(self, most: int) -> int:
        """Close unused backend connections until at most `most` are left; returns how many are open."""
        surplus = len(self.connections) + len(self._connecting) - most
        while surplus > 0 and self.idle:
            self.close_oldest()
            surplus -= 1
        for task in [task for task, user in self._connecting.items() if user.ended]:
            if surplus > 0:
                task.cancel()
                surplus -= 1
        return len(self.connections) + len(self._connecting)

    async def _connect(self, user: ResponseReceiver, service: Service, began: float) -> None:
        try:
            connection = await self._connect_to_any(service.timeouts.connect)
        except TimeoutError:
            self._connect_failed(began, f"no connection within {service.timeouts.connect:g} s")
            user.on_failure(Failure.CONNECT_TIMEOUT)
        except ssl.SSLError as error:
            self._connect_failed(began, reason_of(error))
            user.on_failure(Failure.TLS)
        except OSError as error:  # refused, unreachable, no address known, no descriptor left
            if error.errno not in _OWN_SHORTAGE:
                self._connect_failed(began, reason_of(error))
            user.on_failure(Failure.CONNECT)
        else:
            sock = connection.transport.get_extra_info("socket")
            if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                keep_asking(sock)
            if user.ended:
                connection.timeouts = service.timeouts
                connection.reuse = service.reuse
                self.on_idle(connection)
            else:
                user.on_connection(connection)

    async def _connect_to_any(self, seconds: float) -> BackendConnection:
        """Connect to the first address of the backend that accepts. Each gets an equal share of the remaining
        time, so that a silent one does not keep the others from being tried."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            if self.backend.socket_path:
                return await self._connect_to("", seconds)
            *others, last = await self._resolve(self.backend.host)
            for tried, address in enumerate(others):
                share = (deadline - loop.time()) / (len(others) + 1 - tried)
                with suppress(OSError):  # a TimeoutError is one, too
                    async with asyncio.timeout(share):
                        return await self._connect_to(address, seconds)
            return await self._connect_to(last, seconds)

    async def _connect_to(self, address: str, seconds: float) -> BackendConnection:
        """Connect to one address of the backend, for a request that waits at most `seconds`."""
        loop, backend = asyncio.get_running_loop(), self.backend
        connection = BackendConnection(self)
        protocol = cast(asyncio.Protocol, connection)
        if not self._room.backend_opens(connection):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        try:
            if backend.socket_path:
                await loop.create_unix_connection(lambda: protocol, backend.socket_path)
            elif backend.tls is None:
                await loop.create_connection(lambda: protocol, address, backend.port)
            else:
                await loop.create_connection(
                    lambda: protocol,
                    address,
                    backend.port,
                    ssl=self.context.client_contexts.of(backend.tls).requests,
                    server_hostname=backend.tls.server_name,
                    ssl_handshake_timeout=seconds + 1.0,  # outlasts the wait for the connection
                    ssl_shutdown_timeout=SHUTDOWN_TIME,
                )
        except BaseException:
            connection.give_up()  # a connection cancelled at the wrong moment is made nevertheless
            if connection not in self.connections:
                self._room.backend_closed(connection)
            raise
        return connection

    def _connect_failed(self, began: float, reason: str) -> None:
        """Report a failure to connect, unless the pool was closed and nothing uses this address any more."""
        if not self.closed:
            self.context.observe(self.service, self.backend.name, ConnectFailed(began, reason))
            self.context.ejections.connect_failed(self.service, self.backend.name)

    def on_refused(self, error: BaseException | None) -> None:
        if isinstance(error, ssl.SSLError):
            self._connect_failed(self.context.clock(), reason_of(error))

    def on_connection_made(self, connection: BackendConnection) -> None:
        self._room.backend_opens(connection)  # counts again a connection that was given up
        self.connections.add(connection)

    def on_idle(self, connection: BackendConnection) -> None:
        """Keep a backend connection for the next request, unless it is used up or the pool was closed."""
        reuse, now = connection.reuse, self.context.now
        age_limit = connection.made_at + reuse.time
        if (
            now >= age_limit
            or connection.requests >= reuse.requests
            or (self._has_exceptions and self._is_over(connection, now))
        ):
            connection.close()
            return
        deadline = now + connection.timeouts.backend_idle
        connection.deadline = deadline if deadline < age_limit else age_limit  # noqa: FURB136 - hot path
        self.idle.append(connection)

    def _is_over(self, connection: BackendConnection, now: float) -> bool:
        """Whether a connection may not be reused: the pool is closed, or its backend was out of step."""
        if self.closed or (now < self._once_until and connection.requests):
            return True
        if self._once_until:
            connection.acknowledge()
        return False

    def on_out_of_step(self, reason: str) -> None:
        """For `ONCE_TIME`, use each connection to this backend once. Used ones close with their response."""
        now = self.context.now
        self.context.metrics.count(
            OfBackend.out_of_step, reason, service=self.service, backend=self.backend.name
        )
        if now >= self._once_until:
            log.warning(
                "backend %s of service %s gets one request per connection for %d min: %s. Most likely it "
                "leaves request bodies unread and takes them for requests",
                self.backend.name,
                self.service,
                ONCE_TIME // 60,
                _OUT_OF_STEP[reason],
            )
        self._once_until = now + ONCE_TIME
        self._has_exceptions = True
        for connection in [each for each in self.idle if each.requests]:
            self.idle.remove(connection)
            connection.close()

    def on_connection_lost(self, connection: BackendConnection) -> None:
        self._room.backend_closed(connection)
        self.connections.discard(connection)
        self.discard_idle(connection)

    def discard_idle(self, connection: BackendConnection) -> None:
        """Remove a backend connection from the idle ones, if it is one of them."""
        if connection in self.idle:
            self.idle.remove(connection)

    def counts(self) -> tuple[int, int]:
        """Numbers of idle and active connections in this pool."""
        return len(self.idle), len(self.connections) - len(self.idle)

    def close(self) -> None:
        """Close the pool: idle connections now, and each of the others when its response has ended."""
        self.closed = self._has_exceptions = True
        self.close_idle()

    def close_oldest(self) -> None:
        """Close the backend connection that has been idle for longest."""
        self.idle.pop(0).close()

    def close_idle(self) -> None:
        """Close the idle connections of this pool."""
        for connection in self.idle:
            connection.close()
        self.idle.clear()

    def abort(self) -> None:
        """Close all connections of this pool at once, also those that are being made."""
        self.closed = self._has_exceptions = True
        for task in self._connecting:
            task.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()
