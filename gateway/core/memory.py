"""What a service has promised its clients so far, and how that grows and shrinks (design section 2).

An offer has memory, so that it rises only when the policy has given more for a while, and falls only when the
backends' own fresh words say that nobody serves it any more. Pure: time comes in as seconds of any monotonic
clock. No ceiling enters here (a ceiling is a view over the memory, `core.offer`), and nothing here chooses a
backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple, assert_never, final

from gateway.core.backend import Member, Standing
from gateway.core.fleet import Pool
from gateway.core.ranges import NOTHING, VersionSet, held_by_at_least
from gateway.core.service import Policy, Service
from gateway.core.version import Version


class Growth(NamedTuple):
    """Versions that the policy gives beyond what is offered, and since when it has done so unbrokenly."""

    versions: VersionSet
    since: float


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """What is offered beneath any ceiling, and what waits to be."""

    versions: VersionSet = NOTHING
    growing: tuple[Growth, ...] = ()
    opened: bool = False
    """True: a first round of probes has ended in which a backend answered."""

    def due(self, settle: float) -> float | None:
        """When the next versions will have stood for `settle` seconds; None: nothing waits."""
        return min((each.since + settle for each in self.growing), default=None)

    @property
    def pending(self) -> VersionSet:
        """All that waits to be offered."""
        return reduce(or_, (each.versions for each in self.growing), NOTHING)


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """What of a service survives a restart."""

    versions: VersionSet = NOTHING
    """The memory's."""
    pin: Version | None = None
    drained: frozenset[str] = frozenset()
    """Names of backends."""


EMPTY = Memory()


def remember(memory: Memory, service: Service, pool: Pool, now: float) -> Memory:
    """The memory after all that is known at `now`; this same object when nothing follows from it.

    What had already stood long enough is taken up before the news count, so it does not matter how often one
    asks: two gateways that hear the same at the same times promise the same.
    """
    return _changed(memory, _heard(_grow(memory, service, now), service, pool, now))


def carried(memory: Memory, service: Service, pool: Pool, removed: Sequence[Member], now: float) -> Memory:
    """The memory in another configuration of the same service: `service` and `pool` are the new ones.

    Removing a backend is an operator's word and acts at once: what only `removed` served is gone, unless
    nothing is known of those that are left. What was waiting goes on waiting if the new policy gives it, too.
    `memory` must be one that is up to date: what had ripened by the old words is in it.
    """
    left = union(pool.members)
    versions = memory.versions
    if left:
        versions = _unbroken(versions - (union(removed) - left), service)
    return _heard(Memory(versions, memory.growing, memory.opened), service, pool, now)


def policy_set(service: Service, pool: Pool) -> VersionSet:
    """What the policy gives of what is known: the versions that enough of the backends in service serve."""
    sets = [versions for versions in map(served, pool.in_service) if versions]
    match service.policy:
        case Policy.GUARANTEED:
            enough = len(sets)
        case Policy.REACHABLE:
            enough = 1
        case Policy.AT_LEAST:
            enough = service.at_least.of(len(sets))
        case _:
            assert_never(service.policy)
    return held_by_at_least(sets, enough)


def formed(service: Service, pool: Pool) -> VersionSet:
    """An offer from nothing: the policy's set, or if that is empty, the reachable one."""
    return _unbroken(policy_set(service, pool) or union(pool.in_service), service)


def union(members: Sequence[Member]) -> VersionSet:
    """What any of them serves."""
    return reduce(or_, map(served, members), NOTHING)


def served(member: Member) -> VersionSet:
    """What it says it serves; empty before its first word, and for silence that stands for nothing."""
    return member.advert.versions if member.advert else NOTHING


# --- the rules ---------------------------------------------------------------------------------------------


def _heard(memory: Memory, service: Service, pool: Pool, now: float) -> Memory:
    """The memory after what is known now: first what falls, then what grows."""
    opened = memory.opened or pool.heard_out
    if not (opened and pool.asked):
        # Somebody has not been asked yet: what is promised stands, and nothing is added.
        return Memory(memory.versions, (), opened)
    versions = _shrink(memory.versions, service, pool)
    if not versions:
        return Memory(formed(service, pool), (), opened)
    growing = _growing(memory.growing, versions, service, pool, now)
    return _grow(Memory(versions, growing, opened), service, now)


def _grow(memory: Memory, service: Service, now: float) -> Memory:
    """Take up what has stood for `settle`."""
    ripe = [each for each in memory.growing if each.since + service.settle <= now]
    if not ripe:
        return memory
    versions = reduce(or_, (each.versions for each in ripe), memory.versions)
    waiting = tuple(each for each in memory.growing if each.since + service.settle > now)
    return Memory(versions, waiting, memory.opened)


def _shrink(versions: VersionSet, service: Service, pool: Pool) -> VersionSet:
    """Without those that no configured backend serves, drained ones included, by the fresh word of every
    backend that ever spoke. While one of them is down it may still serve them: nothing changes."""
    known = [member for member in pool.members if member.advert is not None]
    if not known or any(member.standing is not Standing.FRESH for member in known):
        return versions
    return _unbroken(versions & union(known), service)


def _growing(
    before: Sequence[Growth], versions: VersionSet, service: Service, pool: Pool, now: float
) -> tuple[Growth, ...]:
    """What the policy gives beyond `versions`: what it gave before with the time since when, the rest from
    now on."""
    left = _joined(versions, policy_set(service, pool), service) - versions
    growing = []
    for each in before:
        standing = each.versions & left
        if standing:
            growing.append(Growth(standing, each.since))
            left -= standing
    if left:
        growing.append(Growth(left, now))
    return tuple(growing)


def _joined(versions: VersionSet, more: VersionSet, service: Service) -> VersionSet:
    """Both together; of an offer that must be unbroken, the part in which `versions` stand.

    What would tear it is not added: a client that was promised 1.5 must not lose it because 1.8 came up
    elsewhere (decision 0015).
    """
    both = versions | more
    if not service.dialect.scheme.contiguous:
        return both
    return VersionSet(tuple(each for each in both.ranges if versions.lowest in each))


def _unbroken(versions: VersionSet, service: Service) -> VersionSet:
    """The newest unbroken part, where the scheme's clients are told only two ends."""
    return versions.newest_unbroken() if service.dialect.scheme.contiguous else versions


def _changed(before: Memory, after: Memory) -> Memory:
    return before if after == before else after
