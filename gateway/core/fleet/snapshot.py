"""Everything that a request may read, in one immutable value: routes, services, fleet, offers, generation.

A request takes one snapshot when it begins and is decided by it. It reads a newer one only to be re-routed:
when another backend must be chosen, or when a version refusal has proved its snapshot out of date. Building
is pure and keeps, by identity, the view of every service about which nothing has changed, so that what is
cached for that view stays valid. Nothing here swaps snapshots: `controlplane.snapshot_holder` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, final

from gateway.core.decision.routing import Routes
from gateway.core.decision.selection import Candidates, SelectionTable
from gateway.core.dialect import Endpoint
from gateway.core.fleet.fleet import AdvertisementRestored, Drain, Fleet, Pin, Pool
from gateway.core.fleet.offer import Offer, form_offer
from gateway.core.fleet.offer_state import (
    EMPTY,
    OfferState,
    SavedAdvertisement,
    SavedState,
    advance,
    due,
    reachable_versions,
    read_anew,
    reconfigured,
    restored,
)
from gateway.core.fleet.service import Service
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.core.versions import ranges
from gateway.core.versions.version import Version


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceView:
    """One service as a request sees it: its configuration, what is known and offered, and the tables made
    from these."""

    service: Service
    pool: Pool
    offer_state: OfferState
    offer: Offer
    by_version: SelectionTable
    """Every member in service."""
    non_legacy_by_version: SelectionTable
    """Without the legacy members."""
    non_legacy: Candidates
    """For endpoints where nothing is negotiated and a legacy member does not suffice."""
    everyone: Candidates

    @classmethod
    def of(cls, service: Service, pool: Pool, offer_state: OfferState) -> ServiceView:
        non_legacy = [member for member in pool.in_service if not (member.legacy or member.version_unknown)]
        return cls(
            service,
            pool,
            offer_state,
            form_offer(service, pool, offer_state),
            SelectionTable.of(pool.members),
            SelectionTable.of(non_legacy),
            Candidates.of(non_legacy),
            Candidates.of(pool.members),
        )

    def candidates(self, version: Version | None, endpoint: Endpoint) -> Candidates:
        """The members that may get a request at `version`; None: nothing is negotiated for it.

        A document and Nova's `/v2.1` need a member that has versions, except while all are legacy. A document
        comes from a legacy one if no other is in service (semantics, Legacy backends).
        """
        everyone = self.everyone if version is None else self.by_version.candidates(version)
        if not endpoint.versioned_only or (version is None and self.offer.transparent):
            return everyone
        chosen = self.non_legacy if version is None else self.non_legacy_by_version.candidates(version)
        return chosen if chosen.tiers or not endpoint.document else everyone

    def prefers_known_document(self, endpoint: Endpoint, candidates: Candidates) -> bool:
        """Whether a discovery document is answered from what is known, if it is, rather than by `candidates`.

        It is where nobody may give it but legacy members. Their documents show nothing but what they stand
        for, so they give it where no other version is on offer.
        """
        if not endpoint.document or not self.offer.versions or self.offer.transparent:
            return False
        if not candidates.tiers:
            return True
        return (
            endpoint.versioned_only
            and all(member.legacy or member.version_unknown for member in candidates.members)
            and not self.offer.versions <= self.service.dialect.legacy_versions
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state of the whole gateway at one moment."""

    generation: int
    routes: Routes
    views: Mapping[str, ServiceView]
    fleet: Fleet
    selected_names: frozenset[str]
    """Every request header (normalized) that some dialect here reads or owns: the fields that a head reader
    selects."""
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """The headers, some with `*` at the end, that are dropped from peers that are not trusted."""

    @classmethod
    def configured(
        cls,
        services: Sequence[Service],
        *,
        now: float,
        after: Snapshot | None = None,
        saved: Mapping[str, SavedState] | None = None,
        untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS,
    ) -> Snapshot:
        """The snapshot of a (new) configuration at `now`, in seconds of the clock that dates facts.

        `after`: the present snapshot, from which are kept what is known of the backends that stay, the offer
        states and the operator's commands. `saved`: for the first snapshot, what survived the restart, by
        service.
        """
        fleet = Fleet.of(services, after.fleet if after else None)
        views = {}
        for service in services:
            found = (saved or {}).get(service.name)
            if found is not None:
                fleet = _restored(fleet, service, found, now)
            pool = fleet.pools[service.name]
            before = after.views.get(service.name) if after else None
            if before is not None and service.earlier_scheme(before.service.scheme_id) is not None:
                offer_state = _reconfigured(before, service, pool, now)
            else:
                offer_state = advance(
                    EMPTY if found is None else restored(found, service), service, pool, now
                )
            views[service.name] = ServiceView.of(service, pool, offer_state)
        return cls(
            after.generation + 1 if after else 1,
            Routes.of(services),
            MappingProxyType(views),
            fleet,
            frozenset().union(
                *(service.dialect.reads | service.dialect.owned_request for service in services)
            ),
            untrusted_headers,
        )

    def with_fleet(self, fleet: Fleet, now: float) -> Snapshot:
        """The snapshot after new facts and at a later time; this same object when neither changes anything.
        Views of services about which nothing has changed stay the same objects."""
        views = {name: _renewed(view, fleet.pools[name], now) for name, view in self.views.items()}
        if all(views[name] is view for name, view in self.views.items()):
            return self if fleet is self.fleet else replace(self, fleet=fleet)
        return replace(self, generation=self.generation + 1, views=MappingProxyType(views), fleet=fleet)

    @property
    def due(self) -> float | None:
        """When time alone will change an offer next, by the clock of `now`; None: never."""
        dues = (due(view.offer_state, view.service, view.pool) for view in self.views.values())
        return min((each for each in dues if each is not None), default=None)

    def saved(self) -> Mapping[str, SavedState]:
        """What survives a restart, by service."""
        return {
            name: _saved(view.service, view.offer_state, self.fleet.pools[name])
            for name, view in self.views.items()
        }


def _saved(service: Service, offer_state: OfferState, pool: Pool) -> SavedState:
    return SavedState(
        offer_state.versions,
        pool.pin,
        frozenset(member.backend.name for member in pool.members if member.drained),
        service.policy_and_number,
        MappingProxyType(
            {
                member.backend.name: SavedAdvertisement(
                    member.backend.url, member.advertisement, member.advertised_at
                )
                for member in pool.members
                if member.advertisement is not None and member.backend.declared is None
            }
        ),
        offer_state.cut,
    )


def _renewed(view: ServiceView, pool: Pool, now: float) -> ServiceView:
    """The view after new facts. What was due before them happens first, by what was known then."""
    offer_state, at = view.offer_state, due(view.offer_state, view.service, view.pool)
    if at is not None and at <= now:
        offer_state = advance(offer_state, view.service, view.pool, now)
    offer_state = advance(offer_state, view.service, pool, now)
    if offer_state is view.offer_state and pool == view.pool:
        return view
    return ServiceView.of(view.service, pool, offer_state)


def _reconfigured(before: ServiceView, service: Service, pool: Pool, now: float) -> OfferState:
    """The offer state of a service under its new configuration. What was due before happens first."""
    offer_state = advance(before.offer_state, before.service, before.pool, now)
    staying = {(member.backend.name, member.backend.url) for member in pool.members}
    removed = reachable_versions(
        [member for member in before.pool.members if (member.backend.name, member.backend.url) not in staying]
    )
    scheme = service.earlier_scheme(before.service.scheme_id)
    assert scheme is not None, "otherwise the state begins empty"
    offer_state = read_anew(offer_state, scheme, service.dialect.scheme)
    return reconfigured(
        offer_state,
        before.service,
        service,
        pool,
        now,
        removed=ranges.read_anew(removed, scheme, service.dialect.scheme),
    )


def _restored(fleet: Fleet, service: Service, saved: SavedState, now: float) -> Fleet:
    """The fleet with what was known before a restart, and with the operator's commands from then.

    No advertisement is newer than `now`: the wall clock may have been set back meanwhile, and then no probe
    could replace it.
    """
    fleet = fleet.apply(service.name, Pin(saved.pin))
    for backend in service.backends:
        known = saved.advertisements.get(backend.name)
        if known is not None and known.url == backend.url and backend.declared is None:
            fact = AdvertisementRestored(known.advertisement, min(known.at, now))
            fleet = fleet.observe(service.name, backend.name, fact)
    for name in sorted(saved.drained):
        fleet = fleet.apply(service.name, Drain(name))
    return fleet


class SnapshotSource(Protocol):
    """Where the data plane, telemetry and admin read the current snapshot: one attribute, read once for each
    decision."""

    @property
    def current(self) -> Snapshot: ...
