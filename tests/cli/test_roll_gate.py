"""The gate of a rolling upgrade: judged by counts, before and after."""

from __future__ import annotations

import pytest

from gateway.cli.roll.gate import Limits, judge, lost, peers, read_counts, since
from gateway.cli.roll.plan import make_plan

LIMITS = Limits()


@pytest.mark.parametrize(
    "own, others, lost_ones, passes, text",
    [
        ((1000, 0), (1000, 0), 0, True, "1000 requests, 0.0 % 5xx, others 0.0 %"),
        ((1000, 30), (1000, 25), 0, True, "others 2.4 %"),  # all have a bad minute
        ((1000, 30), (1000, 0), 0, False, "1030 requests, 2.9 % 5xx, others 0.0 %"),
        ((50, 49), (1000, 0), 0, True, "unknown, fewer than 100 requests (99 requests"),
        ((1000, 900), (0, 0), 0, True, "unknown, fewer than 100 requests of the others"),
        ((1000, 0), (1000, 0), 1, False, "1 request lost"),
    ],
)
def test_judge(
    own: tuple[int, int], others: tuple[int, int], lost_ones: int, passes: bool, text: str
) -> None:
    counts = {("a", "200"): own[0], ("a", "503"): own[1], ("none", "502"): lost_ones, ("none", "406"): 9}
    counts |= {("b", "200"): others[0], ("b", "500"): others[1], ("c", "500"): 10_000}
    judged = judge(counts, "a", {"b"}, LIMITS)

    assert judged.passes is passes
    assert text in judged.text


def test_requests_are_read_from_the_metrics() -> None:
    text = (
        "# HELP skewgate_requests_total Finished requests.\n# TYPE skewgate_requests_total counter\n"
        'skewgate_requests_total{service="s",code="200",backend="api-1"} 12\n'
        'skewgate_requests_total{service="other",code="200",backend="api-1"} 7\n'
        'skewgate_requests_total{service="s",code="503",backend="none"} 1.0\n'
        'skewgate_requests_totally{service="s",code="200",backend="api-1"} 9\n'
    )

    assert read_counts(text, "s") == {("api-1", "200"): 12, ("none", "503"): 1}


def test_a_gateway_that_is_replaced_counts_from_zero() -> None:
    before = {("a", "200"): 100.0, ("none", "503"): 3.0}

    assert since(before, {("a", "200"): 130.0, ("none", "503"): 3.0}) == {
        ("a", "200"): 30,
        ("none", "503"): 0,
    }
    assert since(before, {("a", "200"): 130.0}) == {("a", "200"): 130}
    assert lost({("none", "503"): 2, ("none", "406"): 5, ("none", "none"): 1, ("a", "502"): 9}) == 2


def backend(highest: str, *, drained: bool = False) -> dict[str, object]:
    return {"url": "http://x", "min": "1.1", "max": highest, "drained": drained}


def service(guaranteed: str, **backends: dict[str, object]) -> dict[str, object]:
    return {
        "backends": backends,
        "offer": {"min": "1.1", "max": "1.58", "held_by": []},
        "guaranteed": {"min": "1.1", "max": guaranteed},
    }


def test_peers_get_requests_at_the_same_versions() -> None:
    fleet = {
        "a": backend("1.90"),
        "b": backend("1.58"),
        "c": backend("1.90"),
        "d": backend("1.90", drained=True),
    }

    assert peers(service("1.58", **fleet), "a") == {"b", "c"}
    assert peers(service("1.40", **fleet), "a") == {"c"}  # more is on offer than all serve


def test_the_oldest_is_first_by_number_and_what_is_finished_stays_so() -> None:
    fleet = {
        "a": backend("1.100"),
        "b": backend("1.90"),
        "c": backend("1.58"),
        "d": backend("1.9", drained=True),
    }
    plan = make_plan(service("1.58", **fleet), {"c"})
    fleet["d"]["drained_by"] = "roll 1a2b"
    ours = make_plan(service("1.58", **fleet), {"c"}, "roll 1a2b")

    assert ([each.name for each in plan.members], plan.skipped) == (["b", "a"], ["d"])
    assert ([each.name for each in ours.members], ours.skipped) == (["d", "b", "a"], [])
    assert ours.members[0].words(["x", "{name}={url}", "{other}"]) == ["x", "d=http://x", "{other}"]
