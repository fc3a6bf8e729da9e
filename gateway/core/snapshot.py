"""Everything that a request may look at, in one immutable value: routes, services, fleet, offers, generation.

A request takes one snapshot and never looks again. Building is pure and keeps, by identity, the view of every
service about which nothing has changed, so that what was remembered for that view stays good. Who swaps
snapshots is `controlplane.cell`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, final

from gateway.core.fleet import Fleet, Pool
from gateway.core.offer import Offer, form
from gateway.core.routing import Routes
from gateway.core.selection import Candidates, SelectionTable
from gateway.core.service import Service


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceView:
    """One service as a request sees it: what is configured, known and offered, with the tables made from
    them."""

    service: Service
    pool: Pool
    offer: Offer
    by_version: SelectionTable
    """Every member in service."""
    speaking_by_version: SelectionTable
    """Without the silent ones."""
    speaking: Candidates
    """For places where nothing is negotiated and a silent member will not do."""
    everyone: Candidates

    @classmethod
    def of(cls, service: Service, pool: Pool) -> ServiceView:
        speaking = [member for member in pool.in_service if not member.silent]
        return cls(
            service,
            pool,
            form(service, pool),
            SelectionTable.of(pool.members),
            SelectionTable.of(speaking),
            Candidates.of(speaking),
            Candidates.of(pool.members),
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state of the whole gateway at one moment."""

    generation: int
    routes: Routes
    views: Mapping[str, ServiceView]
    fleet: Fleet
    owned: frozenset[str]
    """Every request header (folded) that some dialect here reads or owns: what a head reader must set
    apart."""

    @classmethod
    def configured(cls, services: Sequence[Service], *, after: Snapshot | None = None) -> Snapshot:
        """The snapshot of a (new) configuration; what is known of backends that stay is carried over."""
        fleet = Fleet.of(services, after.fleet if after else None)
        views = {service.name: ServiceView.of(service, fleet.pools[service.name]) for service in services}
        return cls(
            after.generation + 1 if after else 1,
            Routes.of(services),
            MappingProxyType(views),
            fleet,
            frozenset().union(*(each.dialect.reads | each.dialect.owned_request for each in services)),
        )

    def knowing(self, fleet: Fleet) -> Snapshot:
        """The snapshot after new facts: views of services about which we know the same are kept as they
        are."""
        views = {
            name: view if view.pool == fleet.pools[name] else ServiceView.of(view.service, fleet.pools[name])
            for name, view in self.views.items()
        }
        return Snapshot(self.generation + 1, self.routes, MappingProxyType(views), fleet, self.owned)


class SnapshotSource(Protocol):
    """Where the data plane, telemetry and admin read the current snapshot: one attribute, read once a
    request."""

    @property
    def current(self) -> Snapshot: ...
