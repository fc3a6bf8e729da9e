"""One immutable value; the view of a service stays the same object as long as nothing changes."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS
from tests.core.builders import Toy, legacy, observed, service, upto, v

TWO = [service("a", "b"), service("c", name="other")]


def test_the_view_of_a_service_about_which_nothing_changed_is_the_same_object() -> None:
    first = Snapshot.configured(TWO, now=0.0)

    second = first.with_fleet(first.fleet.observe("toy", "a", ProbeSucceeded(upto(5), 1.0)), 0.0)
    assert second.views["other"] is first.views["other"]
    assert second.views["toy"] is not first.views["toy"]
    assert second.routes is first.routes

    again = second.with_fleet(second.fleet.observe("toy", "a", ProbeSucceeded(upto(5), 9.0)), 0.0)
    assert again.views["toy"] is second.views["toy"], "the same advertisement: only its time is new"

    third = again.with_fleet(again.fleet.observe("toy", "a", ProbeFailed("x", 10.0)), 0.0)
    assert third.views["toy"] is not again.views["toy"], "another tier"
    assert [one.generation for one in (first, second, again, third)] == [1, 2, 2, 3]


def test_a_reload_makes_every_view_anew_and_keeps_what_is_known() -> None:
    """Views are made from services, and what was cached for the old ones must not outlive them."""
    first = Snapshot.configured(TWO, now=0.0)
    known = first.with_fleet(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 0.0)

    reloaded = Snapshot.configured(TWO, after=known, now=0.0)

    assert reloaded.generation == known.generation + 1
    assert reloaded.views["toy"] is not known.views["toy"]
    assert reloaded.views["toy"].pool.members == known.views["toy"].pool.members
    assert reloaded.views["toy"].offer == known.views["toy"].offer
    assert set(Snapshot.configured(TWO[:1], after=reloaded, now=0.0).views) == {"toy"}


def test_the_tables_of_a_view() -> None:
    first = Snapshot.configured([service("old", "new", "never")], now=0.0)
    view = first.with_fleet(
        observed(first.fleet, {"old": legacy("1.1"), "new": upto(9), "never": None}), 0.0
    ).views["toy"]

    def names(members: object) -> list[str]:
        return [each.backend.name for each in members.members]  # type: ignore[attr-defined]  # Candidates

    assert names(view.everyone) == ["old", "new"]
    assert names(view.non_legacy) == ["new"]
    assert sorted(names(view.by_version.candidates(v("1.1")))) == ["new", "old"]
    assert names(view.non_legacy_by_version.candidates(v("1.1"))) == ["new"]
    assert names(view.by_version.candidates(v("1.9"))) == ["new"]


def test_every_header_that_some_dialect_reads_or_owns_is_selected() -> None:
    class Elsewhere(Toy):
        reads = frozenset({"x-elsewhere"})
        owned_request = frozenset({"x-elsewhere", "x-old"})

    both = Snapshot.configured([TWO[0], service("c", name="other", dialect=Elsewhere())], now=0.0)

    assert both.selected_names == {"x-version", "accept", "x-kind", "x-elsewhere", "x-old"}
    assert both.with_fleet(both.fleet, 0.0).selected_names == both.selected_names


def test_R_B10_the_headers_of_untrusted_peers_are_those_of_the_configuration() -> None:
    first = Snapshot.configured(TWO[:1], now=0.0, untrusted_headers=("X-Remote-User",))
    later = first.with_fleet(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 0.0)

    assert first.untrusted_headers == later.untrusted_headers == ("X-Remote-User",)
    assert later.generation == first.generation + 1
    assert Snapshot.configured(TWO[:1], now=0.0, after=later).untrusted_headers == UNTRUSTED_HEADERS
