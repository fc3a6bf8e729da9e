"""How far apart releases in service are: OpenStack's steps, SLURP included, and an order of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import Advertisement, Dialect
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.skew import ReleaseOrder, Skew, SkewState
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.demo.ironic import NEW, OLD
from gateway.dialects.openstack.guideline import OpenStack
from gateway.dialects.openstack.ironic import Ironic
from gateway.dialects.openstack.nova import Nova
from tests.core import builders
from tests.core.builders import Toy, v

ADVICE = "drain what is too new, or upgrade the oldest first"


def state_of(
    highest: Mapping[str, int | None], dialect: Dialect | None = None, supported: int = 1, **more: Any
) -> SkewState:
    """Backends by their highest minor version; None: legacy."""
    dialect = dialect or Ironic()
    major = next(iter(dialect.releases.values()), Version(1, 0))[0]
    span = VersionSet.between
    known = {
        name: Advertisement(VersionSet(), legacy=True)
        if top is None
        else Advertisement(span(Version(major, 0), Version(major, top)))
        for name, top in highest.items()
    }
    snapshot = builders.snapshot(known, dialect=dialect, skew=Skew(supported), **more)
    state = snapshot.views["toy"].skew
    assert state is not None
    return state


@pytest.mark.parametrize(
    "older, newer, steps",
    [
        (58, 58, 0),
        (58, 65, 1),  # train, ussuri
        (58, 61, 1),  # train, work on ussuri
        (58, 68, 2),
        (78, 80, 1),  # xena or yoga, zed: yoga may be meant
        (72, 78, 1),  # wallaby, xena or yoga: xena may be meant
        (72, 80, 3),  # wallaby, xena, yoga, zed
        (80, 87, 2),  # zed is no SLURP release
        (82, 87, 1),
        (82, 90, 1),  # 2023.1, 2024.1
        (87, 90, 1),
        (82, 93, 2),  # 2023.1, 2024.1, 2024.2
        (87, 93, 2),
        (82, 96, 2),
        (96, 111, 1),
        (111, 116, 1),  # 2026.1, and a release that is not known yet
        (109, 116, 1),
        (101, 116, 2),
        (113, 116, 1),
        (58, 90, 8),
        (None, 6, 1),  # legacy: before kilo
        (None, 14, 2),
    ],
)
def test_steps_between_releases_of_ironic(older: int | None, newer: int, steps: int) -> None:
    assert state_of({"a": newer, "b": older}, supported=20) == SkewState(steps, 20)


@pytest.mark.parametrize("older, newer, steps", [(93, 95, 1), (95, 96, 1), (93, 96, 2), (95, 100, 2)])
def test_releases_with_the_same_maximum_count_as_the_nearest(older: int, newer: int, steps: int) -> None:
    assert state_of({"a": older, "b": newer}, Nova(), 20).releases == steps


@pytest.mark.parametrize(
    "service, older, newer, steps",
    [
        ("volume", 62, 64, 1),  # victoria, wallaby
        ("volume", 62, 66, 2),
        ("shared-file-system", 78, 85, 1),  # 2023.1, 2024.1: SLURP releases
        ("shared-file-system", 73, 82, 2),  # zed, 2023.2
        ("placement", 36, 39, 2),  # wallaby or before, yoga or after
    ],
)
def test_steps_between_releases_of_other_services(service: str, older: int, newer: int, steps: int) -> None:
    dialect = OpenStack.configured(OpenStack.Options(service_type=service))
    assert state_of({"a": older, "b": newer}, dialect, 20).releases == steps


def test_what_is_too_new_is_named_with_the_oldest() -> None:
    state = state_of({"a": 82, "b": 90, "c": 96, "d": 93})

    assert (state.releases, state.supported, state.too_new) == (2, 1, ("c", "d"))
    assert state.problem == (
        f"too new for a (2023.1): c, d; the newest is 2025.1, 2 upgrade steps ahead, 1 supported: {ADVICE}"
    )
    assert state_of({"a": 82, "b": 90, "c": 96, "d": 93}, supported=2) == SkewState(2, 2)


def test_many_are_counted_and_ranges_are_written() -> None:
    state = state_of({"old": 78, **{f"b{each}": 116 for each in range(6)}, "x": None})
    assert "too new for x (before kilo): old, b0, b1, b2 and 3 more; " in (state.problem or "")
    state = state_of({"old": 78, "new": 90})
    assert "too new for old (xena to yoga): new; the newest is 2024.1, 3 upgrade steps ahead" in (
        state.problem or ""
    )


def test_only_what_is_in_service_counts() -> None:
    first = builders.snapshot(
        {"a": builders.upto(58), "b": builders.upto(90), "c": None}, dialect=Ironic(), skew=Skew()
    )
    skew = first.views["toy"].skew
    assert skew is not None
    assert skew.too_new == ("b",)
    drained = first.with_fleet(first.fleet.apply("toy", Drain("a")), 1.0)
    assert drained.views["toy"].skew == SkewState(0, 1)
    nobody = Snapshot.configured([builders.service("a", dialect=Ironic(), skew=Skew())], now=0.0)
    assert nobody.views["toy"].skew == SkewState(0, 1)
    assert builders.snapshot({"a": builders.upto(58)}).views["toy"].skew is None


def test_another_dialect_counts_by_the_releases_of_the_service() -> None:
    releases = {"third": v("1.30"), "first": v("1.10"), "second": v("1.20")}
    assert state_of({"a": 10, "b": 20}, Toy(), releases=releases) == SkewState(1, 1)
    state = state_of({"a": 10, "b": 30, "c": 31}, Toy(), releases=releases)
    assert (state.releases, state.too_new) == (3, ("b", "c"))
    assert "too new for a (first): b, c; the newest is after third" in (state.problem or "")


def test_the_demonstration_upgrades_by_a_supported_step() -> None:
    assert state_of({"old": OLD.highest, "new": NEW.highest}) == SkewState(1, 1)


IRONIC = ReleaseOrder(Ironic(), {})
MINORS = st.integers(1, 120)


def possible(minor: int) -> list[int]:
    """Positions of the releases whose servers may have this maximum: no known one contradicts it."""
    known = dict(IRONIC.known)
    newest = max(known)

    def fits(at: int) -> bool:
        if at > newest:
            return known[newest] <= Version(1, minor)
        exact = known[at] == Version(1, minor)
        before = known[at - 1] if at else Version(1, 0)
        return exact or before < Version(1, minor) < known[at]

    return [at for at in range(len(IRONIC.names)) if fits(at)]


def fewest(begin: int, end: int) -> int:
    """Breadth first over the steps that OpenStack supports."""
    names, slurp = IRONIC.names, Ironic.skip_level
    reached, count = {begin}, 0
    while end not in reached:
        nexts = {at + 1 for at in reached}
        for at in reached:
            if names[at] in slurp and (later := slurp[slurp.index(names[at]) + 1 :]):
                nexts.add(names.index(later[0]))
        reached, count = {at for at in nexts if at <= end}, count + 1
    return count


@given(MINORS, MINORS)
def test_a_distance_is_the_shortest_that_the_versions_allow(one: int, other: int) -> None:
    older, newer = sorted((one, other))
    pairs = [(begin, end) for begin in possible(older) for end in possible(newer) if begin <= end]
    assert state_of({"a": newer, "b": older}, supported=20).releases == min(fewest(*each) for each in pairs)
