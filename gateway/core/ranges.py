"""Ranges and sets of versions, canonical by construction.

Only inclusive bounds exist (no wire format that we speak can say "less than"), and a range lives inside one
major, where versions are whole numbers: neighbours merge, so every set has exactly one spelling and the
derived `==` is set equality. The laws are proven against Python's own `set` in tests/core/test_ranges.py.
Nothing here is a policy: what may be offered is `core.offer`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from gateway.core.version import Scheme, Version
from gateway.errors import VersionTextError


@dataclass(frozen=True, slots=True, order=True)
class VersionRange:
    """All versions from `low` to `high`, both included, inside one major."""

    low: Version
    high: Version

    def __post_init__(self) -> None:
        if self.low.major != self.high.major or self.low > self.high:
            raise VersionTextError(f"no range from {self.low} to {self.high}")

    def __contains__(self, version: Version) -> bool:
        return version.major == self.low.major and self.low <= version <= self.high

    def __iter__(self) -> Iterator[Version]:
        return (self.low.step(by) for by in range(self.high.minor - self.low.minor + 1))

    def __len__(self) -> int:
        return self.high.minor - self.low.minor + 1


@dataclass(frozen=True, slots=True)
class VersionSet:
    """A set of versions as sorted ranges that neither overlap nor touch. Build it with `of`."""

    ranges: tuple[VersionRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[VersionRange]) -> Self:
        """The union of `ranges`: one sort, one coalescing pass."""
        merged: list[VersionRange] = []
        for each in sorted(ranges):
            last = merged[-1] if merged else None
            if last and last.low.major == each.low.major and each.low.minor <= last.high.minor + 1:
                merged[-1] = VersionRange(last.low, max(last.high, each.high))
            else:
                merged.append(each)
        return cls(tuple(merged))

    @classmethod
    def between(cls, low: Version, high: Version) -> Self:
        """The single range from `low` to `high`."""
        return cls((VersionRange(low, high),))

    @classmethod
    def only(cls, *versions: Version) -> Self:
        """Exactly these versions."""
        return cls.of(VersionRange(version, version) for version in versions)

    @classmethod
    def read(cls, text: str, scheme: Scheme) -> Self:
        """Read an operator's `1.1-1.58` or `1.1-1.58, 1.60`; dates and names with `..`: `a..b` or a list.

        Raises `VersionTextError`.
        """
        ranges = []
        for item in text.split(","):
            low_text, dash, high_text = item.partition("-" if scheme.contiguous else "..")
            low = scheme.require(low_text.strip())
            high = scheme.require(high_text.strip()) if dash else low
            if low.major != high.major or low > high:
                raise VersionTextError(f"{item.strip()!r} does not run upwards inside one major version")
            ranges.append(VersionRange(low, high))
        return cls.of(ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, version: Version) -> bool:
        at = bisect_right(self.ranges, version, key=lambda each: each.low)
        return at > 0 and version in self.ranges[at - 1]

    def __iter__(self) -> Iterator[Version]:
        return (version for each in self.ranges for version in each)

    def __or__(self, other: Self) -> Self:
        return self.of((*self.ranges, *other.ranges))

    def __and__(self, other: Self) -> Self:
        found, mine, theirs = [], 0, 0
        while mine < len(self.ranges) and theirs < len(other.ranges):
            one, another = self.ranges[mine], other.ranges[theirs]
            low, high = max(one.low, another.low), min(one.high, another.high)
            if low <= high:  # ranges of two majors do not overlap: majors are ordered like versions
                found.append(VersionRange(low, high))
            if one.high < another.high:
                mine += 1
            else:
                theirs += 1
        return type(self)(tuple(found))

    def __sub__(self, other: Self) -> Self:
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
                    break  # it may cut the next one, too
                waiting.popleft()
            if low <= whole.high:
                left.append(VersionRange(low, whole.high))
        return type(self)(tuple(left))

    def __le__(self, other: Self) -> bool:
        """Subset. Sound because each set has one spelling."""
        return (self & other) == self

    @property
    def lowest(self) -> Version:
        """Raises IndexError on the empty set."""
        return self.ranges[0].low

    @property
    def highest(self) -> Version:
        """Raises IndexError on the empty set."""
        return self.ranges[-1].high

    def newest_unbroken(self) -> Self:
        """The last range alone: all that an X.Y or integer client can be told (min, max) without lying."""
        return type(self)(self.ranges[-1:])

    def up_to(self, ceiling: Version) -> Self:
        """What is left at and below `ceiling`."""
        kept = []
        for each in self.ranges:
            if each.high <= ceiling:
                kept.append(each)
            elif each.low <= ceiling:
                # The ceiling stands inside this range, hence in its major.
                kept.append(VersionRange(each.low, ceiling))
        return type(self)(tuple(kept))

    def down_to(self, floor: Version) -> Self:
        """What is left at and above `floor`."""
        kept = []
        for each in self.ranges:
            if each.low >= floor:
                kept.append(each)
            elif each.high >= floor:
                # The floor stands inside this range, hence in its major.
                kept.append(VersionRange(floor, each.high))
        return type(self)(tuple(kept))

    def format(self, scheme: Scheme) -> str:
        """`1.1-1.58, 1.60`; the empty set is `none`. For people, never for the wire."""
        dash = "-" if scheme.contiguous else ".."
        return (
            ", ".join(
                scheme.format(each.low)
                if each.low == each.high
                else f"{scheme.format(each.low)}{dash}{scheme.format(each.high)}"
                for each in self.ranges
            )
            or "none"
        )


NOTHING = VersionSet()


def segments(sets: Iterable[VersionSet]) -> list[VersionRange]:
    """The coarsest ranges that lie wholly inside or outside each of `sets`, those inside none left out."""
    sets = list(sets)
    everything = VersionSet.of(each for versions in sets for each in versions.ranges)
    starts = {each.low for versions in sets for each in versions.ranges}
    starts |= {each.high.step(1) for versions in sets for each in versions.ranges}
    ordered = sorted(starts)
    found = []
    for whole in everything.ranges:
        cuts = ordered[bisect_left(ordered, whole.low) : bisect_right(ordered, whole.high)]
        found += [
            VersionRange(low, following.step(-1))
            for low, following in zip(cuts, [*cuts[1:], whole.high.step(1)], strict=True)
        ]
    return found


def held_by_at_least(sets: Sequence[VersionSet], enough: int) -> VersionSet:
    """The versions that stand in at least `enough` of `sets`: in all of them the intersection, in one the
    union. None for no sets."""
    return VersionSet.of(
        each for each in segments(sets) if sum(each.low in versions for versions in sets) >= enough
    )
