"""One worker of the data plane: its listeners, its connections, its coarse clock, and its shutdown.

It accepts clients and owns the connection pools of its event loop. Requests are served by `client_connection`
and `exchange`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Final, final

from gateway.core.fleet.backend import Member
from gateway.dataplane.backends.pool import Resolve
from gateway.dataplane.backends.pools import ConnectionPools
from gateway.dataplane.context import NEVER, TICK, Context
from gateway.dataplane.edge.accept_phase import AcceptPhase, ListenerFilter, PendingConnection
from gateway.dataplane.edge.balance import Balance
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.edge.client_room import ClientRoom
from gateway.dataplane.edge.listeners import Listeners
from gateway.dataplane.edge.phases import IDLE
from gateway.errors import FramingError, StartupError
from gateway.settings.sections.listen import Listen
from gateway.telemetry.series.process import OfProcess
from gateway.telemetry.series.service import TunnelEnding
from gateway.telemetry.worker_report import WorkerReport, WorkerUse
from gateway.tls.server import ServerCertificates

log = logging.getLogger("skewgate.worker")

LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about connections closed to make room."""
VERY_LATE: Final = 2 * TICK
"""Seconds of delay of a tick beyond which the process must have been stopped or blocked."""
IDLE_GRACE: Final = 2.0
"""Seconds for which idle client connections stay open while the gateway drains. A request that is on its way
then gets a response with `Connection: close`, not a closed connection (threats E1)."""
CUT: Final = 0.5
"""Seconds to wait until the event loop has reported all aborted connections as lost."""


@final
class Worker:
    """Data plane of one event loop: serves clients on its listeners."""

    def __init__(self, context: Context, resolve: Resolve, name: str = "0") -> None:
        self.name = name
        self.context = context
        context.held_bodies.on_full = self._bound_reads
        self._shed_connections = 0
        """Number of connections shed before a request since the last log line about it."""
        self._room_logged_at = self._shed_logged_at = float("-inf")
        self._listeners = Listeners()
        self.accept_phase = AcceptPhase(context.limits.handshakes)
        """Client connections that have not reached HTTP yet."""
        self._serving = self._aborted = False
        """Two flags: whether the worker has listened on every address; whether it has closed everything."""
        self._room = ClientRoom(self.context, self.accept_phase, lambda: self.pools.all())  # noqa: PLW0108 - set next
        self.pools = ConnectionPools(context, resolve, self._room)
        self._clients = self._room.clients
        self._released_from: object = None
        """Views of the snapshot whose removed backends and services are released already."""
        self._balance: Balance | None = None
        self._expires_at = NEVER  # wall-clock seconds: no certificate of a client expires before
        self._no_clients = asyncio.Event()
        self._next_tick: asyncio.TimerHandle | None = None

    # -- lifetime

    async def listen(
        self,
        sockets: Iterable[tuple[Listen, socket.socket]],
        certificates: Mapping[Listen, ServerCertificates] | None = None,
        balance: Balance | None = None,
    ) -> None:
        """Accept clients on these bound sockets, which stay the caller's; also again after `stop_accepting`.
        `certificates`: for the addresses with TLS. `balance`: with other workers that listen on the same
        addresses in the same order. Raises `StartupError` if it cannot listen on one; then it listens on
        none."""
        loop, found = asyncio.get_running_loop(), certificates or {}
        filters = [(ListenerFilter(self, address, found.get(address)), sock) for address, sock in sockets]
        if balance is not None:
            self._balance = balance
            order = list(dict.fromkeys(id(listener.listen) for listener, _ in filters))
            for listener, _ in filters:
                listener.balance, listener.position = balance, order.index(id(listener.listen))
            balance.start({listener.position: listener.protocol for listener, _ in filters})
        addresses = [listener.listen for listener, _ in filters]
        assert all(address.tls is None or address in found for address in addresses)
        self.context.writes_client_cert = any(
            address.tls is not None and address.tls.forward_client_cert for address in addresses
        )
        self.context.draining = False
        if self._next_tick is None:
            self._tick(loop, loop.time() + TICK)
        try:
            for listener, sock in filters:
                await self._listeners.open(listener, sock)
        except StartupError:
            await self.abort()
            raise
        self._serving = True

    @property
    def not_serving(self) -> str:
        """Sentence why the worker accepts no client now; empty if it accepts them."""
        if self.context.draining:
            return "the gateway is shutting down"
        return "" if self._serving else "the gateway is starting: it does not listen yet"

    async def stop_accepting(self) -> None:
        """Accept no more clients: new ones wait in the sockets while any process has these open. Accepted
        clients are served, with `Connection: close`. `listen` takes it back."""
        if not self.context.draining:
            self.context.draining = True
            if self._balance is not None:
                self._balance.stop()
            await self._listeners.stop()

    async def drain(self, seconds: float) -> None:
        """Accept no more clients, let requests finish within `seconds`, then close all connections."""
        await self.stop_accepting()
        if self._balance is not None:
            self._balance.take()
        idle_until = monotonic() + min(IDLE_GRACE, seconds)
        end = monotonic() + seconds
        while (self._clients or self.accept_phase) and (now := monotonic()) < end:
            if now >= idle_until:
                self.accept_phase.close()
                for client in [one for one in self._clients if one.phase is IDLE]:
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
        """Close all listeners and connections at once, and return when the cut requests are recorded."""
        if self._next_tick is not None:
            self._next_tick.cancel()
        self._aborted = True
        if self._balance is not None:
            self._balance.close()
        self._listeners.close()
        self.accept_phase.close()
        for tunnel in tuple(self.context.tunnels):
            tunnel.cut(TunnelEnding.DRAINED)
        for client in tuple(self._clients):
            client.transport.abort()
        for pool in self.pools.all():
            pool.abort()
        await self._listeners.wait_closed()
        # A request ends when the loop reports its connection as lost, an iteration or two later. Its record
        # must be written before the caller stops.
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT):
                while self._clients:
                    self._no_clients.clear()
                    await self._no_clients.wait()

    # -- clients

    def client_connected(self, client: ClientConnection) -> None:
        """Serve a new client if there is room for it (`client_room`)."""
        self._room.add(client)
        self._expires_at = min(self._expires_at, client.peer.expires_at)
        if self._aborted:
            client.close()
            return
        if self._sheds_connection():
            client.refuse(FramingError("overload", 503))
            client.close()
            return
        if self.context.held_bodies.was_full:
            client.bound_reads()
        self._room.make_room_for_newcomer()

    def _sheds_connection(self) -> bool:
        """Whether a new connection is refused because the loop is late; counts it."""
        refuses = self.context.admission.refuses_connections
        if refuses:
            self._shed_connections += 1
            self.context.admission.shedder.connection_refused()
        return refuses

    def accept_phase_began(self, pending: PendingConnection) -> None:
        """Count a connection that has not reached HTTP like a client: it needs the same file descriptors."""
        self.accept_phase.add(pending)
        if self._aborted:
            pending.refuse("closed")
        elif self._sheds_connection():
            self.context.metrics.count(OfProcess.client_errors, "overload")
            pending.refuse("closed")
        else:
            self._room.make_room_for_newcomer()

    def accept_phase_ended(self, pending: PendingConnection) -> None:
        self.accept_phase.removed(pending)
        if not self._clients and not self.accept_phase:
            self._no_clients.set()

    def client_proven(self, client: ClientConnection) -> None:
        self._room.prove(client)

    def _bound_reads(self) -> None:
        """Read all clients in small pieces: held bodies have reached their total (threats R-B13), and the
        event loop may be about to read from a thousand clients. Costs 5 µs a client (15 on asyncio's loop),
        once in its life."""
        for client in self._clients:
            client.bound_reads()

    def _shed(self, late: float, now: float) -> None:
        """Adjust load shedding to the lag of the loop, and log it at most once in `LOG_INTERVAL`."""
        admission = self.context.admission
        admission.observe_lag(late, now)
        if (admission.shed or self._shed_connections) and now >= self._shed_logged_at + LOG_INTERVAL:
            log.warning(
                "the event loop is %d ms late: %d requests and %d new connections were refused with 503 "
                "(limits.shed_lag)",
                admission.shedder.lag * 1000,
                admission.shed,
                self._shed_connections,
            )
            admission.shed, self._shed_connections, self._shed_logged_at = 0, 0, now

    def client_disconnected(self, client: ClientConnection) -> None:
        self._room.remove(client)
        if not self._clients:
            self._no_clients.set()

    # -- backends

    def trim(self, member: Member, most: int) -> int:
        """Close unused connections to the member until at most `most` are left; returns how many are open."""
        pool = self.pools.by_key.get(member.key)
        return 0 if pool is None else pool.trim(most)

    # -- the coarse clock

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late = max(0.0, loop.time() - due)
        self._next_tick = loop.call_later(TICK, self._tick, loop, loop.time() + TICK)
        if self.context.usage is not None:
            self.context.usage.tick()
        self.check_deadlines(late)

    def check_deadlines(self, late: float = 0.0) -> None:
        """Set the coarse clocks of `Context`, and handle everything that has reached its deadline. `late`:
        seconds by which the tick was late, which is the lag of the event loop.

        After a very late tick (the process was stopped, or something blocked the loop) no deadline is
        enforced: what peers have sent meanwhile is read first, and the next tick checks again.
        """
        before, now = self.context.now, self.context.clock()
        self.context.now, self.context.wall_time = now, self.context.wall_clock()
        self.context.rate_limiter.refill(now - before)
        self.context.metrics.observe(OfProcess.event_loop_lag_seconds, late, self.name)
        self._shed(late, now)
        if self._balance is not None:
            self._balance.tell()
        if late > VERY_LATE:
            return
        if self.accept_phase:
            self.accept_phase.on_tick(now)
        for client in [client for client in self._clients if client.deadline <= now]:
            if client.deadline <= now:  # the deadline of another client may have begun a request here
                client.on_deadline()
        for tunnel in [tunnel for tunnel in self.context.tunnels if tunnel.deadline <= now]:
            tunnel.on_deadline()
        if self._expires_at < NEVER:
            self._end_expired(self.context.wall_time)
        self.context.ejections.tick()
        self.context.retry_budget.expire(now)
        self.context.request_queue.expire()
        self.context.request_layouts.refill()
        self.context.response_layouts.refill()
        self.context.held_bodies.tick()
        self._release_removed()
        if self._room.closed and now >= self._room_logged_at + LOG_INTERVAL:
            log.warning(
                "%d client connections were closed to make room for others: at most %d are kept "
                "(limits.connections, by default from the limit of open files)",
                self._room.closed,
                self._room.most,
            )
            self._room.closed, self._room_logged_at = 0, now
        for pool in self.pools.all():
            for connection in [conn for conn in pool.connections if conn.deadline <= now]:
                if connection.deadline <= now:
                    connection.on_deadline()

    def _end_expired(self, now: float) -> None:
        """End tunnels and idle connections of clients whose certificates have expired. A client with a
        request in flight is checked again with each tick: the request may become a tunnel."""
        if now < self._expires_at:
            return
        for tunnel in [tunnel for tunnel in self.context.tunnels if tunnel.expires_at <= now]:
            tunnel.cut(TunnelEnding.CERTIFICATE_EXPIRED)
        for client in [client for client in self._clients if client.peer.expires_at <= now]:
            client.on_expired()
        self._expires_at = min((client.peer.expires_at for client in self._clients), default=NEVER)

    def _release_removed(self) -> None:
        """Close the pools of removed backends, and idle connections to drained and leaving ones. Drop the
        counts of removed backends and services once they are zero."""
        snapshot, context = self.context.snapshots.current, self.context
        if snapshot.views is self._released_from:
            return
        members = {one.key: one for each in snapshot.fleet.member_sets.values() for one in each.all}
        pools = self.pools.by_key
        for key in pools.keys() - members.keys():
            self.pools.retire(key)
        drained = [pool for key, pool in pools.items() if members[key].drained or members[key].absent]
        for pool in drained:  # it is about to be stopped; open connections would delay that
            pool.close_idle()
        removed = [
            (counts, name)
            for counts, configured in (
                (context.in_flight_by_member, members.keys()),
                (context.in_flight_by_service, snapshot.views.keys()),
            )
            for name in counts.keys() - configured
        ]
        for counts, name in removed:
            if not counts[name]:
                del counts[name]
        if not any(pool.connections for pool in drained) and not any(
            name in counts for counts, name in removed
        ):
            self._released_from = snapshot.views

    # -- for metrics and the admin listener

    def report(self) -> WorkerReport:
        """Present values of this worker's gauges, for metrics and the admin listener."""
        context = self.context
        return WorkerReport(
            in_flight_by_member=dict(context.in_flight_by_member),
            in_flight_by_service=dict(context.in_flight_by_service),
            waiting_by_member=dict(context.request_queue.waiting_by_member),
            connections={(one.service, one.backend.name): one.counts() for one in self.pools.by_key.values()},
            tunnels_open=dict(Counter(tunnel.service for tunnel in context.tunnels)),
            ejected=context.ejections.ejected(),
            use={
                self.name: WorkerUse(
                    clients=self.number_of_clients(),
                    max_clients=self._room.most,
                    handshakes=self.accept_phase.active,
                    max_handshakes=context.limits.handshakes,
                    held_body_bytes=context.held_bodies.size,
                    max_held_body_bytes=context.limits.replay_total,
                    shedding_level=context.admission.shedder.level,
                )
            },
        )

    def number_of_clients(self) -> int:
        """Number of this worker's client connections, those before HTTP included."""
        return len(self._room)
