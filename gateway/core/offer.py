"""What a service offers its clients right now, and the phase of its upgrade.

The offer is one truth for everything that a client can see: range headers, documents, refusals. It is the
memory (`core.memory`) as it shows under the ceiling, beside what the fleet says at this moment. Pure; no time
enters here. Which backend gets a request is `core.selection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final

from gateway.core.dialect import Bounds
from gateway.core.fleet import Pool
from gateway.core.memory import Memory, formed, policy_set, served, union
from gateway.core.ranges import NOTHING, VersionSet, held_by_at_least
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
    """What keeps the offer from being all that the fleet serves, the weightiest first."""

    CEILING = "ceiling"
    """An operator's."""
    SETTLE = "settle"
    """More is given, and has not stood long enough."""
    MEMORY = "memory"
    """It was offered before, and not everybody serves it any more."""
    GUARANTEED = "guaranteed"
    """More is served, but not by everybody."""


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """The offer with its reasons. `versions` empty: nothing is offered (yet, or under this ceiling)."""

    versions: VersionSet
    policy: Policy
    phase: Phase
    ceiling: Version | None = None
    pinned: bool = False
    """True: the ceiling was set at run time, and stands instead of the configuration's."""
    held_by: tuple[str, ...] = ()
    """Backends in service whose advert differs from the offer."""
    held_rule: HeldRule | None = None
    guaranteed: VersionSet = NOTHING
    reachable: VersionSet = NOTHING
    transparent: bool = False
    """True: every backend in service is silent; nothing is negotiated and nothing added."""
    pending: VersionSet = NOTHING
    """What will be offered, too, once it has stood long enough."""

    @property
    def bounds(self) -> Bounds | None:
        return Bounds(self.versions) if self.versions else None


def form(service: Service, pool: Pool, memory: Memory) -> Offer:
    """The offer of `service` given what was promised and what is known of its pool."""
    counted = pool.in_service
    speaking = [member for member in counted if served(member)]
    transparent = memory.opened and bool(counted) and all(member.silent for member in counted)
    ceiling = service.ceiling if pool.pin is None else pool.pin
    versions = memory.versions if ceiling is None else memory.versions.up_to(ceiling)
    capped = versions != memory.versions
    held_by = tuple(member.backend.name for member in speaking if served(member) != versions)
    if not (memory.versions or transparent):
        phase = Phase.UNKNOWN
    elif len({served(member) for member in speaking}) > 1:
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
        ceiling,
        pool.pin is not None,
        held_by if memory.versions else (),
        _held_rule(service, pool, memory, capped=capped, held=bool(held_by)),
        held_by_at_least([served(member) for member in speaking], len(speaking)),
        union(speaking),
        transparent,
        memory.pending,
    )


def _held_rule(service: Service, pool: Pool, memory: Memory, *, capped: bool, held: bool) -> HeldRule | None:
    """The first that is true of an offer from which some backend differs."""
    if capped:
        return HeldRule.CEILING
    if not (held and memory.versions):
        return None
    if memory.growing:
        return HeldRule.SETTLE
    given = policy_set(service, pool) or formed(service, pool)
    if not memory.versions <= given:
        return HeldRule.MEMORY
    return HeldRule.GUARANTEED if service.policy is Policy.GUARANTEED else None
