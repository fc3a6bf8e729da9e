"""Every sentence of the design about offering: what is promised rises late, and falls on proof."""

from __future__ import annotations

import pytest

from gateway.core.decision import Forward, Refuse, Verdict
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Failed, Overheard
from gateway.core.memory import EMPTY, Kept, remember
from gateway.core.ranges import VersionSet
from gateway.core.service import AtLeast, Policy, Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import CalendarDate, Named, Scheme, WholeNumber
from tests.core.course import Course
from tests.core.stage import XY, OtherToy, Toy, backend, service, silent, upto, v

SETTLE = 10.0
F, T = upto(5), upto(9)
OLD, NEW = "1.1-1.5", "1.1-1.9"


def course(*names: str, **more: object) -> Course:
    return Course(service(*names, **{"settle": SETTLE, **more}))  # type: ignore[arg-type]  # fields of Service


def upgraded(**more: object) -> Course:
    """Two backends, both of the new release, and the new release is offered."""
    it = course("a", "b", **more)
    assert it.probe({"a": T, "b": T}) == NEW
    return it


def policy_of(policy: Policy, at_least: AtLeast | None = None) -> dict[str, object]:
    return {"policy": policy, **({} if at_least is None else {"at_least": at_least})}


# --- it grows by what the policy gives once that has stood for `settle` ------------------------------------


def test_it_grows_when_more_has_stood_for_settle_and_not_a_moment_before() -> None:
    it = course("a", "b")
    assert it.probe({"a": F, "b": F}) == OLD, "the first offer does not wait"

    assert it.probe({"a": T, "b": T}) == OLD
    assert it.held() == ("settling", ("a", "b"), "settle")
    assert it.offer.pending.format(XY) == "1.6-1.9"
    assert it.snapshot.due == SETTLE
    assert it.wait(SETTLE - 0.01) == OLD
    assert it.wait(0.01) == NEW
    assert it.held() == ("uniform", (), None)
    assert not it.offer.pending
    assert it.view.memory.due(SETTLE) is None


def test_what_stood_long_enough_is_promised_even_if_nobody_looked_at_that_moment() -> None:
    """The news that takes it away again come too late: it had been given for `settle`."""
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": T, "b": T})
    it.now += SETTLE + 5

    assert it.probe({"b": F}) == NEW
    assert it.held() == ("mixed", ("b",), "memory")


def test_what_the_policy_ceases_to_give_begins_anew() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": T, "b": T})
    it.wait(6)
    it.probe({"b": F})
    it.wait(1)
    it.probe({"b": T})

    assert it.wait(SETTLE - 1) == OLD
    assert it.wait(1) == NEW


def test_every_version_has_its_own_time() -> None:
    """A fleet that is upgraded twice in a row does not wait twice for the first."""
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": upto(7), "b": upto(7)})
    it.wait(4)
    it.probe({"a": T, "b": T})

    assert it.snapshot.due == SETTLE
    assert it.wait(SETTLE - 4) == "1.1-1.7"
    assert it.snapshot.due == SETTLE + 4
    assert it.wait(4) == NEW


def test_a_failed_probe_does_not_stop_the_clock() -> None:
    """A down backend counts with its last advert, for what is to come as well."""
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": T, "b": T})
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
def test_as_many_as_at_least_says_and_percentages_round_up(
    number: int, percent: bool, backends: int, enough: int
) -> None:
    names = "abcd"[:backends]
    it = course(*names, **policy_of(Policy.AT_LEAST, AtLeast(number, percent=percent)))
    it.probe(dict.fromkeys(names, F))
    for count, name in enumerate(names, 1):
        it.probe({name: T})
        assert it.wait(SETTLE) == (NEW if count >= enough else OLD)


def test_reachable_grows_by_the_first_and_waits_for_settle_all_the_same() -> None:
    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": F})

    assert it.probe({"a": T}) == OLD
    assert it.held() == ("mixed", ("a",), "settle")
    assert it.wait(SETTLE) == NEW
    assert it.held() == ("mixed", ("b",), None)


# --- it shrinks at once by what nobody serves, when everybody's word is fresh ------------------------------


@pytest.mark.parametrize("policy", Policy)
def test_it_stands_while_one_serves_it_and_falls_at_once_with_the_last(policy: Policy) -> None:
    it = upgraded(policy=policy)

    assert it.probe({"a": F}) == NEW
    assert it.held()[0] == "mixed"
    assert it.probe({"b": F}) == OLD
    assert it.held() == ("uniform", (), None)


@pytest.mark.parametrize("failures", [1, 3])
def test_while_one_that_ever_spoke_is_stale_or_lost_nothing_falls(failures: int) -> None:
    it = upgraded()
    for _ in range(failures):
        it.probe({"b": None})

    assert it.probe({"a": F}) == NEW
    assert it.probe({"b": T}) == NEW, "it serves it still"
    assert it.probe({"b": F}) == OLD


def test_one_that_is_stale_and_serves_nothing_above_still_has_the_last_word() -> None:
    """It may have been upgraded behind our back."""
    it = upgraded()
    it.probe({"a": F})
    it.observe("b", Overheard(F, it.now))
    assert it.text == OLD, "fresh: what it says in passing is enough"

    it = upgraded()
    it.probe({"a": F, "b": None})
    it.observe("b", Overheard(F, it.now))
    assert it.text == NEW
    assert it.probe({"b": F}) == OLD


def test_a_drained_backend_is_still_asked_and_its_word_still_counts() -> None:
    it = upgraded()
    assert it.drain("b") == NEW
    assert it.probe({"a": F}) == NEW, "b serves it, and may come back"
    assert it.held() == ("settling", ("a",), "memory")
    assert isinstance(it.ask(v("1.9")), Refuse)

    assert it.probe({"b": None}) == NEW
    assert it.probe({"b": F}) == OLD


def test_a_drained_backend_holds_no_rise_back() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": T})
    assert it.held() == ("mixed", ("a",), "guaranteed")

    assert it.drain("b") == OLD
    assert it.held() == ("settling", ("a",), "settle")
    assert it.wait(SETTLE) == NEW
    assert it.enable("b") == NEW
    assert it.held() == ("mixed", ("b",), "memory")


def test_one_never_heard_counts_for_nothing_once_its_first_probe_has_ended() -> None:
    it = course("a", "never")
    assert it.probe({"a": F}) == "none"
    assert it.probe({"never": None}) == OLD
    it.probe({"a": T})
    assert it.wait(SETTLE) == NEW
    assert it.probe({"a": F}) == OLD


def test_before_its_first_probe_has_ended_nothing_moves() -> None:
    """A backend that has just been configured may serve anything."""
    it = upgraded()
    it.reload(service("a", "b", "c", settle=SETTLE))
    assert it.probe({"a": F, "b": F}) == NEW
    assert it.probe({"c": None}) == OLD

    it.reload(service("a", "b", "c", "d", settle=SETTLE))
    it.probe({"a": T, "b": T})
    assert it.wait(SETTLE) == OLD
    it.probe({"d": T})
    assert (it.wait(SETTLE - 1), it.wait(1)) == (OLD, NEW)


def test_when_nothing_is_known_nothing_changes() -> None:
    one = service("a", "b", settle=SETTLE)
    it = Course(one, Kept(T.versions))

    assert it.probe({"a": None, "b": None}) == NEW
    assert it.wait(100) == NEW
    assert it.reload(service("z", settle=SETTLE)) == NEW, "nothing is known of who is left"
    assert it.probe({"z": None}) == NEW
    assert it.probe({"z": F}) == OLD
    assert it.reload(service("y", settle=SETTLE)) == OLD
    assert it.probe({"y": None}) == OLD, "not even when it had been known before"
    assert it.probe({"y": T}) == OLD
    assert it.wait(SETTLE) == NEW


# --- if nothing is left it is formed anew ------------------------------------------------------------------


def test_when_nothing_is_left_it_is_formed_anew_from_what_the_policy_gives() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    assert it.probe({"a": upto(9, 7)}) == OLD
    assert it.held() == ("mixed", ("a",), "memory")

    assert it.probe({"b": upto(8, 7)}) == "1.7-1.8"


def test_or_from_the_reachable_when_the_policy_gives_nothing() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": upto(7, 6)})

    assert it.probe({"b": upto(10, 9)}) == "1.9-1.10"
    assert it.held() == ("mixed", ("a",), "guaranteed")


def test_at_least_more_than_there_are_is_what_can_be_reached() -> None:
    it = course("a", "b", **policy_of(Policy.AT_LEAST, AtLeast(3)))

    assert it.probe({"a": F, "b": T}) == NEW


def test_while_nobody_is_in_service_there_is_nothing_to_form_it_from() -> None:
    it = course("a")
    it.drain("a")
    assert it.probe({"a": F}) == "none"
    assert it.held() == ("unknown", (), None)
    assert it.enable("a") == OLD


# --- the rules hold for both ends --------------------------------------------------------------------------


def test_the_minimum_rises_when_nobody_serves_it_and_falls_when_everybody_has_for_settle() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})

    assert it.probe({"a": upto(5, 3)}) == OLD
    assert it.held() == ("mixed", ("a",), "memory")
    assert it.probe({"b": upto(5, 3)}) == "1.3-1.5"
    it.probe({"a": F})
    assert it.wait(SETTLE) == "1.3-1.5"
    it.probe({"b": F})
    assert it.wait(SETTLE - 1) == "1.3-1.5"
    assert it.wait(1) == OLD


def test_an_upgrade_that_drops_the_oldest_and_adds_newer_ones() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": upto(9, 3)})

    assert it.probe({"b": upto(9, 3)}) == "1.3-1.5"
    assert it.wait(SETTLE) == "1.3-1.9"


# --- one unbroken range, or the set itself -----------------------------------------------------------------


def test_what_would_tear_the_offer_is_not_added() -> None:
    both = Advert(VersionSet.read("1.1-1.5, 1.8-1.9", XY))
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": both, "b": both})

    assert it.wait(SETTLE) == OLD
    assert it.held() == ("settling", ("a", "b"), "guaranteed")
    it.probe({"a": T, "b": T})
    assert it.wait(SETTLE) == NEW, "the gap is filled"


def test_of_an_offer_that_is_torn_the_newest_part_stays() -> None:
    it = upgraded()

    assert it.probe({"a": upto(3), "b": upto(9, 7)}) == "1.7-1.9"
    assert it.probe({"a": upto(3), "b": upto(3)}) == "1.1-1.3"


def test_another_major_is_no_part_of_it() -> None:
    both = Advert(VersionSet.read("1.1-1.5, 2.0-2.3", XY))
    it = course("a")
    it.probe({"a": F})
    it.probe({"a": both})
    assert it.wait(SETTLE) == OLD
    assert it.probe({"a": Advert(VersionSet.read("2.0-2.3", XY))}) == "2.0-2.3"


DATES = CalendarDate()
NAMES = Named(("alpha", "beta", "stable"))


@pytest.mark.parametrize(
    "scheme, texts",
    [(DATES, ("2024-01-01", "2024-06-30", "2024-07-01", "2025-01-01")), (NAMES, ("alpha", "beta", "stable"))],
)
def test_dates_and_names_are_the_set_with_its_gaps(scheme: Scheme, texts: tuple[str, ...]) -> None:
    first, middle, last = (scheme.require(text) for text in (texts[0], texts[1], texts[-1]))
    ends, everything = Advert(VersionSet.only(first, last)), Advert(VersionSet.only(first, middle, last))
    it = course("a", "b", dialect=Toy(scheme=scheme))
    it.probe({"a": ends, "b": everything})
    assert it.offer.versions == ends.versions
    it.probe({"a": everything})
    it.wait(SETTLE)
    assert it.offer.versions == everything.versions

    it.probe({"a": Advert(VersionSet.only(first)), "b": ends})
    assert it.offer.versions == ends.versions, "the middle falls, both ends stay"


def test_whole_numbers_are_one_range_too() -> None:
    numbers = WholeNumber()
    it = course("a", dialect=Toy(scheme=numbers))
    it.probe({"a": Advert(VersionSet.read("0-2, 4-5", numbers))})

    assert it.text == "4-5"


# --- an operator's words -----------------------------------------------------------------------------------


def test_removing_acts_at_once_and_draining_does_not() -> None:
    it = upgraded()
    it.probe({"a": F})
    assert it.drain("b") == NEW
    assert it.reload(service("a", settle=SETTLE)) == OLD


def test_removing_acts_even_while_those_that_stay_are_down() -> None:
    it = upgraded()
    it.probe({"a": F})
    it.probe({"a": None})

    assert it.reload(service("a", settle=SETTLE)) == OLD


def test_removing_the_oldest_lets_the_offer_settle_into_more() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": T})
    assert it.reload(service("b", settle=SETTLE)) == OLD
    assert it.wait(SETTLE) == NEW


def test_another_address_is_another_backend_and_the_one_before_is_removed() -> None:
    it = upgraded()
    it.probe({"a": F})
    moved = (backend("a"), backend("b", port=81))

    assert it.reload(service(backends=moved, settle=SETTLE)) == OLD


def test_a_reload_that_changes_nothing_of_it_keeps_what_waits_and_since_when() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.probe({"a": T, "b": T})
    it.wait(6)
    assert it.reload(service("a", "b", settle=SETTLE)) == OLD
    assert it.wait(4) == NEW


def test_a_shorter_settle_counts_from_when_it_began_but_only_for_what_is_still_given() -> None:
    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": F})
    it.probe({"b": T})
    it.wait(5)
    assert it.reload(service("a", "b", policy=Policy.REACHABLE, settle=5.0)) == NEW

    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": F})
    it.probe({"b": T})
    it.probe({"a": None})
    it.wait(5)
    assert it.reload(service("a", "b", settle=0.0)) == OLD, "guaranteed gives less, however short settle is"

    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": F})
    it.probe({"b": T})
    it.probe({"a": None})
    it.wait(5)
    assert it.reload(service("a", policy=Policy.REACHABLE, settle=0.0)) == OLD, "who gave it is gone"


def test_a_reload_comes_too_late_for_what_had_ripened() -> None:
    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": F})
    it.probe({"b": T})
    it.now += SETTLE

    assert it.reload(service("a", "b", settle=SETTLE)) == NEW
    assert it.held() == ("mixed", ("a",), "memory")


def test_another_policy_takes_nothing_back() -> None:
    it = course("a", "b", **policy_of(Policy.REACHABLE))
    it.probe({"a": F, "b": T})
    assert it.text == NEW

    assert it.reload(service("a", "b", settle=SETTLE)) == NEW
    assert it.held() == ("mixed", ("a",), "memory")


def test_a_ceiling_is_a_view_and_unpin_shows_at_once_what_stands_beneath() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    assert it.pin("1.5") == OLD
    assert it.held() == ("uniform", (), None)
    it.probe({"a": T})
    assert it.held() == ("mixed", ("a",), "guaranteed")
    it.probe({"b": T})
    assert it.held() == ("settling", ("a", "b"), "settle")
    assert it.wait(SETTLE) == OLD
    assert it.held() == ("capped", ("a", "b"), "ceiling")

    assert it.pin(None) == NEW
    assert it.held() == ("uniform", (), None)


def test_a_pin_stands_instead_of_the_files_ceiling_until_unpinned() -> None:
    it = upgraded_under("1.5")
    assert (it.text, it.offer.pinned) == (OLD, False)
    assert (it.pin("1.7"), it.offer.pinned) == ("1.1-1.7", True)
    assert it.pin("1.3") == "1.1-1.3"
    assert it.reload(service("a", "b", settle=SETTLE, ceiling=v("1.8"))) == "1.1-1.3"
    assert (it.pin(None), it.offer.ceiling) == ("1.1-1.8", v("1.8"))


def upgraded_under(ceiling: str) -> Course:
    it = course("a", "b", ceiling=v(ceiling))
    it.probe({"a": T, "b": T})
    return it


def test_a_minimum_that_passes_the_ceiling_leaves_nothing_on_offer_and_it_is_503() -> None:
    it = course("a", "b")
    it.probe({"a": F, "b": F})
    it.pin("1.3")
    it.probe({"a": upto(9, 4), "b": upto(9, 4)})

    assert (it.text, it.held()) == ("none", ("capped", ("a", "b"), "ceiling"))
    for version in (None, v("1.3"), v("1.5")):
        decision = it.ask(version)
        assert isinstance(decision, Refuse)
        assert (decision.verdict, decision.reply.status) == (Verdict.UNAVAILABLE, 503)
    assert it.pin(None) == "1.4-1.5"
    assert isinstance(it.ask(v("1.4")), Forward)


# --- silence -----------------------------------------------------------------------------------------------


def test_from_silent_to_speaking_and_back() -> None:
    it = course("a", "b")
    it.probe({"a": silent("1.1"), "b": silent("1.1")})
    assert (it.text, it.offer.transparent) == ("1.1", True)

    it.probe({"a": T})
    assert (it.text, it.offer.transparent) == ("1.1", False)
    assert it.held() == ("mixed", ("a",), "guaranteed")
    it.probe({"b": T})
    assert it.wait(SETTLE) == NEW

    it.probe({"a": silent("1.1")})
    assert (it.text, it.offer.transparent) == (NEW, False)
    it.probe({"b": silent("1.1")})
    assert (it.text, it.offer.transparent) == ("1.1", True)


def test_those_whose_silence_stands_for_nothing_take_no_part() -> None:
    it = course("a", "b")
    it.probe({"a": silent(), "b": silent()})
    assert (it.text, it.offer.transparent, it.held()[0]) == ("none", True, "uniform")

    it.probe({"a": T})
    assert (it.text, it.offer.transparent, it.held()) == (NEW, False, ("uniform", (), None))
    it.probe({"a": silent()})
    assert (it.text, it.offer.transparent) == ("none", True)


# --- what outlives what ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect, kept",
    [(Toy(), True), (OtherToy(), False), (Toy(scheme=WholeNumber()), False)],
    ids=["the same", "another dialect", "another scheme"],
)
def test_a_reload_in_another_language_forgets(dialect: Toy, kept: bool) -> None:
    it = upgraded()
    it.pin("1.7")
    it.drain("b")

    it.reload(service("a", "b", dialect=dialect, settle=SETTLE))

    assert it.view.memory == (EMPTY if not kept else it.view.memory)
    assert it.offer.versions == (VersionSet.between(v("1.1"), v("1.7")) if kept else VersionSet())
    assert it.offer.pinned is kept


def test_a_service_of_another_name_remembers_nothing() -> None:
    it = upgraded()
    renamed = Snapshot.configured([service("a", "b", name="other")], now=0.0, after=it.snapshot)

    assert not renamed.views["other"].offer.versions


def test_what_was_kept_is_in_force_again_before_anybody_was_asked() -> None:
    it = upgraded()
    it.pin("1.7")
    it.drain("b")
    kept = it.snapshot.kept()["toy"]
    assert kept == Kept(T.versions, v("1.7"), frozenset({"b"}))

    again = Course(service("a", "b", settle=SETTLE), kept)

    assert again.text == "1.1-1.7"
    assert again.snapshot.kept() == it.snapshot.kept()
    assert isinstance(again.ask(v("1.5")), Refuse), "nobody is known to serve it yet: 503"
    assert again.probe({"a": F, "b": T}) == "1.1-1.7"
    assert again.pin(None) == NEW, "b is drained and serves it still"
    assert again.probe({"b": F}) == OLD


def test_what_was_kept_falls_by_the_fresh_words_of_the_first_round() -> None:
    again = Course(service("a", "b", settle=SETTLE), Kept(T.versions))

    assert again.probe({"a": F, "b": F}) == OLD


def test_nothing_is_made_anew_when_nothing_follows() -> None:
    it = upgraded()
    view = it.view
    it.wait(1000)
    it.probe({"a": T, "b": T})

    assert it.view is view
    assert remember(view.memory, view.service, view.pool, it.now) is view.memory


def test_two_services_have_two_memories() -> None:
    def both(settle: float) -> list[Service]:
        return [service("a", settle=settle), service("a", name="other", settle=2 * settle)]

    snapshot = Snapshot.configured(both(SETTLE), now=0.0)
    for advert in (F, T):
        for name in ("toy", "other"):
            fleet = snapshot.fleet.observe(name, "a", Answered(advert, 0.0))
            snapshot = snapshot.knowing(fleet, 0.0)
    assert snapshot.due == SETTLE

    def offered(now: float) -> list[str]:
        seen = snapshot.knowing(snapshot.fleet, now)
        return [view.offer.versions.format(XY) for view in seen.views.values()]

    assert offered(SETTLE) == [NEW, OLD]
    assert offered(2 * SETTLE) == [NEW, NEW]
    fallen = snapshot.knowing(snapshot.fleet.observe("other", "a", Failed("x", 1.0)), 1.0)
    assert fallen.views["toy"] is snapshot.views["toy"]


def test_a_fleet_upgraded_bit_by_bit_is_offered_bit_by_bit() -> None:
    it = course("a", "b")
    it.probe({"a": upto(1), "b": upto(1)})
    for minor in range(2, 6):
        it.probe({"a": upto(minor), "b": upto(minor)})
        it.wait(1)

    offered = [it.text, *(it.wait(1) for _ in range(10))]

    assert offered == ["1.1"] * 6 + ["1.1-1.2", "1.1-1.3", "1.1-1.4"] + ["1.1-1.5"] * 2
