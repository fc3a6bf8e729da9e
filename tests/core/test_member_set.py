"""A member set counts members by summary and finds them by name; a fact costs the same in a large one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Fact,
    ObservedFact,
    PassiveObservation,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.service import Match, Service
from gateway.core.fleet.snapshot import Snapshot
from tests.core.builders import Toy, fleet_of, legacy, service, upto, v

NAMES = ("a", "b", "c")
ADVERTISEMENTS = st.sampled_from([upto(5), upto(9), legacy("1.1")])
TIMES = st.integers(0, 5).map(float)
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(ProbeSucceeded, ADVERTISEMENTS, TIMES, st.booleans()),
    st.builds(ProbeFailed, st.sampled_from(["down", "slow"]), TIMES),
    st.builds(PassiveObservation, ADVERTISEMENTS, TIMES),
    st.builds(ConnectFailed, TIMES),
    st.builds(VersionMismatch, st.sampled_from([v("1.2"), v("1.7")]), TIMES, st.sampled_from(["/a", "/b"])),
    st.builds(ServedVersionMissing, TIMES),
)
OBSERVED: st.SearchStrategy[list[ObservedFact]] = st.lists(
    st.tuples(st.sampled_from(["toy", "other", "gone"]), st.sampled_from([*NAMES, "gone"]), FACTS),
    max_size=12,
)
FLEET = fleet_of([service(*NAMES), service(*NAMES, name="other")])


@given(OBSERVED)
def test_facts_together_teach_what_they_teach_one_by_one(facts: list[ObservedFact]) -> None:
    one_by_one = FLEET
    for each in facts:
        one_by_one = one_by_one.observe(*each)

    together, services = FLEET.observe_all(facts)

    assert together == one_by_one
    for name, members in together.member_sets.items():
        assert (members is FLEET.member_sets[name]) is (name not in services)
        for found, expected in zip(members.all, one_by_one.member_sets[name].all, strict=True):
            times = (found.advertised_at, found.connect_failed_at, found.mismatches.last_at)
            assert times == (
                *(expected.advertised_at, expected.connect_failed_at, expected.mismatches.last_at),
            )
    assert (together is FLEET) is (not services)


@given(OBSERVED)
def test_the_counts_follow_each_change(facts: list[ObservedFact]) -> None:
    before = FLEET
    for each in facts:
        after = before.observe(*each)
        for name, members in after.member_sets.items():
            old, anew = before.member_sets[name], MemberSet(members.all)
            assert Counter({group.summary: group.number for group in members.groups}) == Counter(
                {group.summary: group.number for group in anew.groups}
            )
            assert members.summaries == tuple(member.summary for member in members.all)
            assert {id(summary) for summary in members.summaries} == {
                id(group.summary) for group in members.groups
            }
            changed = [
                member
                for was, member in zip(old.all, members.all, strict=True)
                if was is not member and was != member
            ]
            assert [member for _, member in members.news_since(old)] == changed
            assert members.knows_the_same(old) is (not changed)
        before = after


def test_a_member_set_with_other_members_is_counted_anew() -> None:
    members = FLEET.member_sets["toy"]
    learned = FLEET.observe("toy", "a", ProbeSucceeded(upto(5), 1.0)).member_sets["toy"]

    assert replace(members, all=learned.all).summaries == learned.summaries
    assert [(was is None, one.backend.name) for was, one in learned.news_since(MemberSet(()))] == [
        (True, name) for name in NAMES
    ]


# --- size ---------------------------------------------------------------------------------------------


def large(services: int, backends: int) -> Snapshot:
    """All of them are known."""
    configured = [
        Service(
            f"s{number}",
            Toy(),
            tuple(Backend(f"b{each}", "127.0.0.1", 1 + each) for each in range(backends)),
            match=Match(path=f"/s{number}"),
        )
        for number in range(services)
    ]
    facts = [
        (one.name, backend.name, ProbeSucceeded(upto(5), 1.0))
        for one in configured
        for backend in one.backends
    ]
    return Snapshot.configured(configured, now=0.0).after(facts, 1.0)


def seconds(call: Callable[[], object]) -> float:
    """CPU of one call: the least of several rounds."""
    rounds = []
    for _ in range(12):
        begun = time.thread_time()
        for _ in range(20):
            call()
        rounds.append(time.thread_time() - begun)
    return min(rounds)


SIZES = [((1, 20), (1, 1000)), ((20, 1), (1000, 1))]
FACTS_ABOUT_ONE: list[Fact] = [
    ProbeSucceeded(upto(5), 2.0),
    ProbeFailed("down", 2.0),
    ProbeSucceeded(Advertisement(upto(9).versions), 2.0),
]


@pytest.mark.parametrize("small, big", SIZES)
@pytest.mark.parametrize("fact", FACTS_ABOUT_ONE, ids=["nothing new", "failed", "another advertisement"])
def test_a_fact_about_one_of_a_thousand_costs_little_more(
    small: tuple[int, int], big: tuple[int, int], fact: Fact
) -> None:
    """Looking at each member or service would make it cost fifty times as much."""
    of_few, of_many = large(*small), large(*big)

    few = seconds(lambda: of_few.after([("s0", "b0", fact)], 2.0))
    many = seconds(lambda: of_many.after([("s0", "b0", fact)], 2.0))

    assert many < 6 * few


def test_only_the_services_that_facts_are_about_are_looked_at() -> None:
    known = large(1000, 1)

    after = known.after([("s7", "b0", ProbeFailed("down", 2.0)), ("s8", "b0", ProbeFailed("down", 2.0))], 2.0)

    assert [view.service.name for _, view in after.news_since(known)] == ["s7", "s8"]
    assert after.generation == known.generation + 1
    assert list(after.views) == list(known.views)


def test_a_table_of_candidates_is_made_when_it_is_needed_and_once() -> None:
    view = large(1, 1000).views["s0"]

    assert len(view.by_version.segments) == 1
    assert view.by_version.candidates(v("1.3")) is view.by_version.candidates(v("1.5"))
    assert len(view.by_version.everyone.members) == len(view.by_version.candidates(v("1.3")).members) == 1000
    assert view.by_version.everyone is view.by_version.everyone
