"""Ranges and sets of versions: the one set algebra of the gateway.

A range has two inclusive ends (no wire format here can say "less than"). Served and offered versions are
ranges inside one major, where versions count in steps of one (`VersionRange.in_major`, `VersionSet.between`,
`VersionSet.read`). An operator's rule for an operation may span majors and have an open end
(`VersionSet.read_open`). Neighbouring ranges merge, so every set has exactly one form and equal ranges are
equal sets. tests/core/test_ranges.py proves the laws against Python's own `set`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from gateway.core.versions.version import Scheme, Version
from gateway.errors import VersionTextError

OLDEST: Final = Version()
"""Low end of a range that is open below: it sorts before every version of every scheme."""

NEWEST: Final = Version(1_000_000_000)
"""High end of a range that is open above: no scheme reads more than six digits a part."""


@dataclass(frozen=True, slots=True, order=True)
class VersionRange:
    """All versions from `low` to `high`, both included. `OLDEST` and `NEWEST` are the open ends."""

    low: Version
    high: Version

    def __post_init__(self) -> None:
        if self.low > self.high or not self.high:
            raise VersionTextError(f"no range from {self.low} to {self.high}")

    @classmethod
    def in_major(cls, low: Version, high: Version) -> Self:
        """Make a range that lies inside one major. Raises `VersionTextError`."""
        if low.major != high.major:
            raise VersionTextError(f"no range from {low} to {high} inside one major version")
        return cls(low, high)

    @property
    def countable(self) -> bool:
        """Whether the range's versions can be listed: both ends are versions of one major."""
        low, high = self.low, self.high
        return low != OLDEST and high != NEWEST and low.major == high.major

    def __contains__(self, version: Version) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[Version]:
        """Every version of the range, oldest first. Raises `ValueError` if it is not countable."""
        return (self.low.step(by) for by in range(len(self)))

    def __len__(self) -> int:
        """Number of versions in the range. Raises `ValueError` if it is not countable."""
        _require_countable((self,))
        return self.high.minor - self.low.minor + 1

    def format(self, scheme: Scheme) -> str:
        """The range as text: `1.1-1.58`, `1.60`, `2.4 and later`, `2.3 and earlier`, `every version`."""
        low, high = self.low, self.high
        if low == OLDEST:
            return "every version" if high == NEWEST else f"{scheme.format(high)} and earlier"
        if high == NEWEST:
            return f"{scheme.format(low)} and later"
        if low == high:
            return scheme.format(low)
        return f"{scheme.format(low)}{_dash(scheme)}{scheme.format(high)}"


@dataclass(frozen=True, slots=True, eq=False)
class VersionSet:
    """A set of versions as sorted ranges that neither overlap nor touch. `of` makes one from any ranges."""

    ranges: tuple[VersionRange, ...] = ()

    def __post_init__(self) -> None:
        """Check that the ranges are sorted and apart: one comparison or two for each pair of neighbours."""
        for before, after in pairwise(self.ranges):
            if _touch(before, after):
                raise ValueError(f"{before} and {after} are not sorted, overlap or touch")

    @classmethod
    def of(cls, ranges: Iterable[VersionRange]) -> Self:
        """Union of `ranges`: one sort, one coalescing pass."""
        merged: list[VersionRange] = []
        for following in sorted(ranges):
            if merged and _touch(merged[-1], following):
                merged[-1] = VersionRange(merged[-1].low, max(merged[-1].high, following.high))
            else:
                merged.append(following)
        return cls(tuple(merged))

    @classmethod
    def between(cls, low: Version, high: Version) -> Self:
        """The set of one range, `low` to `high`, inside one major. Raises `VersionTextError`."""
        return cls((VersionRange.in_major(low, high),))

    @classmethod
    def only(cls, *versions: Version) -> Self:
        """The set of exactly these versions."""
        return cls.of(VersionRange(version, version) for version in versions)

    @classmethod
    def read(cls, text: str, scheme: Scheme) -> Self:
        """Read a set: `1.1-1.58, 1.60`, or `a..b` for dates and names. Raises `VersionTextError`."""
        ranges = []
        for item in text.split(","):
            low, high = _read_ends(item, scheme)
            if low.major != high.major or low > high:
                raise VersionTextError(f"{item.strip()!r} does not run upwards inside one major version")
            ranges.append(VersionRange(low, high))
        return cls.of(ranges)

    @classmethod
    def read_open(cls, text: str, scheme: Scheme) -> Self:
        """Read a set that may span majors, with `>=1.58` and `<=2.4`. Raises `VersionTextError`."""
        return cls.of(_read_open_range(item.strip(), scheme) for item in text.split(","))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, version: Version) -> bool:
        at = bisect_right(self.ranges, version, key=lambda one: one.low)
        return at > 0 and version in self.ranges[at - 1]

    def __iter__(self) -> Iterator[Version]:
        """Every version of the set, oldest first. Raises `ValueError` if a range is not countable."""
        _require_countable(self.ranges)
        return (version for one in self.ranges for version in one)

    def __or__(self, other: Self) -> Self:
        return self.of((*self.ranges, *other.ranges))

    def __and__(self, other: Self) -> Self:
        found, mine, theirs = [], 0, 0
        while mine < len(self.ranges) and theirs < len(other.ranges):
            one, another = self.ranges[mine], other.ranges[theirs]
            low, high = max(one.low, another.low), min(one.high, another.high)
            if low <= high:
                found.append(VersionRange(low, high))
            if one.high < another.high:
                mine += 1
            else:
                theirs += 1
        return type(self)(tuple(found))

    def __sub__(self, other: Self) -> Self:
        """Difference of two sets. Raises `ValueError` if a range of this one is not countable."""
        _require_countable(self.ranges)
        left, waiting = [], deque(other.ranges)
        for whole in self.ranges:
            low = whole.low
            while waiting and waiting[0].low <= whole.high:
                cut = waiting[0]
                if low < cut.low:
                    left.append(VersionRange(low, cut.low.step(-1)))
                if cut.high >= whole.low:
                    low = max(low, cut.high.step(1))
                if cut.high > whole.high:
                    break  # it may cut the next range, too
                waiting.popleft()
            if low <= whole.high:
                left.append(VersionRange(low, whole.high))
        return type(self)(tuple(left))

    # A compiled class with `__le__` takes neither of these from `dataclass`.

    def __eq__(self, other: object) -> bool:
        return self.ranges == other.ranges if isinstance(other, VersionSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __le__(self, other: Self) -> bool:
        """Whether this set is a subset of `other`. Correct because each set has one form."""
        return (self & other) == self

    @property
    def lowest(self) -> Version:
        """Lowest version of the set; `OLDEST` if open below. Raises IndexError on the empty set."""
        return self.ranges[0].low

    @property
    def highest(self) -> Version:
        """Highest version of the set; `NEWEST` if open above. Raises IndexError on the empty set."""
        return self.ranges[-1].high

    def begins_after(self, version: Version) -> bool:
        """Whether every version in the set is newer than `version`; true of the empty set."""
        return not self.ranges or version < self.ranges[0].low

    def up_to(self, ceiling: Version) -> Self:
        """The versions at and below `ceiling`."""
        return self & type(self)((VersionRange(OLDEST, ceiling),))

    def down_to(self, floor: Version) -> Self:
        """The versions at and above `floor`."""
        return self & type(self)((VersionRange(floor, NEWEST),))

    def within(self, ceiling: Version | None, floor: Version | None) -> Self:
        """The versions from `floor` to `ceiling`. A floor that would leave nothing is suspended."""
        below = self if ceiling is None else self.up_to(ceiling)
        left = below if floor is None else below.down_to(floor)
        return left if left.ranges else below

    def format(self, scheme: Scheme) -> str:
        """The set as text for people: `1.1-1.58, 1.60`; the empty set is `none`."""
        return ", ".join(one.format(scheme) for one in self.ranges) or "none"


NO_VERSIONS = VersionSet()


def segments(sets: Iterable[VersionSet]) -> list[VersionRange]:
    """The coarsest version ranges inside or outside each of `sets`. Raises `ValueError` if not countable."""
    return [one for one, _ in _with_holders([(versions, 1) for versions in sets])]


def union(sets: Iterable[VersionSet]) -> VersionSet:
    """Union of the version sets `sets`. One sort, however many there are."""
    return VersionSet.of({one for versions in sets for one in versions.ranges})


def unbroken(versions: VersionSet, scheme: Scheme) -> VersionSet:
    """The newest unbroken range of `versions`, if clients are shown only its two ends; else all of them."""
    return VersionSet(versions.ranges[-1:]) if scheme.contiguous else versions


def joined(versions: VersionSet, more: VersionSet, scheme: Scheme) -> VersionSet:
    """Union of two version sets; of an offer that must be unbroken, only the range that holds `versions`: a
    client that was shown 1.5 must not lose it because a backend serves 1.8 alone (decision 0015)."""
    both = versions | more
    if not scheme.contiguous:
        return both
    return VersionSet(tuple(one for one in both.ranges if versions.lowest in one))


def read_anew(versions: VersionSet, before: Scheme, scheme: Scheme) -> VersionSet:
    """The versions of a set, by their texts, in a newer scheme that has only gained versions."""
    if before.key == scheme.key:
        return versions
    return VersionSet.only(*(scheme.require(before.format(version)) for version in versions))


def held_by_at_least(sets: Sequence[tuple[VersionSet, int]], enough: int) -> VersionSet:
    """Versions in at least `enough` of `sets`, each set counted as often as its number says: the intersection
    if `enough` is all of them, the union if it is one. Empty for no sets."""
    return VersionSet.of(one for one, holders in _with_holders(sets) if holders >= enough)


def held_by_most(sets: Sequence[tuple[VersionSet, int]]) -> VersionSet:
    """Versions in the largest number of `sets`, each counted by its number. Empty if all are empty."""
    found = _with_holders(sets)
    most = max((holders for _, holders in found), default=0)
    return VersionSet.of(one for one, holders in found if holders == most)


def _with_holders(sets: Sequence[tuple[VersionSet, int]]) -> list[tuple[VersionRange, int]]:
    """The `segments` of `sets`, each with the number of sets that hold it: one pass over all ends."""
    changes: defaultdict[Version, int] = defaultdict(int)
    for versions, number in sets:
        _require_countable(versions.ranges)
        for one in versions.ranges:
            changes[one.low] += number
            changes[one.high.step(1)] -= number
    found, holders = [], 0
    for low, following in pairwise(sorted(changes)):
        holders += changes[low]
        if holders:
            found.append((VersionRange(low, following.step(-1)), holders))
    return found


def _touch(before: VersionRange, after: VersionRange) -> bool:
    """Whether two version ranges in order overlap or touch. Every set's constructor runs it."""
    high, low = before.high, after.low
    return low <= high or (low[-1] == high[-1] + 1 and low[:-1] == high[:-1])


def _require_countable(ranges: Sequence[VersionRange]) -> None:
    for one in ranges:
        if not one.countable:
            raise ValueError(f"{one} has an open end or spans majors: its versions cannot be listed")


def _dash(scheme: Scheme) -> str:
    return "-" if scheme.contiguous else ".."


def _read_ends(item: str, scheme: Scheme) -> tuple[Version, Version]:
    low_text, dash, high_text = item.partition(_dash(scheme))
    low = scheme.require(low_text.strip())
    return low, scheme.require(high_text.strip()) if dash else low


def _read_open_range(item: str, scheme: Scheme) -> VersionRange:
    if item.startswith(">="):
        return VersionRange(scheme.require(item[2:].strip()), NEWEST)
    if item.startswith("<="):
        return VersionRange(OLDEST, scheme.require(item[2:].strip()))
    low, high = _read_ends(item, scheme)
    if low > high:
        raise VersionTextError(f"{item!r} does not run upwards")
    return VersionRange(low, high)
