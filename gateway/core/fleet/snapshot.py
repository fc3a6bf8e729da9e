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
from gateway.core.fleet.fleet import Drain, Fleet, Pin, Pool
from gateway.core.fleet.offer import Offer, form_offer
from gateway.core.fleet.offer_state import EMPTY, OfferState, SavedState, advance, reconfigured
from gateway.core.fleet.service import Service
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
        non_legacy = [member for member in pool.in_service if not member.legacy]
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

        A document and Nova's `/v2.1` need a member that has versions, except while all are legacy.
        """
        if version is not None:
            table = self.non_legacy_by_version if endpoint.versioned_only else self.by_version
            return table.candidates(version)
        if endpoint.versioned_only and not self.offer.transparent:
            return self.non_legacy
        return self.everyone


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

    @classmethod
    def configured(
        cls,
        services: Sequence[Service],
        *,
        now: float,
        after: Snapshot | None = None,
        saved: Mapping[str, SavedState] | None = None,
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
                fleet = _restored(fleet, service, found)
            pool = fleet.pools[service.name]
            before = after.views.get(service.name) if after else None
            if before is not None and before.service.scheme_id == service.scheme_id:
                offer_state = _reconfigured(before, service, pool, now)
            else:
                offer_state = advance(
                    EMPTY if found is None else OfferState(found.versions), service, pool, now
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
        )

    def with_fleet(self, fleet: Fleet, now: float) -> Snapshot:
        """The snapshot after new facts and at a later time; this same object when neither changes anything.
        Views of services about which nothing has changed stay the same objects."""
        views = {name: _renewed(view, fleet.pools[name], now) for name, view in self.views.items()}
        if all(views[name] is view for name, view in self.views.items()):
            return self if fleet is self.fleet else replace(self, fleet=fleet)
        return Snapshot(self.generation + 1, self.routes, MappingProxyType(views), fleet, self.selected_names)

    @property
    def due(self) -> float | None:
        """When time alone will change an offer next, by the clock of `now`; None: never."""
        dues = (view.offer_state.due(view.service.stabilization) for view in self.views.values())
        return min((due for due in dues if due is not None), default=None)

    def saved(self) -> Mapping[str, SavedState]:
        """What survives a restart, by service."""
        return {
            name: SavedState(
                view.offer_state.versions,
                view.pool.pin,
                frozenset(member.backend.name for member in view.pool.members if member.drained),
            )
            for name, view in self.views.items()
        }


def _renewed(view: ServiceView, pool: Pool, now: float) -> ServiceView:
    offer_state = advance(view.offer_state, view.service, pool, now)
    if offer_state is view.offer_state and pool == view.pool:
        return view
    return ServiceView.of(view.service, pool, offer_state)


def _reconfigured(before: ServiceView, service: Service, pool: Pool, now: float) -> OfferState:
    """The offer state of a service under its new configuration. Versions that were pending for long enough
    join first."""
    offer_state = advance(before.offer_state, before.service, before.pool, now)
    staying = {(member.backend.name, member.backend.url) for member in pool.members}
    removed = [
        member for member in before.pool.members if (member.backend.name, member.backend.url) not in staying
    ]
    return reconfigured(offer_state, service, pool, removed, now)


def _restored(fleet: Fleet, service: Service, saved: SavedState) -> Fleet:
    """The fleet with the operator's commands from before a restart."""
    fleet = fleet.apply(service.name, Pin(saved.pin))
    for backend in sorted(saved.drained):
        fleet = fleet.apply(service.name, Drain(backend))
    return fleet


class SnapshotSource(Protocol):
    """Where the data plane, telemetry and admin read the current snapshot: one attribute, read once for each
    decision."""

    @property
    def current(self) -> Snapshot: ...
