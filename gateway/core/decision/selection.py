"""Which members can serve a version, and which of them gets the request.

The tables are built once for each snapshot and used on every request: finding the candidates of a version is
one bisection, choosing among them two draws. Random bits and requests in flight are parameters. Nothing here
decides why a member is fresh or lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.versions.ranges import VersionRange, VersionSet, segments
from gateway.core.versions.version import Version

RANDOM_BITS = 64
_HALF = RANDOM_BITS // 2
_MASK = (1 << _HALF) - 1


@final
@dataclass(frozen=True, slots=True)
class Tier:
    """Members of one freshness, with their weights added up for drawing."""

    members: tuple[Member, ...]
    cumulative: tuple[int, ...]
    even: bool
    """All weights are the same: drawing needs no bisection."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> Tier:
        chosen = tuple(members)
        weights = [member.weight for member in chosen]
        return cls(chosen, tuple(accumulate(weights)), len(set(weights)) <= 1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The members that may get a request, best tier first: fresh before stale before lost, then, in the same
    order, those to which a connection failed. No member that serves the version is left out."""

    tiers: tuple[Tier, ...] = ()

    @classmethod
    def of(cls, members: Iterable[Member]) -> Candidates:
        chosen = [member for member in members if member.in_service and not member.restored]
        tiers = (
            Tier.of(
                member
                for member in chosen
                if member.connect_failed is connect_failed and member.freshness is freshness
            )
            for connect_failed in (False, True)
            for freshness in Freshness
        )
        return cls(tuple(tier for tier in tiers if tier.members))

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for tier in self.tiers for member in tier.members)


NO_CANDIDATES = Candidates()


def select(
    candidates: Candidates,
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    tried: Collection[str] = (),
) -> Member | None:
    """A member that was not tried, of the best tier that has one: of two drawn by weight, the one with fewer
    requests in flight.

    `in_flight_by_member`: requests in flight by member key (absent: 0). `random_bits`: 64 of them. `tried`:
    keys of members that failed already. None when all were tried.
    """
    for tier in candidates.tiers:
        if tried:
            tier = Tier.of(member for member in tier.members if member.key not in tried)
        members = tier.members
        if len(members) == 1:
            return members[0]
        if members:
            return _better_of_two(tier, in_flight_by_member, random_bits)
    return None


def _better_of_two(tier: Tier, in_flight_by_member: Mapping[str, int], random_bits: int) -> Member:
    """Draw two members, the next one in order when both draws are the same; compare requests in flight for
    each one's weight."""
    members, cumulative = tier.members, tier.cumulative
    if tier.even:
        first = ((random_bits & _MASK) * len(members)) >> _HALF
        second = ((random_bits >> _HALF) * len(members)) >> _HALF
    else:
        total = cumulative[-1]
        first = bisect_right(cumulative, ((random_bits & _MASK) * total) >> _HALF)
        second = bisect_right(cumulative, ((random_bits >> _HALF) * total) >> _HALF)
    if first == second:
        second = (first + 1) % len(members)
    one, other = members[first], members[second]
    in_flight, other_in_flight = in_flight_by_member.get(one.key, 0), in_flight_by_member.get(other.key, 0)
    return other if other_in_flight * one.weight < in_flight * other.weight else one


@final
@dataclass(frozen=True, slots=True, eq=False)
class SelectionTable:
    """For every version the members that serve it, by segments in which they are the same."""

    starts: tuple[Version, ...]
    segments: tuple[tuple[VersionRange, Candidates], ...]

    @classmethod
    def of(cls, members: Sequence[Member]) -> SelectionTable:
        """Cut the versions where the range of a member starts or ends; between two cuts the candidates are
        the same."""
        by_set: dict[VersionSet, list[Member]] = {}
        for member in members:
            if member.in_service:
                by_set.setdefault(member.usable_versions, []).append(member)
        found = []
        for segment in segments(by_set):
            able = [
                member
                for versions, holders in by_set.items()
                if segment.low in versions
                for member in holders
            ]
            found.append((segment, Candidates.of(able)))
        return cls(tuple(segment.low for segment, _ in found), tuple(found))

    def candidates(self, version: Version) -> Candidates:
        """The members that serve `version`; none when no advertisement in service holds it."""
        at = bisect_right(self.starts, version)
        if at:
            segment, candidates = self.segments[at - 1]
            if version in segment:
                return candidates
        return NO_CANDIDATES
