"""The retry budget: how many retried requests of a service may be in flight at the same time.

A backend that dies or hangs leaves many requests at once. All sent again together, they would overload the
other backends. So at most a fifth of a service's requests in flight, but at least 3, may be retried at the
same time (threats R4); of several workers each goes by its own, and the 3 are leased (`sharing`). The others
wait in order, and are given up when their time is over. Requests of which nothing was sent do not count.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gateway.dataplane.local_responses.failures import Failure

if TYPE_CHECKING:
    from gateway.dataplane.limits.sharing import SharedLimits

IN_FLIGHT_PER_RETRY: Final = 5
"""Number of a service's requests in flight for each retry that it may have at the same time."""
MIN_CONCURRENT_RETRIES: Final = 3
"""Retries at a time that every service may have, however few its requests in flight."""

MAX_QUEUED: Final = 300.0
"""Maximum seconds that a request waits for its retry, if `timeouts.backend_head` is longer or off."""


class RetryableRequest(Protocol):
    """A request that can wait until it may be sent again."""

    def on_retry_allowed(self, failure: Failure) -> None:
        """Send the request again. It is counted until `RetryBudget.release`."""

    def on_retry_expired(self, failure: Failure) -> None:
        """Fail the request: it has waited too long for its retry."""


class _QueuedRetry(NamedTuple):
    failure: Failure
    until: float


@final
class RetryBudget:
    """Retries of one worker, counted by service. `in_flight`: requests in flight by service."""

    def __init__(self, in_flight: Mapping[str, int], shared: SharedLimits | None = None) -> None:
        self._in_flight = in_flight
        self._shared = shared
        self._active: defaultdict[str, int] = defaultdict(int)
        self._queues: defaultdict[str, dict[RetryableRequest, _QueuedRetry]] = defaultdict(dict)

    def acquire(self, service: str) -> bool:
        """Count one more retry if it is within the budget; False if it is not."""
        shared = self._shared
        floor = MIN_CONCURRENT_RETRIES if shared is None else shared.leases.get(service, 0)
        if self._active[service] >= max(floor, self._in_flight.get(service, 0) // IN_FLIGHT_PER_RETRY):
            return False
        self._active[service] += 1
        return True

    def release(self, service: str) -> None:
        """Note that a retry has ended. The next one begins in the next loop iteration, not in this call."""
        self._active[service] -= 1
        if self._shared is not None and service in self._shared.recalled:
            self._shared.give_turn(service, self.leases_used(service))
            self._shared.on_leases()
        if self._queues[service]:
            asyncio.get_running_loop().call_soon(self._admit, service)

    def enqueue(self, service: str, request: RetryableRequest, failure: Failure, until: float) -> None:
        """Queue a request until it may be sent again. `until`: seconds, on the clock of `expire`."""
        self._queues[service][request] = _QueuedRetry(failure, until)
        if self._shared is not None:
            self._shared.on_leases()

    def cancel(self, service: str, request: RetryableRequest) -> None:
        """Remove a request whose client has gone from the queue, with the body that it holds."""
        self._queues[service].pop(request, None)

    def expire(self, now: float) -> None:
        """Fail waiting requests whose time is over. Admit others: more requests may be in flight by now."""
        for service in tuple(self._queues):
            queue = self._queues[service]
            while queue and queue[first := next(iter(queue))].until <= now:
                first.on_retry_expired(queue.pop(first).failure)
            self._admit(service)

    # -- where several workers share the floor

    def leases_used(self, service: str) -> int:
        """Number of leases that the retries of a service need at this moment."""
        active = self._active.get(service, 0)
        return active if active > self._in_flight.get(service, 0) // IN_FLIGHT_PER_RETRY else 0

    def leases_wanted(self) -> dict[str, int]:
        """Number of retries that wait for a lease, by service."""
        return {service: len(queue) for service, queue in self._queues.items() if queue}

    def admit(self) -> None:
        """Admit waiting retries: there are more leases than before."""
        for service in tuple(self._queues):
            self._admit(service)

    def _admit(self, service: str) -> None:
        queue = self._queues[service]
        while queue and self.acquire(service):
            first = next(iter(queue))
            first.on_retry_allowed(queue.pop(first).failure)
