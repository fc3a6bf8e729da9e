"""The offer of a service, with its reasons, and the phase of its upgrade.

Everything that clients see comes from this one offer: range headers, documents, refusals. It is the offer
state (`core.fleet.offer_state`) between floor and ceiling, compared with the versions that the fleet serves
now. No time enters here, and nothing here chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Final, NamedTuple, final

from gateway.core.agreement.attachment import Agreed
from gateway.core.fleet.backend import Freshness, MemberSummary
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer_state import OfferState, makes_no_offer, policy_set, served_sets
from gateway.core.fleet.service import Policy, Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, held_by_at_least, union
from gateway.core.versions.version import Version


class Phase(StrEnum):
    """Stage of a service's rolling upgrade: the first one that applies, in this order."""

    UNKNOWN = "unknown"
    MIXED = "mixed"
    CAPPED = "capped"
    STABILIZING = "stabilizing"
    UNIFORM = "uniform"


class HeldRule(StrEnum):
    """Kind of rule that keeps an offer from moving. `_held` finds it, and the backends that it names."""

    CEILING = "ceiling"
    """Rule: an operator's ceiling or pin hides versions."""
    AGREEMENT = "agreement"
    """Rule: another offer is decided, and not all workers, or another process that serves, hold it yet."""
    STABILIZATION = "stabilization"
    """Rule: the policy gives more versions, but not for long enough yet."""
    STATE = "state"
    """Rule: versions that stay on offer are no longer served by as many backends as the policy wants."""
    GUARANTEED = "guaranteed"
    """Rule: more versions are served, but not by every backend."""
    AT_LEAST = "at_least"
    """Rule: more versions are served, but not by enough backends."""


class Held(NamedTuple):
    """Reason why an offer does not move: the rule, with the versions and backends concerned."""

    rule: HeldRule | None = None
    versions: VersionSet = NO_VERSIONS
    """Versions that the rule holds back, or that stay on offer by it."""
    by: tuple[str, ...] = ()
    """Backends that an operator must upgrade, bring back or remove before the offer can move."""


NOT_HELD: Final = Held()


@final
@dataclass(frozen=True, slots=True)
class Offer:
    """Offer of a service with its reasons. `versions` empty: nothing is on offer (yet, or by the ceiling)."""

    versions: VersionSet
    policy: Policy
    phase: Phase
    ceiling: Version | None = None
    pinned: bool = False
    """Whether the ceiling is a pin, set at run time in place of the configuration's."""
    floor: Version | None = None
    raised: bool = False
    """Whether the floor was set at run time in place of the configuration's."""
    sunset: date | None = None
    """Day of the sunset at which the clock raised the floor; None: it did not."""
    suspended: bool = False
    """Whether the floor hides nothing, because everything would be beneath it (a roll-back)."""
    held: Held = NOT_HELD
    guaranteed: VersionSet = NO_VERSIONS
    reachable: VersionSet = NO_VERSIONS
    transparent: bool = False
    """Whether only legacy backends are known and nothing was offered, so that nothing is negotiated."""
    pending: VersionSet = NO_VERSIONS
    """Versions that join the offer when the policy has given them for long enough."""
    moving: bool = False
    """Whether the offer is still moving to the offer state, because replicas or workers have to agree."""

    @property
    def is_made(self) -> bool:
        """Whether versions can be negotiated for requests of the service, or need not be."""
        return bool(self.versions) or self.transparent

    @property
    def offered(self) -> VersionSet | None:
        return self.versions or None


def form_offer(service: Service, members: MemberSet, offer_state: OfferState) -> Offer:
    """The offer of `service` by its offer state and its members."""
    sets = served_sets(members)
    serving = [group.summary for group in members.groups if group.summary.in_service]
    ceiling = service.ceiling if members.pin is None else members.pin
    raised = members.raised
    floor = service.floor if raised.floor is None else raised.floor
    below = offer_state.versions.within(ceiling, None)
    versions = below.within(None, floor)
    unserved = versions - union(_advertised(summary) for summary in serving if not _is_away(summary))
    transparent = is_transparent(service, members, offer_state)
    known = any(group.summary.advertised is not None for group in members.groups)
    if not transparent and not (versions and known):
        phase = Phase.UNKNOWN
    elif any(each != sets[0][0] for each, _ in sets) or unserved:
        phase = Phase.MIXED
    elif below != offer_state.versions:
        phase = Phase.CAPPED
    elif offer_state.pending:
        phase = Phase.STABILIZING
    else:
        phase = Phase.UNIFORM
    return Offer(
        versions=versions,
        policy=service.policy,
        phase=phase,
        ceiling=ceiling,
        pinned=members.pin is not None,
        floor=floor,
        raised=raised.floor is not None,
        sunset=raised.by and raised.by.day,
        suspended=floor is not None and bool(versions) and floor > versions.highest,
        held=_held(service, members, offer_state, below, versions, unserved),
        guaranteed=held_by_at_least(sets, sum(number for _, number in sets)),
        reachable=union(each for each, _ in sets),
        transparent=transparent,
        pending=offer_state.pending_versions,
    )


def agreed_offer(offer: Offer, agreed: Agreed) -> Offer:
    """The offer with the agreed versions in place of those of the offer state."""
    if agreed.offered == offer.versions and agreed.transparent is offer.transparent:
        return offer
    held, phase = offer.held, offer.phase
    if held.rule is not HeldRule.CEILING:
        beside = (offer.versions - agreed.offered) | (agreed.offered - offer.versions)
        held = Held(HeldRule.AGREEMENT, beside)
    if not agreed.offered and not agreed.transparent:
        phase = Phase.UNKNOWN
    elif phase is Phase.UNKNOWN:
        phase = Phase.MIXED
    return replace(
        offer, versions=agreed.offered, transparent=agreed.transparent, phase=phase, held=held, moving=True
    )


def voted_offer(offer: Offer, agreed: Agreed, wanted: VersionSet | None) -> Offer:
    """The offer of one of several replicas, with the versions that all agree on. `wanted`: what would be on
    offer if the others voted as this one does; None: it has no vote."""
    held, phase, record = offer.held, offer.phase, agreed.record
    transparent = agreed.transparent or agreed.legacy_only
    waits = agreed.legacy_only or (not transparent and wanted != agreed.offered)
    if waits and held.rule is not HeldRule.CEILING:
        beside = NO_VERSIONS if wanted is None else (wanted - agreed.offered) | (agreed.offered - wanted)
        held = Held(HeldRule.AGREEMENT, beside)
    if not agreed.offered and not transparent:
        phase = Phase.UNKNOWN
    elif phase is Phase.UNKNOWN and not offer.versions:  # else no backend is known
        phase = Phase.MIXED
    return replace(
        offer,
        versions=agreed.offered,
        transparent=transparent,
        phase=phase,
        held=held,
        moving=record is not None and record.offered != record.accepted,
    )


def is_transparent(service: Service, members: MemberSet, offer_state: OfferState) -> bool:
    """Whether nothing is negotiated: the first round of probes has ended, nothing is on offer beneath the
    ceiling, and every backend in service is legacy (at least one is). A known backend that is not legacy ends
    it, even while it is drained, and `legacy: refuse` rules it out (semantics, Legacy backends)."""
    return (
        makes_no_offer(service, members)
        and (offer_state.initialized or offer_state.round_ended is not None)
        and not offer_state.versions
        and any(summary.in_service for summary in members.by_summary)
    )


def _held(
    service: Service,
    members: MemberSet,
    offer_state: OfferState,
    below: VersionSet,
    versions: VersionSet,
    unserved: VersionSet,
) -> Held:
    """The rule that holds the offer: the first row that applies in semantics, Rolling upgrade. `below`: the
    versions under the ceiling. `versions`: those on offer. `unserved`: those of them that are served only by
    members out of service or down. A floor holds nothing: it is there to stay."""
    if below != offer_state.versions:
        return Held(HeldRule.CEILING, offer_state.versions - below)
    if offer_state.pending:
        return Held(HeldRule.STABILIZATION, offer_state.pending_versions)
    if not versions:
        return NOT_HELD
    if unserved:
        keeping = members.names(
            lambda each: (each.drained or _is_away(each)) and _advertised(each) & unserved
        )
        return Held(HeldRule.STATE, unserved, keeping)
    sets = [each for each, _ in served_sets(members)]
    highest = max((each.highest for each in sets), default=None)
    if more := union(each for each in sets if each.highest == highest) - below:
        return Held(_HELD_BACK_BY[service.policy], more, _lacking(members, more))
    if beyond := versions - policy_set(service, members):
        return Held(HeldRule.STATE, beyond, _lacking(members, beyond))
    return NOT_HELD


_HELD_BACK_BY: Mapping[Policy, HeldRule] = {
    Policy.GUARANTEED: HeldRule.GUARANTEED,
    Policy.AT_LEAST: HeldRule.AT_LEAST,
    Policy.REACHABLE: HeldRule.STATE,
}
"""Rule, by policy, that keeps the newest versions from the offer; `reachable` does so only beyond a gap."""


def _is_away(summary: MemberSummary) -> bool:
    return summary.freshness is Freshness.DOWN or summary.absent


def _advertised(summary: MemberSummary) -> VersionSet:
    return NO_VERSIONS if summary.advertised is None else summary.advertised


def _lacking(members: MemberSet, versions: VersionSet) -> tuple[str, ...]:
    return members.names(lambda each: each.in_service and each.advertised and not versions <= each.advertised)
