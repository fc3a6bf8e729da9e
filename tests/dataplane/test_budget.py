"""How many requests may be sent again at once: the floor or the share, by service; others in their turn."""

from __future__ import annotations

import asyncio
import weakref
from collections import defaultdict

import pytest

from gateway.dataplane.budget import FEWEST, RetryBudget
from gateway.dataplane.failures import Failure


class Waiter:
    """A request that waits, and what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_turn(self, failure: Failure) -> None:
        self.told.append(f"turn after {failure}")

    def on_turn_missed(self, failure: Failure) -> None:
        self.told.append(f"missed after {failure}")


def spent(service: str = "a") -> RetryBudget:
    """With nothing in flight, and as many sent again as may be."""
    budget = RetryBudget(defaultdict(int))
    while budget.take(service):
        pass
    return budget


@pytest.mark.parametrize(
    "in_flight, most", [(0, FEWEST), (1, FEWEST), (19, FEWEST), (20, 4), (24, 4), (1000, 200)]
)
def test_at_once_it_is_a_fifth_of_those_in_flight_and_at_least_three(in_flight: int, most: int) -> None:
    budget = RetryBudget({"a": in_flight, "b": 7})

    assert [budget.take("a") for _ in range(most + 1)] == [True] * most + [False]
    assert budget.take("b"), "each service has its own"


async def test_what_ends_lets_in_who_has_waited_longest() -> None:
    budget, waiters = spent(), [Waiter() for _ in range(3)]
    other = Waiter()
    for waiter in waiters:
        budget.wait("a", waiter, Failure.NO_REPLY, 10.0)
    budget.wait("b", other, Failure.NO_REPLY, 10.0)
    budget.leave("a", waiters[0])

    budget.give_back("a")
    assert not waiters[1].told, "not from within the end of another"
    await asyncio.sleep(0)

    assert [each.told for each in waiters] == [[], ["turn after no_reply"], []]
    assert not other.told
    budget.give_back("a")
    await asyncio.sleep(0)
    assert waiters[2].told == ["turn after no_reply"]
    assert not budget.take("a"), "whoever was let in is counted"


async def test_whose_time_is_up_is_given_up_in_order_and_only_once() -> None:
    budget, first, gone, later = spent(), Waiter(), Waiter(), Waiter()
    for waiter, until in ((first, 5.0), (gone, 5.0), (later, 6.0)):
        budget.wait("a", waiter, Failure.REPLY_TIMEOUT, until)
    budget.leave("a", gone)

    budget.expire(4.9)
    assert not first.told
    budget.expire(5.0)
    budget.expire(5.5)

    assert [each.told for each in (first, gone, later)] == [["missed after reply_timeout"], [], []]
    assert not budget.idle()
    budget.expire(7.0)
    for _ in range(FEWEST):
        budget.give_back("a")
    await asyncio.sleep(0)
    assert later.told == ["missed after reply_timeout"]
    assert budget.idle()


async def test_when_more_requests_are_in_flight_there_is_room_before_anybody_ends() -> None:
    in_flight = {"a": 0}
    budget, waiter = RetryBudget(in_flight), Waiter()
    for _ in range(FEWEST):
        assert budget.take("a")
    budget.wait("a", waiter, Failure.NO_REPLY, 10.0)

    budget.expire(1.0)
    assert not waiter.told
    in_flight["a"] = 20
    budget.expire(1.25)

    assert waiter.told == ["turn after no_reply"]


def test_of_who_has_left_nothing_is_held() -> None:
    """What it had sent, up to 64 KiB, must not wait on behind somebody who does."""
    budget, first, gone = spent(), Waiter(), Waiter()
    budget.wait("a", first, Failure.NO_REPLY, 10.0)
    budget.wait("a", gone, Failure.NO_REPLY, 10.0)
    left = weakref.ref(gone)

    budget.leave("a", gone)
    del gone

    assert left() is None
