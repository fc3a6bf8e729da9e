"""The axis: a bar is as long as the versions that it holds, and bars of one axis can be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.versions.axis import Axis, Tick
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, union
from gateway.core.versions.version import CalendarDate, MajorMinor, Version

UNIVERSE = (*(Version(1, minor) for minor in range(12)), *(Version(2, minor) for minor in range(5)))
sets = st.sets(st.sampled_from(UNIVERSE)).map(lambda versions: VersionSet.only(*versions))


def _upto(minor: int) -> VersionSet:
    return VersionSet.between(Version(1, 1), Version(1, minor))


def test_two_backends_in_the_middle_of_an_upgrade() -> None:
    old, new = _upto(58), _upto(90)
    axis = Axis((old, new))
    (short,), (whole,) = axis.spans(old), axis.spans(new)
    assert (short.begin, short.end) == (0.0, 58 / 90)
    assert (whole.begin, whole.end) == (0.0, 1.0)
    assert axis.at(Version(1, 90)) == pytest.approx(89.5 / 90)
    assert [tick.text for tick in axis.ticks(MajorMinor())] == ["1.1", "1.58", "1.59", "1.90"]


def test_what_nobody_serves_takes_no_space() -> None:
    dates = VersionSet.only(Version(2023, 10, 1), Version(2024, 4, 1))
    axis = Axis((dates,))
    assert axis.ticks(CalendarDate()) == (Tick(0.25, "2023-10-01"), Tick(0.75, "2024-04-01"))
    assert [(span.begin, span.end) for span in axis.spans(dates)] == [(0.0, 0.5), (0.5, 1.0)]
    assert axis.at(Version(2024, 1, 1)) is None


def test_nothing_known_is_an_empty_axis() -> None:
    axis = Axis((NO_VERSIONS,))
    assert axis.spans(_upto(5)) == ()
    assert axis.ticks(MajorMinor()) == ()
    assert axis.at(Version(1, 1)) is None


@given(st.lists(sets, min_size=1, max_size=5), sets)
def test_a_bar_is_as_long_as_what_it_holds(known: list[VersionSet], asked: VersionSet) -> None:
    axis, everything = Axis(known), union(known)
    spans = axis.spans(asked)
    on_axis = asked & everything
    assert sum(span.end - span.begin for span in spans) == pytest.approx(
        len(list(on_axis)) / max(1, len(list(everything)))
    )
    assert all(0.0 <= span.begin < span.end <= 1.0 for span in spans)
    for version in UNIVERSE:
        at = axis.at(version)
        assert (at is not None) == (version in everything)
        inside = at is not None and any(span.begin < at < span.end for span in spans)
        assert inside == (version in on_axis)
