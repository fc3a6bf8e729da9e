"""Everything that a request may look at, in one immutable value: routes, services, fleet, offers, generation.

A request takes one snapshot and never looks again. Building is pure and keeps, by identity, the view of every
service about which nothing has changed, so that what was remembered for that view stays good. Who swaps
snapshots is `controlplane.cell`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, final

from gateway.core.fleet import Drain, Fleet, Pin, Pool
from gateway.core.memory import EMPTY, Kept, Memory, carried, remember
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
    memory: Memory
    offer: Offer
    by_version: SelectionTable
    """Every member in service."""
    speaking_by_version: SelectionTable
    """Without the silent ones."""
    speaking: Candidates
    """For places where nothing is negotiated and a silent member will not do."""
    everyone: Candidates

    @classmethod
    def of(cls, service: Service, pool: Pool, memory: Memory) -> ServiceView:
        speaking = [member for member in pool.in_service if not member.silent]
        return cls(
            service,
            pool,
            memory,
            form(service, pool, memory),
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
    def configured(
        cls,
        services: Sequence[Service],
        *,
        now: float,
        after: Snapshot | None = None,
        kept: Mapping[str, Kept] | None = None,
    ) -> Snapshot:
        """The snapshot of a (new) configuration at `now`, seconds of the clock by which facts are dated.

        `after`: the one in force; what is known of backends that stay, what was promised and what was ordered
        is carried over. `kept`: for the first one, what survived the restart, by service.
        """
        fleet = Fleet.of(services, after.fleet if after else None)
        views = {}
        for service in services:
            found = (kept or {}).get(service.name)
            if found is not None:
                fleet = _restored(fleet, service, found)
            pool = fleet.pools[service.name]
            before = after.views.get(service.name) if after else None
            if before is not None and before.service.language == service.language:
                memory = _carried(before, service, pool, now)
            else:
                memory = remember(EMPTY if found is None else Memory(found.versions), service, pool, now)
            views[service.name] = ServiceView.of(service, pool, memory)
        return cls(
            after.generation + 1 if after else 1,
            Routes.of(services),
            MappingProxyType(views),
            fleet,
            frozenset().union(*(each.dialect.reads | each.dialect.owned_request for each in services)),
        )

    def knowing(self, fleet: Fleet, now: float) -> Snapshot:
        """The snapshot after new facts, and after the time that has gone by; this same one when neither
        changes anything. Views of services about which we know the same are kept as they are."""
        views = {name: _renewed(view, fleet.pools[name], now) for name, view in self.views.items()}
        if all(views[name] is view for name, view in self.views.items()):
            return self if fleet is self.fleet else replace(self, fleet=fleet)
        return Snapshot(self.generation + 1, self.routes, MappingProxyType(views), fleet, self.owned)

    @property
    def due(self) -> float | None:
        """When time alone will change an offer, by the clock of `now`; None: never."""
        dues = (view.memory.due(view.service.settle) for view in self.views.values())
        return min((due for due in dues if due is not None), default=None)

    def kept(self) -> Mapping[str, Kept]:
        """What should survive a restart, by service."""
        return {
            name: Kept(
                view.memory.versions,
                view.pool.pin,
                frozenset(member.backend.name for member in view.pool.members if member.drained),
            )
            for name, view in self.views.items()
        }


def _renewed(view: ServiceView, pool: Pool, now: float) -> ServiceView:
    memory = remember(view.memory, view.service, pool, now)
    if memory is view.memory and pool == view.pool:
        return view
    return ServiceView.of(view.service, pool, memory)


def _carried(before: ServiceView, service: Service, pool: Pool, now: float) -> Memory:
    """The memory of a service that was configured anew. What had stood long enough is taken up first."""
    memory = remember(before.memory, before.service, before.pool, now)
    staying = {(member.backend.name, member.backend.url) for member in pool.members}
    removed = [
        member for member in before.pool.members if (member.backend.name, member.backend.url) not in staying
    ]
    return carried(memory, service, pool, removed, now)


def _restored(fleet: Fleet, service: Service, kept: Kept) -> Fleet:
    """An operator's orders from before a restart, in force again."""
    fleet = fleet.obey(service.name, Pin(kept.pin))
    for backend in sorted(kept.drained):
        fleet = fleet.obey(service.name, Drain(backend))
    return fleet


class SnapshotSource(Protocol):
    """Where the data plane, telemetry and admin read the current snapshot: one attribute, read once a
    request."""

    @property
    def current(self) -> Snapshot: ...
