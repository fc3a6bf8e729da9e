"""Which requests a member does not get after a response or a probe that does not fit its advertisement."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.doubt import MAX_MISMATCHED_PATHS, MAX_MISMATCHED_RANGES
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Fact,
    Fleet,
    PassiveObservation,
    ProbeFailed,
    ProbeSucceeded,
    ServedVersionMissing,
    VersionMismatch,
)
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from tests.core.builders import fleet_of, legacy, service, upto, v

KNOWN = fleet_of([service("a")]).observe("toy", "a", ProbeSucceeded(upto(9), 0.0))
ALL = upto(9).versions
NODES, PORTS, CHASSIS = "/v1/nodes", "/v1/ports", "/v1/chassis"


def after(*facts: Fact, fleet: Fleet = KNOWN) -> Fleet:
    for fact in facts:
        fleet = fleet.observe("toy", "a", fact)
    return fleet


def member(*facts: Fact, fleet: Fleet = KNOWN) -> Member:
    found = after(*facts, fleet=fleet).member_sets["toy"].member("a")
    assert found is not None
    return found


def usable(*facts: Fact) -> VersionSet:
    return member(*facts).usable_versions


def without(*versions: str) -> VersionSet:
    return ALL - VersionSet.only(*map(v, versions))


def mismatch(version: str, path: str, at: float) -> VersionMismatch:
    return VersionMismatch(v(version), at, path)


def prompted(at: float, highest: int = 9) -> ProbeSucceeded:
    return ProbeSucceeded(upto(highest), at, prompted=True)


def regular(at: float) -> ProbeSucceeded:
    return ProbeSucceeded(upto(9), at)


# --- mismatches: one path is not taken for the whole -----------------------------------------------------


@pytest.mark.parametrize("prompt", [True, False])
def test_R_D1_a_mismatch_of_the_same_moment_as_a_probe_is_answered_by_it_in_either_order(
    prompt: bool,
) -> None:
    """No probe would be asked for, so the member would be avoided until the next regular one."""
    probe = ProbeSucceeded(upto(9), 2.0, prompt)
    for facts in ((probe, mismatch("1.5", NODES, 2.0)), (mismatch("1.5", NODES, 2.0), probe)):
        assert usable(*facts) == ALL
        assert member(*facts).probe_wanted_at is None


def test_R_D1_a_mismatch_on_one_path_counts_until_a_prompted_probe_still_advertises_the_version() -> None:
    first = mismatch("1.5", NODES, 1.0)

    assert usable(first) == without("1.5")
    assert usable(first, ProbeFailed("x", 2.0)) == without("1.5"), "that is no answer"
    assert usable(first, prompted(0.5)) == without("1.5"), "it was sent before"
    assert usable(first, prompted(2.0)) == ALL
    assert usable(first, prompted(2.0, highest=4)) == upto(4).versions


def test_R_D1_the_same_path_again_changes_nothing_until_the_next_regular_probe() -> None:
    confirmed = after(mismatch("1.5", NODES, 1.0), prompted(2.0))

    assert after(mismatch("1.5", NODES, 3.0), fleet=confirmed) is confirmed
    assert member(mismatch("1.4", NODES, 3.0), fleet=confirmed).usable_versions == without("1.4"), (
        "another version is another matter"
    )
    anew = after(regular(4.0), fleet=confirmed)
    assert member(mismatch("1.5", NODES, 5.0), fleet=anew).usable_versions == without("1.5")


def test_R_D1_a_second_path_counts_until_the_next_regular_probe() -> None:
    first, second = mismatch("1.5", NODES, 1.0), mismatch("1.5", PORTS, 3.0)

    for facts in [(first, second), (first, prompted(2.0), second)]:
        assert usable(*facts) == without("1.5")
        assert usable(*facts, prompted(4.0)) == without("1.5")
        assert after(*facts, mismatch("1.5", CHASSIS, 5.0)) == after(*facts)
        assert usable(*facts, regular(2.5)) == without("1.5"), "it was sent before"
        assert member(*facts, regular(4.0)) == member()


def test_paths_of_different_versions_do_not_add_up() -> None:
    assert usable(mismatch("1.5", NODES, 1.0), mismatch("1.4", PORTS, 1.0), prompted(2.0)) == ALL


def test_a_mismatch_that_arrives_after_its_answer() -> None:
    """A slow response: a regular probe that was sent since has answered it, a prompted one half."""
    assert after(regular(2.0), mismatch("1.5", NODES, 1.0)) is not after(regular(2.0))
    assert member(regular(2.0), mismatch("1.5", NODES, 1.0)) == member()
    late = after(mismatch("1.5", NODES, 1.0), prompted(2.0), mismatch("1.4", PORTS, 1.5))
    assert member(fleet=late).usable_versions == ALL
    assert member(mismatch("1.4", NODES, 1.6), fleet=late).usable_versions == without("1.4")


def test_a_probe_is_wanted_at_once_after_a_mismatch_until_one_was_sent_and_answered() -> None:
    first = mismatch("1.5", NODES, 1.0)

    assert member().probe_wanted_at is None
    assert member(first).probe_wanted_at == 1.0
    assert member(first, mismatch("1.4", PORTS, 3.0)).probe_wanted_at == 3.0
    assert member(first, ProbeFailed("x", 2.0)).probe_wanted_at == 1.0
    assert member(first, prompted(0.5)).probe_wanted_at == 1.0
    assert member(first, prompted(2.0)).probe_wanted_at is None
    assert member(first, regular(2.0)).probe_wanted_at is None
    assert member(ConnectFailed(1.0)).probe_wanted_at is None


def test_people_see_why_a_member_is_avoided() -> None:
    first = mismatch("1.5", NODES, 1.0)

    assert member().error is None
    assert "named other versions than the requested ones" in str(member(first).error)
    assert member(first, ProbeFailed("no connection", 2.0)).error == "no connection"
    assert member(first, prompted(2.0)).error is None


def test_what_clients_choose_is_bounded() -> None:
    """Versions and paths. One path alone never counts for good; beyond the known paths every path does."""
    wide = Advertisement(VersionSet.between(Version(1, 0), Version(1, 9999)))
    fleet = fleet_of([service("a")]).observe("toy", "a", ProbeSucceeded(wide, 0.0))
    for number in range(MAX_MISMATCHED_RANGES + 1):
        fleet = after(VersionMismatch(Version(1, 2 * number), 1.0, NODES), fleet=fleet)
    assert member(fleet=fleet).usable_versions == NO_VERSIONS
    assert len(member(fleet=fleet).mismatched.ranges) == 1
    one_path = ProbeSucceeded(wide, 2.0, prompted=True)
    assert member(one_path, fleet=fleet).usable_versions == wide.versions

    fleet = KNOWN
    for number in range(MAX_MISMATCHED_PATHS):
        fleet = after(
            mismatch("1.5", f"/v1/{number}", 1.0), mismatch("1.4", f"/v1/{number}", 1.0), fleet=fleet
        )
    assert len(member(fleet=fleet).mismatches.by_path) <= MAX_MISMATCHED_PATHS

    fleet = after(*(mismatch(f"1.{n + 1}", f"/v1/{n}", 1.0) for n in range(MAX_MISMATCHED_PATHS)))
    assert member(prompted(2.0), fleet=fleet).usable_versions == ALL
    one_more = after(mismatch("1.9", "/v1/one-more", 1.0), fleet=fleet)
    assert len(member(fleet=one_more).mismatches.by_path) == MAX_MISMATCHED_PATHS
    assert member(prompted(2.0), fleet=one_more).usable_versions == without("1.9")


# --- versions that nobody knows --------------------------------------------------------------------------


def test_R_A2_without_the_served_version_nothing_is_known_until_a_later_probe_shows_versions() -> None:
    missing = ServedVersionMissing(5.0)
    doubtful = member(missing)

    assert (doubtful.version_unknown, doubtful.usable_versions) == (True, NO_VERSIONS)
    assert (doubtful.advertisement, doubtful.in_service) == (upto(9), True), "its last report counts"
    assert (doubtful.freshness, doubtful.probe_wanted_at) == (Freshness.FRESH, 5.0)
    assert "versions are unknown" in str(doubtful.error)
    for still in (regular(4.0), ProbeFailed("x", 6.0), PassiveObservation(upto(8), 5.0), ConnectFailed(6.0)):
        assert member(missing, still).version_unknown
    assert usable(missing, regular(6.0)) == ALL
    assert usable(missing, prompted(6.0)) == ALL
    assert usable(missing, PassiveObservation(upto(8), 6.0)) == upto(8).versions


def test_R_A2_an_older_response_without_the_served_version_changes_nothing() -> None:
    for newer in (regular(6.0), PassiveObservation(upto(8), 6.0)):
        fleet = after(newer)
        assert after(ServedVersionMissing(5.0), fleet=fleet) is fleet


def test_R_A2_a_legacy_or_unheard_backend_owes_no_served_version() -> None:
    never = fleet_of([service("a")])
    assert after(ServedVersionMissing(5.0), fleet=never) is never
    old = after(ProbeSucceeded(legacy("1.1"), 1.0), fleet=never)
    assert after(ServedVersionMissing(5.0), fleet=old) is old


def test_R_A2_the_third_legacy_answer_makes_it_known_again() -> None:
    facts: list[Fact] = [ServedVersionMissing(5.0)]
    errors = []
    for at in (6.0, 7.0):
        facts.append(ProbeSucceeded(legacy("1.1"), at, prompted=at == 6.0))
        errors.append(member(*facts).error)
        assert (member(*facts).version_unknown, member(*facts).probe_wanted_at) == (True, None)
    assert errors == [f"answers as a server without versions, {number} of 3" for number in (1, 2)]

    third = member(*facts, ProbeSucceeded(legacy("1.1"), 8.0))
    assert (third.version_unknown, third.legacy, third.error) == (False, True, None)
    assert third.usable_versions == VersionSet.only(v("1.1"))


def test_R_A11_versions_that_were_shown_later_end_the_row() -> None:
    answers = ProbeSucceeded(legacy("1.1"), 11.0), ProbeSucceeded(legacy("1.1"), 13.0)

    assert usable(*answers, PassiveObservation(upto(9), 14.0)) == ALL
    assert usable(*answers, PassiveObservation(upto(9), 12.0)) == NO_VERSIONS
    between = member(*answers, PassiveObservation(upto(9), 12.0), ProbeSucceeded(legacy("1.1"), 15.0))
    assert not between.legacy, "only two since the versions"
    assert member(*answers, ProbeSucceeded(legacy("1.1"), 15.0)).legacy


def test_a_legacy_backend_shows_versions_at_once() -> None:
    old = after(ProbeSucceeded(legacy("1.1"), 1.0), fleet=fleet_of([service("a")]))

    for newer in (regular(2.0), PassiveObservation(upto(9), 2.0)):
        assert member(newer, fleet=old).usable_versions == ALL


# --- laws ------------------------------------------------------------------------------------------------

AT = st.integers(1, 12).map(float)
VERSION = st.integers(1, 9).map(lambda minor: Version(1, minor))
PATH = st.sampled_from((NODES, PORTS, CHASSIS))
MISMATCH = st.builds(VersionMismatch, VERSION, AT, PATH)
ADVERTISEMENT = st.sampled_from((upto(9), upto(4), legacy("1.1")))
OBSERVED = st.one_of(
    MISMATCH,
    st.builds(ServedVersionMissing, AT),
    st.builds(ConnectFailed, AT),
    st.builds(PassiveObservation, st.sampled_from((upto(9), upto(4))), AT),
)
PROBE = st.one_of(
    st.builds(ProbeSucceeded, ADVERTISEMENT, AT, st.booleans()), st.builds(ProbeFailed, st.just("x"), AT)
)
HISTORY = st.lists(st.one_of(OBSERVED, OBSERVED, PROBE), max_size=12)


@given(HISTORY, OBSERVED)
def test_a_fact_that_was_taken_in_changes_nothing_again(history: list[Fact], fact: Fact) -> None:
    fleet = after(*history, fact)

    again = after(fact, fleet=fleet)
    assert again.member_sets == fleet.member_sets
    if not isinstance(fact, PassiveObservation):
        assert again is fleet


@given(HISTORY, st.lists(OBSERVED, max_size=6))
def test_facts_from_before_a_regular_probe_do_not_count_after_it(
    history: list[Fact], late: list[Fact]
) -> None:
    probed = after(*history, ProbeSucceeded(upto(9), 20.0))

    assert member(fleet=probed) == member()
    assert after(*late, fleet=probed) is probed


@given(st.data())
def test_the_order_in_which_doubts_arrive_does_not_matter(data: st.DataObject) -> None:
    facts = data.draw(st.lists(st.one_of(MISMATCH, st.builds(ServedVersionMissing, AT)), max_size=8))

    assert member(*data.draw(st.permutations(facts))) == member(*facts)


@given(HISTORY, st.lists(st.builds(VersionMismatch, VERSION, AT, st.just(NODES)), max_size=8))
def test_mismatches_of_one_path_never_outlast_a_probe_that_advertises_the_version(
    history: list[Fact], found: list[VersionMismatch]
) -> None:
    fleet = after(*history, ProbeSucceeded(upto(9), 12.0))
    late = [VersionMismatch(one.version, one.at + 20.0, one.path) for one in found]

    assert member(*late, ProbeSucceeded(upto(9), 40.0, prompted=True), fleet=fleet).usable_versions == ALL


@given(st.lists(st.one_of(MISMATCH, PROBE), max_size=12))
def test_two_paths_since_the_last_regular_probe_are_avoided(history: list[Fact]) -> None:
    """By a model that knows the order of time only."""
    facts = [
        ProbeSucceeded(upto(9), at, fact.prompted)
        if isinstance(fact, ProbeSucceeded)
        else VersionMismatch(fact.version, at, fact.path)
        if isinstance(fact, VersionMismatch)
        else fact
        for at, fact in enumerate(history, 1)
    ]
    paths: dict[Version, set[str]] = {}
    avoided: set[Version] = set()
    for fact in facts:
        if isinstance(fact, VersionMismatch):
            known = paths.setdefault(fact.version, set())
            if fact.path not in known:
                known.add(fact.path)
                avoided.add(fact.version)
        elif isinstance(fact, ProbeSucceeded):
            if not fact.prompted:
                paths = {}
            avoided = {version for version in avoided if len(paths.get(version, ())) > 1}

    assert usable(*facts) == ALL - VersionSet.only(*avoided)


@given(st.lists(st.sampled_from(("versions", "legacy", "failed", "missing")), max_size=14))
def test_only_three_legacy_answers_in_a_row_make_it_legacy(history: list[str]) -> None:
    """By a model that knows the order of time only."""
    is_legacy, is_unknown, row = False, False, 0
    facts: list[Fact] = []
    for at, what in enumerate(history, 1):
        match what:
            case "versions":
                facts.append(regular(at))
                is_legacy, is_unknown, row = False, False, 0
            case "failed":
                facts.append(ProbeFailed("x", at))
                row = 0
            case "missing":
                facts.append(ServedVersionMissing(at))
                is_unknown = is_unknown or not is_legacy
            case _:
                facts.append(ProbeSucceeded(legacy("1.1"), at))
                if not is_legacy:
                    row += 1
                    is_legacy = row == 3
                    is_unknown = not is_legacy
        found = member(*facts)
        assert (found.legacy, found.version_unknown) == (is_legacy, is_unknown)
        expected = NO_VERSIONS if is_unknown else legacy("1.1").versions if is_legacy else ALL
        assert found.usable_versions == expected
        assert found.in_service, "its last report counts for the offer"


@pytest.mark.parametrize("fact", [mismatch("1.5", NODES, 1.0), ServedVersionMissing(1.0)])
def test_doubts_survive_a_reload_that_keeps_the_backend(fact: Fact) -> None:
    doubtful = after(fact)

    assert fleet_of([service("a", "b")], doubtful).member_sets["toy"].member("a") == member(fleet=doubtful)
    assert not member(fleet=fleet_of([service("a", name="toy")])).suspect
