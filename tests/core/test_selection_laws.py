"""Which member a request gets where some are ejected, full, unhealthy or backups: laws."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.selection import (
    ALL_REQUESTS,
    NOBODY,
    RANDOM_BITS,
    Candidates,
    eligible,
    is_full,
    select,
)
from gateway.core.fleet.backend import Backend, Freshness, Member
from tests.core.builders import upto


def member(
    name: str, failures: int = 0, *, unhealthy: Any = False, connect_failed: Any = False, **more: Any
) -> Member:
    return Member(
        "toy",
        Backend(name, "127.0.0.1", 1, **more),
        upto(9),
        failures,
        connect_failed=connect_failed,
        unhealthy="its health check answers 503" if unhealthy else None,
    )


MEMBERS = st.lists(
    st.fixed_dictionaries(
        {
            "failures": st.integers(0, 3),
            "unhealthy": st.booleans(),
            "connect_failed": st.booleans(),
            "backup": st.booleans(),
            "weight": st.sampled_from([1, 1, 3]),
            "max_requests": st.sampled_from([0, 0, 1, 2]),
        }
    ),
    min_size=1,
    max_size=5,
).map(lambda drawn: [member(f"b{number}", **options) for number, options in enumerate(drawn)])
KEYS = [f"toy/b{number}" for number in range(5)]
SHARES = st.dictionaries(st.sampled_from(KEYS), st.sampled_from([0, 0, 6553, 40000]), max_size=5)
IN_FLIGHT = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3))
TRIED = st.lists(st.sampled_from(KEYS), max_size=4, unique=True).map(tuple)
BITS = st.integers(0, (1 << RANDOM_BITS) - 1)


def usable(one: Member) -> bool:
    return not one.connect_failed and one.freshness is not Freshness.DOWN


@given(MEMBERS, SHARES, IN_FLIGHT, TRIED, BITS)
def test_one_is_selected_if_any_is_left_and_none_that_is_full_or_was_tried(
    members: list[Member],
    held_back: dict[str, int],
    in_flight: dict[str, int],
    tried: tuple[str, ...],
    bits: int,
) -> None:
    candidates = Candidates.of(members)
    left = [one for one in members if one.key not in tried]

    chosen = select(candidates, in_flight, bits, tried, held_back)

    waits_for = [one for tier in eligible(candidates, tried, held_back) for one in tier.members]
    assert bool(waits_for) == bool(left), "who is left is waited for"
    if chosen is None:
        assert all(is_full(one, in_flight) for one in waits_for)
    else:
        assert chosen in left
        assert not is_full(chosen, in_flight)
    if left and not any(one.bound for one in members):
        assert chosen is not None


@given(MEMBERS, SHARES, IN_FLIGHT, TRIED, BITS)
def test_an_ejected_member_gets_nothing_while_another_one_is_usable(
    members: list[Member],
    held_back: dict[str, int],
    in_flight: dict[str, int],
    tried: tuple[str, ...],
    bits: int,
) -> None:
    candidates = Candidates.of(members)
    others = [one for one in members if one.key not in tried and usable(one) and held_back.get(one.key) != 0]

    chosen = select(candidates, in_flight, bits, tried, held_back)

    waits_for = [one for tier in eligible(candidates, tried, held_back) for one in tier.members]
    for one in [*waits_for, *([] if chosen is None else [chosen])]:
        assert not others or held_back.get(one.key) != 0


@given(MEMBERS, SHARES, IN_FLIGHT, TRIED, BITS)
def test_backups_unhealthy_and_unusable_members_come_behind_the_others(
    members: list[Member],
    held_back: dict[str, int],
    in_flight: dict[str, int],
    tried: tuple[str, ...],
    bits: int,
) -> None:
    chosen = select(Candidates.of(members), in_flight, bits, tried, held_back)

    left = [one for one in members if one.key not in tried and one.key not in held_back and usable(one)]
    if chosen is not None and left:
        assert usable(chosen)
        if any(one.unhealthy is None for one in left):
            assert chosen.unhealthy is None
            if any(one.unhealthy is None and not one.backend.backup for one in left):
                assert not chosen.backend.backup


@given(MEMBERS, IN_FLIGHT, TRIED, BITS)
def test_where_all_are_ejected_it_is_as_if_none_were(
    members: list[Member], in_flight: dict[str, int], tried: tuple[str, ...], bits: int
) -> None:
    candidates = Candidates.of(members)

    all_ejected = select(candidates, in_flight, bits, tried, dict.fromkeys(KEYS, 0))

    assert all_ejected is None or all_ejected.key not in tried
    assert (all_ejected is None) == (select(candidates, in_flight, bits, tried) is None)
    if all_ejected is not None and not candidates.bounded:
        assert all_ejected in eligible(candidates, tried)[0].members, "the best tier, as ever"


@given(MEMBERS, IN_FLIGHT, BITS)
def test_a_member_that_is_not_here_changes_nothing(
    members: list[Member], in_flight: dict[str, int], bits: int
) -> None:
    candidates = Candidates.of(members)

    elsewhere = select(candidates, in_flight, bits, (), {"another/b0": 0})

    assert elsewhere is select(candidates, in_flight, bits, (), NOBODY)


# --- in distribution ---------------------------------------------------------------------------------------


def drawn(candidates: Candidates, held_back: dict[str, int], count: int = 6000) -> Counter[str]:
    seeded = random.Random(11)
    picked = (select(candidates, {}, seeded.getrandbits(RANDOM_BITS), (), held_back) for _ in range(count))
    return Counter("none" if one is None else one.backend.name for one in picked)


def test_the_others_keep_their_weights_beside_an_ejected_one() -> None:
    three = Candidates.of([member("b0", weight=5), member("b1"), member("b2", weight=3)])

    chosen = drawn(three, {"toy/b0": 0})

    assert chosen["b0"] == 0
    assert chosen["b2"] == pytest.approx(4500, abs=300)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_one_that_re_enters_gets_its_share_of_what_is_usual(share: float) -> None:
    four = Candidates.of([member(f"b{number}") for number in range(4)])

    chosen = drawn(four, {"toy/b0": int(share * ALL_REQUESTS)})

    assert chosen["b0"] == pytest.approx(6000 / 4 * share, abs=150)
    assert sum(chosen.values()) == 6000


def test_a_full_member_leaves_its_requests_to_those_with_room() -> None:
    three = Candidates.of([member("b0", max_requests=2), member("b1"), member("b2", max_requests=9)])

    for bits in range(0, 1 << RANDOM_BITS, (1 << RANDOM_BITS) // 97):
        chosen = select(three, {"toy/b0": 2, "toy/b1": 5, "toy/b2": 8}, bits)
        assert chosen is not None
        assert chosen.backend.name != "b0"
    assert select(three, {"toy/b0": 2, "toy/b2": 9}, 0) is three.members[1]


def test_a_backup_does_not_help_out_where_the_others_are_only_full() -> None:
    both = Candidates.of([member("b0", max_requests=1), member("b1", backup=True)])

    assert select(both, {"toy/b0": 1}, 0) is None
    assert [one.backend.name for tier in eligible(both) for one in tier.members] == ["b0"]
    assert drawn(both, {"toy/b0": 0}) == {"b1": 6000}


def test_the_bound_is_the_smaller_one() -> None:
    assert [
        member("b", max_requests=requests, max_connections=connections).bound
        for requests, connections in ((0, 0), (5, 0), (0, 4), (5, 4))
    ] == [0, 5, 4, 4]
