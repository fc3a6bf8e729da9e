"""What facts and commands change, and what a reload keeps."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision.selection import Candidates
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import FRESHNESS_AFTER_FAILURES, Freshness, Member
from gateway.core.fleet.doubt import MAX_MISMATCHED_RANGES
from gateway.core.fleet.fleet import (
    AdvertisementRestored,
    ConnectFailed,
    Drain,
    Fleet,
    PassiveObservation,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import CalendarDate, MajorMinor, Named, Scheme, Version, WholeNumber
from tests.core.builders import (
    OtherToy,
    Toy,
    backend,
    drain,
    fleet_of,
    legacy,
    members,
    observed,
    service,
    upto,
    v,
)


def one(fleet: Fleet, name: str = "a", of: str = "toy") -> Member:
    member = fleet.member_sets[of].member(name)
    assert member is not None
    return member


KNOWN_A = fleet_of([service("a", "b")]).observe("toy", "a", ProbeSucceeded(upto(5), 10.0))


# --- freshness -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failures, freshness",
    [(0, "fresh"), (1, "stale"), (2, "stale"), (3, "down"), (4, "down"), (50, "down")],
)
def test_failed_probes_age_what_is_known_and_never_erase_it(failures: int, freshness: str) -> None:
    fleet = KNOWN_A
    for number in range(failures):
        fleet = fleet.observe("toy", "a", ProbeFailed("no connection", 11.0 + number))

    assert one(fleet).freshness.value == freshness
    assert one(fleet).advertisement == upto(5)
    assert one(fleet).in_service
    assert one(fleet).error == ("no connection" if failures else None)


def test_one_successful_probe_makes_it_fresh_again() -> None:
    fleet = KNOWN_A
    for number in range(5):
        fleet = fleet.observe("toy", "a", ProbeFailed("no connection", 11.0 + number))
    fleet = fleet.observe("toy", "a", ProbeSucceeded(upto(9), 20.0))

    assert (one(fleet).freshness, one(fleet).error) == (Freshness.FRESH, None)
    assert one(fleet).advertisement == upto(9)


@pytest.mark.parametrize("failures", range(5))
def test_a_backend_that_never_answered_is_unknown_and_not_in_service(failures: int) -> None:
    fleet = KNOWN_A
    for number in range(failures):
        fleet = fleet.observe("toy", "b", ProbeFailed("no connection", float(number)))

    assert one(fleet, "b").freshness is Freshness.UNKNOWN
    assert not one(fleet, "b").in_service
    assert one(fleet, "b").probed is (failures > 0)


def test_the_table_begins_fresh_and_ends_lost() -> None:
    assert (FRESHNESS_AFTER_FAILURES[0], FRESHNESS_AFTER_FAILURES[-1]) == (Freshness.FRESH, Freshness.DOWN)
    assert Freshness.UNKNOWN not in FRESHNESS_AFTER_FAILURES


def test_a_declared_backend_with_a_mismatch_is_trusted_again_when_it_is_declared_again() -> None:
    """It is not probed: without that, a version would be gone until the gateway is restarted."""
    declared = VersionSet.only(v("1.3"))
    fleet = fleet_of([service(backends=(backend("a", declared=declared),))])

    suspect = fleet.observe("toy", "a", VersionMismatch(v("1.3"), 5.0))
    assert one(suspect).usable_versions == NO_VERSIONS
    assert suspect.observe("toy", "a", ProbeSucceeded(Advertisement(declared), 4.9)) is suspect
    trusted = suspect.observe("toy", "a", ProbeSucceeded(Advertisement(declared), 5.1))
    assert one(trusted).usable_versions == declared
    assert trusted.observe("toy", "a", ProbeSucceeded(Advertisement(declared), 6.0)) is trusted


def test_a_prompted_declaration_confirms_one_path_and_clears_nothing_else() -> None:
    declared = VersionSet.only(v("1.3"))
    fleet = fleet_of([service(backends=(backend("a", declared=declared),))])
    again = ProbeSucceeded(Advertisement(declared), 6.0, prompted=True)

    once = fleet.observe("toy", "a", VersionMismatch(v("1.3"), 5.0, "/x"))
    confirmed = once.observe("toy", "a", again)
    assert (one(once).usable_versions, one(confirmed).usable_versions) == (NO_VERSIONS, declared)
    assert confirmed.observe("toy", "a", again) is confirmed
    twice = once.observe("toy", "a", VersionMismatch(v("1.3"), 5.0, "/y"))
    for fact in (ServedVersionMissing(5.0), ConnectFailed(5.0)):
        doubtful = twice.observe("toy", "a", fact)
        after = one(doubtful.observe("toy", "a", again))
        assert after.usable_versions == NO_VERSIONS
        assert (after.version_unknown, after.connect_failed) == (
            one(doubtful).version_unknown,
            one(doubtful).connect_failed,
        )
        regular = doubtful.observe("toy", "a", replace(again, prompted=False))
        assert one(regular) == one(fleet)


def test_a_declared_backend_with_a_failed_connection_is_tried_last_until_it_is_declared_again() -> None:
    declared = VersionSet.only(v("1.3"))
    fleet = fleet_of([service(backends=(backend("a", declared=declared),))])

    failed = fleet.observe("toy", "a", ConnectFailed(5.0))
    assert (one(failed).connect_failed, one(failed).usable_versions, one(failed).suspect) == (
        True,
        declared,
        True,
    )
    assert failed.observe("toy", "a", ProbeSucceeded(Advertisement(declared), 4.9)) is failed
    assert not one(failed.observe("toy", "a", ProbeSucceeded(Advertisement(declared), 5.1))).connect_failed


def test_too_many_mismatches_leave_no_usable_version() -> None:
    versions = [Version(1, 2 * number) for number in range(MAX_MISMATCHED_RANGES + 1)]
    all_of_it = VersionSet.between(Version(1, 0), Version(1, 9999))
    fleet = fleet_of([service("a")]).observe("toy", "a", ProbeSucceeded(Advertisement(all_of_it), 1.0))

    for version in versions[:-1]:
        fleet = fleet.observe("toy", "a", VersionMismatch(version, 2.0))
    assert one(fleet).usable_versions == all_of_it - VersionSet.only(*versions[:-1])
    fleet = fleet.observe("toy", "a", VersionMismatch(versions[-1], 2.0))
    assert one(fleet).usable_versions == NO_VERSIONS
    assert (
        one(fleet.observe("toy", "a", ProbeSucceeded(Advertisement(all_of_it), 3.0))).usable_versions
        == all_of_it
    )


def test_a_declared_backend_is_always_fresh_and_learns_nothing() -> None:
    declared = fleet_of([service(backends=(backend("a", declared=VersionSet.only(v("1.3"))),))])

    assert (one(declared).freshness, one(declared).probed) == (Freshness.FRESH, True)
    for fact in (ProbeFailed("x", 1.0), ProbeSucceeded(upto(9), 1.0), PassiveObservation(upto(9), 1.0)):
        assert declared.observe("toy", "a", fact) is declared


# --- what a fact changes -------------------------------------------------------------------------------


def test_an_older_advertisement_never_replaces_a_newer_one() -> None:
    newer = KNOWN_A.observe("toy", "a", PassiveObservation(upto(9), 12.0))

    assert newer.observe("toy", "a", PassiveObservation(upto(5), 11.0)) is newer
    assert one(newer.observe("toy", "a", ProbeSucceeded(upto(5), 11.0))).advertisement == upto(9)
    assert one(newer.observe("toy", "a", ProbeSucceeded(upto(5), 13.0))).advertisement == upto(5)
    assert one(newer.observe("toy", "a", PassiveObservation(upto(5), 12.0))).advertisement == upto(5), (
        "equally old: the later one"
    )


def test_R3_V17_a_passive_observation_says_nothing_about_mounts() -> None:
    listed = replace(upto(5), mounts=frozenset({"v1"}))
    probed = KNOWN_A.observe("toy", "a", ProbeSucceeded(listed, 11.0))

    learned = one(probed.observe("toy", "a", PassiveObservation(upto(9), 12.0)))

    assert learned.advertisement == replace(listed, versions=upto(9).versions)
    assert learned.has_mount("v1")
    assert not learned.has_mount("v2")


def test_an_older_successful_probe_still_makes_the_backend_fresh() -> None:
    failing = KNOWN_A.observe("toy", "a", ProbeFailed("x", 11.0)).observe(
        "toy", "a", PassiveObservation(upto(9), 13.0)
    )

    answered = one(failing.observe("toy", "a", ProbeSucceeded(upto(5), 12.0)))

    assert (answered.freshness, answered.error, answered.advertisement) == (Freshness.FRESH, None, upto(9))


def test_a_passive_observation_leaves_the_freshness() -> None:
    failing = KNOWN_A.observe("toy", "a", ProbeFailed("x", 11.0))

    learned = one(failing.observe("toy", "a", PassiveObservation(upto(9), 12.0)))

    assert (learned.freshness, learned.error, learned.advertisement) == (
        Freshness.STALE,
        "x",
        upto(9),
    )


def test_a_smaller_range_than_before_is_a_fact() -> None:
    assert one(KNOWN_A.observe("toy", "a", ProbeSucceeded(upto(2), 11.0))).advertisement == upto(2)
    assert not one(KNOWN_A).legacy
    assert not one(KNOWN_A, "b").legacy


def test_the_same_object_when_nothing_changes() -> None:
    down = KNOWN_A
    for number in range(3):
        down = down.observe("toy", "a", ProbeFailed("x", 11.0 + number))

    assert down.observe("toy", "a", ProbeFailed("x", 20.0)) is down
    assert down.observe("toy", "a", ProbeFailed("y", 20.0)) is not down, "another reason is a change"
    assert KNOWN_A.observe("elsewhere", "a", ProbeFailed("x", 20.0)) is KNOWN_A
    assert KNOWN_A.observe("toy", "gone", ProbeSucceeded(upto(9), 20.0)) is KNOWN_A


def test_the_same_advertisement_again_changes_only_its_time() -> None:
    again = KNOWN_A.observe("toy", "a", ProbeSucceeded(upto(5), 30.0))

    assert again.member_sets["toy"] == KNOWN_A.member_sets["toy"]
    assert one(again).advertised_at == 30.0
    assert again.observe("toy", "a", PassiveObservation(upto(9), 20.0)) is again


def test_a_fact_changes_one_member_only() -> None:
    fleet = fleet_of([service("a", "b"), service("a", name="other")])

    learned = fleet.observe("toy", "a", ProbeSucceeded(upto(5), 1.0))

    assert one(learned, "b") is one(fleet, "b")
    assert learned.member_sets["other"] is fleet.member_sets["other"]
    assert one(learned).key == "toy/a"
    assert [member.backend.name for member in learned.member_sets["toy"].all if member.in_service] == ["a"]


# --- a reload ------------------------------------------------------------------------------------------

KNOWN = drain(observed(fleet_of([service("a", "b")]), {"a": upto(5), "b": None}), "a")


def test_a_reload_keeps_what_is_known_of_backends_that_stay() -> None:
    heavier = service(backends=(backend("a", weight=7), backend("b"), backend("c")))

    fleet = fleet_of([heavier], KNOWN)

    assert one(fleet) == replace(one(KNOWN), backend=backend("a", weight=7))
    assert (one(fleet).drained, one(fleet).advertisement) == (True, upto(5))
    assert one(fleet, "b") == one(KNOWN, "b")
    assert not one(fleet, "c").probed


@pytest.mark.parametrize("changed", [{"host": "elsewhere.test"}, {"port": 81}, {"path": "/x"}])
def test_another_address_is_another_backend(changed: dict[str, object]) -> None:
    fleet = fleet_of([service(backends=(backend("a", **changed),))], KNOWN)

    assert (one(fleet).advertisement, one(fleet).drained) == (None, False)


def test_another_name_or_service_is_another_backend() -> None:
    renamed = service(backends=(replace(backend("a"), name="z"),))

    assert one(fleet_of([renamed], KNOWN), "z").advertisement is None
    assert one(fleet_of([service("a", name="new")], KNOWN), "a", "new").advertisement is None


def test_with_another_dialect_nothing_is_known() -> None:
    fleet = fleet_of([service("a", "b", dialect=OtherToy())], KNOWN)

    assert one(fleet).advertisement is None
    assert not fleet.member_sets["toy"].all_probed
    assert one(fleet_of([service("a", "b", dialect=Toy())], KNOWN)).advertisement == upto(5), (
        "an equal one keeps it"
    )


@pytest.mark.parametrize(
    "before, after, same",
    [
        (MajorMinor(), MajorMinor(), True),
        (MajorMinor(), WholeNumber(), False),
        (CalendarDate(), CalendarDate(), True),
        (CalendarDate(), CalendarDate(day=False), False),
        (Named(("v1", "v2")), Named(("v1", "v2")), True),
        (Named(("v1", "v2")), Named(("v1beta1", "v1", "v2")), False),
    ],
)
def test_with_another_scheme_nothing_is_known(before: Scheme, after: Scheme, same: bool) -> None:
    advertisement = upto(5)
    known = observed(fleet_of([service("a", dialect=Toy(scheme=before))]), {"a": advertisement})

    assert (
        one(fleet_of([service("a", dialect=Toy(scheme=after))], known)).advertisement == advertisement
    ) is same


def test_declaring_and_no_longer_declaring_versions() -> None:
    """The command of an operator who drained it stays in both cases; what is known does not."""
    declared = service(backends=(backend("a", declared=VersionSet.only(v("1.3"))), backend("b")))

    afterwards = fleet_of([declared], KNOWN)
    assert one(afterwards).advertisement is not None
    assert one(afterwards).advertisement.versions == VersionSet.only(v("1.3"))  # type: ignore[union-attr]  # just asserted
    assert one(afterwards).drained

    probed = fleet_of([service("a", "b")], afterwards)
    assert (one(probed).advertisement, one(probed).drained, one(probed).freshness) == (
        None,
        True,
        Freshness.UNKNOWN,
    )


# --- commands ------------------------------------------------------------------------------------------


def test_commands_apply_and_the_same_command_again_changes_nothing() -> None:
    drained = KNOWN_A.apply("toy", Drain("a"))
    assert one(drained).drained
    assert not one(drained).in_service
    assert drained.apply("toy", Drain("a")) is drained
    assert one(drained.apply("toy", Drain("a", drained=False))) == one(KNOWN_A)

    pinned = drained.apply("toy", Pin(v("1.3")))
    assert pinned.member_sets["toy"].pin == v("1.3")
    assert pinned.apply("toy", Pin(v("1.3"))) is pinned
    assert pinned.apply("toy", Pin(None)).member_sets == drained.member_sets


def test_commands_about_what_is_not_configured_change_nothing() -> None:
    assert KNOWN_A.apply("elsewhere", Pin(v("1.3"))) is KNOWN_A
    assert KNOWN_A.apply("toy", Drain("gone")) is KNOWN_A


def test_facts_about_a_drained_backend_count() -> None:
    learned = KNOWN_A.apply("toy", Drain("a")).observe("toy", "a", ProbeSucceeded(upto(9), 20.0))

    assert (one(learned).advertisement, one(learned).drained) == (upto(9), True)


# --- a restart -------------------------------------------------------------------------------------------


def restored() -> Fleet:
    """`KNOWN_A` as after a restart: what the state file says of `a`, and no probe has ended."""
    before = KNOWN_A.member_sets["toy"]
    after = tuple(replace(member, restored=member.advertisement is not None) for member in before.all)
    return Fleet({"toy": replace(before, all=after)})


def test_a_restored_member_counts_for_the_offer_and_gets_no_request() -> None:
    member = one(restored())

    assert (member.in_service, member.probed, member.freshness) == (True, False, Freshness.UNKNOWN)
    assert (member.advertisement, member.usable_versions) == (upto(5), NO_VERSIONS)
    assert Candidates.of([member]).members == ()
    assert not restored().member_sets["toy"].all_probed


def test_the_first_probe_or_observation_of_a_restored_member_ends_that() -> None:
    fleet = restored()

    failed = one(fleet.observe("toy", "a", ProbeFailed("no connection", 1.0)))
    assert (failed.restored, failed.freshness, failed.usable_versions) == (
        False,
        Freshness.STALE,
        upto(5).versions,
    )
    assert one(fleet.observe("toy", "a", ProbeSucceeded(upto(9), 11.0))).usable_versions == upto(9).versions
    assert one(fleet.observe("toy", "a", PassiveObservation(upto(9), 11.0))).probed
    legacy_now = one(fleet.observe("toy", "a", ProbeSucceeded(legacy("1.1"), 11.0)))
    assert (legacy_now.restored, legacy_now.legacy, legacy_now.usable_versions) == (
        False,
        False,
        NO_VERSIONS,
    ), "it had shown versions"


# --- the first probes ----------------------------------------------------------------------------------


def test_the_first_round_ends_when_every_first_probe_has_ended() -> None:
    start = fleet_of([service("a", "b")])

    assert not start.member_sets["toy"].all_probed
    assert not observed(start, {"a": upto(5)}).member_sets["toy"].all_probed
    assert observed(start, {"a": None, "b": None}).member_sets["toy"].all_probed
    assert observed(start, {"a": upto(5), "b": None}).member_sets["toy"].all_probed


def test_a_restored_advertisement_is_known_and_its_backend_is_unknown_until_it_is_probed() -> None:
    start = fleet_of([service("a", "b")])
    known = start.observe("toy", "a", AdvertisementRestored(upto(5), 1.0))

    assert one(known).advertisement == upto(5)
    assert (one(known).freshness, one(known).probed) == (Freshness.UNKNOWN, False)
    assert one(known).in_service
    assert not one(known).usable_versions
    failed = known.observe("toy", "a", ProbeFailed("x", 2.0))
    assert (one(failed).freshness, one(failed).probed) == (Freshness.STALE, True)
    assert one(failed).usable_versions == upto(5).versions
    assert failed.observe("toy", "a", AdvertisementRestored(upto(9), 3.0)) is failed, "too late"


def test_a_named_scheme_that_gained_names_keeps_what_is_known() -> None:
    old, new = Named(("v1", "v2")), Named(("v0", "v1", "v1b", "v2"))
    both = Advertisement(VersionSet.read("v1..v2", old), default=old.require("v2"))
    before = fleet_of([service("a", dialect=Toy(scheme=old))]).observe("toy", "a", ProbeSucceeded(both, 1.0))
    before = before.apply("toy", Pin(old.require("v2")))

    after = fleet_of([service("a", dialect=Toy(scheme=new))], before)

    known = one(after).advertisement
    assert known is not None
    assert known.versions.format(new) == "v1, v2"
    assert (known.default, after.member_sets["toy"].pin) == (new.require("v2"), new.require("v2"))
    swapped = fleet_of([service("a", dialect=Toy(scheme=Named(("v2", "v1"))))], before)
    assert (one(swapped).advertisement, swapped.member_sets["toy"].pin) == (None, None)


def test_an_ipv6_address_is_in_brackets() -> None:
    six = backend("a", host="::1", port=6385, path="/x")

    assert (six.authority, six.url) == ("[::1]:6385", "http://[::1]:6385/x")
    assert backend("a").url == "http://a.test:80"


def test_a_pool_without_a_member_of_that_name() -> None:
    assert members({"a": upto(5)}).member("b") is None


# --- a legacy answer of a backend that has shown versions ------------------------------------------------


def test_R_A11_a_backend_that_has_shown_versions_becomes_legacy_by_three_probes_in_a_row() -> None:
    fleet = KNOWN_A
    for number in range(2):
        fleet = fleet.observe("toy", "a", ProbeSucceeded(legacy("1.1"), 11.0 + number))
        assert (one(fleet).legacy, one(fleet).advertisement) == (False, upto(5)), "its last report counts"
        assert one(fleet).usable_versions == NO_VERSIONS, "nobody knows at which version it executes"
        assert one(fleet).freshness is Freshness.FRESH

    third = one(fleet.observe("toy", "a", ProbeSucceeded(legacy("1.1"), 13.0)))
    assert (third.legacy, third.advertisement, third.error) == (True, legacy("1.1"), None)
    assert third.usable_versions == VersionSet.only(v("1.1"))


def test_R_A11_a_failed_probe_ends_the_row_of_legacy_answers() -> None:
    fleet = KNOWN_A
    answers = (legacy("1.1"), legacy("1.1"), None, legacy("1.1"), legacy("1.1"))
    for at, answer in enumerate(answers, 11):
        fact = ProbeFailed("an HTML page", at) if answer is None else ProbeSucceeded(answer, at)
        fleet = fleet.observe("toy", "a", fact)
        assert not one(fleet).legacy
        assert one(fleet).usable_versions == NO_VERSIONS, "a failed probe shows no versions"

    assert one(fleet.observe("toy", "a", ProbeSucceeded(legacy("1.1"), 20.0))).legacy
    assert one(fleet.observe("toy", "a", ProbeSucceeded(upto(5), 20.0))) == one(KNOWN_A)


def test_R_A11_a_backend_that_was_never_heard_becomes_legacy_at_once() -> None:
    first = one(KNOWN_A.observe("toy", "b", ProbeSucceeded(legacy("1.1"), 11.0)), "b")

    assert (first.legacy, first.usable_versions) == (True, VersionSet.only(v("1.1")))
