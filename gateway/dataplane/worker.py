"""One worker of the data plane: its listeners, its connections, its coarse clock, and its end.

It accepts clients and owns the backend pools of its event loop. It knows no request: those are
`client_connection` and `exchange`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final, final

from gateway.core.fleet.backend import Member
from gateway.core.fleet.fleet import Fact
from gateway.core.fleet.snapshot import SnapshotSource
from gateway.dataplane.backend_pool import BackendPool, Resolve
from gateway.dataplane.client_connection import ClientConnection
from gateway.dataplane.context import TICK, Context, Network, draw_bits
from gateway.errors import StartupError
from gateway.process import admin_connections
from gateway.settings.model.document import Limits, Timeouts
from gateway.settings.values import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord

log = logging.getLogger("skewgate.worker")

BACKLOG: Final = 1024
DESCRIPTOR_RESERVE: Final = 64
"""File descriptors for probes, listeners and files, and for connections that are closed once accepted."""
MIN_CLIENTS: Final = 16
MAX_CLIENTS: Final = 100_000
LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about connections that were closed to make room."""
VERY_LATE: Final = 2 * TICK
"""Seconds by which a tick is late when the process did not run."""
IDLE_GRACE: Final = 2.0
"""Seconds that an idle client connection stays open while the gateway drains. A request that is on its way
then gets a response with `Connection: close` instead of a closed connection (threats E1)."""


def admission_limit() -> int:
    """The number of client connections that the file descriptors of the process allow.

    Each of them may need a connection to a backend. Two reserves are kept: one for the admin listener
    (threats R-B7), and one for everything else (threats L1).
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CLIENTS
    return max(MIN_CLIENTS, min(MAX_CLIENTS, (soft - DESCRIPTOR_RESERVE - admin_connections()) // 2))


@final
class Worker:
    """Serves clients from one event loop."""

    def __init__(
        self,
        *,
        limits: Limits,
        timeouts: Timeouts,
        trusted: Sequence[Network],
        snapshots: SnapshotSource,
        resolve: Resolve,
        observe: Callable[[str, str, Fact], None],
        metrics: Metrics,
        record: Callable[[RequestRecord], None],
        name: str = "0",
        clock: Callable[[], float] = monotonic,
        random_bits: Callable[[], int] = draw_bits,
    ) -> None:
        self.name = name
        self.context = Context(
            limits=limits,
            timeouts=timeouts,
            trusted=tuple(trusted),
            snapshots=snapshots,
            observe=observe,
            metrics=metrics,
            record=record,
            clock=clock,
            random_bits=random_bits,
        )
        self.context.now = monotonic()
        self._resolve = resolve
        self._max_clients = limits.connections or admission_limit()
        self._closed_for_room = 0
        """Client connections that were closed since the log last said so."""
        self._room_logged_at = float("-inf")
        self._servers: list[asyncio.Server] = []
        self._clients: set[ClientConnection] = set()
        self._unproven: dict[ClientConnection, None] = {}
        """Those that have not sent a whole head yet, the oldest first."""
        self._pools: dict[str, BackendPool] = {}
        self._retired: list[BackendPool] = []
        self._no_clients = asyncio.Event()
        self._next_tick: asyncio.TimerHandle | None = None

    # -- lifetime

    async def start(self, listen: Sequence[Listen]) -> None:
        """Listen on every address. Raises `StartupError` if one is not available; then none stays open."""
        loop = asyncio.get_running_loop()
        for address in listen:
            try:
                server = await loop.create_server(
                    lambda: ClientConnection(self), address.host, address.port, backlog=BACKLOG
                )
            except OSError as error:
                await self.abort()
                raise StartupError(
                    f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
                ) from error
            self._servers.append(server)
        self._tick(loop, loop.time() + TICK)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses that are listened on, with their real ports."""
        names = (sock.getsockname() for server in self._servers for sock in server.sockets)
        return tuple((str(name[0]), int(name[1])) for name in names)

    @property
    def draining(self) -> bool:
        return self.context.draining

    async def drain(self, seconds: float) -> None:
        """Accept no more, let every request finish within `seconds`, end every connection with `Connection:
        close`, then close everything."""
        self.context.draining = True
        for server in self._servers:
            server.close()
        idle_until = monotonic() + min(IDLE_GRACE, seconds)
        end = monotonic() + seconds
        while self._clients and (now := monotonic()) < end:
            if now >= idle_until:
                for client in [one for one in self._clients if one.idle and not one.closing]:
                    client.close()
            self._no_clients.clear()
            pause = min(end, idle_until if now < idle_until else now + TICK) - now
            try:
                async with asyncio.timeout(max(pause, 0.01)):
                    await self._no_clients.wait()
            except TimeoutError:
                continue
        if self._clients:
            log.warning("%d client connections were cut at the end of the drain time", len(self._clients))
        await self.abort()

    async def abort(self) -> None:
        """Close everything at once."""
        if self._next_tick is not None:
            self._next_tick.cancel()
        for server in self._servers:
            server.close()
        for client in tuple(self._clients):
            client.transport.abort()
        for pool in (*self._pools.values(), *self._retired):
            pool.abort()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    # -- clients

    def client_connected(self, client: ClientConnection) -> None:
        """A client has connected. Over the limit the oldest connection that has not sent a whole head yields,
        which may be the new one. One that has is never closed for a newcomer (threats R-B4)."""
        self._clients.add(client)
        self._unproven[client] = None
        if len(self._clients) > self._max_clients:
            self.context.metrics.client_error("too_many_connections")
            self._closed_for_room += 1
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]  # it counts until it is closed: the next newcomer closes another one
            oldest.close()

    def client_proven(self, client: ClientConnection) -> None:
        """A client has sent a whole head."""
        self._unproven.pop(client, None)

    def _log_closed_for_room(self, now: float) -> None:
        """One line, at most once in `LOG_INTERVAL`: idle clients that lose their connection see no reason."""
        log.warning(
            "%d client connections were closed to make room for others: at most %d are kept "
            "(limits.connections, by default from the limit of open files)",
            self._closed_for_room,
            self._max_clients,
        )
        self._closed_for_room, self._room_logged_at = 0, now

    def client_disconnected(self, client: ClientConnection) -> None:
        """A client connection is closed."""
        self._clients.discard(client)
        self._unproven.pop(client, None)
        if not self._clients:
            self._no_clients.set()

    # -- backends

    def pool(self, member: Member) -> BackendPool:
        """The pool for this member; a new one after the address of the member has changed."""
        pool = self._pools.get(member.key)
        if pool is None or (pool.backend is not member.backend and pool.backend != member.backend):
            if pool is not None:
                self._retire(pool)
            pool = self._pools[member.key] = BackendPool(
                self.context, member.service, member.backend, self._resolve
            )
        return pool

    def _retire(self, pool: BackendPool) -> None:
        pool.close()
        self._retired = [retired for retired in self._retired if retired.connections]
        self._retired.append(pool)

    # -- the coarse clock

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Check every deadline. A tick that comes late also measures the lag of the event loop.

        After a tick that comes very late (the process was stopped, or something held the loop) nobody has
        failed: what peers have sent meanwhile is read first, and the next tick looks again.
        """
        before, now = self.context.now, monotonic()
        self.context.now = now
        late = max(0.0, loop.time() - due)
        self._next_tick = loop.call_later(TICK, self._tick, loop, loop.time() + TICK)
        self.context.rate_limiter.refill(now - before)
        self.context.metrics.lag(self.name, late)
        if late > VERY_LATE:
            return
        for client in [client for client in self._clients if client.deadline <= now]:
            if client.deadline <= now:  # what another one has caused may have begun a request here
                client.on_deadline()
        self.context.retry_budget.expire(now)
        self._release_removed()
        if self._closed_for_room and now >= self._room_logged_at + LOG_INTERVAL:
            self._log_closed_for_room(now)
        for pool in (*self._pools.values(), *self._retired):
            for connection in [conn for conn in pool.connections if conn.deadline <= now]:
                if connection.deadline <= now:
                    connection.on_deadline()

    def _release_removed(self) -> None:
        """Close the pools of removed backends, and idle connections to drained ones. Drop the counts of
        removed backends and services once they are zero."""
        snapshot, context = self.context.snapshots.current, self.context
        members = {member.key: member for pool in snapshot.fleet.pools.values() for member in pool.members}
        configured = members.keys()
        for key in self._pools.keys() - configured:
            self._retire(self._pools.pop(key))
        for key, pool in self._pools.items():
            if members[key].drained:  # an operator is about to stop it; open connections would delay that
                pool.close_idle()
        for key in [
            key for key, count in context.in_flight_by_member.items() if not count and key not in configured
        ]:
            del context.in_flight_by_member[key]
        for name in [
            name
            for name, count in context.in_flight_by_service.items()
            if not count and name not in snapshot.views
        ]:
            del context.in_flight_by_service[name]

    # -- for metrics and the admin listener

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        """Requests in flight by member key."""
        return self.context.in_flight_by_member

    def in_flight_by_service(self) -> Mapping[str, int]:
        """Requests in flight by service."""
        return self.context.in_flight_by_service

    def connections(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Idle and active backend connections by service and backend."""
        counts = {}
        for key, pool in self._pools.items():
            service, _, backend = key.partition("/")
            counts[service, backend] = pool.counts()
        return counts
