"""Room for connections: which one a worker closes when clients or backends need another one.

    a client connects                               -> one file, and soon another one for its request
    a request needs a new connection to a backend   -> one file
      -> enough files, and fewer clients than `limits.connections`: nothing is closed
      -> else one is closed: a client that has sent nothing, a backend connection not used lately, the client
         that is idle longest; a newcomer if all others are in use

A newcomer has not sent a whole request head yet. At most `NEWCOMERS` of them displace idle clients; further
ones displace each other, so a crowd of silent ones costs no active client its connection (threats R-B4,
R3-V8). A connection with a request in flight is never closed.
"""

from __future__ import annotations

import resource
import select
from collections import deque
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gateway.dataplane.edge.phases import IDLE
from gateway.runtime.process import admin_connections
from gateway.telemetry.series.process import OfProcess

if TYPE_CHECKING:
    from gateway.dataplane.backends.connection import BackendConnection
    from gateway.dataplane.backends.pool import ConnectionPool
    from gateway.dataplane.context import Context
    from gateway.dataplane.edge.accept_phase import AcceptPhase
    from gateway.dataplane.edge.client_connection import ClientConnection

RESERVE: Final = 64
"""Reserve of file descriptors for probes, listeners, files, and connections closed once accepted. With a low
limit the reserve is at most a quarter of it, but at least half of this. Three eighths of it are used when all
clients are active, one of them for requests only."""
MIN_FILES: Final = 32
MAX_FILES: Final = 200_000
MAX_CLIENTS: Final = 100_000
NEWCOMERS: Final = 128
"""Maximum number of new clients for which idle clients are closed, and at most half of the files."""
UNUSED: Final = 1.0
"""Seconds after which a connection counts as silent or idle. Active clients send the next request earlier."""
FOUND: Final = 64
"""Maximum number of idle clients found in one pass over all clients. They are closed one by one."""
MAX_LOOKED: Final = 50_000
"""Maximum number of clients examined between two ticks: about 10 ms."""
_GONE: Final[int] = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_READABLE: Final = select.POLLIN | _GONE


class FileRoom(NamedTuple):
    """Number of file descriptors for clients and their connections to backends."""

    room: int
    overflow: int
    """Further file descriptors, for when all connections are in use."""


def file_room() -> FileRoom:
    """File descriptors that the process limit leaves to clients and backends. Two reserves are kept: for the
    admin listener (threats R-B7), and one for everything else, which shrinks with a low limit (threats L1,
    R3-V8)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return FileRoom(MAX_FILES, 0)
    reserve = min(RESERVE, max(RESERVE // 2, soft // 4))
    room = soft - reserve - admin_connections()
    return FileRoom(max(MIN_FILES, min(MAX_FILES, room)), reserve * 3 // 8)


@final
class ClientRoom:
    """All clients of one worker, and the file descriptors that they and their requests use."""

    def __init__(
        self, context: Context, accept_phase: AcceptPhase, pools: Callable[[], Iterable[ConnectionPool]]
    ) -> None:
        self._context = context
        self._accept_phase = accept_phase
        self._pools = pools
        self._room, self._overflow = file_room()
        self._most_clients = context.limits.connections or MAX_CLIENTS
        self._most_newcomers = min(NEWCOMERS, self._room // 2)
        self.clients: set[ClientConnection] = set()
        self.unproven: dict[ClientConnection, None] = {}
        """Clients that have not sent a whole request head yet, oldest first."""
        self._backends: set[BackendConnection] = set()
        self._found: deque[tuple[ClientConnection, float]] = deque()
        """Some idle clients, longest idle first, with their deadlines when they were found."""
        self._looked_at, self._looked = float("-inf"), 0
        """Time of the last tick, and the number of clients examined since."""
        self.closed = 0
        """Number of clients closed to make room since the last log line about it."""

    def __len__(self) -> int:
        """Number of client connections, those before HTTP included."""
        return len(self.clients) + len(self._accept_phase)

    @property
    def most(self) -> int:
        """Maximum number of clients at this moment."""
        return max(1, min(self._most_clients, self._room - len(self._backends)))

    # -- who comes and goes

    def add(self, client: ClientConnection) -> None:
        """Add a client that has connected."""
        self.clients.add(client)
        self.unproven[client] = None

    def prove(self, client: ClientConnection) -> None:
        """Note that a client has sent a whole request head."""
        self.unproven.pop(client, None)

    def remove(self, client: ClientConnection) -> None:
        """Remove a client whose connection is closed."""
        self.clients.discard(client)
        self.unproven.pop(client, None)

    def backend_opens(self, connection: BackendConnection) -> bool:
        if connection not in self._backends:
            if not self._make_room_for_request():
                return False
            self._backends.add(connection)
        return True

    def backend_closed(self, connection: BackendConnection) -> None:
        self._backends.discard(connection)

    # -- when there is no room

    def make_room_for_newcomer(self) -> None:
        """Close a connection, perhaps the new one, if there is no room for a client that has connected."""
        count = len(self)
        if count > self._most_clients:
            self._close_newcomer()
            return
        if 2 * count <= self._room and count + len(self._backends) <= self._room:
            return
        # Each newcomer needs a connection to a backend soon, and each request in flight has or needs one.
        newcomers = self._newcomers_count()
        wanted = self._in_flight() + newcomers
        needed = count + max(len(self._backends), wanted)
        if needed <= self._room or self._close_unused():
            return
        if needed <= self._room + self._overflow * 2 // 3:  # a client that reconnects counts twice
            return
        in_use = max(wanted, count - newcomers)
        if len(self._backends) > in_use and self._close_backend(0.0):
            return
        if not self._close_recent():
            self._close_newcomer()

    def _make_room_for_request(self) -> bool:
        """Whether there is a file descriptor for a backend connection, perhaps after closing another one."""
        used = len(self) + len(self._backends)
        if used < self._room or self._close_unused() or used < self._room + self._overflow:
            return True
        return self._close_backend(0.0) or self._close_recent()

    def _newcomers_count(self) -> int:
        return len(self.unproven) + len(self._accept_phase)

    def _in_flight(self) -> int:
        return sum(self._context.in_flight_by_service.values())

    def _close_unused(self) -> bool:
        return self._close_requestless() or self._close_backend(UNUSED) or self._close_idle(used_once=False)

    def _close_recent(self) -> bool:
        """Close a newcomer or an idle client, whichever are more. False if all are in use."""
        newcomers = self._newcomers_count()
        if newcomers > len(self) - newcomers - self._in_flight():
            self._close_newcomer()
            return True
        return self._close_idle(used_once=True)

    def _close_requestless(self) -> bool:
        """Close the oldest client without a request, if it has had time to send one."""
        before = self._context.now - UNUSED
        oldest = next(iter(self.unproven), None)
        if oldest is not None and oldest.opened <= before:
            self._close_unproven(oldest)
            return True
        if self._accept_phase.oldest_deadline > before + self._context.timeouts.handshake:
            return False
        return self._close_pending()

    def _close_newcomer(self) -> None:
        if self.unproven:
            self._close_unproven(next(iter(self.unproven)))
        else:
            self._close_pending()

    def _close_unproven(self, client: ClientConnection) -> None:
        del self.unproven[client]  # it counts as a client until it is closed: the next one closes another
        self._close(client)

    def _close_pending(self) -> bool:
        if not self._accept_phase.yield_one():
            return False
        self._count_closed()
        return True

    def _close(self, client: ClientConnection) -> None:
        self._count_closed()
        client.close()

    def _count_closed(self) -> None:
        self._context.metrics.count(OfProcess.client_errors, "too_many_connections")
        self.closed += 1

    def _close_backend(self, unused: float) -> bool:
        """Close the longest idle backend connection, if it was idle for at least `unused` seconds."""
        idle = [(pool.idle[0].deadline, pool) for pool in self._pools() if pool.idle]
        if not idle:
            return False
        deadline, pool = min(idle, key=lambda each: each[0])
        if deadline > self._context.now + pool.idle[0].timeouts.backend_idle - unused:
            return False
        pool.close_oldest()
        return True

    def _close_idle(self, *, used_once: bool) -> bool:
        """Close the longest idle client, if it was idle for at least `UNUSED`; with `used_once` also one that
        has sent only one request so far. False if there is none, or newcomers have had their share."""
        if self._newcomers_count() > self._most_newcomers:
            return False
        if self._close_found(used_once=used_once):
            return True
        return not self._found and self._look_for_idle() and self._close_found(used_once=used_once)

    def _close_found(self, *, used_once: bool) -> bool:
        """Close the first of the found idle clients that is still idle."""
        idle_time = self._context.timeouts.client_idle
        unused_since = self._context.now - UNUSED
        while self._found:
            client, deadline = self._found[0]
            unused = deadline - idle_time <= unused_since
            if not unused and not used_once:
                return False
            self._found.popleft()
            if client not in self.clients or client.deadline != deadline or not _is_idle(client):
                continue
            events = _events(client)
            if events & _GONE or (not events and (unused or client.requests == 1)):
                self._close(client)
                return True
        return False

    def _look_for_idle(self) -> bool:
        """Find the longest idle clients; False if too many were examined since the last tick."""
        if self._looked_at != self._context.now:
            self._looked_at, self._looked = self._context.now, 0
        if self._looked > MAX_LOOKED:
            return False
        self._looked += len(self.clients)
        idle = [client for client in self.clients if _is_idle(client) and client not in self.unproven]
        self._found.extend(
            (client, client.deadline) for client in nsmallest(FOUND, idle, key=lambda client: client.deadline)
        )
        return bool(idle)


def _is_idle(client: ClientConnection) -> bool:
    return client.phase is IDLE and not client.congested


def _events(client: ClientConnection) -> int:
    """Events of a client's socket that the event loop has not reported yet, such as its next request."""
    poll = select.poll()
    poll.register(client.transport.get_extra_info("socket").fileno(), _READABLE)
    return next((events for _, events in poll.poll(0)), 0)
