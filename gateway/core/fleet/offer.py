"""What a service offers its clients now, and the phase of its upgrade.

All that a client can see comes from the one offer: range headers, documents, refusals. It is the offer state
(`core.fleet.offer_state`) as it shows under the ceiling, compared with what the fleet serves at this moment.
No time enters here, and nothing here chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final

from gateway.core.dialect import OfferedVersions
from gateway.core.fleet.fleet import Pool
from gateway.core.fleet.offer_state import (
    OfferState,
    advertised_versions,
    initial_offer,
    policy_set,
    reachable_versions,
)
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
    """Why the offer is not what the fleet serves; the first that holds, in this order."""

    CEILING = "ceiling"
    """An operator's ceiling or pin hides versions."""
    STABILIZATION = "stabilization"
    """The policy gives more, but not for long enough yet."""
    STATE = "state"
    """Versions that were offered before are no longer served by as many backends as the policy wants."""
    GUARANTEED = "guaranteed"
    """More is served, but not by every backend."""


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
    held_by: tuple[str, ...] = ()
    """Backends in service whose advertisement differs from the offer."""
    held_rule: HeldRule | None = None
    guaranteed: VersionSet = NO_VERSIONS
    reachable: VersionSet = NO_VERSIONS
    transparent: bool = False
    """True: every backend in service is legacy, so nothing is negotiated and nothing is added."""
    pending: VersionSet = NO_VERSIONS
    """Versions that join the offer when the policy has given them for long enough."""

    @property
    def offered(self) -> OfferedVersions | None:
        return OfferedVersions(self.versions) if self.versions else None


def form_offer(service: Service, pool: Pool, offer_state: OfferState) -> Offer:
    """The offer of `service` by its offer state and what is known of its pool."""
    counted = pool.in_service
    non_legacy = [member for member in counted if advertised_versions(member)]
    transparent = offer_state.initialized and bool(counted) and all(member.legacy for member in counted)
    ceiling = service.ceiling if pool.pin is None else pool.pin
    versions = offer_state.versions if ceiling is None else offer_state.versions.up_to(ceiling)
    capped = versions != offer_state.versions
    held_by = tuple(member.backend.name for member in non_legacy if advertised_versions(member) != versions)
    if not (offer_state.versions or transparent):
        phase = Phase.UNKNOWN
    elif len({advertised_versions(member) for member in non_legacy}) > 1:
        phase = Phase.MIXED
    elif capped:
        phase = Phase.CAPPED
    elif held_by:
        phase = Phase.STABILIZING
    else:
        phase = Phase.UNIFORM
    return Offer(
        versions,
        service.policy,
        phase,
        ceiling,
        pool.pin is not None,
        held_by if offer_state.versions else (),
        _held_rule(service, pool, offer_state, capped=capped, held=bool(held_by)),
        held_by_at_least([advertised_versions(member) for member in non_legacy], len(non_legacy)),
        reachable_versions(non_legacy),
        transparent,
        offer_state.pending_versions,
    )


def _held_rule(
    service: Service, pool: Pool, offer_state: OfferState, *, capped: bool, held: bool
) -> HeldRule | None:
    """The first rule that holds when a backend differs from the offer."""
    if capped:
        return HeldRule.CEILING
    if not (held and offer_state.versions):
        return None
    if offer_state.pending:
        return HeldRule.STABILIZATION
    given = policy_set(service, pool) or initial_offer(service, pool)
    if not offer_state.versions <= given:
        return HeldRule.STATE
    return HeldRule.GUARANTEED if service.policy is Policy.GUARANTEED else None
