"""Requested version and offer -> the negotiated version, or the reason for a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    DefaultKind,
    DefaultVersion,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionMatch,
)
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.core.builders import LATEST_REQUESTED, XY, v

OFFER = VersionSet.between(v("1.5"), v("1.31"))
MINIMUM, MAXIMUM, REFUSED = (
    DefaultVersion(kind) for kind in (DefaultKind.MINIMUM, DefaultKind.MAXIMUM, DefaultKind.REFUSED)
)
MALFORMED = RequestedVersion(RequestedKind.MALFORMED, text="spam")


def exact(text: str) -> RequestedVersion:
    return RequestedVersion(RequestedKind.EXACT, v(text), text)


def constant(text: str) -> DefaultVersion:
    return DefaultVersion(DefaultKind.CONSTANT, v(text))


@pytest.mark.parametrize(
    "requested, default_version, negotiated",
    [
        (exact("1.5"), MINIMUM, "1.5"),
        (exact("1.10"), MINIMUM, "1.10"),
        (exact("1.31"), MINIMUM, "1.31"),
        (LATEST_REQUESTED, MINIMUM, "1.31"),
        (NO_VERSION_REQUESTED, MINIMUM, "1.5"),
        (NO_VERSION_REQUESTED, MAXIMUM, "1.31"),
        (NO_VERSION_REQUESTED, constant("1.9"), "1.9"),
    ],
)
def test_the_negotiated_version(
    requested: RequestedVersion, default_version: DefaultVersion, negotiated: str
) -> None:
    assert negotiate(requested, OFFER, default_version) == v(negotiated)


@pytest.mark.parametrize(
    "requested, default_version, reason, wanted",
    [
        (exact("1.4"), MINIMUM, RefusalReason.BELOW_MIN, "1.4"),
        (exact("1.32"), MINIMUM, RefusalReason.ABOVE_MAX, "1.32"),
        (exact("1.310"), MINIMUM, RefusalReason.ABOVE_MAX, "1.310"),
        (exact("0.31"), MINIMUM, RefusalReason.BELOW_MIN, "0.31"),
        (exact("2.5"), MINIMUM, RefusalReason.ABOVE_MAX, "2.5"),
        (NO_VERSION_REQUESTED, constant("1.4"), RefusalReason.BELOW_MIN, "1.4"),
        (NO_VERSION_REQUESTED, constant("1.32"), RefusalReason.ABOVE_MAX, "1.32"),
        (NO_VERSION_REQUESTED, REFUSED, RefusalReason.MALFORMED, None),
        (MALFORMED, MAXIMUM, RefusalReason.MALFORMED, None),
    ],
)
def test_what_is_refused(
    requested: RequestedVersion, default_version: DefaultVersion, reason: RefusalReason, wanted: str | None
) -> None:
    refusal = negotiate(requested, OFFER, default_version)

    assert refusal == Refusal(reason, requested, None if wanted is None else v(wanted), OFFER)


def test_a_gap_in_the_offer_is_not_on_offer() -> None:
    dates = VersionSet.only(Version(2024, 1), Version(2024, 6), Version(2025, 1))
    july = RequestedVersion(RequestedKind.EXACT, Version(2024, 7), "2024-07")

    refusal = negotiate(july, dates, MINIMUM)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.ABOVE_MAX

    assert negotiate(july, dates, MINIMUM, VersionMatch.NEAREST_EARLIER) == Version(2024, 6)
    later = RequestedVersion(RequestedKind.EXACT, Version(2030, 1), "2030-01")
    assert negotiate(later, dates, MINIMUM, VersionMatch.NEAREST_EARLIER) == Version(2025, 1)
    exactly = RequestedVersion(RequestedKind.EXACT, Version(2024, 1), "2024-01")
    assert negotiate(exactly, dates, MINIMUM, VersionMatch.NEAREST_EARLIER) == Version(2024, 1)
    before = negotiate(
        RequestedVersion(RequestedKind.EXACT, Version(2023, 1), "2023-01"),
        dates,
        MINIMUM,
        VersionMatch.NEAREST_EARLIER,
    )
    assert isinstance(before, Refusal)
    assert before.reason is RefusalReason.BELOW_MIN

    assert negotiate(july, dates, MINIMUM, VersionMatch.NEAREST_LATER) == Version(2025, 1)
    gone = RequestedVersion(RequestedKind.EXACT, Version(2023, 1), "2023-01")
    assert negotiate(gone, dates, MINIMUM, VersionMatch.NEAREST_LATER) == Version(2024, 1)
    assert negotiate(exactly, dates, MINIMUM, VersionMatch.NEAREST_LATER) == Version(2024, 1)
    after = negotiate(later, dates, MINIMUM, VersionMatch.NEAREST_LATER)
    assert isinstance(after, Refusal)
    assert after.reason is RefusalReason.ABOVE_MAX


REQUESTED = (
    st.builds(Version, st.integers(0, 2), st.integers(0, 40)).map(lambda version: exact(XY.format(version)))
    | st.just(LATEST_REQUESTED)
    | st.just(NO_VERSION_REQUESTED)
    | st.just(MALFORMED)
)


@given(
    REQUESTED,
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([MINIMUM, MAXIMUM, REFUSED, constant("1.9")]),
)
def test_the_negotiated_version_is_always_on_offer(
    requested: RequestedVersion, low: int, more: int, default_version: DefaultVersion
) -> None:
    """And an exactly requested version leads to no other one."""
    offered = VersionSet.between(Version(1, low), Version(1, low + more))

    negotiated = negotiate(requested, offered, default_version)

    if isinstance(negotiated, Version):
        assert negotiated in offered
        assert requested.version is None or negotiated == requested.version
    else:
        assert negotiated.version is None or negotiated.version not in offered
