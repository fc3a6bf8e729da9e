"""The clock raises a floor once for each sunset, and never lowers one; what is written is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.ladder import Vote
from gateway.core.agreement.raised import NOT_RAISED, Raised, read_raised, write_raised
from gateway.core.agreement.record import UnreadableRecord
from gateway.core.fleet.lifecycle import Line
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Version
from tests.core.agreement.records import minors, universe
from tests.core.builders import v

XY = MajorMinor()
DAY = date(2030, 1, 1)
SUNSET = Line(v("1.4"), DAY)

versions = st.sampled_from(universe(XY))
sunsets = st.builds(Line, versions, st.dates(date(2029, 1, 1), date(2029, 1, 5)))
floors = st.none() | versions
raised = st.builds(Raised, floors, enforced=st.none() | sunsets) | sunsets.map(
    lambda one: Raised(one.below, one, one)
)


@given(before=raised, configured=floors, sunset=sunsets)
def test_the_clock_raises_once_and_never_lowers(
    before: Raised, configured: Version | None, sunset: Line
) -> None:
    floor = configured if before.floor is None else before.floor
    after = before.at_sunset(sunset, configured)
    held = configured if after.floor is None else after.floor

    assert floor is None or (held is not None and held >= floor)
    assert after.at_sunset(sunset, configured) == after
    if sunset != before.enforced:
        assert held is not None
        assert held >= sunset.below
    else:
        assert after is before
    lowered = after.commanded(None)
    if after.floor is not None:
        assert lowered.at_sunset(sunset, None) is lowered


def test_it_says_what_it_was_given_by() -> None:
    by_clock = NOT_RAISED.at_sunset(SUNSET, None)
    assert by_clock == Raised(v("1.4"), SUNSET, SUNSET)
    assert by_clock.commanded(v("1.6")) == Raised(v("1.6"), None, SUNSET)
    assert Raised(v("1.6")).at_sunset(SUNSET, None) == Raised(v("1.6"), None, SUNSET)
    assert NOT_RAISED.at_sunset(SUNSET, v("1.4")) is NOT_RAISED
    assert NOT_RAISED.at_sunset(None, None) is NOT_RAISED


def test_all_votes_must_say_that_the_same_sunset_has_come() -> None:
    all_stay, nothing = minors(1, 9), VersionSet()
    come, ahead, other = (
        Vote("guaranteed", all_stay, nothing, all_stay, passed=each)
        for each in (SUNSET, None, Line(v("1.5"), DAY))
    )

    assert NOT_RAISED.by_votes([come, come]).by == SUNSET
    for votes in ([], [ahead], [come, ahead], [come, None], [come, other]):
        assert NOT_RAISED.by_votes(votes) is NOT_RAISED
    high = replace(come, least=v("1.4"))
    assert NOT_RAISED.by_votes([come, high]) is NOT_RAISED


@given(raised)
def test_what_is_written_is_read_back(one: Raised) -> None:
    assert read_raised(json.loads(json.dumps(write_raised(one, XY))), XY) == one


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"version": "1.4", "by": "command"},
        {"version": "1.4", "by": None, "enforced": None},
        {"version": "1.4", "by": ["1.4", 1], "enforced": None},
        {"version": "soon", "by": "command", "enforced": None},
        {"version": "1.4", "by": "command", "enforced": None, "more": 1},
        {"version": "1.4", "by": "command", "enforced": ["1.4"]},
        {"version": "1.4", "by": "command", "enforced": ["1.4", "soon"]},
        {"version": "1.4", "by": "command", "enforced": ["x", "2030-01-01"]},
    ],
)
def test_anything_else_is_none(value: object) -> None:
    with pytest.raises(UnreadableRecord):
        read_raised(value, XY)
