"""What all workers share, on the side of one worker: tells the parent what is used here, and puts in force
what it answers (`share_keeper`).

Permits are told of at the end of the turn of the event loop, since requests wait for them; what clients use
is collected for a moment. While nothing of it changes nothing is sent. Decides nothing about a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, final

from gateway.core.fleet.backend import Member
from gateway.core.fleet.failures import EjectionReason
from gateway.dataplane.backends.ejection import ReportedFailures
from gateway.dataplane.limits.client_limiter import ClientLimiter
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.worker import Worker
from gateway.workers.messages import ClientUse, Failed, HeldBack, Permits, PermitUse
from gateway.workers.share_keeper import EXCHANGE, ByClient

CLOSING: Final = 0.005
"""Seconds between two looks at connections that are being closed, whose permits go back."""


@final
class ShareClient:
    """`worker` was made with `shared`, and runs in the current event loop. `send`: to the parent."""

    def __init__(self, shared: SharedLimits, worker: Worker, send: Callable[[object], None]) -> None:
        self._shared = shared
        self._worker = worker
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._heard = 0
        """The number of the last `Permits` that is in force."""
        self._answered = 0
        self._wanted: dict[str, int] = {}
        """As the parent knows it, as far as that is certain."""
        self._in_flight: dict[str, tuple[ClientLimiter, set[int]]] = {}
        """By service: clients that have requests in flight, as the parent knows it."""
        self._permits_due = self._use_due = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        shared.on_permits = self._permits_soon
        shared.on_use = self._use_soon
        shared.on_failure = self._tell_failure

    def close(self) -> None:
        """Tell nothing more. What is in force stays so."""
        self._permits_due = self._use_due = True
        self._send = _nobody
        for timer in self._timers.values():
            timer.cancel()

    def received(self, message: HeldBack | Permits | ClientUse) -> None:
        """Put in force what the parent has said."""
        match message:
            case HeldBack():
                failures = self._worker.context.ejections
                assert isinstance(failures, ReportedFailures)
                failures.put_in_force(message.held_back, message.failing)
            case Permits():
                self._take_permits(message)
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
        """Of the services in force: they are made with what reads the next head."""
        context = self._worker.context
        context.request_reader(trusted=False)
        return context.admission.limiters()

    # --- failures

    def _tell_failure(self, key: str, url: str, reason: EjectionReason | None) -> None:
        self._send(Failed(key, url, reason))

    # --- permits

    def _take_permits(self, permits: Permits) -> None:
        shared, context = self._shared, self._worker.context
        for key, number in permits.lent.items():
            shared.lent[key] = shared.lent.get(key, 0) + number
            self._wanted[key] = -1  # what the parent thinks of it depends on what it has heard
        shared.returns, shared.taken = permits.returns, permits.taken
        self._heard = permits.number
        context.retry_budget.admit()
        context.request_queue.permits_came()
        self._permits_soon()

    def _permits_soon(self) -> None:
        if not self._permits_due:
            self._permits_due = True
            self._loop.call_soon(self._tell_permits)

    def _tell_permits(self) -> None:
        self._permits_due = False
        context, shared = self._worker.context, self._shared
        for key in shared.returns:
            shared.give_idle(key, self._used(key))
        wanted = {**context.request_queue.permits_wanted(), **context.retry_budget.permits_wanted()}
        changed = {
            key: wanted.get(key, 0)
            for key in self._wanted.keys() | wanted.keys()
            if wanted.get(key, 0) != self._wanted.get(key, 0)
        }
        freed = self._freed()
        if changed or freed or self._heard != self._answered:
            self._wanted = wanted
            self._answered = self._heard
            self._send(PermitUse(self._heard, freed, changed))

    def _used(self, key: str) -> int:
        context = self._worker.context
        if "/" in key:
            return context.in_flight_by_member.get(key, 0)
        return context.retry_budget.permits_used(key)

    def _freed(self) -> dict[str, int]:
        """Permits that go back now. One for a member that takes only so many connections does so when this
        worker has one connection less."""
        shared, freed = self._shared, dict(self._shared.freed)
        for key in tuple(freed):
            member = self._member(key)
            if member is not None and member.backend.max_connections:
                lent = shared.lent.get(key, 0)
                freed[key] -= max(0, self._worker.trim(member, lent) - lent)
            shared.freed[key] -= max(0, freed[key])
            if not shared.freed[key]:
                del shared.freed[key]
        if shared.freed:
            self._timers["closing"] = self._loop.call_later(CLOSING, self._permits_soon)
        return {key: number for key, number in freed.items() if number > 0}

    def _member(self, key: str) -> Member | None:
        service, _, backend = key.partition("/")
        pool = self._worker.context.snapshots.current.fleet.pools.get(service)
        return None if pool is None else pool.member(backend)

    # --- what clients use

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


def _nobody(_message: object) -> None:
    """The parent is gone."""
