"""The gate of a rolling upgrade: judged by counts, before and after."""

from __future__ import annotations

import pytest

from gateway.cli.roll.gate import Counts, Limits, judge, since
from gateway.cli.roll.plan import make_plan

LIMITS = Limits()


@pytest.mark.parametrize(
    "versions, lost, passes, text",
    [
        ([(1000, 0, 1000, 0)], 0, True, "1000 requests, 0.0 % 5xx, others 0.0 %"),
        ([(1030, 30, 1025, 25)], 0, True, "others 2.4 %"),  # all have a bad minute
        ([(1030, 30, 1000, 0)], 0, False, "1030 requests, 2.9 % 5xx, others 0.0 %"),
        ([(99, 49, 1000, 0)], 0, True, "unknown, fewer than 100 requests (99 requests"),
        ([(1900, 900, 0, 0)], 0, True, "unknown, fewer than 100 requests of the others at the same versions"),
        ([(900, 90, 0, 0), (50, 0, 50, 0), (49, 0, 900, 0)], 0, True, "unknown, fewer than 100 requests of"),
        ([(900, 90, 100, 10), (100, 0, 900, 0)], 0, True, "others 5.0 %"),  # its clients use what fails
        ([(900, 90, 100, 10), (100, 9, 900, 0)], 0, False, "1000 requests, 9.5 % 5xx, others 5.0 %"),
        ([(1000, 0, 1000, 0)], 1, False, "1 request lost"),
        ([], 2, False, "2 requests lost"),
        ([], 0, True, "unknown, fewer than 100 requests (0 requests, 0.0 % 5xx)"),
    ],
)
def test_judge(versions: list[tuple[int, ...]], lost: int, passes: bool, text: str) -> None:
    judged = judge(Counts(lost, {str(number): each for number, each in enumerate(versions)}), LIMITS)

    assert judged.passes is passes
    assert text in judged.text


def told(member: str, lost: int, **by_version: list[int]) -> dict[str, object]:
    return {"member": member, "trouble": "", "lost": lost, "by_version": by_version}


def test_counts_are_of_all_replicas_and_a_process_that_has_started_meanwhile_counts_from_zero() -> None:
    first, ended = told("a", 3, v1=[9, 0, 20, 2]), told("b", 7, v1=[9, 9, 9, 9])
    later, other = told("a", 4, v1=[19, 1, 30, 2], v2=[1, 0, 0, 0]), told("a", 1, v1=[5, 0, 5, 5])

    assert since({"x": first, "y": ended}, {"x": later, "y": ended, "z": other}) == Counts(
        2, {"v1": [15, 1, 15, 5], "v2": [1, 0, 0, 0]}
    )


def test_a_replica_that_was_away_since_another_member_was_judged_adds_what_it_lost() -> None:
    before, after = told("a", 3, v1=[9, 0, 20, 2]), told("b", 4, v1=[40, 2, 9, 0])

    assert since({"x": before}, {"x": after}) == Counts(1, {})


def test_what_a_replica_counted_while_it_was_away_is_not_of_this_upgrade() -> None:
    after = told("a", 5, v1=[9, 9, 9, 9])

    assert since({"x": None}, {"x": after}) == since({}, {"x": None}) == Counts(0, {})


def test_another_member_that_is_removed_meanwhile_does_not_make_the_others_better_than_perfect() -> None:
    before, after = told("a", 0, v1=[0, 0, 1000, 90]), told("a", 0, v1=[200, 0, 1300, 0])

    assert judge(since({"x": before}, {"x": after}), LIMITS).text == "200 requests, 0.0 % 5xx, others 0.0 %"


def backend(highest: str, *, drained: bool = False) -> dict[str, object]:
    return {"url": "http://x", "min": "1.1", "max": highest, "drained": drained}


def service(guaranteed: str, **backends: dict[str, object]) -> dict[str, object]:
    return {
        "backends": backends,
        "offer": {"min": "1.1", "max": "1.58", "held_by": []},
        "guaranteed": {"min": "1.1", "max": guaranteed},
    }


def test_the_oldest_is_first_and_what_is_finished_stays_so() -> None:
    fleet = {
        "a": backend("1.100"),
        "b": backend("1.90"),
        "c": backend("1.58"),
        "d": backend("1.9", drained=True),
    }
    status = service("1.58", **fleet) | {"oldest_first": ["c", "b", "d", "a"]}
    members, skipped = make_plan(status, {"c"})
    fleet["d"]["drained_by"] = "roll 1a2b"
    ours, nobody = make_plan(status, {"c"}, "roll 1a2b")

    assert ([each.name for each in members], skipped) == (["b", "a"], ["d"])
    assert ([each.name for each in ours], nobody) == (["d", "b", "a"], [])
    assert ours[0].words(["x", "{name}={url}", "{other}"]) == ["x", "d=http://x", "{other}"]
