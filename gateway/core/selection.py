"""Who can serve a version, and which of them is tried next.

Built once per snapshot, asked on every request: finding the candidates of a version is one bisection,
choosing among them two draws. Chance and load are parameters; nothing here knows why a member is fresh or
lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

from gateway.core.backend import Member, Standing
from gateway.core.ranges import VersionRange, VersionSet, segments
from gateway.core.version import Version

TICKET_BITS = 64
_HALF = TICKET_BITS // 2
_MASK = (1 << _HALF) - 1


@final
@dataclass(frozen=True, slots=True)
class Tier:
    """Members of one standing, with their weights added up for drawing."""

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
    """Who may get a request, best tier first: fresh before stale before lost, and behind them all, in the
    same order, those that refuse connections. Nobody who serves it is ever left out."""

    tiers: tuple[Tier, ...] = ()

    @classmethod
    def of(cls, members: Iterable[Member]) -> Candidates:
        chosen = [member for member in members if member.in_service]
        tiers = (
            Tier.of(
                member for member in chosen if member.refusing is refusing and member.standing is standing
            )
            for refusing in (False, True)
            for standing in Standing
        )
        return cls(tuple(tier for tier in tiers if tier.members))

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for tier in self.tiers for member in tier.members)


NOBODY = Candidates()


def pick(
    candidates: Candidates, load: Mapping[str, int], ticket: int, tried: Collection[str] = ()
) -> Member | None:
    """One of the best tier that was not tried yet: of two drawn at random by weight, the less loaded.

    `load` is requests in flight by member key (absent: 0), `ticket` 64 random bits, `tried` keys that failed
    already. None when all were tried.
    """
    for tier in candidates.tiers:
        if tried:
            tier = Tier.of(member for member in tier.members if member.key not in tried)
        members = tier.members
        if len(members) == 1:
            return members[0]
        if members:
            return _better_of_two(tier, load, ticket)
    return None


def _better_of_two(tier: Tier, load: Mapping[str, int], ticket: int) -> Member:
    """Two different members, the second taking the next place when the draws agree; load is compared by
    weight."""
    members, cumulative = tier.members, tier.cumulative
    if tier.even:
        first = ((ticket & _MASK) * len(members)) >> _HALF
        second = ((ticket >> _HALF) * len(members)) >> _HALF
    else:
        total = cumulative[-1]
        first = bisect_right(cumulative, ((ticket & _MASK) * total) >> _HALF)
        second = bisect_right(cumulative, ((ticket >> _HALF) * total) >> _HALF)
    if first == second:
        second = (first + 1) % len(members)
    one, other = members[first], members[second]
    busy, other_busy = load.get(one.key, 0), load.get(other.key, 0)
    return other if other_busy * one.weight < busy * other.weight else one


@final
@dataclass(frozen=True, slots=True, eq=False)
class SelectionTable:
    """For every version the members that serve it: segments between which the answer changes."""

    starts: tuple[Version, ...]
    segments: tuple[tuple[VersionRange, Candidates], ...]

    @classmethod
    def of(cls, members: Sequence[Member]) -> SelectionTable:
        """Cut the versions where somebody's range starts or ends; between two cuts the candidates are the
        same."""
        by_set: dict[VersionSet, list[Member]] = {}
        for member in members:
            if member.in_service:
                by_set.setdefault(member.usable, []).append(member)
        found = []
        for segment in segments(by_set):
            able = [
                member for versions, those in by_set.items() if segment.low in versions for member in those
            ]
            found.append((segment, Candidates.of(able)))
        return cls(tuple(segment.low for segment, _ in found), tuple(found))

    def candidates(self, version: Version) -> Candidates:
        """Who serves `version`; nobody when no advert in service holds it."""
        at = bisect_right(self.starts, version)
        if at:
            segment, candidates = self.segments[at - 1]
            if version in segment:
                return candidates
        return NOBODY
