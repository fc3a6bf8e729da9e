"""Who can serve a version, and who of them gets the request."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.backend import Member, Standing
from gateway.core.dialect import Advert
from gateway.core.ranges import VersionSet
from gateway.core.selection import NOBODY, TICKET_BITS, Candidates, SelectionTable, pick
from gateway.core.version import Version
from tests.core.stage import backend, upto


def member(
    name: str, advert: Advert | None = None, failures: int = 0, weight: int = 1, drained: bool = False
) -> Member:
    return Member("toy", backend(name, weight=weight), advert or upto(9), failures, drained)


def tickets(count: int = 4000) -> list[int]:
    seeded = random.Random(7)
    return [seeded.getrandbits(TICKET_BITS) for _ in range(count)]


def drawn(
    candidates: Candidates, load: dict[str, int] | None = None, tried: tuple[str, ...] = ()
) -> Counter[str]:
    """How often each gets one of many requests."""
    picked = (pick(candidates, load or {}, ticket, tried) for ticket in tickets())
    return Counter("nobody" if each is None else each.backend.name for each in picked)


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


def test_load_is_measured_by_weight() -> None:
    two = Candidates.of([member("small"), member("big", weight=4)])

    assert drawn(two, {"toy/small": 1, "toy/big": 3}) == {"big": 4000}
    assert drawn(two, {"toy/small": 1, "toy/big": 5}) == {"small": 4000}


def test_the_most_loaded_of_many_gets_nothing() -> None:
    """Two different ones are always drawn, so it is always compared with somebody better."""
    many = Candidates.of(member(name) for name in "abcdef")

    chosen = drawn(many, {"toy/c": 9})

    assert chosen["c"] == 0
    assert set(chosen) == set("abdef")


def test_fresh_before_stale_before_lost_and_nobody_is_left_out() -> None:
    tiers = Candidates.of([member("lost", failures=3), member("stale", failures=1), member("a"), member("b")])

    assert [[each.backend.name for each in tier.members] for tier in tiers.tiers] == [
        ["a", "b"],
        ["stale"],
        ["lost"],
    ]
    assert [each.standing for each in tiers.members] == [
        Standing.FRESH,
        Standing.FRESH,
        Standing.STALE,
        Standing.LOST,
    ]
    assert set(drawn(tiers, {"toy/a": 99, "toy/b": 99})) == {"a", "b"}, "load moves nobody into another tier"
    assert drawn(tiers, tried=("toy/a",)) == {"b": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b")) == {"stale": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b", "toy/stale")) == {"lost": 4000}
    assert drawn(tiers, tried=("toy/a", "toy/b", "toy/stale", "toy/lost")) == {"nobody": 4000}


def test_who_was_tried_leaves_the_others_their_weights() -> None:
    three = Candidates.of([member("a", weight=9), member("b"), member("c", weight=3)])

    chosen = drawn(three, tried=("toy/a",))

    assert chosen["c"] == pytest.approx(3000, abs=150)
    assert chosen["a"] == 0


@pytest.mark.parametrize("ticket", [0, (1 << TICKET_BITS) - 1, 1 << 63, (1 << 32) - 1])
def test_the_ends_of_chance(ticket: int) -> None:
    three = Candidates.of([member("a", weight=1_000_000), member("b"), member("c", weight=65536)])

    assert pick(three, {}, ticket) in three.members


def test_nobody() -> None:
    assert pick(NOBODY, {}, 0) is None
    assert NOBODY.members == ()
    drained = Candidates.of([member("a", drained=True), Member("toy", backend("b"))])
    assert drained.tiers == ()


# --- finding -------------------------------------------------------------------------------------------

VERSIONS = st.builds(Version, st.integers(1, 2), st.integers(0, 12))
SETS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 12), st.integers(0, 12)).map(
        lambda parts: VersionSet.between(Version(parts[0], min(parts[1:])), Version(parts[0], max(parts[1:])))
    ),
    max_size=4,
).map(lambda those: VersionSet.of(each for one in those for each in one.ranges))
MEMBERS = st.lists(st.tuples(st.none() | SETS.map(Advert), st.integers(0, 3), st.booleans()), max_size=6).map(
    lambda those: [
        Member("toy", backend(f"b{number}"), advert, failures, drained)
        for number, (advert, failures, drained) in enumerate(those)
    ]
)


@given(MEMBERS, VERSIONS)
def test_the_table_says_what_asking_everybody_would(members: list[Member], version: Version) -> None:
    able = [
        each
        for each in members
        if each.advert is not None and not each.drained and version in each.advert.versions
    ]

    found = SelectionTable.of(members).candidates(version)

    assert sorted(each.key for each in found.members) == sorted(each.key for each in able)
    assert found.tiers == () or [tier.members[0].standing for tier in found.tiers] == sorted(
        {each.standing for each in able}, key=list(Standing).index
    )


@given(MEMBERS)
def test_segments_are_sorted_apart_and_no_more_than_ranges_can_make(members: list[Member]) -> None:
    table = SelectionTable.of(members)
    segments = [segment for segment, _ in table.segments]
    ranges = sum(len(each.advert.versions.ranges) for each in members if each.advert)

    assert table.starts == tuple(segment.low for segment in segments)
    assert all(one.high < other.low for one, other in pairwise(segments))
    assert len(segments) <= max(0, 2 * ranges - 1)


class Counted(dict[str, int]):
    """A load table that knows how often it was asked."""

    asked = 0

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]  # narrower on purpose
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("size", [2, 20, 2000])
def test_a_request_looks_at_two_members_of_however_many(size: int) -> None:
    """Cost must not grow with the fleet: who serves a version is found by segment, not one by one."""
    members = [member(f"b{number}", upto(58 if number % 2 else 90)) for number in range(size)]
    table = SelectionTable.of(members)
    load = Counted()

    assert len(table.segments) == 2, "as many as there are different adverts"
    candidates = table.candidates(Version(1, 9))
    assert candidates is table.candidates(Version(1, 58)), "made once, not on asking"
    for ticket in tickets(50):
        load.asked = 0
        assert pick(candidates, load, ticket) is not None
        assert load.asked == 2


def test_the_same_member_in_another_standing_is_another_tier_only() -> None:
    aged = replace(member("a"), failures=2)

    table = SelectionTable.of([aged, member("b")])

    assert [len(tier.members) for tier in table.candidates(Version(1, 9)).tiers] == [1, 1]
    assert table.candidates(Version(1, 10)) is NOBODY
    assert table.candidates(Version(1, 0)) is NOBODY
    assert table.candidates(Version(9, 9)) is NOBODY
    assert SelectionTable.of([]).candidates(Version(1, 1)) is NOBODY
