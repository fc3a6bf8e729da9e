"""Axis from 0 to 1 on which the versions of a fleet are drawn: positions of bars and labels.

It holds the versions that any backend serves, each in the same space; versions between them that none serves
take no space. So bars of one axis can be compared by eye, whatever the scheme is. For people only: no
decision uses it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple, final

from gateway.core.versions.ranges import VersionSet, segments
from gateway.core.versions.version import Scheme, Version


class Span(NamedTuple):
    """Bar of unbroken versions on the axis, in shares of the axis' length."""

    begin: float
    end: float
    first: Version
    last: Version


class Tick(NamedTuple):
    """Label of the axis, in the middle of its version's space."""

    at: float
    text: str


@final
class Axis:
    """Axis of all versions in `sets`. Raises `ValueError` if a range of them is not countable."""

    __slots__ = ("_before", "_cuts", "_ranges", "_total")

    def __init__(self, sets: Iterable[VersionSet]) -> None:
        cuts = segments(sets)
        self._ranges = VersionSet.of(cuts).ranges
        self._cuts = cuts
        self._before: list[int] = []
        """Number of versions on the axis before each of its ranges."""
        total = 0
        for each in self._ranges:
            self._before.append(total)
            total += len(each)
        self._total = total

    def at(self, version: Version) -> float | None:
        """Position of a version on the axis, the middle of its space; None: it is not on the axis."""
        number = bisect_right(self._ranges, version, key=lambda each: each.low) - 1
        if number < 0 or version not in self._ranges[number]:
            return None
        position = self._before[number] + version.minor - self._ranges[number].low.minor
        return (position + 0.5) / self._total

    def spans(self, versions: VersionSet) -> tuple[Span, ...]:
        """Bars of `versions`, one for each unbroken part. Versions that are not on the axis are left out."""
        found: list[Span] = []
        for number, one in enumerate(self._ranges):
            for part in (versions & VersionSet((one,))).ranges:
                begin = self._before[number] + part.low.minor - one.low.minor
                span = Span(begin / self._total, (begin + len(part)) / self._total, part.low, part.high)
                found.append(span)
        return tuple(found)

    def ticks(self, scheme: Scheme) -> tuple[Tick, ...]:
        """Labels at both ends of each unbroken part, in order, however close they are."""
        ends = sorted({end for cut in self._cuts for end in (cut.low, cut.high)})
        return tuple(Tick(at, scheme.format(end)) for end in ends if (at := self.at(end)) is not None)
