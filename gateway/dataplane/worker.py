"""One data-plane process: its listeners, its connections, its clock, and how it ends.

Accepts; everything about a request is `downstream` and `proxy`. Owns the backend pools of its loop.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final, final

from gateway.core.backend import Member
from gateway.core.fleet import Fact
from gateway.core.snapshot import SnapshotSource
from gateway.dataplane.context import TICK, Context, Network
from gateway.dataplane.downstream import ClientConnection
from gateway.dataplane.upstream import BackendPool
from gateway.errors import StartupError
from gateway.settings.model import Limits, Timeouts
from gateway.settings.values import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.outcome import Outcome

log = logging.getLogger("skewgate.worker")

BACKLOG: Final = 1024
DESCRIPTOR_RESERVE: Final = 64
FEWEST_CLIENTS: Final = 16
MOST_CLIENTS: Final = 100_000
IDLE_GRACE: Final = 2.0
"""Seconds that an idle client connection is kept while draining, so that its next request, if one is under
way, is answered with `Connection: close` instead of meeting a closed connection (hardening, finding 9)."""


def admission_limit() -> int:
    """Client connections that the process's descriptors allow: every one may need another to a backend, and a
    reserve is kept for the admin listener, probes and files (hardening, DNS, descriptors …)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CLIENTS
    return max(FEWEST_CLIENTS, min(MOST_CLIENTS, (soft - DESCRIPTOR_RESERVE) // 2))


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
        observe: Callable[[str, str, Fact], None],
        metrics: Metrics,
        record: Callable[[Outcome], None],
        name: str = "0",
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
        )
        self.context.now = monotonic()
        self._most_clients = limits.connections or admission_limit()
        self._servers: list[asyncio.Server] = []
        self._clients: set[ClientConnection] = set()
        self._pools: dict[str, BackendPool] = {}
        self._retired: list[BackendPool] = []
        self._emptied = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None

    # -- life

    async def start(self, listen: Sequence[Listen]) -> None:
        """Listen on every address. Raises `StartupError` when one cannot be had; then none is kept."""
        loop = asyncio.get_running_loop()
        for each in listen:
            try:
                server = await loop.create_server(
                    lambda: ClientConnection(self), each.host, each.port, backlog=BACKLOG
                )
            except OSError as error:
                await self.abort()
                raise StartupError(
                    f"cannot listen on {each.host}:{each.port}: {error.strerror or error}"
                ) from error
            self._servers.append(server)
        self._tick(loop, loop.time() + TICK)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """What is really listened on."""
        names = (sock.getsockname() for server in self._servers for sock in server.sockets)
        return tuple((str(name[0]), int(name[1])) for name in names)

    @property
    def draining(self) -> bool:
        return self.context.draining

    async def drain(self, seconds: float) -> None:
        """Accept no more, let every request finish within `seconds`, tell every client to go, then close."""
        self.context.draining = True
        for server in self._servers:
            server.close()
        idle_until = monotonic() + min(IDLE_GRACE, seconds)
        end = monotonic() + seconds
        while self._clients and (now := monotonic()) < end:
            if now >= idle_until:
                for client in [each for each in self._clients if each.idle]:
                    client.close()
            self._emptied.clear()
            pause = min(end, idle_until if now < idle_until else now + TICK) - now
            try:
                async with asyncio.timeout(max(pause, 0.01)):
                    await self._emptied.wait()
            except TimeoutError:
                continue
        if self._clients:
            log.warning("%d client connections were cut at the end of the drain time", len(self._clients))
        await self.abort()

    async def abort(self) -> None:
        """Close everything at once."""
        if self._ticking is not None:
            self._ticking.cancel()
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

    def welcome(self, client: ClientConnection) -> None:
        """A client has connected. Over the limit the one that has been idle longest makes room, or the new
        one goes."""
        self._clients.add(client)
        if len(self._clients) > self._most_clients:
            self.context.metrics.client_error("too_many_connections")
            idle = [each for each in self._clients if each.idle and each is not client]
            (min(idle, key=lambda each: each.deadline) if idle else client).close()

    def farewell(self, client: ClientConnection) -> None:
        """A client's connection is closed."""
        self._clients.discard(client)
        if not self._clients:
            self._emptied.set()

    # -- backends

    def pool(self, member: Member) -> BackendPool:
        """The connections to this member; new ones after its address changed."""
        pool = self._pools.get(member.key)
        if pool is None or (pool.backend is not member.backend and pool.backend != member.backend):
            if pool is not None:
                self._retire(pool)
            pool = self._pools[member.key] = BackendPool(self.context, member.service, member.backend)
        return pool

    def _retire(self, pool: BackendPool) -> None:
        pool.close()
        self._retired = [each for each in self._retired if each.connections]
        self._retired.append(pool)

    # -- the coarse clock

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Look at every deadline; and, since a tick that comes late was kept waiting, at the loop's lag."""
        before, now = self.context.now, monotonic()
        self.context.now = now
        self.context.meter.refill(now - before)
        self.context.metrics.lag(self.name, max(0.0, loop.time() - due))
        for client in [each for each in self._clients if each.deadline <= now]:
            client.on_deadline()
        self.context.budget.expire(now)
        self._forget_removed()
        for pool in (*self._pools.values(), *self._retired):
            for connection in [each for each in pool.connections if each.deadline <= now]:
                connection.on_deadline()
        self._ticking = loop.call_later(TICK, self._tick, loop, loop.time() + TICK)

    def _forget_removed(self) -> None:
        """Close the pools of backends that are no longer configured, and what is idle of drained ones; counts
        go when they are back at zero."""
        snapshot, context = self.context.snapshots.current, self.context
        members = {member.key: member for pool in snapshot.fleet.pools.values() for member in pool.members}
        configured = members.keys()
        for key in self._pools.keys() - configured:
            self._retire(self._pools.pop(key))
        for key, pool in self._pools.items():
            if members[key].drained:  # an operator is about to stop it: nothing of ours is to hold it up
                pool.close_idle()
        for key in [key for key, load in context.load.items() if not load and key not in configured]:
            del context.load[key]
        for name in [
            name for name, count in context.in_flight.items() if not count and name not in snapshot.views
        ]:
            del context.in_flight[name]

    # -- for those who look from outside

    @property
    def load(self) -> Mapping[str, int]:
        """Requests in flight by member key."""
        return self.context.load

    def in_flight(self) -> Mapping[str, int]:
        """Requests in flight by service."""
        return self.context.in_flight

    def connections(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Idle and active backend connections by service and backend."""
        counts = {}
        for key, pool in self._pools.items():
            service, _, backend = key.partition("/")
            counts[service, backend] = pool.counts()
        return counts
