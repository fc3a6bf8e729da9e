"""The status of a gateway at one moment, as values: what `/status`, the operations page, the demonstration
and `explain` show.

    snapshot, reports, rates  ->  GatewayStatus  ->  ServiceStatus  ->  BackendStatus

Each holds values of core and reports as they are, and adds what depends on several of them. Services and
backends are made one by one, when somebody asks: a page of one of a thousand services makes one. No text is
made here, that is up to whoever shows it, and nothing is measured or decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, final

from gateway.core.fleet.backend import Grade, Member
from gateway.core.fleet.offer_state import advertised_versions
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme
from gateway.runtime.compiled import BuildInfo
from gateway.telemetry.neighbours import (
    AgreementReport,
    EngineReport,
    ServiceReport,
    SourceReport,
    with_engine,
)
from gateway.telemetry.recent import ServiceRates
from gateway.telemetry.worker_report import WorkerReport


@final
class StateWrites(NamedTuple):
    """How the writing of the state file goes."""

    successful: bool
    """The present state is in the file."""
    written_at: float
    """When it was last written: seconds since the epoch; 0: never by this process."""
    writes: int
    failures: int


@final
@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """The configuration in force."""

    hash: str
    loaded_at: float
    """Wall-clock seconds."""
    error: str | None = None
    """Why the last reload was refused; None: it was not."""


@final
class WorkerState(NamedTuple):
    """One worker."""

    slot: int
    pid: int
    """Process id; 0: no process, another one is about to be started."""
    connections: int
    """Connections of clients, as of its last report."""
    state: str
    """`starting`, `serving`, `draining`."""
    restarts: int
    """How often a worker of this slot was replaced because it had ended."""
    holds: Snapshot | None = None
    """The snapshot that it has acknowledged; None: none yet, or it serves in this process."""


@final
class EjectionStatus(NamedTuple):
    """The ejection of a backend."""

    until: float
    """Wall-clock seconds."""
    reason: str
    """One sentence."""


@final
class BackendStatus(NamedTuple):
    """One backend: what is known of it, and its load."""

    member: Member
    grade: Grade
    """Grade of the member: one object for all members of a service that are equal in it."""
    in_flight: int
    """Requests in flight, with those that an engine beside the gateway may have there."""
    queued: int | None
    """Requests in its queue; None: it has none."""
    rate: float
    """Requests per second lately."""
    ejection: EjectionStatus | None
    """None: it is not ejected."""
    leaves_at: float | None
    """Wall-clock seconds when it is removed, because its source names it no more; None: it stays."""
    last_probe_at: float | None
    """Wall-clock seconds; None: no probe has ended."""

    @property
    def versions(self) -> VersionSet:
        """Versions that it has advertised last."""
        return advertised_versions(self.member)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceStatus:
    """One service: what is known and offered, and what the rest of the gateway knows about it."""

    gateway: GatewayStatus
    view: ServiceView
    rates: ServiceRates
    """Requests per second lately."""

    @property
    def name(self) -> str:
        return self.view.service.name

    @property
    def scheme(self) -> Scheme:
        """Scheme in which its versions are written."""
        return self.view.service.dialect.scheme

    @property
    def agreement(self) -> ServiceReport | None:
        """How this replica stands to the others about it; None: the gateway stands alone."""
        report = self.gateway.agreement
        return None if report is None else report.services.get(self.name)

    @property
    def held_by_replicas(self) -> tuple[str, ...]:
        """Names of the replicas that hold the next step of the offer back."""
        report = self.gateway.agreement
        return () if report is None else report.holding(self.name)

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """Sources of its backends; none where the configuration names them all."""
        return self.gateway.sources_of.get(self.name, ())

    @property
    def requests(self) -> int:
        """Requests in flight and in queues."""
        in_flight, waiting = self.gateway.in_flight, self.gateway.report.waiting_by_member
        keys = [member.key for member in self.view.pool.members]
        return sum(in_flight.get(key, 0) + waiting.get(key, 0) for key in keys)

    def backends(self, begin: int = 0, end: int | None = None) -> Iterator[BackendStatus]:
        """Backends from position `begin` up to `end`, in the configuration's order; each is made when it is
        asked for."""
        pool = self.view.pool
        return map(self._backend, pool.members[begin:end], pool.grades[begin:end])

    def backend(self, name: str) -> BackendStatus:
        """Makes the status of one backend. Raises `KeyError` if it is not configured."""
        pool = self.view.pool
        at = pool.positions[name]
        return self._backend(pool.members[at], pool.grades[at])

    def _backend(self, member: Member, grade: Grade) -> BackendStatus:
        gateway, backend, key = self.gateway, member.backend, member.key
        ejected, leaves_at = gateway.report.ejected.get(key), backend.leaves_at
        return BackendStatus(
            member=member,
            grade=grade,
            in_flight=gateway.in_flight.get(key, 0),
            queued=gateway.report.waiting_by_member.get(key, 0) if member.bound else None,
            rate=self.rates.by_backend.get(backend.name, 0.0),
            ejection=None
            if ejected is None
            else EjectionStatus(gateway.now + ejected.seconds, ejected.reason),
            leaves_at=None if leaves_at is None else leaves_at + (gateway.now - gateway.monotonic),
            last_probe_at=gateway.last_probe_at.get((member.service, backend.name)),
        )


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GatewayStatus:
    """A whole gateway at one moment. Nothing in it changes any more."""

    snapshot: Snapshot
    build: BuildInfo
    config: ConfigInForce
    report: WorkerReport
    """Gauges of all workers."""
    rates: Callable[[str], ServiceRates]
    """Returns the requests per second of a service lately: `Rates.of`."""
    last_probe_at: Mapping[tuple[str, str], float]
    """Wall-clock seconds by (service, backend)."""
    certificate_expiry: Mapping[str, float]
    """Wall-clock seconds by path of a certificate."""
    now: float
    """Wall-clock seconds of this moment."""
    monotonic: float
    """The same moment by the clock that dates facts."""
    not_serving: str = ""
    """Why no client is accepted, a sentence; empty: they are."""
    workers: tuple[WorkerState, ...] = ()
    agreement: AgreementReport | None = None
    """None: this gateway stands alone."""
    engine: EngineReport | None = None
    """None: there is no engine beside it."""
    sources: tuple[SourceReport, ...] = ()
    """Sources of backends."""
    state_writes: StateWrites | None = None
    """None: there is no state file."""
    in_flight: Mapping[str, int] = field(init=False)
    """Requests in flight by member key, those of the engine included."""
    sources_of: Mapping[str, tuple[SourceReport, ...]] = field(init=False)
    """Sources by service; services without one have no entry."""

    def __post_init__(self) -> None:
        """Computes what is asked for once a backend or once a service."""
        found: dict[str, tuple[SourceReport, ...]] = {}
        for each in self.sources:
            found[each.service] = (*found.get(each.service, ()), each)
        object.__setattr__(self, "sources_of", found)
        in_flight = with_engine(self.report.in_flight_by_member, self.engine)
        object.__setattr__(self, "in_flight", in_flight)

    def service(self, name: str) -> ServiceStatus | None:
        """Makes the status of one service; None: it is not configured."""
        view = self.snapshot.views.get(name)
        return None if view is None else self._of(view)

    def services(self) -> Iterator[ServiceStatus]:
        """Makes the status of one service after the other, in the configuration's order."""
        return map(self._of, self.snapshot.views.values())

    def _of(self, view: ServiceView) -> ServiceStatus:
        return ServiceStatus(self, view, self.rates(view.service.name))
