"""The laws of version sets, compared with Python's own `set`."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.versions.ranges import (
    NEWEST,
    OLDEST,
    VersionRange,
    VersionSet,
    held_by_at_least,
    held_by_most,
    read_anew,
    segments,
    unbroken,
    union,
)
from gateway.core.versions.version import (
    CalendarDate,
    MajorMinor,
    Named,
    Scheme,
    Semantic,
    Version,
    WholeNumber,
)
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


@pytest.mark.parametrize("low,high", [("1.2", "1.1"), ("2.1", "1.1")])
def test_a_range_runs_upwards(low: str, high: str) -> None:
    with pytest.raises(VersionTextError, match="no range"):
        r(low, high)


@pytest.mark.parametrize("low,high", [("1.2", "1.1"), ("1.1", "2.1"), ("2.1", "1.1")])
def test_what_a_backend_serves_is_built_inside_one_major(low: str, high: str) -> None:
    with pytest.raises(VersionTextError, match="no range"):
        VersionRange.in_major(XY.require(low), XY.require(high))
    with pytest.raises(VersionTextError, match="no range"):
        VersionSet.between(XY.require(low), XY.require(high))
    with pytest.raises(VersionTextError, match="upwards inside one major"):
        VersionSet.read(f"{low}-{high}", XY)


@pytest.mark.parametrize("low,high", [(OLDEST, OLDEST), (NEWEST, OLDEST), (Version(1, 1), OLDEST)])
def test_the_open_end_below_is_no_high_end(low: Version, high: Version) -> None:
    with pytest.raises(VersionTextError, match="no range"):
        VersionRange(low, high)


@pytest.mark.parametrize(
    "scheme,first,last",
    [
        (XY, "0.0", "999999.999999"),
        (WholeNumber(), "0", "999999"),
        (Semantic(), "0.0.0", "999999.999999.999999"),
        (CalendarDate(), "0001-01-01", "9999-12-31"),
        (Named(("old", "new")), "old", "new"),
    ],
)
def test_the_open_ends_are_beyond_every_version_of_every_scheme(
    scheme: Scheme, first: str, last: str
) -> None:
    everything = VersionRange(OLDEST, NEWEST)

    assert scheme.require(first) > OLDEST
    assert scheme.require(last).step(1) < NEWEST
    assert scheme.require(first) in everything
    assert scheme.require(last) in everything


@pytest.mark.parametrize(
    "endless",
    [
        VersionRange(OLDEST, NEWEST),
        VersionRange(OLDEST, Version(2, 4)),
        VersionRange(Version(2, 4), NEWEST),
        VersionRange(OLDEST, Version(7)),
        VersionRange(Version(7), NEWEST),
        VersionRange(Version(1, 0), Version(2, 3)),
    ],
)
def test_a_range_that_has_an_open_end_or_spans_majors_cannot_be_listed(endless: VersionRange) -> None:
    whole = VersionSet((endless,))

    assert not endless.countable
    for refused in (
        lambda: len(endless),
        lambda: iter(endless),
        lambda: iter(whole),
        lambda: whole - VersionSet(),
        lambda: segments([whole]),
    ):
        with pytest.raises(ValueError, match="cannot be listed"):
            refused()


# --- the invariant -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        [("1.4", "1.5"), ("1.1", "1.2")],
        [("1.1", "1.4"), ("1.4", "1.5")],
        [("1.1", "1.9"), ("1.2", "1.3")],
        [("1.1", "1.3"), ("1.4", "1.5")],
        [("1.1", "1.1"), ("1.1", "1.1")],
        [("2.1", "2.2"), ("1.1", "1.2")],
        [("1.1", "1.1"), ("1.3", "1.3"), ("1.5", "1.6"), ("1.6", "1.7")],
    ],
)
def test_a_set_is_not_made_of_ranges_out_of_order_or_that_overlap_or_touch(
    parts: list[tuple[str, str]],
) -> None:
    with pytest.raises(ValueError, match="not sorted, overlap or touch"):
        VersionSet(tuple(r(low, high) for low, high in parts))


def test_nor_of_ranges_with_open_ends_that_do() -> None:
    for before, after in [
        (VersionRange(OLDEST, Version(1, 4)), VersionRange(Version(1, 5), NEWEST)),
        (VersionRange(OLDEST, NEWEST), r("1.1", "1.2")),
        (r("1.1", "1.2"), VersionRange(OLDEST, Version(1, 9))),
        (VersionRange(Version(1, 4), NEWEST), VersionRange(Version(1, 9), NEWEST)),
        (VersionRange(OLDEST, Version(1, 4)), VersionRange(OLDEST, Version(1, 9))),
    ]:
        with pytest.raises(ValueError, match="not sorted, overlap or touch"):
            VersionSet((before, after))


def test_ranges_with_a_version_between_them_make_a_set() -> None:
    parts = (r("1.1", "1.2"), r("1.4", "1.9"), r("2.0", "2.0"), r("3.0", "4.1"))
    ends = VersionRange(OLDEST, Version(0, 3)), VersionRange(Version(4, 3), NEWEST)

    for size in range(len(parts) + 1):
        for chosen in combinations(parts, size):
            assert VersionSet(chosen) == VersionSet.of(reversed(chosen))
    assert VersionSet((ends[0], *parts, ends[1])).ranges[1:-1] == parts


# --- the exhaustive law --------------------------------------------------------------------------------


def test_every_subset_has_exactly_one_spelling() -> None:
    spelled = {VersionSet.only(*subset): subset for subset in SUBSETS}

    assert len(spelled) == len(SUBSETS)
    for written, subset in spelled.items():
        assert list(written) == sorted(subset)
        assert bool(written) == bool(subset)
        assert all((version in written) == (version in subset) for version in UNIVERSE)
        # Neither overlapping nor touching.
        for left, right in pairwise(written.ranges):
            assert left.high.major != right.low.major or left.high.step(1) < right.low


def test_all_pairs_of_subsets_follow_the_algebra_of_sets() -> None:
    """Python's own sets say what is right."""
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
            newest = unbroken(written, MajorMinor())
            assert newest <= written
            assert newest.highest == written.highest
            assert len(newest.ranges) == 1
            assert newest.lowest.step(-1) not in written


def test_sets_of_many_parts_cost_a_walk_along_them_and_not_along_all_pairs() -> None:
    """A backend may list thousands of dates: a quadratic algorithm would stop every request for minutes."""
    odd = VersionSet(tuple(VersionRange(Version(1, at), Version(1, at)) for at in range(1, 60_000, 2)))
    third = VersionSet(tuple(VersionRange(Version(1, at), Version(1, at)) for at in range(0, 60_000, 3)))
    both = {Version(1, at) for at in range(3, 60_000, 6)}

    assert set(odd & third) == both == set(held_by_at_least([(odd, 1), (third, 1)], 2))
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


# --- open ends, and ranges that span majors --------------------------------------------------------------

PARTS = (
    VersionRange(OLDEST, Version(1, 0)),
    VersionRange(Version(1, 1), Version(1, 1)),
    VersionRange(Version(1, 2), Version(1, 7)),
    VersionRange(Version(1, 8), Version(2, 0)),
    VersionRange(Version(2, 1), Version(2, 4)),
    VersionRange(Version(2, 5), NEWEST),
)
"""Each touches the next, and together they are every version: sets of them behave like sets of six things."""

CHOICES = tuple(frozenset(chosen) for size in range(7) for chosen in combinations(PARTS, size))


def test_all_pairs_of_sets_with_open_ends_follow_the_algebra_of_sets() -> None:
    table = {chosen: VersionSet.of(chosen) for chosen in CHOICES}

    assert len(set(table.values())) == len(CHOICES) == 64
    for left, mine in table.items():
        for part in PARTS:
            assert all((end in mine) == (part in left) for end in (part.low, part.high))
        for right, theirs in table.items():
            assert mine | theirs == table[left | right]
            assert mine & theirs == table[left & right]
            assert (mine <= theirs) == (left <= right)


SAMPLES = tuple(Version(major, minor) for major in range(5) for minor in range(10))
"""Versions on both sides of every end that `open_ranges` draws, in its majors and in those around them."""


def sampled(ranges: list[VersionRange]) -> set[Version]:
    """The samples that any of `ranges` holds, by comparison of ends alone."""
    return {version for version in SAMPLES if any(one.low <= version <= one.high for one in ranges)}


@st.composite
def open_ranges(draw: st.DrawFn) -> VersionRange:
    ends = st.builds(Version, st.integers(1, 3), st.integers(1, 8))
    low, high = sorted((draw(ends), draw(ends)))
    return VersionRange(draw(st.sampled_from([low, OLDEST])), draw(st.sampled_from([high, NEWEST])))


@given(st.lists(open_ranges(), max_size=5), st.lists(open_ranges(), max_size=5))
def test_sets_with_open_ends_are_the_sets_of_their_versions(
    left: list[VersionRange], right: list[VersionRange]
) -> None:
    mine, theirs = VersionSet.of(left), VersionSet.of(right)
    mine_plain, theirs_plain = sampled(left), sampled(right)

    assert {version for version in SAMPLES if version in mine} == mine_plain
    assert sampled([*(mine | theirs).ranges]) == mine_plain | theirs_plain
    assert sampled([*(mine & theirs).ranges]) == mine_plain & theirs_plain
    assert (mine <= theirs) == (mine_plain <= theirs_plain)
    assert (mine == theirs) == (mine_plain == theirs_plain)
    assert bool(mine) == bool(left)


@given(st.lists(open_ranges(), max_size=5), st.sampled_from(SAMPLES))
def test_cuts_of_sets_with_open_ends(parts: list[VersionRange], at: Version) -> None:
    mine, plain = VersionSet.of(parts), sampled(parts)

    assert sampled([*mine.up_to(at).ranges]) == {version for version in plain if version <= at}
    assert sampled([*mine.down_to(at).ranges]) == {version for version in plain if version >= at}
    assert mine.begins_after(at) == (not mine & VersionSet((VersionRange(OLDEST, at),)))
    if parts:
        assert (mine.lowest, mine.highest) == (min(one.low for one in parts), max(one.high for one in parts))


@given(st.lists(ranges(), max_size=5), st.lists(open_ranges(), max_size=5))
def test_what_is_taken_from_a_countable_set_may_have_open_ends(
    left: list[VersionRange], right: list[VersionRange]
) -> None:
    mine, theirs = VersionSet.of(left), VersionSet.of(right)

    assert set(mine & theirs) == {version for version in mine if version in theirs}
    assert set(mine - theirs) == {version for version in mine if version not in theirs}


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
def test_a_mistake_in_a_list_is_an_error(text: str) -> None:
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


@pytest.mark.parametrize(
    "text, held, not_held",
    [
        (">=1.58", ["1.58", "1.59", "2.0"], ["1.57", "1.5"]),
        ("<=2.4", ["2.4", "2.0", "1.99"], ["2.5", "3.0"]),
        ("1.1-1.58", ["1.1", "1.10", "1.58"], ["1.0", "1.59", "2.1"]),
        ("1.0-2.3", ["1.0", "1.99", "2.3"], ["2.4", "0.9"]),
        ("1.5", ["1.5"], ["1.4", "1.6"]),
        ("1.1 - 1.3 , 1.7,>= 2.0", ["1.1", "1.3", "1.7", "2.0", "9.9"], ["1.4", "1.6", "1.8"]),
    ],
)
def test_an_operator_may_write_open_ends_and_ranges_that_span_majors(
    text: str, held: list[str], not_held: list[str]
) -> None:
    found = VersionSet.read_open(text, XY)

    assert [version for version in held if XY.require(version) not in found] == []
    assert [version for version in not_held if XY.require(version) in found] == []


@pytest.mark.parametrize(
    "text",
    ["", ">=", "<=x", ">1.5", "<1.5", "=1.5", "1.5-1.4", "2.0-1.9", "1.5,", ",", "1.05", "1-2", "next"],
)
def test_a_mistake_in_a_list_with_open_ends_is_an_error(text: str) -> None:
    with pytest.raises(VersionTextError):
        VersionSet.read_open(text, XY)


@pytest.mark.parametrize(
    "text, written",
    [
        (">=2.4", "2.4 and later"),
        ("<=2.4", "2.4 and earlier"),
        ("1.0-2.3", "1.0-2.3"),
        ("1.5-1.5", "1.5"),
        ("1.3,1.1-1.2,>=1.9", "1.1-1.3, 1.9 and later"),
        ("<=1.4,>=1.5", "every version"),
    ],
)
def test_sets_with_open_ends_are_written_for_people(text: str, written: str) -> None:
    assert VersionSet.read_open(text, XY).format(XY) == written


def test_open_ends_of_dates_and_whole_numbers() -> None:
    dates, numbers = CalendarDate(), WholeNumber()
    found = VersionSet.read_open("2020-01-01..2021-06-30", dates)

    assert dates.require("2020-12-31") in found
    assert found.format(dates) == "2020-01-01..2021-06-30"
    assert VersionSet.read_open("0-1, 3", numbers) == VersionSet.read("0-1, 3", numbers)
    assert VersionSet.read_open(">=3", numbers) & VersionSet.read("1-5", numbers) == VersionSet.read(
        "3-5", numbers
    )


def test_the_empty_set_has_no_ends() -> None:
    assert not VersionSet()
    assert Version(1, 1) not in VersionSet()
    with pytest.raises(IndexError):
        _ = VersionSet().lowest
    with pytest.raises(IndexError):
        _ = VersionSet().highest


@given(st.lists(st.lists(ranges(), max_size=3), max_size=5))
def test_held_by_most_is_what_the_largest_number_of_sets_hold(parts: list[list[VersionRange]]) -> None:
    sets = [VersionSet.of(each) for each in parts]
    counts = {
        version: sum(version in versions for versions in sets) for versions in sets for version in versions
    }
    most = max(counts.values(), default=0)

    each_once = [(versions, 1) for versions in sets]
    assert set(held_by_most(each_once)) == {version for version, count in counts.items() if count == most}
    assert held_by_most(each_once) == held_by_at_least(each_once, max(1, most))


@given(st.lists(st.tuples(st.lists(ranges(), max_size=3), st.integers(1, 3)), max_size=5), st.integers(1, 6))
def test_a_set_with_a_number_counts_as_so_many_equal_sets(
    parts: list[tuple[list[VersionRange], int]], enough: int
) -> None:
    sets = [(VersionSet.of(each), number) for each, number in parts]
    each_once = [(versions, 1) for versions, number in sets for _ in range(number)]

    assert held_by_at_least(sets, enough) == held_by_at_least(each_once, enough)
    assert held_by_most(sets) == held_by_most(each_once)
    assert union(versions for versions, _ in sets) == held_by_at_least(sets, 1)


def test_names_are_read_anew_by_their_texts() -> None:
    old, new = Named(("a", "c")), Named(("a", "b", "c", "d"))
    both = VersionSet.read("a..c", old)

    assert old.earlier(old.key) is not None
    assert new.earlier(old.key) is not None
    assert old.earlier(new.key) is None
    assert read_anew(both, old, new).format(new) == "a, c"
    assert read_anew(both, old, old) is both
