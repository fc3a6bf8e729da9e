"""The bucket behind metered answers: what it holds, how it fills, and that it forgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.metering import BURST, PER_SECOND, Meter


def answers(meter: Meter, service: str, asked: int) -> int:
    """How many of so many questions are answered."""
    given_ = 0
    for _ in range(asked):
        if service not in meter:
            given_ += 1
        meter.take(service)
    return given_


def test_a_burst_and_then_a_steady_few() -> None:
    meter = Meter()

    assert answers(meter, "chef", 3 * BURST) == BURST
    meter.refill(1.0)
    assert answers(meter, "chef", 3 * BURST) == PER_SECOND
    meter.refill(0.19)
    assert answers(meter, "chef", 1) == 0
    meter.refill(0.02)
    assert answers(meter, "chef", 2) == 1


def test_every_service_has_its_own() -> None:
    meter = Meter()
    answers(meter, "one", 3 * BURST)

    assert "one" in meter
    assert "two" not in meter
    assert answers(meter, "two", 3 * BURST) == BURST


def test_what_is_full_again_is_forgotten() -> None:
    """So that services of an older configuration leave nothing behind."""
    meter = Meter()
    answers(meter, "one", BURST)

    meter.refill(BURST / PER_SECOND + 1)

    assert not vars(meter)["_left"]
    assert answers(meter, "one", 3 * BURST) == BURST


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 3)), max_size=20))
def test_never_more_than_the_burst_and_the_rate_allow(story: list[tuple[int, float]]) -> None:
    meter, answered, seconds = Meter(), 0, 0.0
    for asked, pause in story:
        answered += answers(meter, "chef", asked)
        assert answered <= BURST + seconds * PER_SECOND + 0.001
        meter.refill(pause)
        seconds += pause
