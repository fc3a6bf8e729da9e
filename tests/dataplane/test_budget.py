"""How many requests may be sent again: never fewer than the floor or the share, never all of a storm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.budget import LEAST, MOST_SAVED, SHARE, RetryBudget


def granted(budget: RetryBudget, in_flight: int, wanted: int, *, ending: bool = False) -> int:
    """How many of `wanted` may be sent again; `ending`: each is over before the next one asks."""
    count = 0
    for _ in range(wanted):
        if not budget.allows(in_flight):
            break
        budget.begin()
        if ending:
            budget.end()
        count += 1
    return count


@given(st.integers(0, 10_000), st.integers(0, 2_000))
def test_at_once_it_is_the_largest_of_floor_share_in_flight_and_what_went_by(
    passed: int, in_flight: int
) -> None:
    budget = RetryBudget()
    budget.passed = passed
    most = max(LEAST, in_flight // SHARE, min(MOST_SAVED, passed // SHARE))

    assert granted(budget, in_flight, 20_000) == most


def test_what_went_by_is_used_up() -> None:
    budget = RetryBudget()
    budget.passed = 100

    assert granted(budget, 0, 1_000) == 20
    budget.retrying = 0
    assert granted(budget, 0, 1_000) == LEAST


def test_what_ends_makes_room_for_the_next() -> None:
    budget = RetryBudget()

    assert granted(budget, 0, 50, ending=True) == 50
