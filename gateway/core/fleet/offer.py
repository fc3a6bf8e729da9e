"""What a service offers its clients now, and the phase of its upgrade.

All that a client can see comes from the one offer: range headers, documents, refusals. It is the offer state
(`core.fleet.offer_state`) as it shows under the ceiling, compared with what the fleet serves at this moment.
No time enters here, and nothing here chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, final

from gateway.core.dialect import OfferedVersions
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.fleet import Pool
from gateway.core.fleet.offer_state import OfferState, advertised_versions, policy_set, reachable_versions
from gateway.core.fleet.service import Policy, Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, held_by_at_least
from gateway.core.versions.version import Version


class Phase(StrEnum):
    """The stage of a rolling upgrade; the first that holds, in this order."""

    UNKNOWN = "unknown"
    MIXED = "mixed"
    CAPPED = "capped"
    STABILIZING = "stabilizing"
    UNIFORM = "uniform"


class HeldRule(StrEnum):
    """What keeps the offer from moving. Which one holds, and whom it names, is in `_held`."""

    CEILING = "ceiling"
    """An operator's ceiling or pin hides versions."""
    STABILIZATION = "stabilization"
    """The policy gives more, but not for long enough yet."""
    STATE = "state"
    """Versions that were offered before are no longer served by as many backends as the policy wants."""
    GUARANTEED = "guaranteed"
    """More is served, but not by every backend."""
    AT_LEAST = "at_least"
    """More is served, but not by enough backends."""


class Held(NamedTuple):
    """What holds an offer."""

    rule: HeldRule | None = None
    versions: VersionSet = NO_VERSIONS
    """The versions that the rule is about: those held back, or those that stay on offer."""
    by: tuple[str, ...] = ()
    """The backends that an operator must upgrade, revive or remove for the offer to move."""


NOT_HELD: Final = Held()


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """The offer with its reasons. `versions` empty: nothing is offered (yet, or under this ceiling)."""

    versions: VersionSet
    policy: Policy
    phase: Phase
    ceiling: Version | None = None
    pinned: bool = False
    """True: the ceiling is a pin, set at run time in place of the configuration's."""
    held: Held = NOT_HELD
    guaranteed: VersionSet = NO_VERSIONS
    reachable: VersionSet = NO_VERSIONS
    transparent: bool = False
    """True: only legacy backends are known and nothing was offered, so nothing is negotiated and nothing is
    added."""
    pending: VersionSet = NO_VERSIONS
    """Versions that join the offer when the policy has given them for long enough."""

    @property
    def offered(self) -> OfferedVersions | None:
        return OfferedVersions(self.versions) if self.versions else None

    @property
    def held_rule(self) -> HeldRule | None:
        return self.held.rule

    @property
    def held_by(self) -> tuple[str, ...]:
        return self.held.by


def form_offer(service: Service, pool: Pool, offer_state: OfferState) -> Offer:
    """The offer of `service` by its offer state and what is known of its pool."""
    serving = [member for member in pool.in_service if advertised_versions(member)]
    sets = [advertised_versions(member) for member in serving]
    ceiling = service.ceiling if pool.pin is None else pool.pin
    versions = offer_state.versions if ceiling is None else offer_state.versions.up_to(ceiling)
    unserved = versions - reachable_versions(
        [member for member in serving if member.freshness is not Freshness.LOST]
    )
    transparent = _is_transparent(pool, offer_state)
    if not transparent and not (versions and any(member.advertisement for member in pool.members)):
        phase = Phase.UNKNOWN
    elif len(set(sets)) > 1 or unserved:
        phase = Phase.MIXED
    elif versions != offer_state.versions:
        phase = Phase.CAPPED
    elif offer_state.pending:
        phase = Phase.STABILIZING
    else:
        phase = Phase.UNIFORM
    return Offer(
        versions,
        service.policy,
        phase,
        ceiling,
        pool.pin is not None,
        _held(service, pool, offer_state, serving, versions, unserved),
        held_by_at_least(sets, len(sets)),
        reachable_versions(serving),
        transparent,
        offer_state.pending_versions,
    )


def _is_transparent(pool: Pool, offer_state: OfferState) -> bool:
    """Whether nothing is negotiated: the first round of probes has ended, nothing is on offer beneath the
    ceiling, and every backend in service is legacy (at least one is).

    A backend that is not legacy ends that even while it is drained: the first offer is made when it becomes
    known (semantics, Legacy backends).
    """
    known = [member for member in pool.members if member.advertisement is not None]
    return (
        (offer_state.initialized or offer_state.round_ended is not None)
        and not offer_state.versions
        and bool(pool.in_service)
        and all(member.legacy for member in known)
    )


def _held(
    service: Service,
    pool: Pool,
    offer_state: OfferState,
    serving: list[Member],
    versions: VersionSet,
    unserved: VersionSet,
) -> Held:
    """The first row that holds of the table in semantics, Rolling upgrade.

    `serving`: the members in service that serve any version. `versions`: what is on offer. `unserved`: what
    of that none in service serves but lost ones.
    """
    if versions != offer_state.versions:
        return Held(HeldRule.CEILING, offer_state.versions - versions)
    if offer_state.pending:
        return Held(HeldRule.STABILIZATION, offer_state.pending_versions)
    if not versions:
        return NOT_HELD
    if unserved:
        keeping = [
            member
            for member in pool.members
            if (member.drained or member.freshness is Freshness.LOST)
            and advertised_versions(member) & unserved
        ]
        return Held(HeldRule.STATE, unserved, _names(keeping))
    highest = max((advertised_versions(member).highest for member in serving), default=None)
    newest = [member for member in serving if advertised_versions(member).highest == highest]
    if more := reachable_versions(newest) - versions:
        return Held(_HELD_BACK_BY[service.policy], more, _lacking(serving, more))
    if beyond := versions - policy_set(service, pool):
        return Held(HeldRule.STATE, beyond, _lacking(serving, beyond))
    return NOT_HELD


_HELD_BACK_BY: Mapping[Policy, HeldRule] = {
    Policy.GUARANTEED: HeldRule.GUARANTEED,
    Policy.AT_LEAST: HeldRule.AT_LEAST,
    Policy.REACHABLE: HeldRule.STATE,
}
"""The rule by which versions of the newest backends are not offered. `reachable` holds back only what does
not join on to what was offered before."""


def _lacking(serving: list[Member], versions: VersionSet) -> tuple[str, ...]:
    return _names([member for member in serving if not versions <= advertised_versions(member)])


def _names(members: list[Member]) -> tuple[str, ...]:
    return tuple(member.backend.name for member in members)
