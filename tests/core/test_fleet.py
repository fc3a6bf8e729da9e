"""Facts enter by one door, older ones never overwrite, and a reload keeps what still means the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.backend import STANDING_AFTER_FAILURES, BackendTls, Member, Standing
from gateway.core.dialect import Advert, Dialect
from gateway.core.fleet import (
    MOST_CONTRADICTED,
    Answered,
    Contradicted,
    Drain,
    Failed,
    Fleet,
    Overheard,
    Pin,
    Unreached,
)
from gateway.core.ranges import NOTHING, VersionSet
from gateway.core.version import CalendarDate, MajorMinor, Named, Scheme, Version, WholeNumber
from tests.core.stage import OtherToy, Toy, backend, drain, observed, pool, service, silent, upto, v


def one(fleet: Fleet, name: str = "a", of: str = "toy") -> Member:
    member = fleet.pools[of].member(name)
    assert member is not None
    return member


HEARD = Fleet.of([service("a", "b")]).observe("toy", "a", Answered(upto(5), 10.0))


# --- standing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failures, standing",
    [(0, "fresh"), (1, "stale"), (2, "stale"), (3, "lost"), (4, "lost"), (50, "lost")],
)
def test_failed_probes_age_what_is_known_and_never_erase_it(failures: int, standing: str) -> None:
    fleet = HEARD
    for number in range(failures):
        fleet = fleet.observe("toy", "a", Failed("no connection", 11.0 + number))

    assert one(fleet).standing.value == standing
    assert one(fleet).advert == upto(5)
    assert one(fleet).in_service
    assert one(fleet).error == ("no connection" if failures else None)


def test_one_answer_makes_it_fresh_again_from_anywhere() -> None:
    fleet = HEARD
    for number in range(5):
        fleet = fleet.observe("toy", "a", Failed("no connection", 11.0 + number))
    fleet = fleet.observe("toy", "a", Answered(upto(9), 20.0))

    assert (one(fleet).standing, one(fleet).error) == (Standing.FRESH, None)
    assert one(fleet).advert == upto(9)


@pytest.mark.parametrize("failures", range(5))
def test_one_that_never_answered_is_unknown_and_not_in_service(failures: int) -> None:
    fleet = HEARD
    for number in range(failures):
        fleet = fleet.observe("toy", "b", Failed("no connection", float(number)))

    assert one(fleet, "b").standing is Standing.UNKNOWN
    assert not one(fleet, "b").in_service
    assert one(fleet, "b").probed is (failures > 0)


def test_the_table_begins_fresh_and_ends_lost() -> None:
    assert (STANDING_AFTER_FAILURES[0], STANDING_AFTER_FAILURES[-1]) == (Standing.FRESH, Standing.LOST)
    assert Standing.UNKNOWN not in STANDING_AFTER_FAILURES


def test_a_declared_backend_that_contradicted_is_believed_again_when_its_word_is_said_anew() -> None:
    """Nobody probes it: without that a version would be gone until the gateway is started again."""
    declared = VersionSet.only(v("1.3"))
    fleet = Fleet.of([service(backends=(backend("a", declared=declared),))])

    doubted = fleet.observe("toy", "a", Contradicted(v("1.3"), 5.0))
    assert one(doubted).usable == NOTHING
    assert doubted.observe("toy", "a", Answered(Advert(declared), 4.9)) is doubted
    believed = doubted.observe("toy", "a", Answered(Advert(declared), 5.1))
    assert one(believed).usable == declared
    assert believed.observe("toy", "a", Answered(Advert(declared), 6.0)) is believed


def test_a_declared_backend_that_refused_a_connection_is_tried_last_until_its_word_is_said_anew() -> None:
    declared = VersionSet.only(v("1.3"))
    fleet = Fleet.of([service(backends=(backend("a", declared=declared),))])

    refusing = fleet.observe("toy", "a", Unreached(5.0))
    assert (one(refusing).refusing, one(refusing).usable, one(refusing).doubted) == (True, declared, True)
    assert refusing.observe("toy", "a", Answered(Advert(declared), 4.9)) is refusing
    assert not one(refusing.observe("toy", "a", Answered(Advert(declared), 5.1))).refusing


def test_who_contradicts_too_many_versions_is_believed_in_none() -> None:
    versions = [Version(1, 2 * number) for number in range(MOST_CONTRADICTED + 1)]
    all_of_it = VersionSet.between(Version(1, 0), Version(1, 9999))
    fleet = Fleet.of([service("a")]).observe("toy", "a", Answered(Advert(all_of_it), 1.0))

    for version in versions[:-1]:
        fleet = fleet.observe("toy", "a", Contradicted(version, 2.0))
    assert one(fleet).usable == all_of_it - VersionSet.only(*versions[:-1])
    fleet = fleet.observe("toy", "a", Contradicted(versions[-1], 2.0))
    assert one(fleet).usable == NOTHING
    assert one(fleet.observe("toy", "a", Answered(Advert(all_of_it), 3.0))).usable == all_of_it


def test_a_declared_backend_is_always_fresh_and_learns_nothing() -> None:
    declared = Fleet.of([service(backends=(backend("a", declared=VersionSet.only(v("1.3"))),))])

    assert (one(declared).standing, one(declared).probed) == (Standing.FRESH, True)
    for fact in (Failed("x", 1.0), Answered(upto(9), 1.0), Overheard(upto(9), 1.0)):
        assert declared.observe("toy", "a", fact) is declared


# --- what a fact changes -------------------------------------------------------------------------------


def test_an_older_advert_never_overwrites_a_newer_one() -> None:
    newer = HEARD.observe("toy", "a", Overheard(upto(9), 12.0))

    assert newer.observe("toy", "a", Overheard(upto(5), 11.0)) is newer
    assert one(newer.observe("toy", "a", Answered(upto(5), 11.0))).advert == upto(9)
    assert one(newer.observe("toy", "a", Answered(upto(5), 13.0))).advert == upto(5)
    assert one(newer.observe("toy", "a", Overheard(upto(5), 12.0))).advert == upto(5), (
        "as old: the later word"
    )


def test_an_old_answer_still_proves_that_the_backend_answers() -> None:
    failing = HEARD.observe("toy", "a", Failed("x", 11.0)).observe("toy", "a", Overheard(upto(9), 13.0))

    answered = one(failing.observe("toy", "a", Answered(upto(5), 12.0)))

    assert (answered.standing, answered.error, answered.advert) == (Standing.FRESH, None, upto(9))


def test_what_is_overheard_says_nothing_about_probes() -> None:
    failing = HEARD.observe("toy", "a", Failed("x", 11.0))

    overheard = one(failing.observe("toy", "a", Overheard(upto(9), 12.0)))

    assert (overheard.standing, overheard.error, overheard.advert) == (Standing.STALE, "x", upto(9))


def test_a_smaller_range_than_before_is_a_fact_and_so_is_silence() -> None:
    assert one(HEARD.observe("toy", "a", Answered(upto(2), 11.0))).advert == upto(2)
    quiet = one(HEARD.observe("toy", "a", Answered(silent("1.1"), 11.0)))
    assert quiet.silent
    assert not one(HEARD).silent
    assert not one(HEARD, "b").silent


def test_the_same_object_when_nothing_changes() -> None:
    lost = HEARD
    for number in range(3):
        lost = lost.observe("toy", "a", Failed("x", 11.0 + number))

    assert lost.observe("toy", "a", Failed("x", 20.0)) is lost
    assert lost.observe("toy", "a", Failed("y", 20.0)) is not lost, "another reason is news"
    assert HEARD.observe("nobody", "a", Failed("x", 20.0)) is HEARD
    assert HEARD.observe("toy", "gone", Answered(upto(9), 20.0)) is HEARD


def test_the_same_word_again_is_equal_knowledge_and_only_its_time_is_new() -> None:
    again = HEARD.observe("toy", "a", Answered(upto(5), 30.0))

    assert again.pools["toy"] == HEARD.pools["toy"]
    assert one(again).heard_at == 30.0
    assert again.observe("toy", "a", Overheard(upto(9), 20.0)) is again


def test_a_fact_touches_one_member_only() -> None:
    fleet = Fleet.of([service("a", "b"), service("a", name="other")])

    learned = fleet.observe("toy", "a", Answered(upto(5), 1.0))

    assert one(learned, "b") is one(fleet, "b")
    assert learned.pools["other"] is fleet.pools["other"]
    assert one(learned).key == "toy/a"
    assert [each.backend.name for each in learned.pools["toy"].in_service] == ["a"]


# --- a reload ------------------------------------------------------------------------------------------

KNOWN = drain(observed(Fleet.of([service("a", "b")]), {"a": upto(5), "b": None}), "a")


def test_a_reload_keeps_what_is_known_of_backends_that_stay() -> None:
    heavier = service(backends=(backend("a", weight=7), backend("b"), backend("c")))

    fleet = Fleet.of([heavier], KNOWN)

    assert one(fleet) == replace(one(KNOWN), backend=backend("a", weight=7))
    assert (one(fleet).drained, one(fleet).advert) == (True, upto(5))
    assert one(fleet, "b") == one(KNOWN, "b")
    assert not one(fleet, "c").probed


@pytest.mark.parametrize(
    "changed", [{"host": "elsewhere.test"}, {"port": 81}, {"path": "/x"}, {"tls": BackendTls()}]
)
def test_another_address_is_another_backend(changed: dict[str, object]) -> None:
    fleet = Fleet.of([service(backends=(backend("a", **changed),))], KNOWN)

    assert (one(fleet).advert, one(fleet).drained) == (None, False)


def test_another_name_or_service_is_another_backend() -> None:
    renamed = service(backends=(replace(backend("a"), name="z"),))

    assert one(Fleet.of([renamed], KNOWN), "z").advert is None
    assert one(Fleet.of([service("a", name="new")], KNOWN), "a", "new").advert is None


def test_another_dialect_of_the_same_service_knows_nothing() -> None:
    fleet = Fleet.of([service("a", "b", dialect=OtherToy())], KNOWN)

    assert one(fleet).advert is None
    assert not fleet.pools["toy"].heard_out
    assert one(Fleet.of([service("a", "b", dialect=Toy())], KNOWN)).advert == upto(5), "an equal one does"


@pytest.mark.parametrize(
    "before, after, kept",
    [
        (MajorMinor(), MajorMinor(), True),
        (MajorMinor(), WholeNumber(), False),
        (CalendarDate(), CalendarDate(), True),
        (CalendarDate(), CalendarDate(day=False), False),
        (Named(("v1", "v2")), Named(("v1", "v2")), True),
        (Named(("v1", "v2")), Named(("v1beta1", "v1", "v2")), False),
    ],
)
def test_a_version_of_one_scheme_means_nothing_in_another(before: Scheme, after: Scheme, kept: bool) -> None:
    def speaking(scheme: Scheme) -> Dialect:
        return Toy(scheme=scheme)

    advert = upto(5)
    known = observed(Fleet.of([service("a", dialect=speaking(before))]), {"a": advert})

    assert (one(Fleet.of([service("a", dialect=speaking(after))], known)).advert == advert) is kept


def test_declaring_and_no_longer_declaring_versions() -> None:
    """The word of an operator who drained it stays in both cases, what is known does not."""
    declared = service(backends=(backend("a", declared=VersionSet.only(v("1.3"))), backend("b")))

    told = Fleet.of([declared], KNOWN)
    assert one(told).advert is not None
    assert one(told).advert.versions == VersionSet.only(v("1.3"))  # type: ignore[union-attr]  # just asserted
    assert one(told).drained

    asked = Fleet.of([service("a", "b")], told)
    assert (one(asked).advert, one(asked).drained, one(asked).standing) == (None, True, Standing.UNKNOWN)


# --- an operator's orders ------------------------------------------------------------------------------


def test_orders_are_obeyed_and_the_same_order_again_changes_nothing() -> None:
    drained = HEARD.obey("toy", Drain("a"))
    assert one(drained).drained
    assert not one(drained).in_service
    assert drained.obey("toy", Drain("a")) is drained
    assert one(drained.obey("toy", Drain("a", drained=False))) == one(HEARD)

    pinned = drained.obey("toy", Pin(v("1.3")))
    assert pinned.pools["toy"].pin == v("1.3")
    assert pinned.obey("toy", Pin(v("1.3"))) is pinned
    assert pinned.obey("toy", Pin(None)).pools == drained.pools


def test_orders_about_what_is_not_configured_change_nothing() -> None:
    assert HEARD.obey("nobody", Pin(v("1.3"))) is HEARD
    assert HEARD.obey("toy", Drain("gone")) is HEARD


def test_a_drained_backend_goes_on_learning() -> None:
    learned = HEARD.obey("toy", Drain("a")).observe("toy", "a", Answered(upto(9), 20.0))

    assert (one(learned).advert, one(learned).drained) == (upto(9), True)


# --- the first round -----------------------------------------------------------------------------------


def test_the_first_round_is_over_when_every_first_probe_has_ended_and_one_has_answered() -> None:
    start = Fleet.of([service("a", "b")])

    assert not start.pools["toy"].heard_out
    assert not observed(start, {"a": upto(5)}).pools["toy"].heard_out
    assert not observed(start, {"a": None, "b": None}).pools["toy"].heard_out
    assert observed(start, {"a": upto(5), "b": None}).pools["toy"].heard_out
    assert observed(start, {"a": upto(5), "b": upto(9)}).pools["toy"].heard_out


def test_an_ipv6_address_stands_in_brackets() -> None:
    six = backend("a", host="::1", port=6385, path="/x", tls=BackendTls())

    assert (six.authority, six.url) == ("[::1]:6385", "https://[::1]:6385/x")
    assert backend("a").url == "http://a.test:80"


def test_a_pool_knows_its_members_by_name() -> None:
    assert pool({"a": upto(5)}).member("b") is None
