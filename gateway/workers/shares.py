"""The token broker of the main process and its client in each worker: what workers share in bounded numbers.

    a worker: BrokerClient               the main process: TokenBroker
    Failed       ->  `Ejections`, as a gateway with one worker has them  ->  HeldBack, to all
    LeaseUse     ->  `LeaseLedger`                                       ->  Leases, to whom they concern
    ClientUse    ->  added up for a moment                               ->  ClientUse, to all others

Runs only while there are worker processes. Leases are sent at the end of an event-loop iteration, since
requests wait for them; the use of clients is collected for a moment. While nothing changes, nothing is sent.
It decides nothing about a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from gateway.core.fleet.backend import Member
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import SnapshotSource
from gateway.dataplane.backends.ejection import Ejections, OnEjection, ReportedFailures
from gateway.dataplane.limits.client_limiter import ClientLimiter
from gateway.dataplane.limits.retry_budget import MIN_CONCURRENT_RETRIES
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.worker import Worker
from gateway.runtime.timer import Timer
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.worker_report import Ejected
from gateway.workers.leases import LeaseLedger
from gateway.workers.messages import AttemptFailed, ClientUse, HeldBack, Leases, LeaseUse

TICK: Final = 0.25
"""Seconds between two checks for ejections that end, and for members that have come or gone."""
EXCHANGE: Final = 0.05
"""Seconds for which workers and then the main process add up what clients use, before they send it."""
FAILURES: Final = 0.01
"""Seconds between two messages about members that have failed."""

CLOSING: Final = 0.005
"""Seconds between two checks for connections that are being closed, whose leases go back."""

Send: TypeAlias = Callable[[object], None]
ByClient: TypeAlias = "dict[str, dict[int, int]]"
"""Numbers of requests in flight, or of rate-limit tokens taken, by service and client key."""


@final
@dataclass(slots=True)
class _Worker:
    """A running worker as the token broker sees it: its use of limits, and what to send to it next."""

    send: Send
    held_back: Mapping[str, int] = field(default_factory=dict)
    """Share of their requests that failing members get, by member key, as this worker knows it."""
    failing: set[str] = field(default_factory=set)
    """Keys of failing members for the next message to this worker."""
    tokens: ByClient = field(default_factory=dict)
    """Number of rate-limit tokens taken in other workers, for the next message to this worker."""
    in_flight_changed: set[tuple[str, int]] = field(default_factory=set)
    """(service, client) pairs whose requests in other workers go into the next message to this worker."""
    in_flight: ByClient = field(default_factory=dict)
    """Number of requests in flight in this worker, by service and client key."""


@final
class TokenBroker:
    """Grants leases, ejects members and adds up what clients use, for `workers` workers, known by slot."""

    def __init__(
        self,
        snapshots: SnapshotSource,
        metrics: Metrics,
        clock: Callable[[], float],
        on_ejection: OnEjection,
        workers: int,
    ) -> None:
        self._snapshots = snapshots
        self._ejections = Ejections(snapshots, metrics, clock, on_ejection)
        self._leases: LeaseLedger = LeaseLedger(workers)
        self._workers: dict[int, _Worker] = {}
        self._numbers: dict[Service, dict[str, int]] = {}
        """Numbers of leases by key, for each configured service."""
        self._views: object = None
        """The service views from which the numbers of leases were taken, to notice new ones."""
        self._tick = Timer()
        self._failures = Timer()
        self._exchange = Timer()
        self._dealing = False

    def joined(self, slot: int, send: Send) -> None:
        """Add a worker that has started, and so shares leases and limits. `send`: sends it a message."""
        worker = self._workers[slot] = _Worker(send)
        self._update_stocks()
        self._leases.joined(slot)
        worker.failing = self._ejections.failing
        for one in self._workers.values():
            worker.in_flight_changed.update(_clients(one.in_flight))
        self._tell_held_back()
        self._deal()
        self._tell_use()
        if not self._tick.is_set:
            self._on_tick()

    def left(self, slot: int) -> None:
        worker = self._workers.pop(slot, None)
        if worker is None:
            return
        self._leases.left(slot)
        for other in self._workers.values():
            other.in_flight_changed.update(_clients(worker.in_flight))
        self._deal_soon()
        self._tell_use_soon()
        if not self._workers:
            for timer in (self._tick, self._failures, self._exchange):
                timer.cancel()

    def received(self, slot: int, message: AttemptFailed | LeaseUse | ClientUse) -> None:
        worker = self._workers.get(slot)
        if worker is None:
            return
        match message:
            case AttemptFailed():
                self._failed(worker, message)
            case LeaseUse():
                if message.wanted.keys() - self._leases.keys:
                    self._update_stocks()
                self._leases.used(slot, message)
                self._deal_soon()
            case ClientUse():
                self._count_use(worker, message)

    @property
    def held_back(self) -> Mapping[str, int]:
        """Share of their requests that failing members get, by member key, as for `selection.select`."""
        return self._ejections.held_back

    def ejected(self) -> Mapping[str, Ejected]:
        return self._ejections.ejected()

    def _failed(self, worker: _Worker, message: AttemptFailed) -> None:
        member = _member(self._snapshots, message.key)
        if member is None or (message.url and member.backend.url != message.url):
            return  # it has been removed, or replaced by another one
        if message.reason is None:
            self._ejections.answered(message.key)
            return
        self._ejections.count(member, message.reason)
        for other in self._workers.values():
            if other is not worker and message.key not in self._ejections.held_back:
                other.failing.add(message.key)
        if not self._failures.is_set:
            self._tell_held_back()
            self._failures.set(FAILURES, self._tell_held_back)

    def _tell_held_back(self) -> None:
        held_back = dict(self._ejections.held_back)
        for worker in self._workers.values():
            if worker.held_back != held_back or worker.failing:
                worker.held_back = held_back
                failing, worker.failing = frozenset(worker.failing), set()
                worker.send(HeldBack(held_back, failing))

    def _on_tick(self) -> None:
        self._tick.set(TICK, self._on_tick)
        self._ejections.tick()
        self._tell_held_back()
        if self._update_stocks():
            self._deal()

    def _update_stocks(self) -> bool:
        """Take the numbers of leases from the current services. Returns whether they may have changed."""
        views = self._snapshots.current.views
        if views is self._views:
            return False
        self._views = views
        before = self._numbers
        self._numbers = {
            view.service: before.get(view.service) or _numbers(view.service) for view in views.values()
        }
        if self._numbers.keys() == before.keys():
            return False
        self._leases.configure({key: one for each in self._numbers.values() for key, one in each.items()})
        return True

    def _deal_soon(self) -> None:
        if not self._dealing:
            self._dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        self._dealing = False
        for slot, leases in self._leases.deal():
            self._workers[slot].send(leases)

    def _count_use(self, worker: _Worker, message: ClientUse) -> None:
        for service, changed in message.in_flight.items():
            mine = worker.in_flight.setdefault(service, {})
            for client, number in changed.items():
                if number:
                    mine[client] = number
                else:
                    mine.pop(client, None)
        for other in self._workers.values():
            if other is not worker:
                other.in_flight_changed.update(_clients(message.in_flight))
                for service, tokens in message.tokens.items():
                    taken = other.tokens.setdefault(service, {})
                    for client, number in tokens.items():
                        taken[client] = taken.get(client, 0) + number
        self._tell_use_soon()

    def _tell_use_soon(self) -> None:
        if not self._exchange.is_set and self._workers:
            self._exchange.set(EXCHANGE, self._tell_use)

    def _tell_use(self) -> None:
        self._exchange.cancel()
        for worker in self._workers.values():
            if worker.tokens or worker.in_flight_changed:
                in_flight: ByClient = {}
                for service, client in worker.in_flight_changed:
                    in_flight.setdefault(service, {})[client] = self._in_flight_elsewhere(
                        worker, service, client
                    )
                worker.in_flight_changed.clear()
                tokens, worker.tokens = worker.tokens, {}
                worker.send(ClientUse(tokens, in_flight))

    def _in_flight_elsewhere(self, worker: _Worker, service: str, client: int) -> int:
        others = (other for other in self._workers.values() if other is not worker)
        return sum(other.in_flight.get(service, {}).get(client, 0) for other in others)


def _numbers(service: Service) -> dict[str, int]:
    """Number of leases by key for a service: one key for its retries, one for each backend with a bound."""
    numbers = {f"{service.name}/{one.name}": one.bound for one in service.backends if one.bound}
    return {service.name: MIN_CONCURRENT_RETRIES, **numbers}


def _member(snapshots: SnapshotSource, key: str) -> Member | None:
    service, _, backend = key.partition("/")
    members = snapshots.current.fleet.member_sets.get(service)
    return None if members is None else members.member(backend)


def _clients(by_client: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    return ((service, client) for service, clients in by_client.items() for client in clients)


@final
class BrokerClient:
    """The client of the token broker, in a worker process. `send`: sends to the main process."""

    def __init__(self, shared: SharedLimits, worker: Worker, send: Callable[[object], None]) -> None:
        self._shared = shared
        self._worker = worker
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._heard = 0
        """Number of the last `Leases` message that is in force in this worker."""
        self._answered = 0
        """Number of the last `Leases` message that this worker has answered with a `LeaseUse`."""
        self._wanted: dict[str, int] = {}
        """Number of requests waiting for a lease, by key, as the main process knows it; -1: not certain."""
        self._in_flight: dict[str, tuple[ClientLimiter, set[int]]] = {}
        """Limiter of each service, and its clients with requests in flight as the main process knows them."""
        self._leases_due = self._use_due = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        shared.on_leases = self._leases_soon
        shared.on_use = self._use_soon
        shared.on_failure = lambda key, url, reason: self._send(AttemptFailed(key, url, reason))

    def close(self) -> None:
        """Send nothing more to the main process. Leases and limits in force stay so."""
        self._leases_due = self._use_due = True
        self._send = lambda message: None
        for timer in self._timers.values():
            timer.cancel()

    def received(self, message: HeldBack | Leases | ClientUse) -> None:
        match message:
            case HeldBack():
                failures = self._worker.context.ejections
                assert isinstance(failures, ReportedFailures)
                failures.put_in_force(message.held_back, message.failing)
            case Leases():
                self._take_leases(message)
            case ClientUse():
                self._take_use(message)

    def _take_use(self, message: ClientUse) -> None:
        limiters = self._limiters()
        now = self._worker.context.clock()
        for service, tokens in message.tokens.items():
            if (limiter := limiters.get(service)) is not None:
                limiter.take_elsewhere(tokens, now)
        for service, in_flight in message.in_flight.items():
            if (limiter := limiters.get(service)) is not None:
                limiter.count_elsewhere(in_flight)

    def _limiters(self) -> Mapping[str, ClientLimiter]:
        """The client limiters of the services in force, made together with the request reader if need be."""
        context = self._worker.context
        context.request_reader(trusted=False)
        return context.admission.limiters

    def _take_leases(self, leases: Leases) -> None:
        shared, context = self._shared, self._worker.context
        for key, number in leases.granted.items():
            shared.leases[key] = shared.leases.get(key, 0) + number
            self._wanted[key] = -1
        shared.recalled, shared.exhausted = leases.recalled, leases.exhausted
        self._heard = leases.number
        context.retry_budget.admit()
        context.request_queue.leases_changed()
        self._leases_soon()

    def _leases_soon(self) -> None:
        if not self._leases_due:
            self._leases_due = True
            self._loop.call_soon(self._tell_leases)

    def _tell_leases(self) -> None:
        self._leases_due = False
        context, shared = self._worker.context, self._shared
        for key in shared.recalled:
            shared.give_idle(key, self._used(key))
        wanted = {**context.request_queue.leases_wanted(), **context.retry_budget.leases_wanted()}
        changed = {
            key: wanted.get(key, 0)
            for key in self._wanted.keys() | wanted.keys()
            if wanted.get(key, 0) != self._wanted.get(key, 0)
        }
        released = self._released()
        if changed or released or self._heard != self._answered:
            self._wanted = wanted
            self._answered = self._heard
            self._send(LeaseUse(self._heard, released, changed))

    def _used(self, key: str) -> int:
        context = self._worker.context
        if "/" in key:
            return context.in_flight_by_member.get(key, 0)
        return context.retry_budget.leases_used(key)

    def _released(self) -> dict[str, int]:
        """Number of leases to return now, by key. For a member with `max_connections`, a lease is returned
        only when this worker has one connection less."""
        shared, released = self._shared, dict(self._shared.released)
        for key in tuple(released):
            member = _member(self._worker.context.snapshots, key)
            if member is not None and member.backend.max_connections:
                leased = shared.leases.get(key, 0)
                released[key] -= max(0, self._worker.trim(member, leased) - leased)
            shared.released[key] -= max(0, released[key])
            if not shared.released[key]:
                del shared.released[key]
        if shared.released:
            self._timers["closing"] = self._loop.call_later(CLOSING, self._leases_soon)
        return {key: number for key, number in released.items() if number > 0}

    def _use_soon(self) -> None:
        if not self._use_due:
            self._use_due = True
            self._timers["use"] = self._loop.call_later(EXCHANGE, self._tell_use)

    def _tell_use(self) -> None:
        self._use_due = False
        limiters = self._limiters()
        tokens: ByClient = {}
        in_flight: ByClient = {}
        for service, (limiter, clients) in tuple(self._in_flight.items()):
            if limiters.get(service) is not limiter:  # a reload has forgotten all that was counted
                in_flight[service] = dict.fromkeys(clients, 0)
                del self._in_flight[service]
        for service, limiter in limiters.items():
            if taken := limiter.collect_tokens():
                tokens[service] = taken
            if changed := limiter.collect_in_flight():
                in_flight.setdefault(service, {}).update(changed)
                _, clients = self._in_flight.setdefault(service, (limiter, set()))
                clients.update(client for client, number in changed.items() if number)
                clients.difference_update(client for client, number in changed.items() if not number)
        if tokens or in_flight:
            self._send(ClientUse(tokens, in_flight))
