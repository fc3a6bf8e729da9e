"""A floor hides versions of the offer state and removes none; it is no reason to wait for anybody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.fleet.fleet import Raise
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Version
from tests.core.agreement.records import minors, sets, universe
from tests.core.builders import service, upto, v
from tests.core.timeline import STABILIZATION, UPTO_5, UPTO_9, Timeline, timeline

XY = MajorMinor()


def test_a_raised_floor_is_the_minimum_until_it_is_lowered() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_9, "b": UPTO_9})

    assert it.apply(Raise(v("1.4"))) == "1.4-1.9"
    assert (it.view.offer.floor, it.view.offer.raised, it.view.offer.suspended) == (v("1.4"), True, False)
    assert it.held() == ("uniform", (), None)
    assert it.apply(Raise(None)) == "1.1-1.9"
    assert it.view.offer.floor is None


def test_a_raised_floor_replaces_that_of_the_file() -> None:
    it = Timeline(service("a", floor=v("1.6")))
    it.probe({"a": UPTO_9})
    assert it.text == "1.6-1.9"

    assert it.apply(Raise(v("1.3"))) == "1.3-1.9"
    assert it.reload(service("a", floor=v("1.7"))) == "1.3-1.9"
    assert it.apply(Raise(None)) == "1.7-1.9"


def test_versions_that_only_some_serve_beneath_the_floor_hold_nothing_back() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.apply(Raise(v("1.4")))
    it.probe({"b": upto(9, 3)})

    assert it.text == "1.4-1.9"
    assert it.held()[2] is None or it.view.offer.held.versions <= it.view.offer.versions


def test_while_all_is_beneath_it_the_floor_is_suspended() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.apply(Raise(v("1.7")))
    assert it.probe({"a": UPTO_5, "b": UPTO_5}) == "1.1-1.5"
    assert it.view.offer.suspended
    assert it.held() == ("uniform", (), None)

    it.probe({"a": UPTO_9, "b": UPTO_9})
    assert it.wait(2 * STABILIZATION) == "1.7-1.9"
    assert not it.view.offer.suspended


def test_a_floor_above_the_ceiling_leaves_what_is_beneath_the_ceiling() -> None:
    """The file's ceiling cannot be refused, whatever an operator has raised."""
    it = Timeline(service("a", "b"))
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.apply(Raise(v("1.7")))

    assert it.reload(service("a", "b", ceiling=v("1.5"))) == "1.1-1.5"
    assert it.held() == ("capped", (), "ceiling")
    assert it.view.offer.suspended


def test_it_is_there_after_a_restart_and_another_scheme_drops_it() -> None:
    it = timeline("a")
    it.probe({"a": UPTO_9})
    it.apply(Raise(v("1.4")))
    again = Timeline(service("a", stabilization=STABILIZATION), it.snapshot.saved()["toy"])
    again.probe({"a": UPTO_9})

    assert again.text == "1.4-1.9"


@given(state=sets(XY), ends=st.lists(st.none() | st.sampled_from(universe(XY)), min_size=2, max_size=2))
def test_what_is_within_is_each_version_between_the_ends(
    state: VersionSet, ends: list[Version | None]
) -> None:
    ceiling, floor = ends
    found = state.within(ceiling, floor)

    below = {one for one in universe(XY) if one in state and (ceiling is None or one <= ceiling)}
    left = {one for one in below if floor is None or one >= floor}
    assert {one for one in universe(XY) if one in found} == (left or below)
    assert found <= state


def test_within_nothing_is_nothing() -> None:
    assert not VersionSet().within(v("1.5"), v("1.7"))
    assert minors(1, 9).within(None, None) == minors(1, 9)
