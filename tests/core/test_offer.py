"""The offer of a service by what is known: never more than some backend serves."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Fact, PassiveObservation, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer import HeldRule, Offer, Phase, form_offer
from gateway.core.fleet.offer_state import EMPTY, advance
from gateway.core.fleet.service import Policy, Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Version
from tests.core.builders import XY, Toy, backend, drain, fleet_of, legacy, members, observed, service, upto, v

GUARANTEED, REACHABLE, AT_LEAST = Policy.GUARANTEED, Policy.REACHABLE, Policy.AT_LEAST


def first_offer(one: Service, known: MemberSet) -> Offer:
    """The first offer, from those that have answered when the first round ends: it waits for nobody."""
    return form_offer(one, known, advance(EMPTY, one, known, 0.0))


def offer(results: dict[str, Advertisement | None], drained: tuple[str, ...] = (), **more: object) -> Offer:
    one = service(*results, **more)  # type: ignore[arg-type]  # fields of Service by name
    return first_offer(one, drain(observed(fleet_of([one]), results), *drained).member_sets["toy"])


def text(versions: VersionSet) -> str:
    return versions.format(XY)


OLD_NEW: dict[str, Advertisement | None] = {"old": upto(58), "new": upto(90)}


@pytest.mark.parametrize(
    "results, rules, expected",
    [
        (OLD_NEW, (GUARANTEED, None), ("1.1-1.58", "mixed", ("old",), "guaranteed")),
        (OLD_NEW, (REACHABLE, None), ("1.1-1.90", "mixed", (), None)),
        (OLD_NEW, (GUARANTEED, "1.40"), ("1.1-1.40", "mixed", (), "ceiling")),
        (OLD_NEW, (GUARANTEED, "1.58"), ("1.1-1.58", "mixed", ("old",), "guaranteed")),
        (OLD_NEW, (GUARANTEED, "1.70"), ("1.1-1.58", "mixed", ("old",), "guaranteed")),
        (OLD_NEW, (REACHABLE, "1.70"), ("1.1-1.70", "mixed", (), "ceiling")),
        ({"a": upto(58), "b": upto(58)}, (GUARANTEED, None), ("1.1-1.58", "uniform", (), None)),
        ({"a": upto(58), "b": upto(58)}, (GUARANTEED, "1.99"), ("1.1-1.58", "uniform", (), None)),
        ({"a": upto(58), "b": None}, (GUARANTEED, None), ("1.1-1.58", "uniform", (), None)),
        ({"a": upto(58)}, (GUARANTEED, "1.9"), ("1.1-1.9", "capped", (), "ceiling")),
        ({"a": upto(58)}, (REACHABLE, "1.9"), ("1.1-1.9", "capped", (), "ceiling")),
        ({"a": upto(58, 3)}, (GUARANTEED, "1.2"), ("none", "unknown", (), "ceiling")),
        ({"a": upto(9, 5), "b": upto(20)}, (GUARANTEED, None), ("1.5-1.9", "mixed", ("a",), "guaranteed")),
        ({"a": upto(9, 5), "b": upto(20)}, (AT_LEAST, None), ("1.5-1.9", "mixed", ("a",), "at_least")),
        ({"a": upto(5), "b": upto(9, 7)}, (GUARANTEED, None), ("1.7-1.9", "mixed", ("a",), "state")),
        ({"a": upto(5), "b": upto(9, 7)}, (REACHABLE, None), ("1.7-1.9", "mixed", (), None)),
        ({"a": upto(5), "b": upto(9, 6)}, (GUARANTEED, None), ("1.1-1.9", "mixed", ("a", "b"), "state")),
    ],
)
def test_the_offer(
    results: dict[str, Advertisement | None],
    rules: tuple[Policy, str | None],
    expected: tuple[str, str, tuple[str, ...], str | None],
) -> None:
    """`rules`: policy and ceiling. `expected`: offer, phase, and which backends hold it by which rule."""
    policy, ceiling = rules

    made = offer(results, policy=policy, ceiling=None if ceiling is None else v(ceiling))

    assert (text(made.versions), made.phase.value, made.held.by, made.held.rule) == expected
    assert (made.offered is None) is (expected[0] == "none")
    assert not made.transparent


def test_guaranteed_and_reachable_come_with_the_offer() -> None:
    made = offer(OLD_NEW, ceiling=v("1.9"))

    assert (text(made.guaranteed), text(made.reachable)) == ("1.1-1.58", "1.1-1.90")
    assert (made.policy, made.ceiling) == (GUARANTEED, v("1.9"))
    assert made.offered is not None
    assert (made.offered.lowest, made.offered.highest) == (v("1.1"), v("1.9"))


def test_a_drained_backend_does_not_count() -> None:
    made = offer(OLD_NEW, drained=("old",))

    assert (text(made.versions), made.phase, made.held.by) == ("1.1-1.90", Phase.UNIFORM, ())


def test_when_all_are_drained_nothing_is_offered() -> None:
    made = offer(OLD_NEW, drained=("old", "new"))

    assert (made.versions, made.phase) == (VersionSet(), Phase.UNKNOWN)


def test_a_backend_that_is_down_counts_with_its_last_advertisement() -> None:
    one = service("old", "new")
    fleet = observed(fleet_of([one]), OLD_NEW)
    for number in range(9):
        fleet = fleet.observe("toy", "old", ProbeFailed("x", 2.0 + number))

    assert text(first_offer(one, fleet.member_sets["toy"]).versions) == "1.1-1.58"


# --- the first probes ----------------------------------------------------------------------------------


def test_nothing_is_offered_until_every_first_probe_has_ended_and_one_has_answered() -> None:
    one = service("a", "b", "c")
    fleet = fleet_of([one])
    steps: list[tuple[str, Advertisement | None, str, Phase]] = [
        ("a", None, "none", Phase.UNKNOWN),
        ("b", upto(9), "none", Phase.UNKNOWN),
        ("c", upto(5), "1.1-1.5", Phase.MIXED),
        ("a", upto(3), "1.1-1.3", Phase.MIXED),
    ]

    assert first_offer(one, fleet.member_sets["toy"]).phase is Phase.UNKNOWN
    for name, advertisement, expected, phase in steps:
        fleet = observed(fleet, {name: advertisement})
        made = first_offer(one, fleet.member_sets["toy"])
        assert (text(made.versions), made.phase, made.transparent) == (expected, phase, False)


def test_when_no_backend_ever_answered_nothing_is_offered() -> None:
    made = offer({"a": None, "b": None})

    assert (made.versions, made.phase, made.held.by, made.transparent) == (
        VersionSet(),
        Phase.UNKNOWN,
        (),
        False,
    )


# --- legacy backends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [legacy("1.1"), legacy()])
def test_only_legacy_backends_are_transparent(old: Advertisement) -> None:
    assert offer({"a": old, "b": old}).transparent
    assert offer({"a": old, "b": None}).transparent
    assert not offer({"a": old, "b": upto(9)}, drained=("b",)).transparent
    assert not offer({"a": old, "b": old}, drained=("a", "b")).transparent


def test_a_legacy_backend_counts_with_the_version_it_stands_for() -> None:
    made = offer({"a": legacy("1.1"), "b": upto(9)})

    assert (text(made.versions), made.phase, made.held.by, made.transparent) == (
        "1.1",
        Phase.MIXED,
        ("a",),
        False,
    )


def test_a_legacy_backend_that_stands_for_no_version_takes_no_part() -> None:
    made = offer({"a": legacy(), "b": upto(9)})

    assert (text(made.versions), made.phase, made.held.by, made.transparent) == (
        "1.1-1.9",
        Phase.UNIFORM,
        (),
        False,
    )


# --- sets with gaps ------------------------------------------------------------------------------------


def test_dates_are_offered_as_the_set_itself() -> None:
    dates = CalendarDate()
    early, middle, late = (dates.require(text) for text in ("2024-01-01", "2024-06-01", "2025-01-01"))
    results: dict[str, Advertisement | None] = {
        "a": Advertisement(VersionSet.only(early, late)),
        "b": Advertisement(VersionSet.only(early, middle, late)),
    }

    assert offer(results, dialect=Toy(scheme=dates)).versions == VersionSet.only(early, late)
    capped = offer(results, dialect=Toy(scheme=dates), policy=REACHABLE, ceiling=middle)
    assert capped.versions == VersionSet.only(early, middle)


def test_xy_clients_are_offered_one_unbroken_range_the_newest() -> None:
    gap = Advertisement(VersionSet.read("1.1-1.3, 1.7-1.9", XY))

    made = offer({"a": gap, "b": gap})

    assert (text(made.versions), made.phase, made.held.rule) == ("1.7-1.9", Phase.UNIFORM, "guaranteed")
    assert (text(made.held.versions), made.held.by) == ("1.1-1.3", ()), "nobody holds it back but the gap"


# --- for every fleet -----------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
VERSIONS = st.builds(Version, st.integers(1, 2), st.integers(0, 9))
RANGES = st.tuples(st.integers(1, 2), st.integers(0, 9), st.integers(0, 9)).map(
    lambda parts: VersionSet.between(Version(parts[0], min(parts[1:])), Version(parts[0], max(parts[1:])))
)
SETS = st.lists(RANGES, min_size=1, max_size=3).map(
    lambda sets: VersionSet.of(one for versions in sets for one in versions.ranges)
)
ADVERTISEMENTS = SETS.map(Advertisement) | st.just(legacy("1.1"))
FACTS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.builds(ProbeSucceeded, ADVERTISEMENTS, st.floats(0, 9))
        | st.builds(ProbeFailed, st.just("x"), st.floats(0, 9))
        | st.builds(PassiveObservation, ADVERTISEMENTS, st.floats(0, 9)),
    ),
    max_size=20,
)
SERVICES = st.builds(
    lambda policy, ceiling: service(*NAMES, policy=policy, ceiling=ceiling),
    st.sampled_from(Policy),
    st.none() | VERSIONS,
)


def learned(one: Service, facts: list[tuple[str, Fact]]) -> MemberSet:
    fleet = fleet_of([one])
    for name, fact in facts:
        fleet = fleet.observe("toy", name, fact)
    return fleet.member_sets["toy"]


@given(SERVICES, FACTS)
def test_what_holds_for_every_offer(one: Service, facts: list[tuple[str, Fact]]) -> None:
    known = learned(one, facts)
    made = first_offer(one, known)

    negotiated = known.all_probed and any(member.advertisement and not member.legacy for member in known.all)
    assert bool(made.versions or made.held.rule is HeldRule.CEILING) is negotiated
    assert (made.phase is Phase.UNKNOWN) is not bool(made.transparent or made.versions)
    assert made.versions <= made.reachable
    assert made.guaranteed <= made.reachable
    assert len(made.versions.ranges) <= 1, "unbroken"
    if made.offered is not None:
        assert made.offered.lowest <= made.offered.highest
        assert one.ceiling is None or made.offered.highest <= one.ceiling
    if one.policy is GUARANTEED and made.guaranteed:
        assert made.versions <= made.guaranteed
    assert not (made.phase is Phase.UNIFORM and made.held.by)


@given(SERVICES, FACTS, st.randoms(use_true_random=False))
def test_two_gateways_that_know_the_same_offer_the_same(
    one: Service, facts: list[tuple[str, Fact]], chance: object
) -> None:
    """In whichever order of backends the facts came, and whether or not one came twice."""
    other = Service(one.name, Toy(), one.backends, policy=one.policy, ceiling=one.ceiling)
    regrouped = sorted(facts, key=lambda fact: fact[0])  # stable: the order of each backend's facts stays
    chance.shuffle(order := list(NAMES))  # type: ignore[attr-defined]  # a random.Random of hypothesis
    again = [fact for name in order for fact in regrouped if fact[0] == name]

    assert first_offer(one, learned(one, facts)) == first_offer(other, learned(other, again))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), SETS.map(Advertisement), st.integers(0, 50)),
        max_size=12,
        unique_by=lambda fact: fact[2],
    )
)
def test_late_facts_in_any_order_lead_to_the_same_offer(facts: list[tuple[str, Advertisement, int]]) -> None:
    """What counts is when the request was sent, not when its response came. (Of legacy answers the number in
    a row counts, too.)"""
    one = service("a", "b", "c")

    def after(ordered: list[tuple[str, Advertisement, int]]) -> Offer:
        return first_offer(
            one,
            learned(
                one, [(name, ProbeSucceeded(advertisement, float(at))) for name, advertisement, at in ordered]
            ),
        )

    assert after(facts) == after(facts[::-1]) == after(sorted(facts, key=lambda fact: fact[2]))


def test_weights_do_not_change_an_offer() -> None:
    heavy: tuple[Backend, ...] = (backend("old", weight=9), backend("new"))

    made = first_offer(service(backends=heavy), members(OLD_NEW, backends=heavy))

    assert made == offer(OLD_NEW)
