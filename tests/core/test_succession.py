"""Whom to ask next: what was settled on stands, and who serves it is looked up by what is known by now."""

from __future__ import annotations

from gateway.core.backend import Member
from gateway.core.decision import Forward, Resolution, decide
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Contradicted, Drain, Fact, Unreached
from gateway.core.message import RequestHead
from gateway.core.snapshot import Snapshot
from gateway.core.succession import next_member
from tests.core.stage import service, silent, snapshot, upto, v

THREE = snapshot({"a": upto(9), "b": upto(9), "c": upto(9)})


def settled(base: Snapshot, path: str = "/x", version: str | None = "1.8") -> Resolution:
    fields = () if version is None else (("x-version", version),)
    decision = decide(base, RequestHead("GET", path, "", fields), "h", {}, 0, {})
    assert isinstance(decision, Forward)
    return decision.resolution


def after(base: Snapshot, *facts: tuple[str, Fact], drained: tuple[str, ...] = ()) -> Snapshot:
    fleet = base.fleet
    for name, fact in facts:
        fleet = fleet.observe("toy", name, fact)
    for name in drained:
        fleet = fleet.obey("toy", Drain(name))
    return base.knowing(fleet, 10.0)


def order(resolution: Resolution, now: Snapshot, *tried: str) -> list[str]:
    """Whom it would be sent to, one after the other, until nobody is left."""
    found: list[str] = []
    done = [f"toy/{name}" for name in tried]
    while (member := next_member(resolution, now, {}, 0, done)) is not None:
        found.append(named(member))
        done.append(member.key)
    return found


def named(member: Member) -> str:
    return member.backend.name


def test_everybody_is_asked_once() -> None:
    assert sorted(order(settled(THREE), THREE)) == ["a", "b", "c"]
    assert sorted(order(settled(THREE), THREE, "b")) == ["a", "c"]
    assert order(settled(THREE), THREE, "a", "b", "c") == []


def test_who_was_drained_since_is_left_out() -> None:
    assert order(settled(THREE), after(THREE, drained=("b",)), "a") == ["c"]


def test_who_has_refused_a_connection_since_comes_last() -> None:
    assert order(settled(THREE), after(THREE, ("b", Unreached(5.0))), "a") == ["c", "b"]


def test_who_lost_the_version_since_or_contradicted_it_is_left_out() -> None:
    now = after(THREE, ("b", Answered(upto(7), 5.0)), ("c", Contradicted(v("1.8"), 5.0)))

    assert order(settled(THREE), now) == ["a"]
    assert sorted(order(settled(THREE, version="1.7"), now)) == ["a", "b", "c"]


def test_who_has_gained_it_since_is_asked_too() -> None:
    base = snapshot({"a": upto(9), "b": upto(5)}, settle=0.0)
    resolution = settled(base, version="1.4")

    assert sorted(order(resolution, after(base, ("b", Answered(upto(9), 5.0))))) == ["a", "b"]


def test_places_keep_whom_they_need() -> None:
    """A silent member gets nothing that needs a version, also when it turned silent only now."""
    quiet = after(THREE, ("b", Answered(silent("1.8"), 5.0)))

    assert sorted(order(settled(THREE, "/new"), quiet)) == ["a", "c"]
    assert sorted(order(settled(THREE, "/doc", None), quiet)) == ["a", "c"]
    assert sorted(order(settled(THREE, "/legacy", None), quiet)) == ["a", "b", "c"]
    assert sorted(order(settled(THREE), quiet)) == ["a", "b", "c"]


def test_where_another_head_would_have_to_be_written_it_stays_as_it_was() -> None:
    """The service has turned transparent, was configured anew, or is gone."""
    resolution = settled(THREE)
    facts = [(name, Answered(Advert(silent("1.8").versions, silent=True), 5.0)) for name in ("a", "b", "c")]
    transparent = after(THREE, *facts)
    anew = Snapshot.configured([service("a")], now=10.0, after=THREE)
    gone = Snapshot.configured([service("a", name="other")], now=10.0)

    for now in (transparent, anew, gone):
        assert sorted(order(resolution, now)) == ["a", "b", "c"]
