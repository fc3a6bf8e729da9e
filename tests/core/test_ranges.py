"""The laws of version sets, held against Python's own `set`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.ranges import VersionRange, VersionSet, held_by_at_least
from gateway.core.version import CalendarDate, MajorMinor, Named, Version, WholeNumber
from gateway.errors import VersionTextError

UNIVERSE = (*(Version(1, minor) for minor in range(5)), *(Version(2, minor) for minor in range(3)))
"""Eight versions of two majors: small enough for all 256 subsets and all 65,536 pairs of them."""

SUBSETS = tuple(
    frozenset(version for bit, version in enumerate(UNIVERSE) if mask >> bit & 1)
    for mask in range(1 << len(UNIVERSE))
)
XY = MajorMinor()


def r(low: str, high: str) -> VersionRange:
    return VersionRange(XY.require(low), XY.require(high))


# --- a range -------------------------------------------------------------------------------------------


def test_a_range_includes_both_ends_and_nothing_of_another_major() -> None:
    whole = r("1.1", "1.3")

    assert list(whole) == [Version(1, 1), Version(1, 2), Version(1, 3)]
    assert len(whole) == 3
    assert Version(1, 0) not in whole
    assert Version(1, 4) not in whole
    assert Version(2, 2) not in whole


@pytest.mark.parametrize("low,high", [("1.2", "1.1"), ("1.1", "2.1"), ("2.1", "1.1")])
def test_a_range_runs_upwards_inside_one_major(low: str, high: str) -> None:
    with pytest.raises(VersionTextError, match="no range"):
        r(low, high)


# --- the exhaustive law --------------------------------------------------------------------------------


def test_every_subset_has_exactly_one_spelling() -> None:
    spelled = {VersionSet.only(*subset): subset for subset in SUBSETS}

    assert len(spelled) == len(SUBSETS)
    for written, subset in spelled.items():
        assert list(written) == sorted(subset)
        assert bool(written) == bool(subset)
        assert all((version in written) == (version in subset) for version in UNIVERSE)
        # Neither overlapping nor touching.
        for left, right in zip(written.ranges, written.ranges[1:], strict=False):
            assert left.high.major != right.low.major or left.high.step(1) < right.low


def test_all_pairs_of_subsets_obey_the_algebra_of_sets() -> None:
    """Which table is right needs no oracle of ours: Python's own sets are it."""
    table = {subset: VersionSet.only(*subset) for subset in SUBSETS}

    for left, mine in table.items():
        for right, theirs in table.items():
            assert mine | theirs == table[left | right]
            assert mine & theirs == table[left & right]
            assert mine - theirs == table[left - right]
            assert (mine <= theirs) == (left <= right)


def test_ceilings_ends_and_newest_part_of_every_subset() -> None:
    for subset in SUBSETS:
        written = VersionSet.only(*subset)
        for ceiling in (*UNIVERSE, Version(0, 9), Version(1, 99), Version(3, 0)):
            assert set(written.up_to(ceiling)) == {version for version in subset if version <= ceiling}
            assert set(written.down_to(ceiling)) == {version for version in subset if version >= ceiling}
        if subset:
            assert (written.lowest, written.highest) == (min(subset), max(subset))
            newest = written.newest_unbroken()
            assert newest <= written
            assert newest.highest == written.highest
            assert len(newest.ranges) == 1
            assert newest.lowest.step(-1) not in written


def test_sets_of_many_parts_cost_a_walk_along_them_and_not_along_all_pairs() -> None:
    """A backend may list thousands of dates: quadratic, this would stop every request for minutes."""
    odd = VersionSet(tuple(VersionRange(Version(1, at), Version(1, at)) for at in range(1, 60_000, 2)))
    third = VersionSet(tuple(VersionRange(Version(1, at), Version(1, at)) for at in range(0, 60_000, 3)))
    both = {Version(1, at) for at in range(3, 60_000, 6)}

    assert set(odd & third) == both == set(held_by_at_least([odd, third], 2))
    assert set(odd - third) == set(odd) - both


# --- the same with ranges of any size ------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn) -> VersionRange:
    major, low, length = draw(st.integers(0, 2)), draw(st.integers(0, 30)), draw(st.integers(0, 12))
    return VersionRange(Version(major, low), Version(major, low + length))


@given(st.lists(ranges(), max_size=6), st.lists(ranges(), max_size=6))
def test_unions_of_ranges_are_unions_of_their_versions(
    left: list[VersionRange], right: list[VersionRange]
) -> None:
    mine, theirs = VersionSet.of(left), VersionSet.of(right)
    mine_plain = {version for each in left for version in each}
    theirs_plain = {version for each in right for version in each}

    assert set(mine) == mine_plain
    assert set(mine | theirs) == mine_plain | theirs_plain
    assert set(mine & theirs) == mine_plain & theirs_plain
    assert set(mine - theirs) == mine_plain - theirs_plain
    assert (mine <= theirs) == (mine_plain <= theirs_plain)
    assert (mine == theirs) == (mine_plain == theirs_plain)


@given(st.lists(ranges(), max_size=6), st.lists(ranges(), max_size=6), st.lists(ranges(), max_size=6))
def test_laws_of_three(a: list[VersionRange], b: list[VersionRange], c: list[VersionRange]) -> None:
    x, y, z = VersionSet.of(a), VersionSet.of(b), VersionSet.of(c)

    assert (x | y) | z == x | (y | z)
    assert (x & y) & z == x & (y & z)
    assert x & (y | z) == (x & y) | (x & z)
    assert x - (y | z) == (x - y) & (x - z)
    assert (x - y) | (x & y) == x


@given(st.lists(ranges(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_ranges_come_does_not_matter(parts: list[VersionRange], order: object) -> None:
    shuffled = list(parts)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random of hypothesis

    assert VersionSet.of(shuffled) == VersionSet.of(parts)
    assert hash(VersionSet.of(shuffled)) == hash(VersionSet.of(parts))


@given(st.lists(ranges(), min_size=1, max_size=6))
def test_what_is_written_for_people_reads_back(parts: list[VersionRange]) -> None:
    written = VersionSet.of(parts)

    assert VersionSet.read(written.format(XY), XY) == written


# --- texts ---------------------------------------------------------------------------------------------


def test_an_operator_writes_ranges_and_single_versions_in_any_order() -> None:
    assert VersionSet.read(" 1.60, 1.1 - 1.58,1.59", XY) == VersionSet.between(Version(1, 1), Version(1, 60))
    assert VersionSet.read("0-2", WholeNumber()) == VersionSet.only(Version(0), Version(1), Version(2))


def test_dates_and_names_use_two_dots_because_a_dash_is_part_of_them() -> None:
    months = CalendarDate(day=False)
    names = Named(("v1alpha1", "v1beta1", "v1"))

    assert VersionSet.read("2024-01..2024-03", months).format(months) == "2024-01..2024-03"
    assert VersionSet.read("v1beta1..v1", names) == VersionSet.only(Version(1), Version(2))


@pytest.mark.parametrize(
    "text", ["", "1.1-", "-1.1", "1.1,", "1.1-1.2-1.3", "1.5-1.1", "1.1-2.1", "1.1..1.2", "x"]
)
def test_a_slip_in_a_range_is_told(text: str) -> None:
    with pytest.raises(VersionTextError):
        VersionSet.read(text, XY)


def test_sets_are_written_for_people() -> None:
    assert VersionSet().format(XY) == "none"
    assert VersionSet.only(Version(1, 1)).format(XY) == "1.1"
    assert VersionSet.of([r("1.1", "1.58"), r("1.60", "1.60"), r("2.0", "2.1")]).format(XY) == (
        "1.1-1.58, 1.60, 2.0-2.1"
    )


def test_neighbours_merge_but_not_across_majors() -> None:
    assert VersionSet.of([r("1.3", "1.4"), r("1.1", "1.2")]).ranges == (r("1.1", "1.4"),)
    assert len(VersionSet.of([r("1.1", "1.2"), r("2.0", "2.1")]).ranges) == 2


def test_the_empty_set_has_no_ends() -> None:
    assert not VersionSet()
    assert Version(1, 1) not in VersionSet()
    with pytest.raises(IndexError):
        _ = VersionSet().lowest
    with pytest.raises(IndexError):
        _ = VersionSet().highest
