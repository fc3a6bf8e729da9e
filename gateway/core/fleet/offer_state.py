"""Offer state: the versions that a service has shown its clients, and how they change (semantics, Offering).

An offer rises only if the policy has given more for a while. It falls only if a version is in nobody's last
report, or an operator changes the configuration. Versions that have fallen wait longer before they are
offered again: else one backend that flaps would move everybody's offer again and again. Time is a parameter:
seconds of any monotonic clock. No ceiling (`core.fleet.offer`) and no freshness enters here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple, assert_never, final

from gateway.core.agreement.attachment import Registered
from gateway.core.agreement.raised import NOT_RAISED, Raised
from gateway.core.agreement.record import AgreedRecord
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Member
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.versions import ranges
from gateway.core.versions.ranges import (
    NO_VERSIONS,
    VersionSet,
    held_by_at_least,
    held_by_most,
    joined,
    unbroken,
    union,
)
from gateway.core.versions.version import Scheme, Version

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds on offer without a break after which the falls of a version count no more."""

MAX_DOUBLINGS: Final = 6
"""Most doublings of a fallen version's wait: it waits at most 64 times `offer.stabilization`."""

MAX_RANGES: Final = 256
"""Most ranges whose falls are remembered. Backends choose their versions, so without a bound one that
advertises others every time would make every fact cost more."""


class FallenVersions(NamedTuple):
    """Versions that have fallen from the offer, all of them equally often."""

    doublings: int
    offered_since: float | None
    """Time since when the fallen versions are on offer again; None: they are not."""
    versions: VersionSet


@final
@dataclass(frozen=True, slots=True)
class Falls:
    """All versions whose falls from the offer still count. Each is in one part, and equal parts are one."""

    parts: tuple[FallenVersions, ...] = ()

    def split(self, versions: VersionSet) -> Iterable[tuple[VersionSet, int]]:
        """Parts of `versions`, each with the number of times that its wait to be offered is doubled."""
        left = versions
        for doublings, _, fallen in self.parts:
            if found := fallen & left:
                yield found, doublings
                left -= found
        if left:
            yield left, 0

    def after_fall(self, fallen: VersionSet) -> Falls:
        """The versions that have fallen from the offer, after one more fall of each of these."""
        if not fallen:
            return self
        more = [
            FallenVersions(min(doublings + 1, MAX_DOUBLINGS), None, part)
            for part, doublings in self.split(fallen)
        ]
        return _of((*(part._replace(versions=part.versions - fallen) for part in self.parts), *more))

    def following(self, offered: VersionSet, at: float) -> Falls:
        """The versions that have fallen from the offer, if exactly `offered` is on offer from `at` on."""
        if not self.parts:
            return self
        parts = []
        for part in self.parts:
            since = at if part.offered_since is None else part.offered_since
            parts.append(FallenVersions(part.doublings, since, part.versions & offered))
            parts.append(FallenVersions(part.doublings, None, part.versions - offered))
        return _of(parts)

    def at(self, now: float) -> Falls:
        """The versions that have fallen from the offer, without those forgotten by `now`."""
        left = tuple(
            part
            for part in self.parts
            if part.offered_since is None or part.offered_since + FORGOTTEN_AFTER > now
        )
        return self if len(left) == len(self.parts) else Falls(left)

    def read_anew(self, read: Callable[[VersionSet], VersionSet]) -> Falls:
        """The fallen versions in another scheme: `read` reads versions there."""
        return _of(part._replace(versions=read(part.versions)) for part in self.parts)


def _of(parts: Iterable[FallenVersions]) -> Falls:
    """The fallen versions in their one form: equal parts together, in order. Of more than `MAX_RANGES`
    ranges those with the most falls stay, and among these the newest versions."""
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


class PendingVersions(NamedTuple):
    """Versions that the policy gives beyond the offer, and since when it has given them without a break."""

    versions: VersionSet
    since: float
    doublings: int = 0

    def due(self, stabilization: float) -> float:
        """Time at which the pending versions may join the offer."""
        return self.since + stabilization * 2.0**self.doublings


@final
@dataclass(frozen=True, slots=True)
class OfferState:
    """Offer state of a service: versions on offer before the ceiling, and those that wait to join them."""

    versions: VersionSet = NO_VERSIONS
    pending: tuple[PendingVersions, ...] = ()
    initialized: bool = False
    """Whether the first offer was made, even if of no version. An empty one is then formed anew at once."""
    round_ended: float | None = None
    """Time at which the first round of probes ended; None: it has not."""
    legacy_alone: bool = False
    """Whether the first round of probes found only legacy backends. The first offer then waits for nobody."""
    falls: Falls = NO_FALLS
    cut: bool = False
    """Whether an operator has changed the policy, and the versions are still to be cut to what it gives."""
    removed: VersionSet = NO_VERSIONS
    """Versions in the last reports of removed backends. They leave when that reload's first probes end."""

    @property
    def pending_versions(self) -> VersionSet:
        return reduce(or_, (part.versions for part in self.pending), NO_VERSIONS)


@final
@dataclass(frozen=True, slots=True)
class SavedAdvertisement:
    """Last advertisement of a backend (the versions that it said it serves), as the state file has it."""

    url: str
    """URL of the backend that advertised these versions. Another URL is another backend."""
    advertisement: Advertisement
    at: float = field(default=float("-inf"), compare=False)
    """Time at which the advertisement was requested, by the clock that dates facts."""
    source: str = ""
    leaves_at: float | None = None
    """Time of the backend's removal, by the clock that dates facts; None: it stays."""


@final
@dataclass(frozen=True, slots=True)
class SavedState:
    """The part of a service's state that survives a restart. Falls do not: the next one counts again."""

    versions: VersionSet = NO_VERSIONS
    pin: Version | None = None
    drained: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names of the backends that an operator has drained, each with the name given for that, if any."""
    policy: tuple[Policy, AtLeast | None] = (Policy.GUARANTEED, None)
    """Policy under which `versions` were offered, with its number."""
    advertisements: Mapping[str, SavedAdvertisement] = field(default_factory=lambda: MappingProxyType({}))
    """Saved advertisements by backend name, without those of declared backends."""
    cut: bool = False
    """Whether the cut of the last change of the policy is still due (`OfferState.cut`)."""
    negotiates_legacy: bool = False
    record: AgreedRecord | None = None
    """Agreed record that the workers held; None: one worker served alone, or nothing was decided."""
    registered: Registered | None = None
    raised: Raised = NOT_RAISED


EMPTY = OfferState()


def advance(offer_state: OfferState, service: Service, members: MemberSet, now: float) -> OfferState:
    """The offer state after all that is known at `now`; this same object if nothing changes. Versions whose
    wait is over join before new facts count: two gateways that observe the same facts at the same times offer
    the same, however often they call this, if each calls it when something was `due`."""
    after = _updated(_grow(offer_state, service, now), service, members, now)
    return offer_state if after == offer_state else after


def due(offer_state: OfferState, service: Service, members: MemberSet) -> float | None:
    """Time at which the offer changes next without any new fact; None: never. Needs an updated state."""
    if offer_state.initialized:
        return _next_join(offer_state, service)
    if offer_state.round_ended is None or not members.all_probed or not _any_offering(service, members):
        return None
    return offer_state.round_ended + service.stabilization


def reconfigured(
    offer_state: OfferState,
    before: Service,
    service: Service,
    members: MemberSet,
    now: float,
    *,
    removed: VersionSet = NO_VERSIONS,
) -> OfferState:
    """The offer state under another configuration of the same service: `service` and `members` are the new
    ones, `before` is the old service, and `removed` is in the last reports of removed backends.

    An operator's change acts at once, or when the first probes of added backends have ended: versions that
    only removed backends served leave, and under another policy all that it does not give. Pending versions
    keep their time if the new policy gives them. Legacy backends alone are transparent again if the new
    service says so. Call `advance` under the old configuration first.
    """
    if before.negotiates_legacy and makes_no_offer(service, members):
        offer_state = taken_back(offer_state)
    commanded = replace(
        offer_state,
        cut=offer_state.cut or before.policy_and_number != service.policy_and_number,
        removed=offer_state.removed | removed,
    )
    return _updated(commanded, service, members, now)


def read_anew(offer_state: OfferState, before: Scheme, scheme: Scheme) -> OfferState:
    """The same offer state, with its versions in a scheme that has only gained versions."""

    def read(versions: VersionSet) -> VersionSet:
        return ranges.read_anew(versions, before, scheme)

    return replace(
        offer_state,
        versions=read(offer_state.versions),
        pending=tuple(part._replace(versions=read(part.versions)) for part in offer_state.pending),
        falls=offer_state.falls.read_anew(read),
        removed=read(offer_state.removed),
    )


def makes_no_offer(service: Service, members: MemberSet) -> bool:
    """Whether the known backends make no first offer: all are legacy, and `legacy: refuse` is not set."""
    return members.legacy_alone and not service.negotiates_legacy


def taken_back(offer_state: OfferState) -> OfferState:
    """The offer state as it was before legacy backends alone made the first offer."""
    return OfferState(round_ended=offer_state.round_ended, legacy_alone=True)


def restored(saved: SavedState, service: Service, members: MemberSet) -> OfferState:
    """Offer state of a gateway that starts with this saved state. `members` have what was known."""
    if saved.negotiates_legacy and makes_no_offer(service, members):
        return EMPTY
    cut = saved.cut or saved.policy != service.policy_and_number
    return OfferState(saved.versions, initialized=bool(saved.versions), cut=cut)


def policy_set(service: Service, members: MemberSet) -> VersionSet:
    """Versions that the policy gives: those that enough of the backends in service serve."""
    sets = served_sets(members)
    backends = sum(number for _, number in sets)
    match service.policy:
        case Policy.GUARANTEED:
            enough = backends
        case Policy.REACHABLE:
            enough = 1
        case Policy.AT_LEAST:
            enough = service.at_least.of(backends)
        case _:
            assert_never(service.policy)
    return held_by_at_least(sets, enough)


def formed_versions(service: Service, members: MemberSet) -> VersionSet:
    """Versions of an offer that is formed from nothing: those that the policy gives, or else those that most
    backends in service serve. Not those that any serves: that would promise what a single backend can do."""
    return unbroken(
        policy_set(service, members) or held_by_most(served_sets(members)), service.dialect.scheme
    )


def served_sets(members: MemberSet) -> list[tuple[VersionSet, int]]:
    """Sets of versions that backends in service serve, each with the number of backends that share it."""
    return [
        (group.summary.advertised, group.number)
        for group in members.groups
        if group.summary.in_service and group.summary.advertised
    ]


def last_reports(members: MemberSet) -> VersionSet:
    """The versions that any backend advertised last, drained and down ones included."""
    return union(group.summary.advertised for group in members.groups if group.summary.advertised)


def reachable_versions(members: Iterable[Member]) -> VersionSet:
    """The versions that any of the members serves."""
    return union(map(advertised_versions, members))


def advertised_versions(member: Member) -> VersionSet:
    """The versions that a member says it serves; empty before its first response."""
    return member.advertisement.versions if member.advertisement else NO_VERSIONS


# --- the rules; `core.agreement.votes` applies them to the state that several replicas share ----------------


def _updated(before: OfferState, service: Service, members: MemberSet, now: float) -> OfferState:
    """The offer state after present facts: first it shrinks, then it grows."""
    offer_state = replace(before, falls=before.falls.at(now))
    if not offer_state.initialized:
        offer_state = first_round(offer_state, service, members, now)
        return _formed(offer_state, service, members, now) if offer_state.initialized else offer_state
    if not members.all_probed:
        # The first probe of a backend is missing: the versions stay, and nothing is pending.
        return replace(offer_state, pending=())
    versions, falls = _shrink(offer_state, service, members)
    # A restored state is initialized before its first round of probes has ended.
    round_ended = now if offer_state.round_ended is None else offer_state.round_ended
    offer_state = replace(
        offer_state,
        round_ended=round_ended,
        versions=versions,
        falls=falls,
        cut=False,
        removed=NO_VERSIONS,
    )
    if not versions:
        return _formed(offer_state, service, members, now)
    pending = pending_beyond(offer_state, service, members, now)
    return _grow(replace(offer_state, pending=pending, falls=falls.following(versions, now)), service, now)


def first_round(offer_state: OfferState, service: Service, members: MemberSet, now: float) -> OfferState:
    """The offer state before the first offer; `initialized` if that is to be made now. It waits
    `stabilization` for backends that did not answer in the first round. Legacy backends alone make one
    only if the service says so."""
    round_ended = now if offer_state.round_ended is None and members.all_probed else offer_state.round_ended
    if round_ended is None:
        return offer_state
    answered = sum(group.number for group in members.groups if group.summary.advertised is not None)
    offering = _any_offering(service, members)
    legacy_alone = offer_state.legacy_alone or (answered > 0 and not offering)
    waited = answered == len(members.all) or now >= round_ended + service.stabilization
    initialized = offering and (legacy_alone or (members.all_probed and waited))
    return replace(offer_state, round_ended=round_ended, legacy_alone=legacy_alone, initialized=initialized)


def _formed(offer_state: OfferState, service: Service, members: MemberSet, now: float) -> OfferState:
    versions = formed_versions(service, members)
    falls = offer_state.falls.following(versions, now)
    return replace(offer_state, versions=versions, pending=(), falls=falls, cut=False, removed=NO_VERSIONS)


def _shrink(offer_state: OfferState, service: Service, members: MemberSet) -> tuple[VersionSet, Falls]:
    """Versions and falls after the offer has shrunk. Versions that a removal takes away have not fallen."""
    left = offer_state.versions & last_reports(members)
    fallen = offer_state.versions - left - offer_state.removed
    if offer_state.cut and (given := policy_set(service, members)):
        left &= given
    left = unbroken(left, service.dialect.scheme)
    return left, offer_state.falls.after_fall(fallen)


def pending_beyond(
    offer_state: OfferState, service: Service, members: MemberSet, now: float
) -> tuple[PendingVersions, ...]:
    """Versions that the policy gives beyond those on offer, each with the time since when."""
    versions = offer_state.versions
    left = joined(versions, policy_set(service, members), service.dialect.scheme) - versions
    pending = []
    for part in offer_state.pending:
        still_given = part.versions & left
        if still_given:
            pending.append(part._replace(versions=still_given))
            left -= still_given
    pending += [
        PendingVersions(part, now, doublings) for part, doublings in offer_state.falls.split(left) if part
    ]
    return tuple(pending)


def _grow(offer_state: OfferState, service: Service, now: float) -> OfferState:
    """Add the pending versions whose wait is over to the offer, one moment after the other."""
    while (at := _next_join(offer_state, service)) is not None and at <= now:
        stable = [part.versions for part in offer_state.pending if part.due(service.stabilization) <= at]
        versions = joined(offer_state.versions, reduce(or_, stable), service.dialect.scheme)
        waiting = (part._replace(versions=part.versions - versions) for part in offer_state.pending)
        offer_state = replace(
            offer_state,
            versions=versions,
            pending=tuple(part for part in waiting if part.versions),
            falls=offer_state.falls.at(at).following(versions, at),
        )
    return offer_state


def _next_join(offer_state: OfferState, service: Service) -> float | None:
    """Time at which the next pending versions join; None: nothing waits. Where an offer must be unbroken,
    versions that have fallen may hold up newer ones beyond them."""
    return min(
        (
            part.due(service.stabilization)
            for part in offer_state.pending
            if joined(offer_state.versions, part.versions, service.dialect.scheme) != offer_state.versions
        ),
        default=None,
    )


def _any_offering(service: Service, members: MemberSet) -> bool:
    """Whether a backend is known with which a first offer is made."""
    is_known = any(summary.advertised is not None for summary in members.by_summary)
    return is_known and not makes_no_offer(service, members)
