"""How the offer state grows and shrinks by facts and time (semantics, Offering)."""

from __future__ import annotations

import pytest

from gateway.core.decision.decision import Refuse
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import PassiveObservation, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.offer_state import MAX_RANGES, SavedState, advance
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Named, Scheme, WholeNumber
from tests.core.builders import XY, Toy, backend, legacy, service, upto, v
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

# --- growing: what the policy gives joins after `stabilization` --------------------------------------------


def test_more_versions_join_after_stabilization_and_not_earlier() -> None:
    it = timeline("a", "b")
    assert it.probe({"a": UPTO_5, "b": UPTO_5}) == OLD, "the first offer does not wait"

    assert it.probe({"a": UPTO_9, "b": UPTO_9}) == OLD
    assert it.held() == ("stabilizing", (), "stabilization")
    assert it.offer.pending.format(XY) == "1.6-1.9"
    assert it.snapshot.due == STABILIZATION
    assert it.wait(STABILIZATION - 0.01) == OLD
    assert it.wait(0.01) == NEW
    assert it.held() == ("uniform", (), None)
    assert not it.offer.pending
    assert it.snapshot.due is None


def test_versions_that_were_pending_long_enough_join_even_if_nobody_looked_in_time() -> None:
    """The fact that takes them away comes too late: they had been given for `stabilization`."""
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.now += STABILIZATION + 5

    assert it.probe({"b": UPTO_5}) == NEW
    assert it.held() == ("mixed", ("b",), "state")


def test_what_the_policy_ceases_to_give_loses_its_time() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.wait(6)
    it.probe({"b": UPTO_5})
    it.wait(1)
    it.probe({"b": UPTO_9})

    assert it.wait(STABILIZATION - 1) == OLD
    assert it.wait(1) == NEW


def test_every_version_has_its_own_time() -> None:
    """A fleet that is upgraded twice in a row does not wait twice for the first."""
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": upto(7), "b": upto(7)})
    it.wait(4)
    it.probe({"a": UPTO_9, "b": UPTO_9})

    assert it.snapshot.due == STABILIZATION
    assert it.wait(STABILIZATION - 4) == "1.1-1.7"
    assert it.snapshot.due == STABILIZATION + 4
    assert it.wait(4) == NEW


def test_a_failed_probe_does_not_stop_the_clock() -> None:
    """A backend that is down counts with its last advertisement, also for pending versions."""
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9, "b": UPTO_9})
    it.wait(5)
    it.probe({"b": None})

    assert it.wait(5) == NEW


@pytest.mark.parametrize(
    "number, percent, backends, enough",
    [
        (50, True, 3, 2),
        (50, True, 4, 2),
        (34, True, 3, 2),
        (33, True, 3, 1),
        (1, True, 3, 1),
        (100, True, 3, 3),
        (2, False, 4, 2),
        (1, False, 3, 1),
        (3, False, 3, 3),
    ],
)
def test_at_least_counts_backends_and_rounds_percentages_up(
    number: int, percent: bool, backends: int, enough: int
) -> None:
    names = "abcd"[:backends]
    it = timeline(*names, **policy_of(Policy.AT_LEAST, AtLeast(number, percent=percent)))
    it.probe(dict.fromkeys(names, UPTO_5))
    for count, name in enumerate(names, 1):
        it.probe({name: UPTO_9})
        assert it.wait(STABILIZATION) == (NEW if count >= enough else OLD)


def test_reachable_grows_by_the_first_backend_and_waits_for_stabilization_too() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_5})

    assert it.probe({"a": UPTO_9}) == OLD
    assert it.held() == ("mixed", (), "stabilization")
    assert it.wait(STABILIZATION) == NEW
    assert it.held() == ("mixed", (), None)


# --- shrinking: at once, by last reports -------------------------------------------------------------------


@pytest.mark.parametrize("policy", Policy)
def test_a_version_stays_while_one_serves_it_and_leaves_at_once_with_the_last(policy: Policy) -> None:
    it = upgraded(policy=policy)

    assert it.probe({"a": UPTO_5}) == NEW
    assert it.held()[0] == "mixed"
    assert it.probe({"b": UPTO_5}) == OLD
    assert it.held() == ("uniform", (), None)


@pytest.mark.parametrize("failures", [1, 3])
def test_a_backend_that_is_down_counts_with_its_last_report(failures: int) -> None:
    it = upgraded()
    for _ in range(failures):
        it.probe({"b": None})

    assert it.probe({"a": UPTO_5}) == NEW
    assert it.held()[1:] == ((("b",) if failures == 3 else ("a",)), "state")
    assert it.probe({"b": UPTO_9}) == NEW, "b still serves it"
    assert it.probe({"b": UPTO_5}) == OLD


def test_a_last_report_may_be_a_passive_observation_of_a_backend_that_is_down() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5, "b": None})
    it.observe("b", PassiveObservation(UPTO_5, it.now))

    assert it.text == OLD


def test_the_last_report_of_a_drained_backend_counts_for_shrinking() -> None:
    it = upgraded()
    assert it.drain("b") == NEW
    assert it.probe({"a": UPTO_5}) == NEW, "b serves it, and may come back"
    assert it.held() == ("mixed", ("b",), "state")
    assert isinstance(it.send(v("1.9")), Refuse)

    assert it.probe({"b": None}) == NEW
    assert it.probe({"b": UPTO_5}) == OLD


def test_a_drained_backend_does_not_count_for_growing() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": UPTO_9})
    assert it.held() == ("mixed", ("b",), "guaranteed")

    assert it.drain("b") == OLD
    assert it.held() == ("stabilizing", (), "stabilization")
    assert it.wait(STABILIZATION) == NEW
    assert it.enable("b") == NEW
    assert it.held() == ("mixed", ("b",), "state")


def test_a_backend_that_never_answered_does_not_count_after_its_first_probe() -> None:
    it = timeline("a", "never")
    assert it.probe({"a": UPTO_5}) == "none"
    assert it.probe({"never": None}) == "none", "the first offer waits for it"
    assert it.wait(STABILIZATION) == OLD
    it.probe({"a": UPTO_9})
    assert it.wait(STABILIZATION) == NEW
    assert it.probe({"a": UPTO_5}) == OLD


def test_until_the_first_probe_of_a_new_backend_has_ended_nothing_changes() -> None:
    """A backend that has just been configured may serve anything."""
    it = upgraded()
    it.reload(service("a", "b", "c", stabilization=STABILIZATION))
    assert it.probe({"a": UPTO_5, "b": UPTO_5}) == NEW
    assert it.probe({"c": None}) == OLD

    it.reload(service("a", "b", "c", "d", stabilization=STABILIZATION))
    it.probe({"a": UPTO_9, "b": UPTO_9})
    assert it.wait(2 * STABILIZATION) == OLD
    it.probe({"d": UPTO_9})
    assert (it.wait(2 * STABILIZATION - 1), it.wait(1)) == (OLD, NEW), "it had fallen once"


def test_when_nobody_is_heard_nothing_is_on_offer() -> None:
    """Once the first probes have ended. Until then what was on offer stays."""
    one = service("a", "b", stabilization=STABILIZATION)
    it = Timeline(one, SavedState(UPTO_9.versions))
    assert it.wait(100) == NEW
    assert it.held() == ("unknown", (), "state"), "nothing is known"

    assert it.probe({"a": None, "b": None}) == "none"
    assert it.held() == ("unknown", (), None)
    assert it.probe({"a": UPTO_5}) == OLD, "formed anew at once"
    assert it.reload(service("z", stabilization=STABILIZATION)) == OLD, "the first probe of z has not ended"
    assert it.probe({"z": None}) == "none"
    assert it.probe({"z": UPTO_5}) == OLD


# --- first offers ------------------------------------------------------------------------------------------


def test_when_nobody_has_answered_in_time_the_first_one_that_does_is_enough() -> None:
    it = timeline("a", "b")
    it.probe({"a": None, "b": None})
    assert it.snapshot.due is None, "time alone changes nothing"
    assert it.wait(STABILIZATION) == "none"
    assert it.probe({"b": UPTO_5}) == OLD


def test_the_first_offer_is_made_in_time_although_nobody_looks() -> None:
    """By what was known then, not by the fact that made somebody look."""
    it = timeline("a", "b", "c")
    it.probe({"a": UPTO_5, "b": UPTO_9, "c": None})
    assert it.snapshot.due == STABILIZATION
    it.now += STABILIZATION + 5

    assert it.probe({"c": upto(3)}) == OLD


def test_a_drained_backend_that_did_not_answer_is_waited_for_too() -> None:
    it = timeline("a", "b")
    it.drain("b")
    assert it.probe({"a": UPTO_5, "b": None}) == "none"
    assert it.wait(STABILIZATION) == OLD


def test_legacy_backends_are_joined_by_a_versioned_one_at_once() -> None:
    """Not after `stabilization`: the service was transparent, and requests would be 503 for that time."""
    it = timeline("a", "b", "c")
    it.probe({"a": legacy("1.1"), "b": None, "c": None})
    assert (it.text, it.offer.transparent) == ("none", True)
    assert it.probe({"b": UPTO_5}) == "1.1"


def test_backends_that_a_reload_adds_to_legacy_ones_do_not_wait_for_each_other() -> None:
    it = timeline("a")
    it.probe({"a": legacy("1.1")})
    it.reload(service("a", "b", "c", stabilization=STABILIZATION))
    assert it.offer.transparent
    assert (it.probe({"b": UPTO_5}), it.offer.transparent) == ("1.1", False)


# --- forming the offer anew --------------------------------------------------------------------------------


def test_when_nothing_is_left_it_is_formed_anew_from_what_the_policy_gives() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    assert it.probe({"a": upto(9, 7)}) == OLD
    assert it.held() == ("mixed", ("b",), "guaranteed")

    assert it.probe({"b": upto(8, 7)}) == "1.7-1.8"


def test_when_the_policy_gives_nothing_it_is_formed_from_what_most_serve() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": upto(7, 6)})

    assert it.probe({"b": upto(10, 9)}) == "1.9-1.10"
    assert it.held() == ("mixed", ("a",), "state")

    it = timeline(*"abcd")
    it.probe({"a": upto(3), "b": upto(4), "c": upto(3, 2), "d": upto(9, 7)})
    assert it.text == "1.2-1.3"


def test_at_least_more_backends_than_there_are_gives_what_all_serve() -> None:
    it = timeline("a", "b", **policy_of(Policy.AT_LEAST, AtLeast(3)))

    assert it.probe({"a": UPTO_5, "b": UPTO_9}) == OLD


def test_without_a_backend_in_service_nothing_is_formed() -> None:
    it = timeline("a")
    it.drain("a")
    assert it.probe({"a": UPTO_5}) == "none"
    assert it.held() == ("unknown", (), None)
    assert it.enable("a") == OLD


# --- the rules hold for both ends --------------------------------------------------------------------------


def test_the_minimum_rises_at_once_and_falls_after_stabilization() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})

    assert it.probe({"a": upto(5, 3)}) == OLD
    assert it.held() == ("mixed", ("a",), "state")
    assert it.probe({"b": upto(5, 3)}) == "1.3-1.5"
    it.probe({"a": UPTO_5})
    assert it.wait(3 * STABILIZATION) == "1.3-1.5"
    it.probe({"b": UPTO_5})
    assert it.wait(2 * STABILIZATION - 1) == "1.3-1.5"
    assert it.wait(1) == OLD


def test_an_upgrade_that_drops_the_oldest_and_adds_newer_ones() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": upto(9, 3)})

    assert it.probe({"b": upto(9, 3)}) == "1.3-1.5"
    assert it.wait(STABILIZATION) == "1.3-1.9"


# --- one unbroken range, or the set itself -----------------------------------------------------------------


def test_what_would_leave_a_gap_is_not_added() -> None:
    both = Advertisement(VersionSet.read("1.1-1.5, 1.8-1.9", XY))
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": UPTO_5})
    it.probe({"a": both, "b": both})

    assert it.wait(STABILIZATION) == OLD
    assert it.held() == ("uniform", (), "guaranteed")
    it.probe({"a": UPTO_9, "b": UPTO_9})
    assert it.wait(STABILIZATION) == NEW, "the gap is filled"


def test_of_an_offer_with_a_gap_the_newest_part_stays() -> None:
    it = upgraded()

    assert it.probe({"a": upto(3), "b": upto(9, 7)}) == "1.7-1.9"
    assert it.probe({"a": upto(3), "b": upto(3)}) == "1.1-1.3"


def test_another_major_does_not_join() -> None:
    both = Advertisement(VersionSet.read("1.1-1.5, 2.0-2.3", XY))
    it = timeline("a")
    it.probe({"a": UPTO_5})
    it.probe({"a": both})
    assert it.wait(STABILIZATION) == OLD
    assert it.probe({"a": Advertisement(VersionSet.read("2.0-2.3", XY))}) == "2.0-2.3"


DATES = CalendarDate()
NAMES = Named(("alpha", "beta", "stable"))


@pytest.mark.parametrize(
    "scheme, texts",
    [(DATES, ("2024-01-01", "2024-06-30", "2024-07-01", "2025-01-01")), (NAMES, ("alpha", "beta", "stable"))],
)
def test_dates_and_names_are_the_set_with_its_gaps(scheme: Scheme, texts: tuple[str, ...]) -> None:
    first, middle, last = (scheme.require(text) for text in (texts[0], texts[1], texts[-1]))
    ends, everything = (
        Advertisement(VersionSet.only(first, last)),
        Advertisement(VersionSet.only(first, middle, last)),
    )
    it = timeline("a", "b", dialect=Toy(scheme=scheme))
    it.probe({"a": ends, "b": everything})
    assert it.offer.versions == ends.versions
    it.probe({"a": everything})
    it.wait(STABILIZATION)
    assert it.offer.versions == everything.versions

    it.probe({"a": Advertisement(VersionSet.only(first)), "b": ends})
    assert it.offer.versions == ends.versions, "the middle leaves, both ends stay"


def test_whole_numbers_are_one_range_too() -> None:
    numbers = WholeNumber()
    it = timeline("a", dialect=Toy(scheme=numbers))
    it.probe({"a": Advertisement(VersionSet.read("0-2, 4-5", numbers))})

    assert it.text == "4-5"


# --- legacy backends ---------------------------------------------------------------------------------------


def test_from_legacy_to_versioned_and_back() -> None:
    it = timeline("a", "b")
    it.probe({"a": legacy("1.1"), "b": legacy("1.1")})
    assert (it.text, it.offer.transparent) == ("none", True)

    it.probe({"a": UPTO_9})
    assert (it.text, it.offer.transparent) == ("1.1", False)
    assert it.held() == ("mixed", ("b",), "guaranteed")
    it.probe({"b": UPTO_9})
    assert it.wait(STABILIZATION) == NEW

    for _ in range(3):
        assert (it.text, it.offer.transparent) == (NEW, False)
        it.probe({"a": legacy("1.1"), "b": legacy("1.1")})
    assert (it.text, it.offer.transparent) == ("1.1", False)


def test_legacy_backends_without_a_version_take_no_part() -> None:
    it = timeline("a", "b")
    it.probe({"a": legacy(), "b": legacy()})
    assert (it.text, it.offer.transparent, it.held()[0]) == ("none", True, "uniform")

    it.probe({"a": UPTO_9})
    assert (it.text, it.offer.transparent, it.held()) == (NEW, False, ("uniform", (), None))
    for _ in range(3):
        it.probe({"a": legacy()})
    assert (it.text, it.offer.transparent) == ("none", True), "nothing is left that could be negotiated"


# --- falls -------------------------------------------------------------------------------------------------


def test_only_what_fell_waits_longer() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5, "b": UPTO_5})
    both = upto(12)
    it.probe({"a": both, "b": both})

    assert it.snapshot.due == 2 * STABILIZATION, "1.10-1.12 would leave a gap"
    assert it.wait(2 * STABILIZATION - 1) == OLD
    assert it.wait(1) == "1.1-1.12"


def test_of_dates_each_one_waits_for_itself() -> None:
    first, second, third = (DATES.require(f"2024-0{month}-01") for month in (1, 2, 3))
    it = timeline("a", dialect=Toy(scheme=DATES))
    it.probe({"a": Advertisement(VersionSet.only(first, second))})
    it.probe({"a": Advertisement(VersionSet.only(first))})
    it.probe({"a": Advertisement(VersionSet.only(first, second, third))})

    assert it.snapshot.due == STABILIZATION
    it.wait(STABILIZATION)
    assert it.offer.versions == VersionSet.only(first, third)
    assert it.snapshot.due == 2 * STABILIZATION
    it.wait(STABILIZATION)
    assert it.offer.versions == VersionSet.only(first, second, third)


def test_the_hour_begins_anew_with_every_break() -> None:
    it = timeline("a")
    it.probe({"a": UPTO_9})
    for wait in (2, 4):
        it.probe({"a": UPTO_5})
        it.probe({"a": UPTO_9})
        assert it.wait(wait * STABILIZATION) == NEW
        it.wait(3599)
    it.probe({"a": UPTO_5})
    it.probe({"a": UPTO_9})
    assert it.snapshot.due == it.now + 8 * STABILIZATION


def test_what_an_operator_takes_away_has_not_fallen() -> None:
    it = timeline("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": UPTO_5, "b": UPTO_9})
    assert it.reload(service("a", policy=Policy.REACHABLE, stabilization=STABILIZATION)) == OLD, "removed"
    it.reload(service("a", "b", policy=Policy.REACHABLE, stabilization=STABILIZATION))
    it.probe({"b": UPTO_9})
    assert it.wait(STABILIZATION) == NEW

    assert it.reload(service("a", "b", stabilization=STABILIZATION)) == OLD, "cut"
    it.probe({"a": UPTO_9})
    assert it.wait(STABILIZATION) == NEW


def test_what_a_removal_takes_away_later_has_not_fallen_either() -> None:
    it = upgraded()
    it.probe({"a": UPTO_5})
    moved = (backend("a"), backend("b", port=81))
    it.reload(service(backends=moved, stabilization=STABILIZATION))
    assert it.probe({"b": UPTO_5}) == OLD
    it.probe({"a": UPTO_9, "b": UPTO_9})
    assert it.wait(STABILIZATION) == NEW


def test_falls_are_bounded_however_many_versions_fall() -> None:
    scheme = DATES
    it = timeline("a", dialect=Toy(scheme=scheme), stabilization=0.0)
    days = [scheme.require(f"{2000 + number // 12}-{1 + number % 12:02}-01") for number in range(600)]
    it.probe({"a": Advertisement(VersionSet.only(*days))})
    it.probe({"a": Advertisement(VersionSet.only(days[0]))})

    assert sum(len(part.versions.ranges) for part in it.view.offer_state.falls.parts) == MAX_RANGES


def test_the_same_view_when_nothing_changes() -> None:
    it = upgraded()
    view = it.view
    it.wait(1000)
    it.probe({"a": UPTO_9, "b": UPTO_9})

    assert it.view is view
    assert advance(view.offer_state, view.service, view.members, it.now) is view.offer_state


def test_two_services_have_two_states() -> None:
    def both(stabilization: float) -> list[Service]:
        return [
            service("a", stabilization=stabilization),
            service("a", name="other", stabilization=2 * stabilization),
        ]

    snapshot = Snapshot.configured(both(STABILIZATION), now=0.0)
    for advertisement in (UPTO_5, UPTO_9):
        for name in ("toy", "other"):
            fleet = snapshot.fleet.observe(name, "a", ProbeSucceeded(advertisement, 0.0))
            snapshot = snapshot.with_fleet(fleet, 0.0)
    assert snapshot.due == STABILIZATION

    def offered(now: float) -> list[str]:
        seen = snapshot.with_fleet(snapshot.fleet, now)
        return [view.offer.versions.format(XY) for view in seen.views.values()]

    assert offered(STABILIZATION) == [NEW, OLD]
    assert offered(2 * STABILIZATION) == [NEW, NEW]
    later = snapshot.with_fleet(snapshot.fleet.observe("other", "a", ProbeFailed("x", 1.0)), 1.0)
    assert later.views["toy"] is snapshot.views["toy"]


def test_a_fleet_upgraded_step_by_step_is_offered_step_by_step() -> None:
    it = timeline("a", "b")
    it.probe({"a": upto(1), "b": upto(1)})
    for minor in range(2, 6):
        it.probe({"a": upto(minor), "b": upto(minor)})
        it.wait(1)

    offered = [it.text, *(it.wait(1) for _ in range(10))]

    assert offered == ["1.1"] * 6 + ["1.1-1.2", "1.1-1.3", "1.1-1.4"] + ["1.1-1.5"] * 2
