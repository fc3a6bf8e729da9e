"""The versions of a fleet on one line, from 0 to 1: where a bar begins and ends, and where a label stands.

The line holds the versions that anybody serves, and each takes the same space: what nobody serves between two
of them takes none. So bars of one axis can be compared by eye, whatever the scheme is. For people only: no
decision is made from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, final

from gateway.core.versions.ranges import VersionSet, segments
from gateway.core.versions.version import Scheme, Version


class Span(NamedTuple):
    """A part of the axis, in shares of its length."""

    begin: float
    end: float
    first: Version
    last: Version


class Tick(NamedTuple):
    """A label of the axis: the middle of the space of its version."""

    at: float
    text: str


@final
class Axis:
    """The line of all versions in `sets`. Raises `ValueError` when a range of them is not countable."""

    __slots__ = ("_before", "_cuts", "_ranges", "_total")

    def __init__(self, sets: Iterable[VersionSet]) -> None:
        cuts = segments(sets)
        self._ranges = VersionSet.of(cuts).ranges
        self._cuts = cuts
        self._before: list[int] = []
        """For each range the number of versions in all ranges before it."""
        total = 0
        for each in self._ranges:
            self._before.append(total)
            total += len(each)
        self._total = total

    def at(self, version: Version) -> float | None:
        """The middle of the space of `version`; None: it is not on the axis."""
        number = bisect_right(self._ranges, version, key=lambda each: each.low) - 1
        if number < 0 or version not in self._ranges[number]:
            return None
        position = self._before[number] + version.minor - self._ranges[number].low.minor
        return (position + 0.5) / self._total

    def spans(self, versions: VersionSet) -> tuple[Span, ...]:
        """Where `versions` lie: one bar for each unbroken part. What is not on the axis is left out."""
        found: list[Span] = []
        for number, one in enumerate(self._ranges):
            for part in (versions & VersionSet((one,))).ranges:
                begin = self._before[number] + part.low.minor - one.low.minor
                span = Span(begin / self._total, (begin + len(part)) / self._total, part.low, part.high)
                found.append(span)
        return tuple(found)

    def ticks(self, scheme: Scheme) -> tuple[Tick, ...]:
        """A label at each end of what somebody serves, in order, however close they are."""
        ends = sorted({end for cut in self._cuts for end in (cut.low, cut.high)})
        return tuple(Tick(at, scheme.format(end)) for end in ends if (at := self.at(end)) is not None)
