"""The vote of one replica: the rules of the offer, applied to the state that all replicas share.

Each replica has an offer state of its own, whose versions are those of the record. Beside them it remembers
since when its policy has given more, and what has fallen. `offer_state.advance` moves the versions of a
service that stands alone; here the vote names what to keep and add, and the ladder moves them. Time is a
parameter. No pin and no raised floor enters here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from gateway.core.agreement.ladder import Vote, target
from gateway.core.agreement.record import AgreedRecord, decides_nothing
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer import is_transparent
from gateway.core.fleet.offer_state import (
    OfferState,
    due,
    first_round,
    formed_versions,
    last_reports,
    makes_no_offer,
    pending_beyond,
    policy_set,
    taken_back,
)
from gateway.core.fleet.service import Policy, Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, joined, unbroken

_LEGACY: Final = ", legacy"
"""End of a rule under which legacy backends alone may make an offer (`legacy: refuse`)."""


def remember(
    offer_state: OfferState, record: AgreedRecord | None, service: Service, members: MemberSet, now: float
) -> OfferState:
    """A replica's offer state after all that is known at `now`, with the record that it holds. Returns the
    same object if nothing changes. Call it when something is `vote_due`: what was due before counts."""
    state = NO_VERSIONS if record is None else record.state
    after = replace(offer_state, falls=offer_state.falls.at(now))
    if after.initialized and decides_nothing(record) and _takes_back(record, service, members):
        after = taken_back(after)
    if not after.initialized:
        after = _first_round(after, record, service, members, now)
    if after.versions != state:
        fallen = after.versions - state - last_reports(members) - after.removed
        falls = after.falls.after_fall(fallen).following(state, now)
        after = replace(after, versions=state, falls=falls)
    floor = _floor(state, service, members)
    if members.all_probed:
        # What a removal takes away is still to be taken as long as other replicas keep it.
        after = replace(after, removed=after.removed & (state - floor))
    # What waits is counted beyond the floor. Without one, or while a first probe is missing, nothing waits.
    waits = floor and after.initialized and members.all_probed
    pending = pending_beyond(replace(after, versions=floor), service, members, now) if waits else ()
    # Legacy backends alone let the first offer wait for nobody; later ones wait.
    after = replace(after, pending=pending, legacy_alone=after.legacy_alone and not state)
    return offer_state if after == offer_state else after


def vote(
    offer_state: OfferState, record: AgreedRecord | None, service: Service, members: MemberSet, now: float
) -> Vote | None:
    """The vote of a replica, by its present offer state; None: its first round of probes has not ended with
    an advertisement, or it sees legacy backends only and nothing is on offer."""
    if not offer_state.initialized or votes_transparent(offer_state, record, service, members):
        return None
    state = offer_state.versions
    at_once = offer_state.legacy_alone and not state
    if not members.all_probed and not at_once:
        # A backend was added whose first probe has not ended: this replica moves nothing.
        rule = _rule(service) if record is None else record.rule
        return Vote(rule, state, NO_VERSIONS, state, service.ceiling, service.floor)
    if record is not None and _takes_back(record, service, members):
        return Vote(record.rule, NO_VERSIONS, NO_VERSIONS, NO_VERSIONS, service.ceiling, service.floor)
    floor = _floor(state, service, members)
    # Only another policy cuts the state, not another word on legacy backends.
    given = policy_set(service, members)
    if record is not None and is_of_policy(record.rule, service):
        given = state
    if not floor:
        want = formed_versions(service, members)
    else:
        stood = [part.versions for part in offer_state.pending if part.due(service.stabilization) <= now]
        want = joined(floor, reduce(or_, stood, NO_VERSIONS), service.dialect.scheme) - floor
    return Vote(_rule(service), floor, want, given, service.ceiling, service.floor)


def wanted(
    offer_state: OfferState,
    record: AgreedRecord | None,
    service: Service,
    members: MemberSet,
    now: float | None,
) -> VersionSet | None:
    """Versions on offer if all voted like this replica; None: it has no vote. `now` None: nothing is due."""
    own = vote(offer_state, record, service, members, float("-inf") if now is None else now)
    if own is None:
        return None
    return target(record, [own], members.pin, service.dialect.scheme, members.raised.floor).wanted


def votes_transparent(
    offer_state: OfferState, record: AgreedRecord | None, service: Service, members: MemberSet
) -> bool:
    """Whether a replica sees legacy backends only, and nothing is on offer or to be offered anew. As long as
    something is still being withdrawn, the service is negotiated. While the first probe of an added backend
    is missing, nothing is offered anew: what was transparent stays so."""
    if not decides_nothing(record):
        return False
    forms = offer_state.initialized and (members.all_probed or offer_state.legacy_alone)
    return is_transparent(service, members, offer_state) and not (forms and formed_versions(service, members))


def vote_due(offer_state: OfferState, service: Service, members: MemberSet, now: float) -> float | None:
    """Time at which a replica's vote changes next without any new fact; None: never."""
    if not offer_state.initialized:
        return due(offer_state, service, members)
    dues = [part.due(service.stabilization) for part in offer_state.pending]
    return min((at for at in dues if at > now), default=None)


def policy_text(service: Service) -> str:
    """The service's offer policy with its number: `guaranteed`, `at_least 2`, `at_least 50%`."""
    policy, at_least = service.policy_and_number
    if policy is not Policy.AT_LEAST or at_least is None:
        return policy.value
    return f"{policy.value} {at_least.number}{'%' if at_least.percent else ''}"


def is_of_policy(rule: str, service: Service) -> bool:
    """Whether the rule of a record names the service's offer policy."""
    return rule.removesuffix(_LEGACY) == policy_text(service)


def _rule(service: Service) -> str:
    """The rule for which a replica votes: its policy, and whether legacy backends alone may make an offer."""
    return policy_text(service) + _LEGACY * service.negotiates_legacy


def _takes_back(record: AgreedRecord | None, service: Service, members: MemberSet) -> bool:
    """Whether a replica would have no offer any more because only `legacy: refuse` has made it."""
    return record is not None and record.rule.endswith(_LEGACY) and makes_no_offer(service, members)


def _first_round(
    offer_state: OfferState, record: AgreedRecord | None, service: Service, members: MemberSet, now: float
) -> OfferState:
    """A replica's offer state at the first round of probes: only a first offer waits for all answers."""
    after = first_round(offer_state, service, members, now)
    heard = any(group.summary.advertised is not None for group in members.groups)
    if not decides_nothing(record) and after.round_ended is not None and heard:
        return replace(after, initialized=True)
    return after


def _floor(state: VersionSet, service: Service, members: MemberSet) -> VersionSet:
    """Versions of `state` that a replica would keep: those in the last report of some configured backend."""
    return unbroken(state & last_reports(members), service.dialect.scheme)
