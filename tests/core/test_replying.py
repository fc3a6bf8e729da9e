"""What a client is told of a backend's reply: the version as the backend said it, the range of the offer."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest

from gateway.core.backend import Member
from gateway.core.decision import Forward, Resolution, decide
from gateway.core.dialect import Advert
from gateway.core.message import Header, RequestHead
from gateway.core.ranges import VersionSet
from gateway.core.replying import Marking, mark, vary_lines
from gateway.core.service import Policy
from gateway.core.snapshot import Snapshot
from tests.core.stage import Toy, backend, silent, snapshot, upto, v

MIXED = snapshot({"quiet": silent("1.1"), "old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE)
RANGE = (("x-min", "1.1"), ("x-max", "1.9"))


def settled(base: Snapshot, version: str | None = "1.1", path: str = "/x") -> Resolution:
    head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))
    decision = decide(base, head, "", {}, 0, {})
    assert isinstance(decision, Forward)
    return decision.resolution


def member(base: Snapshot, name: str) -> Member:
    found = base.views["toy"].pool.member(name)
    assert found is not None
    return found


def told(
    name: str, *fields: Header, version: str = "1.1", status: int = 200, base: Snapshot = MIXED
) -> Marking:
    return mark(settled(base, version), member(base, name), status, fields)


def lines(marking: Marking) -> list[str]:
    return marking.lines.decode().split("\r\n")[:-1]


def test_the_range_becomes_the_offers_and_the_served_version_stays() -> None:
    marking = told("old", ("x-version", "1.3"), ("x-min", "1.1"), ("x-max", "1.5"), version="1.3")

    assert lines(marking) == ["X-Version: 1.3", "X-Min: 1.1", "X-Max: 1.9", "Vary: X-Version"]
    assert not marking.contradicts
    assert marking.fact is None


def test_a_silent_member_in_a_mixed_fleet_looks_like_the_others() -> None:
    assert lines(told("quiet")) == lines(told("new", ("x-version", "1.1"), *RANGE))


def test_where_a_backend_says_nothing_nothing_is_made_up() -> None:
    assert lines(told("new", status=404)) == ["Vary: X-Version"]


def test_in_a_transparent_service_nothing_is_added_or_taken_away() -> None:
    base = snapshot({"a": silent("1.1")})
    fields = (("x-version", "7"), ("vary", "Accept"), ("x-max", "?"))

    marking = mark(settled(base, "spam"), member(base, "a"), 200, fields)

    assert lines(marking) == ["x-version: 7", "vary: Accept", "x-max: ?"]


def test_one_that_begins_to_speak_in_a_transparent_service_is_a_fact() -> None:
    base = snapshot({"a": silent("1.1")})

    marking = mark(settled(base, None), member(base, "a"), 200, RANGE)

    assert marking.fact == upto(9)
    assert lines(marking) == ["x-min: 1.1", "x-max: 1.9"], "this reply was asked for under the old truth"


# --- facts ---------------------------------------------------------------------------------------------


def test_only_a_range_that_is_news_is_a_fact() -> None:
    assert told("new", *RANGE).fact is None
    assert told("new").fact is None
    assert told("new", ("x-min", "1.1"), ("x-max", "1.12")).fact == upto(12)
    assert told("old", ("x-min", "1.1"), ("x-max", "1.2")).fact == upto(2)


def test_what_is_declared_is_not_learned() -> None:
    declared = backend("a", declared=VersionSet.between(v("1.1"), v("1.5")))
    base = snapshot({}, backends=(declared,))

    assert mark(settled(base), member(base, "a"), 200, RANGE).fact is None


def test_a_silent_one_that_speaks_of_just_what_its_silence_stood_for_is_news() -> None:
    """Another gateway in its place may offer exactly 1.1; silence and a range of one are not the same."""
    marking = told("quiet", ("x-min", "1.1"), ("x-max", "1.1"))

    assert marking.fact == Advert(VersionSet.only(v("1.1")))


def test_a_member_of_which_nothing_is_known_any_more_can_still_be_heard() -> None:
    stranger = Member("toy", backend("new"))

    assert mark(settled(MIXED), stranger, 200, RANGE).fact == upto(9)


# --- contradictions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said, status, contradicts",
    [("1.3", 200, False), ("1.2", 200, True), (None, 200, False), ("spam", 200, False), ("1.2", 406, False)],
)
def test_V9_a_backend_that_served_another_version_is_counted_and_the_client_told_the_truth(
    said: str | None, status: int, contradicts: bool
) -> None:
    fields = () if said is None else (("x-version", said),)

    marking = told("old", *fields, version="1.3", status=status)

    assert marking.contradicts is contradicts
    assert ("X-Version: 1.2" in lines(marking)) is (said == "1.2")


def test_where_nothing_was_settled_nothing_is_contradicted() -> None:
    marking = mark(settled(MIXED, path="/doc"), member(MIXED, "new"), 200, (("x-version", "1.9"),))

    assert not marking.contradicts
    assert lines(marking) == ["X-Version: 1.9", "Vary: X-Version"]


# --- Vary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said, expected",
    [
        ([], ["Vary: A, B"]),
        (["Accept"], ["Vary: Accept", "Vary: A, B"]),
        (["Accept, a"], ["Vary: Accept, a", "Vary: B"]),
        (["Accept", " B ,A"], ["Vary: Accept", "Vary:  B ,A"]),
        (["*"], ["Vary: *"]),
        (["Accept, *"], ["Vary: Accept, *"]),
        ([""], ["Vary: ", "Vary: A, B"]),
    ],
)
def test_V10_our_names_join_the_backends_own(said: list[str], expected: list[str]) -> None:
    assert [f"{name}: {value}" for name, value in vary_lines(tuple(said), ("A", "B"))] == expected


def test_V10_a_backends_own_vary_is_kept_and_said_once() -> None:
    assert lines(told("new", ("vary", "Accept"), ("x-other", "1"))) == [
        "Vary: Accept",
        "Vary: X-Version",
        "x-other: 1",
    ]


def test_a_dialect_without_vary_adds_none() -> None:
    base = snapshot({"a": upto(5)}, dialect=Toy(vary=()))

    assert lines(mark(settled(base), member(base, "a"), 200, ())) == []


def test_a_reply_that_says_nothing_new_is_plain_and_all_others_are_not() -> None:
    assert told("new", ("x-version", "1.1"), *RANGE).plain
    assert not told("new", ("x-max", "1.12"), ("x-min", "1.1")).plain
    assert not told("new", ("x-version", "1.2")).plain
    assert not told("new", status=406).plain
