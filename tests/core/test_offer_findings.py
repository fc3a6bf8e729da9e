"""What strangers saw of the offer: when a service is transparent, what shrinks an offer, and who holds it."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import pytest

from gateway.controlplane.state.text import format_state, parse_state
from gateway.core.decision.decision import Forward, NegotiationResult, Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Named
from tests.core.builders import Toy, backend, legacy, service, upto, v
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

LEGACY = legacy("1.1")


def restarted(it: Timeline, one: Service) -> Timeline:
    """The same gateway after a restart under `one`, by way of the state file's text."""
    return Timeline(one, parse_state(format_state(it.snapshot), [one]).saved[one.name])


# --- transparent -------------------------------------------------------------------------------------------


def test_R_A1_a_version_on_offer_is_503_when_only_legacy_backends_are_in_service() -> None:
    it = timeline("new")
    it.probe({"new": UPTO_9})
    it.reload(service("new", "old", stabilization=STABILIZATION))
    it.probe({"old": LEGACY})
    it.drain("new")

    decision = it.send(v("1.9"))

    assert isinstance(decision, Refuse)
    assert (decision.result, decision.response.status) == (NegotiationResult.UNAVAILABLE, 503)
    assert (it.text, it.offer.transparent) == (NEW, False)
    assert isinstance(it.send(v("1.1")), Forward), "the legacy backend serves what it stands for"


def test_R_A1_a_drained_new_backend_among_legacy_ones_ends_transparency() -> None:
    it = timeline("a", "b", "new")
    it.drain("new")
    seen = []
    for results in ({"a": LEGACY, "b": LEGACY}, {"new": None}):
        it.probe(results)
        seen.append(it.offer.transparent)
    assert seen == [False, True], "after the first round all that is known is legacy"

    it.probe({"new": UPTO_9})

    assert (it.text, it.offer.transparent) == ("1.1", False), "the first offer is made at once"
    assert isinstance(it.send(v("1.9")), Refuse)


def test_R_A1_a_fleet_that_goes_back_to_legacy_stays_negotiated() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_9, "b": UPTO_9})
    for _ in range(3):  # the third in a row makes it legacy
        it.probe({"a": LEGACY, "b": LEGACY})

    assert (it.text, it.offer.transparent) == ("1.1", False)


def test_R_A1_legacy_backends_alone_make_no_first_offer() -> None:
    it = timeline("a", "b")
    it.probe({"a": LEGACY, "b": LEGACY})

    assert (it.text, it.offer.transparent, it.held()) == ("none", True, ("uniform", (), None))
    assert it.wait(100) == "none"


# --- what shrinks an offer ---------------------------------------------------------------------------------


def test_R_A13_a_completed_roll_back_counts_although_a_drained_backend_is_dead() -> None:
    it = timeline("a", "b", "dead")
    it.probe(dict.fromkeys(("a", "b", "dead"), UPTO_9))
    it.drain("dead")
    it.probe({"dead": UPTO_5})
    for _ in range(3):
        it.probe({"dead": None})

    assert it.probe({"a": UPTO_5}) == NEW
    assert it.probe({"b": UPTO_5}) == OLD
    assert it.held() == ("uniform", (), None)


def test_R_A13_a_dead_backend_whose_last_report_is_new_keeps_it_on_offer_and_is_named() -> None:
    it = timeline("a", "b", "dead")
    it.probe(dict.fromkeys(("a", "b", "dead"), UPTO_9))
    for _ in range(3):
        it.probe({"dead": None})

    assert it.probe({"a": UPTO_5, "b": UPTO_5}) == NEW
    assert it.held() == ("mixed", ("dead",), "state")
    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == OLD


def test_R_A13_at_least_more_than_there_are_is_all_of_them() -> None:
    it = timeline("a", "b", "unknown", **policy_of(Policy.AT_LEAST, AtLeast(3)))
    it.probe({"a": UPTO_5, "b": UPTO_9, "unknown": None})

    assert it.wait(STABILIZATION) == OLD


@pytest.mark.parametrize(
    "before, after",
    [
        (policy_of(Policy.REACHABLE), policy_of(Policy.GUARANTEED)),
        (policy_of(Policy.AT_LEAST, AtLeast(1)), policy_of(Policy.AT_LEAST, AtLeast(2))),
        (policy_of(Policy.AT_LEAST, AtLeast(1)), policy_of(Policy.AT_LEAST, AtLeast(100, percent=True))),
    ],
)
def test_R_A13_another_policy_or_number_cuts_the_offer(
    before: dict[str, object], after: dict[str, object]
) -> None:
    it = timeline("a", "b", **before)
    assert it.probe({"a": UPTO_5, "b": UPTO_9}) == NEW

    assert it.reload(service("a", "b", stabilization=STABILIZATION, **after)) == OLD  # type: ignore[arg-type]  # fields of Service


def test_R_A13_with_added_backends_the_cut_waits_for_their_first_probes() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_9})

    assert it.reload(service("a", "b", "c", stabilization=STABILIZATION)) == NEW
    assert it.probe({"c": UPTO_9}) == OLD


def test_R_A13_what_a_removal_takes_waits_for_the_first_probes_of_what_the_reload_added() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})
    moved = (backend("a"), backend("b", port=81))

    assert it.reload(service(backends=moved, stabilization=STABILIZATION)) == NEW
    assert it.probe({"b": UPTO_9}) == NEW


def test_R_A13_after_a_restart_the_old_backend_may_answer_first() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})
    again = restarted(it, service("a", "b", stabilization=STABILIZATION))

    assert again.text == NEW
    assert isinstance(again.send(v("1.9")), Refuse), "no request before its first probe"
    assert again.probe({"a": UPTO_5}) == NEW
    assert again.probe({"b": None}) == NEW, "its last report counts"
    assert isinstance(again.send(v("1.9")), Forward)
    assert again.probe({"b": UPTO_5}) == OLD


def test_R_A13_a_restart_under_another_policy_cuts_the_offer_after_the_first_round() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_9})
    again = restarted(it, service("a", "b", stabilization=STABILIZATION))

    assert again.text == NEW
    assert again.probe({"b": UPTO_9}) == NEW
    assert again.probe({"a": UPTO_5}) == OLD


def test_R_A13_a_named_scheme_that_gained_names_is_the_same_after_a_restart() -> None:
    old, new = Named(("v1", "v2", "v3")), Named(("v0", "v1", "v2beta", "v2", "v3"))
    it = timeline("a", dialect=Toy(scheme=old))
    it.probe({"a": Advertisement(VersionSet.read("v1..v2", old))})
    text = format_state(it.snapshot)
    one = service("a", dialect=Toy(scheme=new))

    parsed = parse_state(text, [one])

    assert parsed.dropped == ()
    assert parsed.saved["toy"].versions == VersionSet.only(new.require("v1"), new.require("v2"))
    assert parse_state(text, [service("a", dialect=Toy(scheme=Named(("v2", "v1", "v3"))))]).saved == {}


# --- first offers, offers formed anew, and falls -----------------------------------------------------------


def test_R_A13_the_first_offer_waits_for_those_that_did_not_answer() -> None:
    it = timeline("a", "b", "c")
    assert it.probe({"a": UPTO_5, "b": UPTO_9, "c": None}) == "none"
    assert it.wait(STABILIZATION - 1) == "none"
    assert it.wait(1) == OLD, "from those that did"

    it = timeline("a", "b", "c")
    it.probe({"a": UPTO_9, "b": UPTO_9, "c": None})
    it.wait(1)
    assert it.probe({"c": upto(3)}) == "1.1-1.3", "as soon as all have"


def test_R_A13_when_the_policy_gives_nothing_the_offer_is_what_most_serve() -> None:
    it = timeline("a", "b", "c")
    assert it.probe({"a": UPTO_5, "b": UPTO_5, "c": upto(9, 7)}) == OLD


def test_R_A13_a_version_that_fell_waits_twice_as_long_each_time() -> None:
    it = timeline("a")
    it.probe({"a": UPTO_9})
    waited = []
    for _ in range(8):
        assert it.probe({"a": UPTO_5}) == OLD
        it.probe({"a": UPTO_9})
        started = it.now
        while it.text != NEW:
            assert it.snapshot.due is not None
            it.wait(it.snapshot.due - it.now)
        waited.append((it.now - started) / STABILIZATION)
    assert waited == [2, 4, 8, 16, 32, 64, 64, 64]

    it.wait(3600)
    it.probe({"a": UPTO_5})
    it.probe({"a": UPTO_9})
    assert it.wait(2 * STABILIZATION) == NEW, "an hour on offer: its falls are forgotten"


# --- who holds the offer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy, rule",
    [
        (policy_of(Policy.GUARANTEED), "guaranteed"),
        (policy_of(Policy.AT_LEAST, AtLeast(2)), "at_least"),
        (policy_of(Policy.AT_LEAST, AtLeast(100, percent=True)), "at_least"),
    ],
)
def test_R_A14_held_by_names_those_that_hold_the_offer_back(policy: dict[str, object], rule: str) -> None:
    it = timeline("new", "old", "older", **policy)
    it.probe({"new": UPTO_5, "old": UPTO_5, "older": UPTO_5})
    it.probe({"new": UPTO_9})

    assert (it.text, it.held()) == (OLD, ("mixed", ("old", "older"), rule))


def test_R_A14_while_something_waits_nobody_is_named() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    assert it.held() == ("stabilizing", (), "stabilization")

    it.pin("1.5")
    it.wait(STABILIZATION)
    assert it.held() == ("capped", (), "ceiling")


def test_R_A14_who_keeps_versions_on_offer_that_none_in_service_serves_is_named() -> None:
    it = upgraded()
    it.drain("b")
    it.probe({"a": UPTO_5})

    assert (it.text, it.held()) == (NEW, ("mixed", ("b",), "state"))


def test_R_A14_an_old_backend_that_rejoins_is_named() -> None:
    it = upgraded()
    it.probe({"b": UPTO_5})

    assert (it.text, it.held()) == (NEW, ("mixed", ("b",), "state"))


def test_R_A14_versions_that_do_not_join_on_name_those_with_the_old_ones() -> None:
    two = Advertisement(VersionSet.read("2.0-2.3", Toy().scheme))
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"b": two})

    assert (it.text, it.held()) == (OLD, ("mixed", ("a",), "state"))
    assert it.reload(service("b", policy=Policy.REACHABLE)) == "2.0-2.3"
