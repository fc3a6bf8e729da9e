"""What an operator's commands, reloads and restarts do to the offer state (semantics, Offering)."""

from __future__ import annotations

import pytest

from gateway.core.decision.decision import Forward, NegotiationResult, Refuse
from gateway.core.fleet.offer_state import EMPTY, SavedState
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import WholeNumber
from tests.core.builders import OtherToy, Toy, backend, service, upto, v
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
    it = upgraded()
    it.probe({"a": UPTO_5})
    moved = (backend("a"), backend("b", port=81))

    assert it.reload(service(backends=moved, stabilization=STABILIZATION)) == OLD


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
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"b": UPTO_9})
    it.now += STABILIZATION

    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == NEW
    assert it.held() == ("mixed", ("a",), "state")


def test_another_policy_takes_nothing_back() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_9})
    assert it.text == NEW

    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == NEW
    assert it.held() == ("mixed", ("a",), "state")


def test_a_ceiling_is_a_view_and_unpin_shows_at_once_what_is_beneath() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    assert it.pin("1.5") == OLD
    assert it.held() == ("uniform", (), None)
    it.probe({"a": UPTO_9})
    assert it.held() == ("mixed", ("a",), "guaranteed")
    it.probe({"b": UPTO_9})
    assert it.held() == ("stabilizing", ("a", "b"), "stabilization")
    assert it.wait(STABILIZATION) == OLD
    assert it.held() == ("capped", ("a", "b"), "ceiling")

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

    assert (it.text, it.held()) == ("none", ("capped", ("a", "b"), "ceiling"))
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
    assert saved == SavedState(UPTO_9.versions, v("1.7"), frozenset({"b"}))

    again = Timeline(service("a", "b", stabilization=STABILIZATION), saved)

    assert again.text == "1.1-1.7"
    assert again.snapshot.saved() == it.snapshot.saved()
    assert isinstance(again.send(v("1.5")), Refuse), "no backend is known to serve it yet: 503"
    assert again.probe({"a": UPTO_5, "b": UPTO_9}) == "1.1-1.7"
    assert again.pin(None) == NEW, "b is drained and still serves it"
    assert again.probe({"b": UPTO_5}) == OLD


def test_saved_versions_leave_after_the_first_probes() -> None:
    again = Timeline(service("a", "b", stabilization=STABILIZATION), SavedState(UPTO_9.versions))

    assert again.probe({"a": UPTO_5, "b": UPTO_5}) == OLD
