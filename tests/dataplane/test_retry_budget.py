"""The retry budget: a share of the requests in flight by service, a minimum, and the queue of the others."""

from __future__ import annotations

import asyncio
import weakref
from collections import defaultdict

import pytest

from gateway.dataplane.limits.retry_budget import MIN_CONCURRENT_RETRIES, RetryBudget
from gateway.dataplane.local_responses.failures import Failure
from tests.kit.workers import is_idle


class FakeRequest:
    """A request that notes which of its callbacks are called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_retry_allowed(self, failure: Failure) -> None:
        self.calls.append(f"allowed after {failure}")

    def on_retry_expired(self, failure: Failure) -> None:
        self.calls.append(f"expired after {failure}")


def exhausted_budget(service: str = "a") -> RetryBudget:
    """A budget with nothing in flight and as many retries as it allows."""
    budget = RetryBudget(defaultdict(int))
    while budget.acquire(service):
        pass
    return budget


@pytest.mark.parametrize(
    "in_flight, allowed",
    [
        (0, MIN_CONCURRENT_RETRIES),
        (1, MIN_CONCURRENT_RETRIES),
        (19, MIN_CONCURRENT_RETRIES),
        (20, 4),
        (24, 4),
        (1000, 200),
    ],
)
def test_a_fifth_of_the_requests_in_flight_may_be_retried_and_at_least_three(
    in_flight: int, allowed: int
) -> None:
    budget = RetryBudget({"a": in_flight, "b": 7})

    assert [budget.acquire("a") for _ in range(allowed + 1)] == [True] * allowed + [False]
    assert budget.acquire("b"), "each service has a budget of its own"


async def test_the_end_of_a_retry_admits_the_oldest_queued_request() -> None:
    budget, requests = exhausted_budget(), [FakeRequest() for _ in range(3)]
    other = FakeRequest()
    for request in requests:
        budget.enqueue("a", request, Failure.NO_REPLY, 10.0)
    budget.enqueue("b", other, Failure.NO_REPLY, 10.0)
    budget.cancel("a", requests[0])

    budget.release("a")
    assert not requests[1].calls, "not inside the call that ends another retry"
    await asyncio.sleep(0)

    assert [request.calls for request in requests] == [[], ["allowed after no_reply"], []]
    assert not other.calls
    budget.release("a")
    await asyncio.sleep(0)
    assert requests[2].calls == ["allowed after no_reply"]
    assert not budget.acquire("a"), "an admitted request is counted"


async def test_expired_requests_are_given_up_in_order_and_only_once() -> None:
    budget, first, gone, later = exhausted_budget(), FakeRequest(), FakeRequest(), FakeRequest()
    for request, until in ((first, 5.0), (gone, 5.0), (later, 6.0)):
        budget.enqueue("a", request, Failure.REPLY_TIMEOUT, until)
    budget.cancel("a", gone)

    budget.expire(4.9)
    assert not first.calls
    budget.expire(5.0)
    budget.expire(5.5)

    assert [request.calls for request in (first, gone, later)] == [["expired after reply_timeout"], [], []]
    assert not is_idle(budget)
    budget.expire(7.0)
    for _ in range(MIN_CONCURRENT_RETRIES):
        budget.release("a")
    await asyncio.sleep(0)
    assert later.calls == ["expired after reply_timeout"]
    assert is_idle(budget)


async def test_more_requests_in_flight_make_room_before_a_retry_ends() -> None:
    in_flight = {"a": 0}
    budget, request = RetryBudget(in_flight), FakeRequest()
    for _ in range(MIN_CONCURRENT_RETRIES):
        assert budget.acquire("a")
    budget.enqueue("a", request, Failure.NO_REPLY, 10.0)

    budget.expire(1.0)
    assert not request.calls
    in_flight["a"] = 20
    budget.expire(1.25)

    assert request.calls == ["allowed after no_reply"]


def test_a_cancelled_request_is_not_kept_in_memory() -> None:
    """It may hold a body of 64 KiB, which must not stay behind older requests in the queue."""
    budget, first, gone = exhausted_budget(), FakeRequest(), FakeRequest()
    budget.enqueue("a", first, Failure.NO_REPLY, 10.0)
    budget.enqueue("a", gone, Failure.NO_REPLY, 10.0)
    reference = weakref.ref(gone)

    budget.cancel("a", gone)
    del gone

    assert reference() is None
