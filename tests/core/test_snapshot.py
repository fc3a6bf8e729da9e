"""One immutable value; the view of a service stays the same object as long as nothing changes."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

from dataclasses import replace

from gateway.core.agreement.attachment import NOTHING_AGREED, Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Named, Version
from tests.core.builders import OtherToy, Toy, legacy, observed, service, upto, v

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


def test_a_reload_makes_the_view_of_a_changed_service_anew_and_keeps_what_is_known() -> None:
    """Views are made from services, and what was cached for the old ones must not outlive them."""
    first = Snapshot.configured(TWO, now=0.0)
    known = first.with_fleet(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 0.0)

    reloaded = Snapshot.configured([replace(each) for each in TWO], after=known, now=0.0)

    assert reloaded.generation == known.generation + 1
    assert reloaded.views["toy"] is not known.views["toy"]
    assert reloaded.views["toy"].members.all == known.views["toy"].members.all
    assert reloaded.views["toy"].offer == known.views["toy"].offer
    assert set(Snapshot.configured(TWO[:1], after=reloaded, now=0.0).views) == {"toy"}


def test_a_reload_keeps_the_view_of_a_service_that_is_written_as_before() -> None:
    written = [replace(each, written=each.name) for each in TWO]
    first = Snapshot.configured(written, now=0.0)
    known = first.with_fleet(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 0.0)

    other = replace(written[1], written="another text")
    reloaded = Snapshot.configured([replace(written[0]), other], after=known, now=0.0)

    assert reloaded.views["toy"] is known.views["toy"]
    assert reloaded.fleet.member_sets["toy"] is known.fleet.member_sets["toy"]
    assert reloaded.views["other"].service is other
    assert reloaded.generation == known.generation + 1


def test_what_was_worked_out_aside_is_brought_up_to_what_was_learned_meanwhile() -> None:
    first = Snapshot.configured(TWO, now=0.0)
    services = [replace(each) for each in TWO]
    aside = Snapshot.configured(services, after=first, now=1.0)
    learned = first.with_fleet(observed(first.fleet, {"a": upto(5), "b": upto(9)}), 1.0)

    found = aside.brought_up(first, learned, 2.0)

    expected = Snapshot.configured(services, after=learned, now=2.0)
    assert found.fleet.member_sets == expected.fleet.member_sets
    assert found.views["toy"].offer == expected.views["toy"].offer == learned.views["toy"].offer
    assert found.views["other"] is aside.views["other"], "nothing was learned of it"
    assert (found.generation, found.routes) == (learned.generation + 1, aside.routes)
    assert aside.brought_up(first, first, 2.0) is aside


def test_what_is_agreed_on_survives_a_reload_in_the_words_of_its_scheme() -> None:
    few = Named(("v1", "v2"))
    more = Named(("v1alpha1", "v1", "v2"))
    one = VersionSet.only(Version(0))
    record = AgreedRecord(4, "guaranteed", one, one, one, one, few.key)
    agreed = Agreed(record, attached=False)
    before = Snapshot.configured([service("a", dialect=Toy(scheme=few))], now=0.0).with_agreed(
        {"toy": agreed}, 0.0
    )

    def after(dialect: Toy) -> Agreed | None:
        reloaded = Snapshot.configured([service("b", dialect=dialect)], now=1.0, after=before)
        return reloaded.views["toy"].agreed

    assert after(Toy(scheme=few)) == agreed
    renamed = after(Toy(scheme=more))
    assert renamed is not None
    assert renamed.record is not None
    assert renamed.offered == VersionSet.only(Version(1)), "v1, in its new place"
    assert (renamed.record.scheme_key, renamed.record.seq) == (few.key, 4)
    assert renamed.attached is False
    assert after(OtherToy(scheme=few)) == NOTHING_AGREED, (
        "another dialect: nothing is, and nobody stands alone"
    )
    assert after(Toy()) == NOTHING_AGREED


def test_a_service_begins_with_what_the_gateway_begins_with() -> None:
    alone = Snapshot.configured(TWO, now=0.0)
    several = Snapshot.configured(TWO, now=0.0, agreed=NOTHING_AGREED)

    assert {view.agreed for view in alone.views.values()} == {None}
    assert {view.agreed for view in several.views.values()} == {NOTHING_AGREED}
    more = Snapshot.configured(
        [*TWO, service("d", name="new")], now=0.0, after=several, agreed=NOTHING_AGREED
    )
    assert more.views["new"].agreed == NOTHING_AGREED
    changed = replace(TWO[0], backends=(*TWO[0].backends, *TWO[1].backends))
    assert several.with_discovered([changed], 1.0).views["toy"].agreed == NOTHING_AGREED


def test_the_tables_of_a_view() -> None:
    first = Snapshot.configured([service("old", "new", "never")], now=0.0)
    view = first.with_fleet(
        observed(first.fleet, {"old": legacy("1.1"), "new": upto(9), "never": None}), 0.0
    ).views["toy"]

    def names(members: object) -> list[str]:
        return [each.backend.name for each in members.members]  # type: ignore[attr-defined]  # Candidates

    assert names(view.by_version.everyone) == ["old", "new"]
    assert names(view.non_legacy_by_version.everyone) == ["new"]
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
