"""What a service offers its clients right now, and the phase of its upgrade: pure functions of what is known.

The offer is one truth for everything that a client can see: range headers, documents, refusals. Which backend
gets a request is `core.selection`; no time and no memory enter here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import and_, or_
from typing import final

from gateway.core.backend import Member
from gateway.core.dialect import Bounds
from gateway.core.fleet import Pool
from gateway.core.ranges import VersionSet
from gateway.core.service import Policy, Service
from gateway.core.version import Version


class Phase(StrEnum):
    """Where a rolling upgrade stands; the first that holds, in this order."""

    UNKNOWN = "unknown"
    MIXED = "mixed"
    CAPPED = "capped"
    SETTLING = "settling"
    UNIFORM = "uniform"


class HeldRule(StrEnum):
    """What keeps the offer from being all that the fleet serves."""

    GUARANTEED = "guaranteed"
    CEILING = "ceiling"


NOTHING = VersionSet()


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """The offer with its reasons. `versions` empty: nothing is offered (yet, or under this ceiling)."""

    versions: VersionSet
    policy: Policy
    phase: Phase
    ceiling: Version | None = None
    held_by: tuple[str, ...] = ()
    """Backends in service whose advert differs from the offer."""
    held_rule: HeldRule | None = None
    guaranteed: VersionSet = NOTHING
    reachable: VersionSet = NOTHING
    transparent: bool = False
    """True: every backend in service is silent; nothing is negotiated and nothing added."""

    @property
    def bounds(self) -> Bounds | None:
        return Bounds(self.versions) if self.versions else None


def form(service: Service, pool: Pool) -> Offer:
    """The offer of `service` given what is known of its pool."""
    counted = pool.in_service
    speaking = [member for member in counted if _versions(member)]
    guaranteed, reachable = intersection(speaking), union(speaking)
    if not pool.heard_out or not counted:
        return Offer(
            NOTHING,
            service.policy,
            Phase.UNKNOWN,
            service.ceiling,
            guaranteed=guaranteed,
            reachable=reachable,
        )
    uncapped = uncapped_offer(service, guaranteed, reachable)
    versions = uncapped if service.ceiling is None else uncapped.up_to(service.ceiling)
    capped = versions != uncapped
    held_by = tuple(member.backend.name for member in speaking if _versions(member) != versions)
    differing = len({_versions(member) for member in speaking}) > 1
    if differing:
        phase = Phase.MIXED
    elif capped:
        phase = Phase.CAPPED
    elif held_by:
        phase = Phase.SETTLING
    else:
        phase = Phase.UNIFORM
    return Offer(
        versions,
        service.policy,
        phase,
        service.ceiling,
        held_by,
        _held_rule(service, capped=capped, held=bool(held_by)),
        guaranteed,
        reachable,
        transparent=all(member.silent for member in counted),
    )


def uncapped_offer(service: Service, guaranteed: VersionSet, reachable: VersionSet) -> VersionSet:
    """The policy's set, or where that is empty the reachable one; unbroken where the scheme's clients are
    told only its two ends (design section 2, Offering)."""
    chosen = (guaranteed if service.policy is Policy.GUARANTEED else reachable) or reachable
    return chosen.newest_unbroken() if service.dialect.scheme.contiguous else chosen


def intersection(members: Sequence[Member]) -> VersionSet:
    """What each of them serves; empty for nobody."""
    return reduce(and_, map(_versions, members)) if members else NOTHING


def union(members: Sequence[Member]) -> VersionSet:
    """What any of them serves."""
    return reduce(or_, map(_versions, members), NOTHING)


def _held_rule(service: Service, *, capped: bool, held: bool) -> HeldRule | None:
    if capped:
        return HeldRule.CEILING
    if held and service.policy is Policy.GUARANTEED:
        return HeldRule.GUARANTEED
    return None


def _versions(member: Member) -> VersionSet:
    return member.advert.versions if member.advert else NOTHING
