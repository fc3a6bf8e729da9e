"""The rate limiter: the size of a bucket, how it refills, and that full buckets are dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.limits.rate_limiter import BURST, PER_SECOND, RateLimiter


def count_answered(limiter: RateLimiter, service: str, requests: int) -> int:
    """How many of so many requests are answered and not throttled."""
    count = 0
    for _ in range(requests):
        if service not in limiter:
            count += 1
        limiter.take(service)
    return count


def test_a_burst_and_then_a_steady_rate() -> None:
    limiter = RateLimiter()

    assert count_answered(limiter, "chef", 3 * BURST) == BURST
    limiter.refill(1.0)
    assert count_answered(limiter, "chef", 3 * BURST) == PER_SECOND
    limiter.refill(0.19)
    assert count_answered(limiter, "chef", 1) == 0
    limiter.refill(0.02)
    assert count_answered(limiter, "chef", 2) == 1


def test_every_service_has_its_own_bucket() -> None:
    limiter = RateLimiter()
    count_answered(limiter, "one", 3 * BURST)

    assert "one" in limiter
    assert "two" not in limiter
    assert count_answered(limiter, "two", 3 * BURST) == BURST


def test_full_buckets_are_forgotten() -> None:
    """So removed services leave nothing behind."""
    limiter = RateLimiter()
    count_answered(limiter, "one", BURST)

    limiter.refill(2 * BURST / PER_SECOND + 1)

    assert count_answered(limiter, "two", 1) == 1
    assert len(limiter) == 1
    assert count_answered(limiter, "one", 3 * BURST) == BURST


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 3)), max_size=20))
def test_never_more_than_the_burst_and_the_rate_allow(timeline: list[tuple[int, float]]) -> None:
    limiter, answered, seconds = RateLimiter(), 0, 0.0
    for requests, pause in timeline:
        answered += count_answered(limiter, "chef", requests)
        assert answered <= BURST + seconds * PER_SECOND + 0.001
        limiter.refill(pause)
        seconds += pause
