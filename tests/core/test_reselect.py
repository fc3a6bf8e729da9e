"""reselect(): the negotiated version stands, and the next backend is chosen by the present snapshot."""

from __future__ import annotations

from gateway.core.decision.decision import Forward, Resolution, decide, reselect
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Drain,
    Fact,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from tests.core.builders import legacy, service, snapshot, upto, v

THREE = snapshot({"a": upto(9), "b": upto(9), "c": upto(9)})


def negotiated(base: Snapshot, path: str = "/x", version: str | None = "1.8") -> Resolution:
    fields = () if version is None else (("x-version", version),)
    decision = decide(base, RequestHead("GET", path, "", fields), "h", {}, 0, {})
    assert isinstance(decision, Forward)
    return decision.resolution


def after(base: Snapshot, *facts: tuple[str, Fact], drained: tuple[str, ...] = ()) -> Snapshot:
    fleet = base.fleet
    for name, fact in facts:
        fleet = fleet.observe("toy", name, fact)
    for name in drained:
        fleet = fleet.apply("toy", Drain(name))
    return base.with_fleet(fleet, 10.0)


def order(resolution: Resolution, present: Snapshot, *tried: str) -> list[str]:
    """The members that it would be sent to, one after the other, until none is left."""
    found: list[str] = []
    done = [f"toy/{name}" for name in tried]
    while (member := reselect(resolution, present, {}, 0, done)) is not None:
        found.append(member.backend.name)
        done.append(member.key)
    return found


def test_every_member_is_tried_once() -> None:
    assert sorted(order(negotiated(THREE), THREE)) == ["a", "b", "c"]
    assert sorted(order(negotiated(THREE), THREE, "b")) == ["a", "c"]
    assert order(negotiated(THREE), THREE, "a", "b", "c") == []


def test_a_member_that_was_drained_since_is_left_out() -> None:
    assert order(negotiated(THREE), after(THREE, drained=("b",)), "a") == ["c"]


def test_a_member_to_which_a_connection_failed_since_comes_last() -> None:
    assert order(negotiated(THREE), after(THREE, ("b", ConnectFailed(5.0))), "a") == ["c", "b"]


def test_a_member_that_lost_the_version_since_or_mismatched_at_it_is_left_out() -> None:
    present = after(THREE, ("b", ProbeSucceeded(upto(7), 5.0)), ("c", VersionMismatch(v("1.8"), 5.0)))

    assert order(negotiated(THREE), present) == ["a"]
    assert sorted(order(negotiated(THREE, version="1.7"), present)) == ["a", "b", "c"]


def test_a_member_that_gained_the_version_since_is_tried_too() -> None:
    base = snapshot({"a": upto(9), "b": upto(5)}, stabilization=0.0)
    resolution = negotiated(base, version="1.4")

    assert sorted(order(resolution, after(base, ("b", ProbeSucceeded(upto(9), 5.0))))) == ["a", "b"]


def became_legacy(name: str) -> list[tuple[str, Fact]]:
    """Three probes in a row got a legacy answer."""
    return [(name, ProbeSucceeded(legacy("1.8"), at)) for at in (5.0, 6.0, 7.0)]


def test_a_member_whose_version_is_unknown_gets_nothing_that_needs_a_version() -> None:
    doubtful = after(THREE, ("b", ServedVersionMissing(5.0)))

    assert sorted(order(negotiated(THREE), doubtful)) == ["a", "c"]
    assert sorted(order(negotiated(THREE, "/new"), doubtful)) == ["a", "c"]
    assert sorted(order(negotiated(THREE, "/doc", None), doubtful)) == ["a", "c"]
    assert sorted(order(negotiated(THREE, "/legacy", None), doubtful)) == ["a", "b", "c"]


def test_an_endpoint_keeps_the_members_that_it_needs() -> None:
    """A legacy member gets nothing that needs a version, also when it became legacy only now."""
    mixed = after(THREE, *became_legacy("b"))

    assert sorted(order(negotiated(THREE, "/new"), mixed)) == ["a", "c"]
    assert sorted(order(negotiated(THREE, "/doc", None), mixed)) == ["a", "c"]
    assert sorted(order(negotiated(THREE, "/legacy", None), mixed)) == ["a", "b", "c"]
    assert sorted(order(negotiated(THREE), mixed)) == ["a", "b", "c"]


def test_where_the_request_would_need_another_head_the_candidates_stay() -> None:
    """The service has become transparent, was configured anew, or is gone."""
    resolution = negotiated(THREE)
    transparent = after(THREE, *(fact for name in ("a", "b", "c") for fact in became_legacy(name)))
    anew = Snapshot.configured([service("a")], now=10.0, after=THREE)
    gone = Snapshot.configured([service("a", name="other")], now=10.0)

    for present in (transparent, anew, gone):
        assert sorted(order(resolution, present)) == ["a", "b", "c"]
