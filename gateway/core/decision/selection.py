"""Selection: the members that can serve a version, and the one that gets the request.

The tables are made once for each change of a service and used on every request: finding the candidates of a
version is one bisection, choosing among them two draws. Random bits, requests in flight and held back members
are parameters. Nothing here makes a member fresh, down or ejected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Final, TypeAlias, final

from gateway.core.fleet.backend import Freshness, Member, MemberSummary
from gateway.core.versions.ranges import VersionRange, segments
from gateway.core.versions.version import Version

_FRESHNESS_ORDER: Final = {freshness: at for at, freshness in enumerate(Freshness)}

Rank: TypeAlias = tuple[bool, bool, bool, bool, int]
"""Sort key of a tier, the best lowest: (a connection failed, down, unhealthy, backup, freshness)."""

RANDOM_BITS = 64
_ALL_BITS: Final = (1 << RANDOM_BITS) - 1
_HALF = RANDOM_BITS // 2
_MASK = (1 << _HALF) - 1
_MIX: Final = 0x9E37_79B9_7F4A_7C15
"""Factor that mixes a request's random bits anew: a second draw must not follow from the first one."""

ALL_REQUESTS: Final = 1 << 16
"""Share of requests of a member that is not held back. An ejected one has 0, a returning one less."""

NOBODY: Final[Mapping[str, int]] = MappingProxyType({})


def rank(summary: MemberSummary) -> Rank:
    """Rank (the order in which tiers are tried) of a member with this summary."""
    return (
        summary.connect_failed,
        summary.freshness is Freshness.DOWN,
        summary.unhealthy,
        summary.backup,
        _FRESHNESS_ORDER[summary.freshness],
    )


@final
@dataclass(frozen=True, slots=True)
class Tier:
    """A tier: members of one rank, with their weights added up so that one can be drawn by weight."""

    members: tuple[Member, ...]
    cumulative: tuple[int, ...]
    even: bool
    """Whether all weights of the tier are the same, so that drawing needs no bisection."""
    rank: Rank

    @classmethod
    def of(cls, members: Iterable[Member], rank: Rank) -> Tier:
        chosen = tuple(members)
        weights = [member.weight for member in chosen]
        return cls(chosen, tuple(accumulate(weights)), len(set(weights)) <= 1, rank)

    @property
    def usable(self) -> bool:
        """Whether the tier's members can be expected to respond: none is down, and no connection failed."""
        return not (self.rank[0] or self.rank[1])

    def is_beside(self, other: Tier) -> bool:
        """Whether one tier takes the requests if the other is full: they differ only in fresh and stale."""
        return self.rank[:4] == other.rank[:4]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Members that may get a request, best tier first: fresh, stale, backup, unhealthy, down, connection
    failed. Every member that serves the version is in it."""

    tiers: tuple[Tier, ...] = ()
    bounded: bool = field(init=False)
    """Whether some candidate has a maximum number of requests in flight."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounded", any(member.bound for member in self.members))

    @classmethod
    def of(cls, members: Iterable[Member]) -> Candidates:
        return SelectionTable.of(list(members)).everyone

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for tier in self.tiers for member in tier.members)

    @property
    def usable(self) -> list[Tier]:
        return [tier for tier in self.tiers if tier.usable]


NO_CANDIDATES = Candidates()


def select(
    candidates: Candidates,
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    tried: Collection[str] = (),
    held_back: Mapping[str, int] = NOBODY,
    leases: Mapping[str, int] | None = None,
) -> Member | None:
    """Choose a member of the best tier that has an untried one: of two drawn by weight, the one with fewer
    requests in flight. None: all were tried, or all `eligible` ones are full.

    `in_flight_by_member`: requests in flight by member key (absent: 0). `random_bits`: 64 of them. `tried`:
    keys of members that failed already. `held_back`: by member key the share of the requests, of
    `ALL_REQUESTS`, for which it may be selected; 0: it is ejected. `leases`: as for `is_full`.
    """
    member: Member | None = None
    for tier in candidates.tiers:
        if tried:
            tier = Tier.of((one for one in tier.members if one.key not in tried), tier.rank)
        members = tier.members
        if members:
            member = (
                members[0] if len(members) == 1 else _better_of_two(tier, in_flight_by_member, random_bits)
            )
            break
    if (
        (held_back or candidates.bounded)
        and member is not None
        and (
            held_back.get(member.key, ALL_REQUESTS) <= _least_share(random_bits)
            or is_full(member, in_flight_by_member, leases)
        )
    ):
        return _select_among(candidates, in_flight_by_member, random_bits, tried, held_back, leases)
    return member


def is_full(
    member: Member, in_flight_by_member: Mapping[str, int], leases: Mapping[str, int] | None = None
) -> bool:
    """Whether the member has as many requests as it takes at a time. `leases`: by member key, this worker's
    part of a bound that several share (absent: 0). None: all of it."""
    if not member.bound:
        return False
    bound = member.bound if leases is None else leases.get(member.key, 0)
    return bound <= in_flight_by_member.get(member.key, 0)


def _select_among(
    candidates: Candidates,
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    tried: Collection[str],
    held_back: Mapping[str, int],
    leases: Mapping[str, int] | None,
) -> Member | None:
    """Choose a member where some are held back or full. One that has room is preferred to waiting."""
    least = _least_share(random_bits)
    random_bits = random_bits * _MIX & _ALL_BITS
    if held_back:
        in_turn = _best(candidates.usable, tried, held_back, least)
        member = _select_with_room(in_turn, in_flight_by_member, random_bits, leases)
        if member is not None:
            return member
    return _select_with_room(eligible(candidates, tried, held_back), in_flight_by_member, random_bits, leases)


def _select_with_room(
    tiers: Sequence[Tier],
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    leases: Mapping[str, int] | None,
) -> Member | None:
    for tier in tiers:
        free = [member for member in tier.members if not is_full(member, in_flight_by_member, leases)]
        if len(free) == 1:
            return free[0]
        if free:
            return _better_of_two(Tier.of(free, tier.rank), in_flight_by_member, random_bits)
    return None


def eligible(
    candidates: Candidates, tried: Collection[str] = (), held_back: Mapping[str, int] = NOBODY
) -> tuple[Tier, ...]:
    """Tiers whose members should get the request, full or not; none if all were tried. An ejected member is
    left out while another one is usable: ejections never take away the last that serves a version."""
    usable = _best(candidates.usable, tried, held_back, 0) if held_back else ()
    return usable or _best(candidates.tiers, tried, NOBODY, 0)


def _best(
    tiers: Iterable[Tier], tried: Collection[str], held_back: Mapping[str, int], least: int
) -> tuple[Tier, ...]:
    """The best tier with untried members whose share of requests is above `least`, and the tier beside it."""
    found: list[Tier] = []
    for tier in tiers:
        if found and not tier.is_beside(found[0]):
            break
        members = [
            member
            for member in tier.members
            if member.key not in tried and held_back.get(member.key, ALL_REQUESTS) > least
        ]
        if members:
            found.append(Tier.of(members, tier.rank))
    return tuple(found)


def _least_share(random_bits: int) -> int:
    """Random threshold of a request: a member gets it if its share is larger. Draws use no lowest bits."""
    return random_bits & (ALL_REQUESTS - 1)


def _better_of_two(tier: Tier, in_flight_by_member: Mapping[str, int], random_bits: int) -> Member:
    """Draw two members by weight; the one with fewer requests in flight for its weight wins."""
    members = tier.members
    number = len(members)
    if tier.even:
        first = ((random_bits & _MASK) * number) >> _HALF
        second = ((random_bits >> _HALF) * number) >> _HALF
    else:
        cumulative = tier.cumulative
        total = cumulative[-1]
        first = bisect_right(cumulative, ((random_bits & _MASK) * total) >> _HALF)
        second = bisect_right(cumulative, ((random_bits >> _HALF) * total) >> _HALF)
    if first == second:
        second = (first + 1) % number
    one, other = members[first], members[second]
    in_flight, other_in_flight = in_flight_by_member.get(one.key, 0), in_flight_by_member.get(other.key, 0)
    return other if other_in_flight * one.weight < in_flight * other.weight else one


@final
class SelectionTable:
    """Members that serve each version, by segments of versions with the same members. Each part is made when
    a request first needs it: most snapshots are replaced before that, and few segments are used."""

    __slots__ = ("_candidates", "_everyone", "_members", "_segments", "_starts", "_summaries", "_tiers")

    def __init__(
        self,
        members: Sequence[Member],
        summaries: Sequence[MemberSummary],
        found: Iterable[MemberSummary],
        *,
        non_legacy: bool = False,
    ) -> None:
        """Make the table of candidates. `summaries`: one per member, in order; equal ones are one object,
        which `found` has once. `non_legacy`: without legacy members, and those whose versions are unknown."""
        self._members = members
        self._summaries = summaries
        self._tiers: dict[int, tuple[MemberSummary, Rank]] = {
            id(summary): (summary, rank(summary))
            for summary in found
            if summary.in_service
            and not summary.restored
            and not summary.absent
            and not (non_legacy and (summary.legacy or summary.version_unknown))
        }
        """Summaries of members that may get requests, with their ranks, by object id of the summary."""
        self._everyone: Candidates | None = None
        self._starts: list[Version] | None = None
        self._segments: list[VersionRange] = []
        self._candidates: dict[int, Candidates] = {}

    @classmethod
    def of(cls, members: Sequence[Member]) -> SelectionTable:
        found: dict[MemberSummary, MemberSummary] = {}
        summaries = [found.setdefault(each, each) for each in (one.summary for one in members)]
        return cls(members, summaries, found)

    @property
    def everyone(self) -> Candidates:
        """All members that may get requests, whatever the version."""
        if self._everyone is None:
            self._everyone = self._made({key: at for key, (_, at) in self._tiers.items()})
        return self._everyone

    @property
    def segments(self) -> Sequence[VersionRange]:
        """Segments: ranges of versions. All versions of one segment have the same candidates."""
        self._cut()
        return self._segments

    def candidates(self, version: Version) -> Candidates:
        """Members that serve `version`; none if no advertisement in service holds it."""
        at = bisect_right(self._cut(), version) - 1
        if at < 0 or version not in self._segments[at]:
            return NO_CANDIDATES
        found = self._candidates.get(at)
        if found is None:
            low = self._segments[at].low
            found = self._candidates[at] = self._made(
                {key: rank for key, (summary, rank) in self._tiers.items() if low in summary.usable}
            )
        return found

    def _cut(self) -> list[Version]:
        """First version of each segment of versions. The first call makes the segments."""
        if self._starts is None:
            self._segments = segments(summary.usable for summary, _ in self._tiers.values())
            self._starts = [segment.low for segment in self._segments]
        return self._starts

    def _made(self, ranks: Mapping[int, Rank]) -> Candidates:
        chosen: dict[Rank, list[Member]] = {each: [] for each in sorted(set(ranks.values()))}
        for member, summary in zip(self._members, self._summaries, strict=True):
            at = ranks.get(id(summary))
            if at is not None:
                chosen[at].append(member)
        return Candidates(tuple(Tier.of(members, at) for at, members in chosen.items() if members))
