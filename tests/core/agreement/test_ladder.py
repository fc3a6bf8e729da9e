"""From one record to the next: the rules of votes in their order, and one level at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import and_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.ladder import (
    LiveReplica,
    Target,
    Vote,
    all_transparent,
    awaited,
    legacy_only,
    next_record,
    step,
    target,
)
from gateway.core.agreement.record import AgreedRecord, Level, level
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, unbroken, union
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme, Version
from tests.core.agreement.records import at_rest, minors, records, sets, universe, votes
from tests.core.builders import XY

DATES = CalendarDate()
SCHEMES: list[Scheme] = [MajorMinor(), DATES]


def record(state: VersionSet, rule: str = "guaranteed") -> AgreedRecord:
    return at_rest(5, rule, state)


def vote(floor: VersionSet, want: VersionSet = NO_VERSIONS, **more: object) -> Vote:
    return replace(Vote("guaranteed", floor, want, floor | want), **more)  # type: ignore[arg-type]  # its fields


def after(
    before: AgreedRecord | None,
    *all_votes: Vote | None,
    pin: Version | None = None,
    raised: Version | None = None,
    away: bool = False,
) -> AgreedRecord | None:
    """The next record, if all have acknowledged the one before."""
    seq = 0 if before is None else before.seq
    live = {str(at): LiveReplica(seq, one) for at, one in enumerate(all_votes)}
    return next_record(before, live, [*live, *(["away"] if away else [])], pin, XY, raised)


def climbed(
    before: AgreedRecord | None, *all_votes: Vote, pin: Version | None = None, raised: Version | None = None
) -> list[tuple[str, ...]]:
    """All further records, as texts of offered, accepted and open."""
    found = []
    while (following := after(before, *all_votes, pin=pin, raised=raised)) is not None:
        before = following
        found.append(tuple(each.format(XY) for each in (before.offered, before.accepted, before.open)))
        assert len(found) < 20
    return found


# --- steps -------------------------------------------------------------------------------------------------


def test_the_first_record_is_accepted_and_the_next_step_offers() -> None:
    want = vote(NO_VERSIONS, minors(1, 5)), vote(NO_VERSIONS, minors(2, 9))

    first = after(None, *want)

    assert first == AgreedRecord(1, "guaranteed", minors(2, 5), NO_VERSIONS, minors(2, 5), minors(2, 5))
    second = after(first, vote(minors(2, 5)), vote(minors(2, 5)))
    assert second == replace(first, seq=2, offered=minors(2, 5))


def test_nothing_that_all_want_makes_no_first_record() -> None:
    assert after(None, vote(NO_VERSIONS, minors(1, 2)), vote(NO_VERSIONS, minors(4, 5))) is None


def test_versions_rise_by_one_level_a_step() -> None:
    wants = vote(minors(1, 5), minors(6, 9))

    assert climbed(record(minors(1, 5)), wants, wants) == [
        ("1.1-1.5", "1.1-1.5", "1.1-1.9"),
        ("1.1-1.5", "1.1-1.9", "1.1-1.9"),
        ("1.1-1.9", "1.1-1.9", "1.1-1.9"),
    ]


def test_versions_fall_by_one_level_a_step() -> None:
    keeps = vote(minors(1, 5))

    assert climbed(record(minors(1, 9)), keeps, keeps) == [
        ("1.1-1.5", "1.1-1.9", "1.1-1.9"),
        ("1.1-1.5", "1.1-1.5", "1.1-1.9"),
        ("1.1-1.5", "1.1-1.5", "1.1-1.5"),
    ]


def test_nothing_becomes_refused_while_a_registered_replica_is_away() -> None:
    undecided = replace(record(minors(1, 5)), open=minors(1, 9))

    assert after(undecided, vote(minors(1, 5)), away=True) is None
    found = after(undecided, vote(minors(1, 5)))
    assert found is not None
    assert found.open == minors(1, 5)


def test_other_versions_move_while_a_registered_replica_is_away() -> None:
    undecided = replace(record(minors(1, 5)), open=minors(1, 9))

    found = after(undecided, vote(minors(1, 5), minors(6, 6)), away=True)

    assert found is not None
    assert found.accepted == minors(1, 6)
    assert found.open == minors(1, 9)


def test_what_is_offered_stays_unbroken_and_what_does_not_join_on_waits() -> None:
    before = AgreedRecord(
        5, "guaranteed", minors(1, 9), minors(1, 3), minors(1, 3) | minors(6, 9), minors(1, 9)
    )

    assert climbed(before, vote(minors(1, 9))) == [
        ("1.1-1.3", "1.1-1.9", "1.1-1.9"),
        ("1.1-1.9", "1.1-1.9", "1.1-1.9"),
    ]


def test_if_nothing_is_offered_the_newest_unbroken_part_is_first() -> None:
    before = AgreedRecord(
        5, "guaranteed", minors(1, 9), NO_VERSIONS, minors(1, 3) | minors(6, 9), minors(1, 9)
    )

    assert climbed(before, vote(minors(1, 9)))[0] == ("1.6-1.9", "1.1-1.9", "1.1-1.9")


def test_dates_have_a_level_each() -> None:
    first, second, third = (VersionSet.only(Version(2024, month, 1)) for month in (1, 2, 3))
    before = AgreedRecord(5, "guaranteed", first | third, first, first | third, first | third)

    found = step(before, Target("guaranteed", first | second | third, None), DATES, all_attached=True)

    assert found is not None
    assert (found.offered, found.accepted) == (first | third, first | third)
    assert found.open == first | second | third


@pytest.mark.parametrize(
    "live",
    [
        {},
        {"a": LiveReplica(4, vote(minors(1, 5)))},
        {"a": LiveReplica(5, vote(minors(1, 5))), "b": LiveReplica(4, vote(minors(1, 5)))},
        {"a": LiveReplica(5, vote(minors(1, 5))), "b": LiveReplica(5)},
    ],
    ids=["nobody is live", "an older ack", "one ack is missing", "one vote is missing"],
)
def test_a_step_waits_for_every_ack_and_every_vote(live: dict[str, LiveReplica]) -> None:
    assert next_record(record(minors(1, 9)), live, list(live), None, XY) is None
    assert next_record(record(minors(1, 9)), live, list(live), Version(1, 2), XY) is None
    assert bool(awaited(record(minors(1, 9)), live)) is bool(live)


# --- votes -------------------------------------------------------------------------------------------------


def state_after(before: AgreedRecord, *all_votes: Vote) -> tuple[str, str]:
    found = target(before, all_votes, None, XY)
    return found.rule, found.state.format(XY)


def test_one_replica_alone_raises_nothing_and_lowers_nothing() -> None:
    before = record(minors(1, 5))

    assert after(before, vote(minors(1, 5), minors(6, 9)), vote(minors(1, 5))) is None
    assert after(before, vote(minors(1, 3)), vote(minors(1, 5))) is None


def test_floors_add_up_and_wants_are_what_all_want() -> None:
    before = record(minors(1, 5))

    assert state_after(before, vote(minors(1, 3)), vote(minors(2, 4)))[1] == "1.1-1.4"
    both = vote(minors(1, 5), minors(6, 9)), vote(minors(1, 5), minors(6, 7))
    assert state_after(before, *both)[1] == "1.1-1.7"


def test_it_shrinks_before_it_grows() -> None:
    """What falls leaves a gap, so what would join on behind it does not."""
    before = record(minors(1, 5))

    assert state_after(before, vote(minors(1, 3), minors(6, 6)))[1] == "1.1-1.3"


def test_an_empty_floor_forms_the_state_anew_in_the_same_step() -> None:
    assert state_after(record(minors(1, 5)), vote(NO_VERSIONS, minors(8, 9)))[1] == "1.8-1.9"


def test_a_policy_counts_when_all_have_it() -> None:
    before = record(minors(1, 9), rule="reachable")
    cut = vote(minors(1, 9), gives=minors(1, 5))

    assert state_after(before, cut, replace(cut, rule="reachable")) == ("reachable", "1.1-1.9")
    assert state_after(before, cut, replace(cut, gives=minors(1, 6))) == ("guaranteed", "1.1-1.6")


def test_a_policy_that_gives_nothing_takes_nothing_away() -> None:
    before = record(minors(1, 9), rule="reachable")

    assert state_after(before, vote(minors(1, 9), gives=NO_VERSIONS)) == ("guaranteed", "1.1-1.9")


def test_the_first_lower_ceiling_counts_and_the_last_higher_one() -> None:
    low, high = vote(minors(1, 9), cap=Version(1, 4)), vote(minors(1, 9), cap=Version(1, 7))

    assert target(record(minors(1, 9)), [low, high, vote(minors(1, 9))], None, XY).limit == Version(1, 4)
    assert target(record(minors(1, 9)), [vote(minors(1, 9))], None, XY).limit is None


def test_a_pin_overrides_every_ceiling() -> None:
    low = vote(minors(1, 9), cap=Version(1, 4))

    assert climbed(record(minors(1, 9)), low, pin=Version(1, 7))[-1] == ("1.1-1.7",) * 3


def test_a_pin_is_a_view_of_the_state() -> None:
    pinned = after(record(minors(1, 9)), vote(minors(1, 9)), pin=Version(1, 7))

    assert pinned is not None
    assert pinned.state == minors(1, 9)
    assert climbed(pinned, vote(minors(1, 9)))[-1] == ("1.1-1.9",) * 3


def test_a_floor_hides_what_is_beneath_it_by_one_level_a_step() -> None:
    keeps = vote(minors(1, 9))

    assert climbed(record(minors(1, 9)), keeps, keeps, raised=Version(1, 4)) == [
        ("1.4-1.9", "1.1-1.9", "1.1-1.9"),
        ("1.4-1.9", "1.4-1.9", "1.1-1.9"),
        ("1.4-1.9", "1.4-1.9", "1.4-1.9"),
    ]


def test_a_floor_is_a_view_of_the_state() -> None:
    raised = after(record(minors(1, 9)), vote(minors(1, 9)), raised=Version(1, 4))

    assert raised is not None
    assert raised.state == minors(1, 9)
    assert climbed(raised, vote(minors(1, 9)))[-1] == ("1.1-1.9",) * 3


def test_the_first_higher_floor_of_a_file_counts_and_a_raised_one_overrides_all() -> None:
    low, high = vote(minors(1, 9), least=Version(1, 2)), vote(minors(1, 9), least=Version(1, 4))

    assert climbed(record(minors(1, 9)), low, high, vote(minors(1, 9)))[-1] == ("1.4-1.9",) * 3
    assert climbed(record(minors(1, 9)), low, high, raised=Version(1, 3))[-1] == ("1.3-1.9",) * 3


def test_what_is_beneath_a_floor_is_not_refused_while_a_registered_replica_is_away() -> None:
    undecided = replace(record(minors(1, 9)), offered=minors(4, 9), accepted=minors(4, 9))

    assert after(undecided, vote(minors(1, 9)), raised=Version(1, 4), away=True) is None


def test_a_floor_that_would_leave_nothing_is_suspended() -> None:
    keeps = vote(minors(1, 3))

    assert climbed(record(minors(1, 9)), keeps, raised=Version(1, 4))[-1] == ("1.1-1.3",) * 3
    again = vote(minors(1, 3), minors(4, 9))
    assert climbed(record(minors(1, 3)), again, raised=Version(1, 4))[-1] == ("1.4-1.9",) * 3


# --- transparent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "live, everybody, somebody",
    [([False, False], False, False), ([True, False], False, True), ([True, True], True, True)],
)
def test_a_service_is_transparent_when_all_see_legacy_backends_only(
    live: list[bool], everybody: bool, somebody: bool
) -> None:
    replicas = [LiveReplica(0, None, transparent) for transparent in live]

    assert all_transparent(None, replicas) is everybody
    assert legacy_only(None, replicas) is somebody
    assert not all_transparent(record(minors(1, 2)), replicas)
    assert not legacy_only(record(minors(1, 2)), replicas)


# --- laws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@given(data=st.data())
def test_a_step_moves_each_version_by_one_level_at_most(scheme: Scheme, data: st.DataObject) -> None:
    before = data.draw(st.none() | records(scheme))
    towards = Target(
        data.draw(st.sampled_from(("guaranteed", "reachable"))),
        data.draw(sets(scheme)),
        data.draw(st.none() | st.sampled_from(universe(scheme))),
        data.draw(st.none() | st.sampled_from(universe(scheme))),
    )
    all_attached = data.draw(st.booleans())

    found = step(before, towards, scheme, all_attached=all_attached)

    if found is None:
        return
    assert found.seq == (0 if before is None else before.seq) + 1
    assert found.offered <= found.accepted <= found.open
    assert unbroken(found.offered, scheme) == found.offered
    for version in universe(scheme):
        moved = level(found, version) - level(before, version)
        assert abs(moved) <= 1
        if before is not None and not before.is_empty and not all_attached:
            assert not (version in before.open and version not in found.open)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@given(data=st.data())
def test_steps_towards_the_same_end_come_to_rest_there(scheme: Scheme, data: st.DataObject) -> None:
    now = data.draw(st.none() | records(scheme))
    state = data.draw(sets(scheme))
    limit = data.draw(st.none() | st.sampled_from(universe(scheme)))
    floor = data.draw(st.none() | st.sampled_from(universe(scheme)))
    towards = Target("guaranteed", state, limit, floor)
    steps = 0
    while (found := step(now, towards, scheme, all_attached=True)) is not None:
        now, steps = found, steps + 1
        assert steps < 20

    below = state if limit is None else state.up_to(limit)
    wanted = VersionSet.only(
        *(one for one in universe(scheme) if one in below and (not floor or one >= floor))
    )
    wanted = wanted or below
    if now is None:
        assert not state
    else:
        assert now.offered == now.accepted == now.open == wanted
        assert now.state == state


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@given(data=st.data())
def test_only_unions_and_intersections_of_votes_count(scheme: Scheme, data: st.DataObject) -> None:
    """So what many replicas can bring about, one can."""
    before = data.draw(records(scheme))
    some = data.draw(st.lists(votes(scheme, before.state), min_size=1, max_size=3))
    same_rule = [replace(one, rule=some[0].rule) for one in some]
    caps = [one.cap for one in some if one.cap is not None]
    floors = [one.least for one in some if one.least is not None]
    together = Vote(
        some[0].rule,
        union(one.floor for one in some),
        reduce(and_, (one.want for one in some)),
        union(one.gives for one in some),
        min(caps, default=None),
        max(floors, default=None),
    )

    assert target(before, same_rule, None, scheme) == target(before, [together], None, scheme)
    assert target(before, some, None, scheme) == target(before, some[::-1], None, scheme)


@given(data=st.data())
def test_a_version_that_one_would_keep_stays_unless_it_makes_a_gap(data: st.DataObject) -> None:
    before = data.draw(records(DATES))
    some = data.draw(st.lists(votes(DATES, before.state), min_size=1, max_size=3))
    same_rule = [replace(one, rule=before.rule) for one in some]

    state = target(before, same_rule, None, DATES).state

    assert union(one.floor for one in some) <= state
    added = state - before.state
    assert all(added <= one.want for one in some)


def test_levels_are_ordered() -> None:
    assert Level.REFUSED < Level.UNDECIDED < Level.ACCEPTED < Level.OFFERED
