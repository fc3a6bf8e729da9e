"""Ask x offer -> the version, or the reason why not: one table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import (
    ASK_SILENT,
    Ask,
    AskKind,
    Bounds,
    Match,
    Reason,
    Refusal,
    Silence,
    SilenceKind,
)
from gateway.core.negotiation import settle
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from tests.core.stage import ASK_LATEST, XY, v

OFFER = Bounds(VersionSet.between(v("1.5"), v("1.31")))
MINIMUM, MAXIMUM, REFUSED = (
    Silence(kind) for kind in (SilenceKind.MINIMUM, SilenceKind.MAXIMUM, SilenceKind.REFUSED)
)
GARBLED = Ask(AskKind.GARBLED, text="spam")


def exact(text: str) -> Ask:
    return Ask(AskKind.EXACT, v(text), text)


def constant(text: str) -> Silence:
    return Silence(SilenceKind.CONSTANT, v(text))


@pytest.mark.parametrize(
    "ask, silence, settled",
    [
        (exact("1.5"), MINIMUM, "1.5"),
        (exact("1.10"), MINIMUM, "1.10"),
        (exact("1.31"), MINIMUM, "1.31"),
        (ASK_LATEST, MINIMUM, "1.31"),
        (ASK_SILENT, MINIMUM, "1.5"),
        (ASK_SILENT, MAXIMUM, "1.31"),
        (ASK_SILENT, constant("1.9"), "1.9"),
    ],
)
def test_what_is_settled_on(ask: Ask, silence: Silence, settled: str) -> None:
    assert settle(ask, OFFER, silence) == v(settled)


@pytest.mark.parametrize(
    "ask, silence, reason, wanted",
    [
        (exact("1.4"), MINIMUM, Reason.BELOW_MIN, "1.4"),
        (exact("1.32"), MINIMUM, Reason.ABOVE_MAX, "1.32"),
        (exact("1.310"), MINIMUM, Reason.ABOVE_MAX, "1.310"),
        (exact("0.31"), MINIMUM, Reason.BELOW_MIN, "0.31"),
        (exact("2.5"), MINIMUM, Reason.ABOVE_MAX, "2.5"),
        (ASK_SILENT, constant("1.4"), Reason.BELOW_MIN, "1.4"),
        (ASK_SILENT, constant("1.32"), Reason.ABOVE_MAX, "1.32"),
        (ASK_SILENT, REFUSED, Reason.MALFORMED, None),
        (GARBLED, MAXIMUM, Reason.MALFORMED, None),
    ],
)
def test_what_is_refused(ask: Ask, silence: Silence, reason: Reason, wanted: str | None) -> None:
    refusal = settle(ask, OFFER, silence)

    assert refusal == Refusal(reason, ask, None if wanted is None else v(wanted), OFFER)


def test_a_hole_in_the_offer_is_no_version_of_it() -> None:
    dates = Bounds(VersionSet.only(Version(2024, 1), Version(2024, 6), Version(2025, 1)))
    june = Ask(AskKind.EXACT, Version(2024, 7), "2024-07")

    refusal = settle(june, dates, MINIMUM)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.ABOVE_MAX

    assert settle(june, dates, MINIMUM, Match.NEAREST_EARLIER) == Version(2024, 6)
    later = Ask(AskKind.EXACT, Version(2030, 1), "2030-01")
    assert settle(later, dates, MINIMUM, Match.NEAREST_EARLIER) == Version(2025, 1)
    exactly = Ask(AskKind.EXACT, Version(2024, 1), "2024-01")
    assert settle(exactly, dates, MINIMUM, Match.NEAREST_EARLIER) == Version(2024, 1)
    before = settle(Ask(AskKind.EXACT, Version(2023, 1), "2023-01"), dates, MINIMUM, Match.NEAREST_EARLIER)
    assert isinstance(before, Refusal)
    assert before.reason is Reason.BELOW_MIN

    assert settle(june, dates, MINIMUM, Match.NEAREST_LATER) == Version(2025, 1)
    gone = Ask(AskKind.EXACT, Version(2023, 1), "2023-01")
    assert settle(gone, dates, MINIMUM, Match.NEAREST_LATER) == Version(2024, 1)
    assert settle(exactly, dates, MINIMUM, Match.NEAREST_LATER) == Version(2024, 1)
    after = settle(later, dates, MINIMUM, Match.NEAREST_LATER)
    assert isinstance(after, Refusal)
    assert after.reason is Reason.ABOVE_MAX


ASKS = (
    st.builds(Version, st.integers(0, 2), st.integers(0, 40)).map(lambda each: exact(XY.format(each)))
    | st.just(ASK_LATEST)
    | st.just(ASK_SILENT)
    | st.just(GARBLED)
)


@given(
    ASKS,
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([MINIMUM, MAXIMUM, REFUSED, constant("1.9")]),
)
def test_what_is_settled_on_is_always_on_offer(ask: Ask, low: int, more: int, silence: Silence) -> None:
    """And an exact ask is never settled on anything but itself."""
    bounds = Bounds(VersionSet.between(Version(1, low), Version(1, low + more)))

    settled = settle(ask, bounds, silence)

    if isinstance(settled, Version):
        assert settled in bounds.versions
        assert ask.version is None or settled == ask.version
    else:
        assert settled.version is None or settled.version not in bounds.versions
