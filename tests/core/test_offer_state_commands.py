"""What an operator's commands, reloads and restarts do to the offer state (semantics, Offering)."""

from __future__ import annotations

import pytest

from gateway.core.decision.decision import Forward, NegotiationResult, Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.offer_state import EMPTY, SavedAdvertisement, SavedState
from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Named, WholeNumber
from tests.core.builders import OtherToy, Toy, backend, legacy, service, upto, v
from tests.core.timeline import (
    NEW,
    OLD,
    STABILIZATION,
    UPTO_5,
    UPTO_9,
    Timeline,
    policy_of,
    timeline,
    upgraded,
)

# --- commands ----------------------------------------------------------------------------------------------


def test_removing_acts_at_once_and_draining_does_not() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})
    assert it.drain("b") == NEW
    assert it.reload(service("a", stabilization=STABILIZATION)) == OLD


def test_removing_acts_even_while_those_that_stay_are_down() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})
    it.probe({"a": None})

    assert it.reload(service("a", stabilization=STABILIZATION)) == OLD


def test_removing_the_oldest_lets_the_offer_grow() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_9})
    assert it.reload(service("b", stabilization=STABILIZATION)) == OLD
    assert it.wait(STABILIZATION) == NEW


def test_another_address_is_another_backend_and_the_one_before_is_removed() -> None:
    """What only the old one served leaves when the first probe of the new one has ended."""
    it = upgraded()
    it.probe({"a": UPTO_5})
    moved = (backend("a"), backend("b", port=81))

    assert it.reload(service(backends=moved, stabilization=STABILIZATION)) == NEW
    assert it.probe({"b": None}) == OLD


def test_an_equal_reload_keeps_pending_versions_and_their_time() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.wait(6)
    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == OLD
    assert it.wait(4) == NEW


def test_a_shorter_stabilization_applies_to_pending_versions_that_are_still_given() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"b": UPTO_9})
    it.wait(5)
    assert it.reload(service("a", "b", policy=Policy.REACHABLE, stabilization=5.0)) == NEW

    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"b": UPTO_9})
    it.probe({"a": None})
    it.wait(5)
    assert it.reload(service("a", "b", stabilization=0.0)) == OLD, (
        "guaranteed gives less, however short the stabilization"
    )

    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"b": UPTO_9})
    it.probe({"a": None})
    it.wait(5)
    assert it.reload(service("a", policy=Policy.REACHABLE, stabilization=0.0)) == OLD, "b gave it and is gone"


def test_a_reload_comes_too_late_for_versions_that_were_pending_long_enough() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.now += STABILIZATION

    assert it.reload(service("a", "b", stabilization=2 * STABILIZATION)) == NEW


def test_another_policy_cuts_the_offer_to_what_it_gives() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    assert it.probe({"a": UPTO_5, "b": UPTO_9}) == NEW

    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == OLD
    assert it.held() == ("mixed", ("a",), "guaranteed")
    assert it.reload(service("a", "b", policy=Policy.REACHABLE, stabilization=STABILIZATION)) == OLD
    assert it.wait(STABILIZATION) == NEW, "more waits as always"


def test_a_policy_that_gives_nothing_cuts_nothing() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": upto(9, 6)})
    assert it.text == NEW

    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == NEW
    assert it.held() == ("mixed", ("a", "b"), "state")


def test_the_offer_is_formed_anew_when_a_cut_leaves_nothing() -> None:
    it = timeline("a", "b", "c", **policy_of(Policy.REACHABLE))
    it.probe({"a": upto(9, 7), "b": UPTO_5, "c": UPTO_5})
    assert it.text == "1.7-1.9"

    one = service("a", "b", "c", policy=Policy.AT_LEAST, at_least=AtLeast(2), stabilization=STABILIZATION)
    assert it.reload(one) == OLD


def test_the_same_policy_cuts_nothing() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})

    assert it.reload(service("a", "b", stabilization=1.0, at_least=AtLeast(1))) == NEW, "not its number"


def test_a_cut_that_waits_survives_another_reload_and_a_restart() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_9})
    more = service("a", "b", "c", stabilization=STABILIZATION)
    assert (it.reload(more), it.reload(more)) == (NEW, NEW)
    again = Timeline(more, it.snapshot.saved()["toy"])

    for each in (it, again):
        each.probe({"a": UPTO_5, "b": UPTO_9})
        assert each.text == NEW
        assert each.probe({"c": None}) == OLD


def test_a_ceiling_is_a_view_and_unpin_shows_at_once_what_is_beneath() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    assert it.pin("1.5") == OLD
    assert it.held() == ("uniform", (), None)
    it.probe({"a": UPTO_9})
    assert it.held() == ("mixed", ("b",), "guaranteed")
    it.probe({"b": UPTO_9})
    assert it.held() == ("stabilizing", (), "stabilization")
    assert it.wait(STABILIZATION) == OLD
    assert it.held() == ("capped", (), "ceiling")

    assert it.pin(None) == NEW
    assert it.held() == ("uniform", (), None)


def test_a_pin_replaces_the_ceiling_of_the_file_until_it_is_removed() -> None:
    it = upgraded_under("1.5")
    assert (it.text, it.offer.pinned) == (OLD, False)
    assert (it.pin("1.7"), it.offer.pinned) == ("1.1-1.7", True)
    assert it.pin("1.3") == "1.1-1.3"
    assert it.reload(service("a", "b", stabilization=STABILIZATION, ceiling=v("1.8"))) == "1.1-1.3"
    assert (it.pin(None), it.offer.ceiling) == ("1.1-1.8", v("1.8"))


def upgraded_under(ceiling: str) -> Timeline:
    it = timeline("a", "b", ceiling=v(ceiling))
    it.probe({"a": UPTO_9, "b": UPTO_9})
    return it


def test_a_minimum_above_the_ceiling_leaves_nothing_on_offer_and_requests_are_503() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.pin("1.3")
    it.probe({"a": upto(9, 4), "b": upto(9, 4)})

    assert (it.text, it.held()) == ("none", ("unknown", (), "ceiling"))
    for version in (None, v("1.3"), v("1.5")):
        decision = it.send(version)
        assert isinstance(decision, Refuse)
        assert (decision.result, decision.response.status) == (NegotiationResult.UNAVAILABLE, 503)
    assert it.pin(None) == "1.4-1.5"
    assert isinstance(it.send(v("1.4")), Forward)


# --- reloads and restarts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect, same",
    [(Toy(), True), (OtherToy(), False), (Toy(scheme=WholeNumber()), False)],
    ids=["the same", "another dialect", "another scheme"],
)
def test_a_reload_with_another_dialect_or_scheme_starts_empty(dialect: Toy, same: bool) -> None:
    it = upgraded()
    it.pin("1.7")
    it.drain("b")

    it.reload(service("a", "b", dialect=dialect, stabilization=STABILIZATION))

    assert (it.view.offer_state == EMPTY) is not same
    assert it.offer.versions == (VersionSet.between(v("1.1"), v("1.7")) if same else VersionSet())
    assert it.offer.pinned is same


def test_a_service_of_another_name_starts_empty() -> None:
    it = upgraded()
    renamed = Snapshot.configured([service("a", "b", name="other")], now=0.0, after=it.snapshot)

    assert not renamed.views["other"].offer.versions


def test_saved_state_applies_before_the_first_probe() -> None:
    it = upgraded()
    it.pin("1.7")
    it.drain("b")
    saved = it.snapshot.saved()["toy"]
    advertised = {name: SavedAdvertisement(f"http://{name}.test:80", UPTO_9) for name in ("a", "b")}
    assert saved == SavedState(UPTO_9.versions, v("1.7"), {"b": ""}, (Policy.GUARANTEED, None), advertised)

    again = Timeline(service("a", "b", stabilization=STABILIZATION), saved)

    assert again.text == "1.1-1.7"
    assert again.snapshot.saved() == it.snapshot.saved()
    assert isinstance(again.send(v("1.5")), Refuse), "no request before the first probe: 503"
    assert again.probe({"a": UPTO_5, "b": UPTO_9}) == "1.1-1.7"
    assert again.pin(None) == NEW, "b is drained and still serves it"
    assert again.probe({"b": UPTO_5}) == OLD


def test_saved_versions_leave_after_the_first_probes() -> None:
    again = Timeline(service("a", "b", stabilization=STABILIZATION), SavedState(UPTO_9.versions))

    assert again.probe({"a": UPTO_5, "b": UPTO_5}) == OLD


def test_a_restored_advertisement_counts_only_for_the_same_backend() -> None:
    it = upgraded()
    saved = it.snapshot.saved()["toy"]
    backends = (
        backend("a", port=81),
        backend("b", declared=UPTO_5.versions),
        backend("c"),
    )

    members = Timeline(service(backends=backends), saved).view.members.all

    assert [member.advertisement for member in members] == [None, UPTO_5, None]


def test_a_restored_advertisement_is_never_newer_than_the_restart() -> None:
    """The wall clock was set back meanwhile. The first probe must count all the same."""
    saved = {"a": SavedAdvertisement("http://a.test:80", UPTO_9, at=1e9)}
    again = Timeline(service("a"), SavedState(UPTO_9.versions, advertisements=saved))

    assert again.probe({"a": UPTO_5}) == OLD


def test_a_transparent_service_is_transparent_again_after_its_first_round() -> None:
    it = timeline("a", "b")
    it.probe({"a": legacy("1.1"), "b": legacy("1.1")})
    again = Timeline(service("a", "b", stabilization=STABILIZATION), it.snapshot.saved()["toy"])

    assert (again.offer.transparent, again.held()[0]) == (False, "unknown")
    again.probe({"a": legacy("1.1"), "b": None})
    assert (again.text, again.offer.transparent) == ("none", True)


def test_a_reload_with_more_names_keeps_the_offer_and_what_waits() -> None:
    old, new = Named(("v1", "v2", "v3")), Named(("v1", "v2beta", "v2", "v3"))
    first, all_three = VersionSet.read("v1", old), VersionSet.read("v1..v3", old)
    it = timeline("a", dialect=Toy(scheme=old))
    it.probe({"a": Advertisement(first)})
    it.probe({"a": Advertisement(all_three)})
    it.wait(4)

    it.reload(service("a", dialect=Toy(scheme=new), stabilization=STABILIZATION))
    assert it.text == "v1"
    assert it.wait(STABILIZATION - 4) == "v1, v2..v3"
