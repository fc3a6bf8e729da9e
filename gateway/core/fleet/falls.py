"""Which versions have fallen off an offer, and how much longer they wait before they are offered again
(semantics, Offering).

Without that, one backend that flaps would move the offer of everybody at every turn. Values only, and no rule
about what is on offer: `core.fleet.offer_state` knows what fell and what is on offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.core.versions.ranges import NO_VERSIONS, VersionSet

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds without a break on offer, after which the falls of a version count no more."""

MAX_DOUBLINGS: Final = 6
"""A version waits at most 64 times `offer.stabilization`."""

MAX_RANGES: Final = 256
"""Ranges of which falls are remembered. Backends choose their versions, so without a bound one that
advertises others every time would cost more with every fact."""


class FallenVersions(NamedTuple):
    """Versions that have fallen equally often."""

    doublings: int
    """How often their wait is doubled."""
    offered_since: float | None
    """Since when they are on offer again; None: they are not."""
    versions: VersionSet


@final
@dataclass(frozen=True, slots=True)
class Falls:
    """All versions with falls that still count. Every version is in one part, and equal parts are one."""

    parts: tuple[FallenVersions, ...] = ()

    @property
    def versions(self) -> VersionSet:
        """All versions that have fallen."""
        return VersionSet.of(one for part in self.parts for one in part.versions.ranges)

    def split(self, versions: VersionSet) -> Iterable[tuple[VersionSet, int]]:
        """`versions` in parts, each with its number of doublings."""
        left = versions
        for doublings, _, fallen in self.parts:
            if found := fallen & left:
                yield found, doublings
                left -= found
        if left:
            yield left, 0

    def after_fall(self, fallen: VersionSet) -> Falls:
        """After one more fall of each of these versions."""
        if not fallen:
            return self
        more = [
            FallenVersions(min(doublings + 1, MAX_DOUBLINGS), None, part)
            for part, doublings in self.split(fallen)
        ]
        return _of((*(part._replace(versions=part.versions - fallen) for part in self.parts), *more))

    def following(self, offered: VersionSet, at: float) -> Falls:
        """When exactly `offered` is on offer from `at` on."""
        if not self.parts:
            return self
        parts = []
        for part in self.parts:
            since = at if part.offered_since is None else part.offered_since
            parts.append(FallenVersions(part.doublings, since, part.versions & offered))
            parts.append(FallenVersions(part.doublings, None, part.versions - offered))
        return _of(parts)

    def at(self, now: float) -> Falls:
        """Without those that are forgotten by `now`."""
        left = tuple(
            part
            for part in self.parts
            if part.offered_since is None or part.offered_since + FORGOTTEN_AFTER > now
        )
        return self if len(left) == len(self.parts) else Falls(left)

    def read_anew(self, read: Callable[[VersionSet], VersionSet]) -> Falls:
        """The same in another scheme: `read` reads versions there."""
        return _of(part._replace(versions=read(part.versions)) for part in self.parts)


def _of(parts: Iterable[FallenVersions]) -> Falls:
    """The one form of these parts: equal ones together, in order, at most `MAX_RANGES` ranges.

    Beyond that bound those with the most falls are remembered, and among these the newest versions.
    """
    together: dict[tuple[int, float], VersionSet] = {}
    for doublings, since, versions in parts:
        key = (-doublings, float("inf") if since is None else since)
        together[key] = together.get(key, NO_VERSIONS) | versions
    found, room = [], MAX_RANGES
    for (negative, since), versions in sorted(together.items(), key=lambda item: item[0]):
        remembered = VersionSet(versions.ranges[-room:]) if room else NO_VERSIONS
        room -= len(remembered.ranges)
        if remembered:
            found.append(FallenVersions(-negative, None if since == float("inf") else since, remembered))
    return Falls(tuple(found))


NO_FALLS: Final = Falls()
