"""Which members can serve a version, and which of them gets the request."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.selection import NO_CANDIDATES, RANDOM_BITS, Candidates, SelectionTable, select
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.core.builders import backend, upto


def member(
    name: str,
    advertisement: Advertisement | None = None,
    failures: int = 0,
    weight: int = 1,
    drained: bool = False,
) -> Member:
    by = "" if drained else None
    return Member("toy", backend(name, weight=weight), advertisement or upto(9), failures, by)


def random_bits_of(count: int = 4000) -> list[int]:
    seeded = random.Random(7)
    return [seeded.getrandbits(RANDOM_BITS) for _ in range(count)]


def drawn(
    candidates: Candidates, in_flight_by_member: dict[str, int] | None = None, tried: tuple[str, ...] = ()
) -> Counter[str]:
    """How many of 4000 requests each member gets."""
    picked = (
        select(candidates, in_flight_by_member or {}, random_bits, tried) for random_bits in random_bits_of()
    )
    return Counter("none" if member is None else member.backend.name for member in picked)


# --- choosing ------------------------------------------------------------------------------------------


def test_requests_are_spread_by_weight() -> None:
    chosen = drawn(Candidates.of([member("a"), member("b", weight=3), member("c", weight=6)]))

    assert chosen["a"] == pytest.approx(400, abs=80)
    assert chosen["b"] == pytest.approx(1200, abs=120)
    assert chosen["c"] == pytest.approx(2400, abs=150)


def test_of_two_drawn_the_less_loaded_wins() -> None:
    two = Candidates.of([member("a"), member("b")])

    assert drawn(two, {"toy/a": 1}) == {"b": 4000}
    assert drawn(two, {"toy/b": 1}) == {"a": 4000}
    assert drawn(two, {"toy/a": 3, "toy/b": 3})["a"] == pytest.approx(2000, abs=150)


def test_requests_in_flight_are_compared_by_weight() -> None:
    two = Candidates.of([member("small"), member("big", weight=4)])

    assert drawn(two, {"toy/small": 1, "toy/big": 3}) == {"big": 4000}
    assert drawn(two, {"toy/small": 1, "toy/big": 5}) == {"small": 4000}


def test_the_most_loaded_of_many_gets_nothing() -> None:
    """Two different ones are always drawn, so it is always compared with a better one."""
    many = Candidates.of(member(name) for name in "abcdef")

    chosen = drawn(many, {"toy/c": 9})

    assert chosen["c"] == 0
    assert set(chosen) == set("abdef")


def test_fresh_before_stale_before_lost_and_none_is_left_out() -> None:
    tiers = Candidates.of([member("down", failures=3), member("stale", failures=1), member("a"), member("b")])

    assert [[each.backend.name for each in tier.members] for tier in tiers.tiers] == [
        ["a", "b"],
        ["stale"],
        ["down"],
    ]
    assert [each.freshness for each in tiers.members] == [
        Freshness.FRESH,
        Freshness.FRESH,
        Freshness.STALE,
        Freshness.DOWN,
    ]
    assert set(drawn(tiers, {"toy/a": 99, "toy/b": 99})) == {"a", "b"}, "they stay in their tier"
    assert drawn(tiers, tried=("toy/a",)) == {"b": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b")) == {"stale": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b", "toy/stale")) == {"down": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b", "toy/stale", "toy/down")) == {"none": 4000}


def test_a_member_that_was_tried_leaves_the_others_their_weights() -> None:
    three = Candidates.of([member("a", weight=9), member("b"), member("c", weight=3)])

    chosen = drawn(three, tried=("toy/a",))

    assert chosen["c"] == pytest.approx(3000, abs=150)
    assert chosen["a"] == 0


@pytest.mark.parametrize("random_bits", [0, (1 << RANDOM_BITS) - 1, 1 << 63, (1 << 32) - 1])
def test_the_extreme_random_bits(random_bits: int) -> None:
    three = Candidates.of([member("a", weight=1_000_000), member("b"), member("c", weight=65536)])

    assert select(three, {}, random_bits) in three.members


def test_without_candidates_none_is_selected() -> None:
    assert select(NO_CANDIDATES, {}, 0) is None
    assert NO_CANDIDATES.members == ()
    drained = Candidates.of([member("a", drained=True), Member("toy", backend("b"))])
    assert drained.tiers == ()


# --- the table -----------------------------------------------------------------------------------------

VERSIONS = st.builds(Version, st.integers(1, 2), st.integers(0, 12))
SETS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 12), st.integers(0, 12)).map(
        lambda parts: VersionSet.between(Version(parts[0], min(parts[1:])), Version(parts[0], max(parts[1:])))
    ),
    max_size=4,
).map(lambda sets: VersionSet.of(one for versions in sets for one in versions.ranges))
MEMBERS = st.lists(
    st.tuples(st.none() | SETS.map(Advertisement), st.integers(0, 3), st.none() | st.just("")), max_size=6
).map(
    lambda drawn_members: [
        Member("toy", backend(f"b{number}"), advertisement, failures, by)
        for number, (advertisement, failures, by) in enumerate(drawn_members)
    ]
)


@given(MEMBERS, VERSIONS)
def test_the_table_finds_what_a_search_of_all_members_finds(members: list[Member], version: Version) -> None:
    able = [
        each
        for each in members
        if each.advertisement is not None and not each.drained and version in each.advertisement.versions
    ]

    found = SelectionTable.of(members).candidates(version)

    assert sorted(each.key for each in found.members) == sorted(each.key for each in able)
    assert found.tiers == () or [tier.members[0].freshness for tier in found.tiers] == sorted(
        {each.freshness for each in able}, key=list(Freshness).index
    )


@given(MEMBERS)
def test_segments_are_sorted_and_as_few_as_the_ranges_allow(
    members: list[Member],
) -> None:
    table = SelectionTable.of(members)
    segments = table.segments
    ranges = sum(len(each.advertisement.versions.ranges) for each in members if each.advertisement)

    assert list(segments) == sorted(segments)
    assert all(one.high < other.low for one, other in pairwise(segments))
    assert len(segments) <= max(0, 2 * ranges - 1)


class Counted(dict[str, int]):
    """Requests in flight that count how often they are read."""

    reads = 0

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]  # narrower on purpose
        self.reads += 1
        return super().get(key, default)


@pytest.mark.parametrize("size", [2, 20, 2000])
def test_a_request_compares_two_members_of_any_number(size: int) -> None:
    """The cost must not grow with the fleet: members are found by segment, not one by one."""
    members = [member(f"b{number}", upto(58 if number % 2 else 90)) for number in range(size)]
    table = SelectionTable.of(members)
    in_flight_by_member = Counted()

    assert len(table.segments) == 2, "as many as there are different advertisements"
    candidates = table.candidates(Version(1, 9))
    assert candidates is table.candidates(Version(1, 58)), "made once, not for each request"
    for random_bits in random_bits_of(50):
        in_flight_by_member.reads = 0
        assert select(candidates, in_flight_by_member, random_bits) is not None
        assert in_flight_by_member.reads == 2


def test_the_same_member_with_another_freshness_is_only_in_another_tier() -> None:
    aged = replace(member("a"), failures=2)

    table = SelectionTable.of([aged, member("b")])

    assert [len(tier.members) for tier in table.candidates(Version(1, 9)).tiers] == [1, 1]
    assert table.candidates(Version(1, 10)) is NO_CANDIDATES
    assert table.candidates(Version(1, 0)) is NO_CANDIDATES
    assert table.candidates(Version(9, 9)) is NO_CANDIDATES
    assert SelectionTable.of([]).candidates(Version(1, 1)) is NO_CANDIDATES
