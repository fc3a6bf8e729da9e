"""How many requests that may have been executed are sent again at the same time; the others wait their turn.

A backend that dies or hangs takes many requests along at once. Sent again all together they would fall on the
backends that are left, so only a fifth of a service's requests in flight, at least 3, may be under way a
second time (hardening, Retries); whoever is not let in before its time is up is given up. Requests of which
nothing was sent never come here. Sends nothing itself.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, final

from gateway.dataplane.failures import Failure

SHARE: Final = 5
"""One in so many requests in flight."""
FEWEST: Final = 3


class Retried(Protocol):
    """A request that waits to be sent again."""

    def on_turn(self, failure: Failure) -> None:
        """It may be sent again, and is counted until `RetryBudget.give_back`."""

    def on_turn_missed(self, failure: Failure) -> None:
        """Its time is up."""


class _Waiting(NamedTuple):
    failure: Failure
    until: float


@final
class RetryBudget:
    """One a worker; counts by service. `in_flight`: requests in flight by service."""

    def __init__(self, in_flight: Mapping[str, int]) -> None:
        self._in_flight = in_flight
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self._waiting: defaultdict[str, dict[Retried, _Waiting]] = defaultdict(dict)
        """By service, in the order in which they came."""

    def take(self, service: str) -> bool:
        """Whether one more may be sent again now; it is counted if so."""
        if self._under_way[service] >= max(FEWEST, self._in_flight.get(service, 0) // SHARE):
            return False
        self._under_way[service] += 1
        return True

    def give_back(self, service: str) -> None:
        """One has ended. Who waits is let in by the loop's next turn, not from within the end of another."""
        self._under_way[service] -= 1
        if self._waiting[service]:
            asyncio.get_running_loop().call_soon(self._let_in, service)

    def wait(self, service: str, request: Retried, failure: Failure, until: float) -> None:
        """Let it in when it is its turn, or give it up after `until`, seconds as `expire` is told them."""
        self._waiting[service][request] = _Waiting(failure, until)

    def leave(self, service: str, request: Retried) -> None:
        """Its client has gone; what is held of it must not wait on."""
        self._waiting[service].pop(request, None)

    def expire(self, now: float) -> None:
        """Give up those whose time is up; and let in whom the share of more requests in flight has room
        for."""
        for service in tuple(self._waiting):
            queue = self._waiting[service]
            while queue and queue[first := next(iter(queue))].until <= now:
                first.on_turn_missed(queue.pop(first).failure)
            self._let_in(service)

    def idle(self) -> bool:
        """Nobody is under way again, and nobody waits."""
        return not any(self._under_way.values()) and not any(self._waiting.values())

    def _let_in(self, service: str) -> None:
        queue = self._waiting[service]
        while queue and self.take(service):
            first = next(iter(queue))
            first.on_turn(queue.pop(first).failure)
