"""One immutable value; views are kept by identity as long as nothing is known anew."""

from __future__ import annotations

from gateway.core.fleet import Answered, Failed
from gateway.core.snapshot import Snapshot
from tests.core.stage import Toy, observed, service, silent, upto, v

TWO = [service("a", "b"), service("c", name="other")]


def test_the_view_of_a_service_of_which_nothing_new_is_known_is_the_same_object() -> None:
    first = Snapshot.configured(TWO, now=0.0)

    second = first.knowing(first.fleet.observe("toy", "a", Answered(upto(5), 1.0)), 0.0)
    assert second.views["other"] is first.views["other"]
    assert second.views["toy"] is not first.views["toy"]
    assert second.routes is first.routes

    again = second.knowing(second.fleet.observe("toy", "a", Answered(upto(5), 9.0)), 0.0)
    assert again.views["toy"] is second.views["toy"], "the same word again: only its time is new"

    third = again.knowing(again.fleet.observe("toy", "a", Failed("x", 10.0)), 0.0)
    assert third.views["toy"] is not again.views["toy"], "another tier"
    assert [each.generation for each in (first, second, again, third)] == [1, 2, 2, 3]


def test_a_reload_makes_every_view_anew_and_keeps_what_is_known() -> None:
    """Views are made from services, and what was remembered for the old ones must not outlive them."""
    first = Snapshot.configured(TWO, now=0.0)
    known = first.knowing(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 0.0)

    reloaded = Snapshot.configured(TWO, after=known, now=0.0)

    assert reloaded.generation == known.generation + 1
    assert reloaded.views["toy"] is not known.views["toy"]
    assert reloaded.views["toy"].pool.members == known.views["toy"].pool.members
    assert reloaded.views["toy"].offer == known.views["toy"].offer
    assert set(Snapshot.configured(TWO[:1], after=reloaded, now=0.0).views) == {"toy"}


def test_the_tables_of_a_view() -> None:
    first = Snapshot.configured([service("quiet", "new", "never")], now=0.0)
    view = first.knowing(
        observed(first.fleet, {"quiet": silent("1.1"), "new": upto(9), "never": None}), 0.0
    ).views["toy"]

    def names(members: object) -> list[str]:
        return [each.backend.name for each in members.members]  # type: ignore[attr-defined]  # Candidates

    assert names(view.everyone) == ["quiet", "new"]
    assert names(view.speaking) == ["new"]
    assert sorted(names(view.by_version.candidates(v("1.1")))) == ["new", "quiet"]
    assert names(view.speaking_by_version.candidates(v("1.1"))) == ["new"]
    assert names(view.by_version.candidates(v("1.9"))) == ["new"]


def test_every_header_that_some_dialect_reads_or_owns_is_set_apart() -> None:
    class Elsewhere(Toy):
        reads = frozenset({"x-elsewhere"})
        owned_request = frozenset({"x-elsewhere", "x-old"})

    both = Snapshot.configured([TWO[0], service("c", name="other", dialect=Elsewhere())], now=0.0)

    assert both.owned == {"x-version", "accept", "x-kind", "x-elsewhere", "x-old"}
    assert both.knowing(both.fleet, 0.0).owned == both.owned
