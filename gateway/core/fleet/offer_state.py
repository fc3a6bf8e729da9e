"""The versions that a service has shown its clients, and how these grow and shrink (semantics, Offering).

The state makes an offer rise only when the policy has given more for a while, and fall only when by fresh
advertisements no backend serves the version any more. Time is a parameter: seconds of any monotonic clock. No
ceiling enters here (it is a view of the state, `core.fleet.offer`), and nothing here chooses a backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple, assert_never, final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.fleet import Pool
from gateway.core.fleet.service import Policy, Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, held_by_at_least
from gateway.core.versions.version import Version


class PendingVersions(NamedTuple):
    """Versions that the policy gives beyond the offer, and since when it has given them without a break."""

    versions: VersionSet
    since: float


@final
@dataclass(frozen=True, slots=True)
class OfferState:
    """The versions on offer beneath any ceiling, and those that wait to join them."""

    versions: VersionSet = NO_VERSIONS
    pending: tuple[PendingVersions, ...] = ()
    initialized: bool = False
    """True: the first probe of every backend has ended, and at least one has answered."""

    def due(self, stabilization: float) -> float | None:
        """When the next versions will have been pending for `stabilization` seconds; None: nothing waits."""
        return min((part.since + stabilization for part in self.pending), default=None)

    @property
    def pending_versions(self) -> VersionSet:
        """All that waits to be offered."""
        return reduce(or_, (part.versions for part in self.pending), NO_VERSIONS)


@final
@dataclass(frozen=True, slots=True)
class SavedState:
    """The part of a service's state that survives a restart."""

    versions: VersionSet = NO_VERSIONS
    """Those of the offer state."""
    pin: Version | None = None
    drained: frozenset[str] = frozenset()
    """Names of backends."""


EMPTY = OfferState()


def advance(offer_state: OfferState, service: Service, pool: Pool, now: float) -> OfferState:
    """The offer state after all that is known at `now`; this same object when nothing changes.

    Versions that were pending for long enough join before new facts count. So it does not matter how often
    this is called: two gateways that observe the same facts at the same times offer the same.
    """
    return _changed(offer_state, _updated(_grow(offer_state, service, now), service, pool, now))


def reconfigured(
    offer_state: OfferState, service: Service, pool: Pool, removed: Sequence[Member], now: float
) -> OfferState:
    """The offer state under another configuration of the same service: `service` and `pool` are the new ones.

    Removing a backend is an operator's decision and acts at once: what only `removed` served is gone, unless
    nothing is known of those that are left. Pending versions keep their time if the new policy gives them,
    too. `offer_state` must be up to date: call `advance` under the old configuration first.
    """
    left = reachable_versions(pool.members)
    versions = offer_state.versions
    if left:
        versions = _unbroken(versions - (reachable_versions(removed) - left), service)
    return _updated(OfferState(versions, offer_state.pending, offer_state.initialized), service, pool, now)


def policy_set(service: Service, pool: Pool) -> VersionSet:
    """The versions that the policy gives: those that enough of the backends in service serve."""
    sets = [versions for versions in map(advertised_versions, pool.in_service) if versions]
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


def initial_offer(service: Service, pool: Pool) -> VersionSet:
    """The initial offer of a service: what the policy gives, or if that is empty, what is reachable."""
    return _unbroken(policy_set(service, pool) or reachable_versions(pool.in_service), service)


def reachable_versions(members: Sequence[Member]) -> VersionSet:
    """The versions that any of them serves."""
    return reduce(or_, map(advertised_versions, members), NO_VERSIONS)


def advertised_versions(member: Member) -> VersionSet:
    """What it claims to serve; empty before its first response, and for a legacy member that stands for no
    version."""
    return member.advertisement.versions if member.advertisement else NO_VERSIONS


# --- the rules ---------------------------------------------------------------------------------------------


def _updated(offer_state: OfferState, service: Service, pool: Pool, now: float) -> OfferState:
    """The offer state after what is known now: first it shrinks, then it grows."""
    initialized = offer_state.initialized or pool.offer_ready
    if not (initialized and pool.all_probed):
        # The first probe of a backend is missing: the versions stay, and nothing is pending.
        return OfferState(offer_state.versions, (), initialized)
    versions = _shrink(offer_state.versions, service, pool)
    if not versions:
        return OfferState(initial_offer(service, pool), (), initialized)
    pending = _pending(offer_state.pending, versions, service, pool, now)
    return _grow(OfferState(versions, pending, initialized), service, now)


def _grow(offer_state: OfferState, service: Service, now: float) -> OfferState:
    """Let the versions join that were pending for `service.stabilization`."""
    stable = [part for part in offer_state.pending if part.since + service.stabilization <= now]
    if not stable:
        return offer_state
    versions = reduce(or_, (part.versions for part in stable), offer_state.versions)
    waiting = tuple(part for part in offer_state.pending if part.since + service.stabilization > now)
    return OfferState(versions, waiting, offer_state.initialized)


def _shrink(versions: VersionSet, service: Service, pool: Pool) -> VersionSet:
    """Without the versions that no configured backend serves, drained ones included, when the advertisement
    of every backend that ever answered is fresh. While one of those is down, it may still serve them: nothing
    leaves."""
    known = [member for member in pool.members if member.advertisement is not None]
    if not known or any(member.freshness is not Freshness.FRESH for member in known):
        return versions
    return _unbroken(versions & reachable_versions(known), service)


def _pending(
    before: Sequence[PendingVersions], versions: VersionSet, service: Service, pool: Pool, now: float
) -> tuple[PendingVersions, ...]:
    """What the policy gives beyond `versions`: what it gave `before` with its own time, the rest since
    now."""
    left = _joined(versions, policy_set(service, pool), service) - versions
    pending = []
    for part in before:
        still_given = part.versions & left
        if still_given:
            pending.append(PendingVersions(still_given, part.since))
            left -= still_given
    if left:
        pending.append(PendingVersions(left, now))
    return tuple(pending)


def _joined(versions: VersionSet, more: VersionSet, service: Service) -> VersionSet:
    """Both together; of an offer that must be unbroken, the range that holds `versions`.

    What would leave a gap is not added: a client that was shown 1.5 must not lose it because a backend serves
    1.8 alone (decision 0015).
    """
    both = versions | more
    if not service.dialect.scheme.contiguous:
        return both
    return VersionSet(tuple(one for one in both.ranges if versions.lowest in one))


def _unbroken(versions: VersionSet, service: Service) -> VersionSet:
    """The newest unbroken part, where the scheme's clients are shown only a minimum and a maximum."""
    return versions.newest_unbroken() if service.dialect.scheme.contiguous else versions


def _changed(before: OfferState, after: OfferState) -> OfferState:
    return before if after == before else after
