"""Status of a gateway at one moment, as values, for `/status`, the operations page, the demonstration and
`explain`.

    snapshot, reports, rates  ->  GatewayStatus  ->  ServiceStatus  ->  BackendStatus

Each holds values of core and reports as they are, and adds what depends on several of them. The status of a
service or backend is made on demand: the page of one of a thousand services makes one. No text is made here,
and nothing is measured or decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, final

from gateway.core.fleet.backend import Member, MemberSummary
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
    """Result and number of the writes of the state file so far."""

    successful: bool
    """Whether the present state is in the state file."""
    written_at: float
    """Seconds since the epoch of the last write of the state file; 0: none by this process."""
    writes: int
    failures: int


@final
@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """Configuration in force: its hash, when it was loaded, and whether a later one was refused."""

    hash: str
    loaded_at: float
    """Wall-clock seconds at which the configuration was loaded."""
    error: str | None = None
    """Reason for which the last reload of the configuration was refused; None: it was not."""


@final
class WorkerState(NamedTuple):
    """State of one worker process."""

    slot: int
    pid: int
    """Process id of the worker; 0: its next process is about to be started."""
    connections: int
    """Client connections of the worker, as of its last report."""
    state: str
    """State of the worker: `starting`, `serving`, `draining`."""
    restarts: int
    """Number of times that a process of this worker ended and was replaced."""
    holds: Snapshot | None = None
    """Snapshot that the worker has acknowledged; None: none yet, or it serves in this process."""


@final
class EjectionStatus(NamedTuple):
    """Ejection of a backend, which keeps requests from it for a time."""

    until: float
    """Wall-clock seconds at which the ejection ends."""
    reason: str


@final
class BackendStatus(NamedTuple):
    """Status of one backend: knowledge about it, and its load."""

    member: Member
    summary: MemberSummary
    """Summary of the backend's state: one object for all backends of a service that are equal in it."""
    in_flight: int
    """Requests in flight to the backend, including those that an engine beside the gateway may have there."""
    queued: int | None
    """Requests in the backend's queue; None: it has no queue."""
    rate: float
    """Recent requests per second to the backend."""
    ejection: EjectionStatus | None
    leaves_at: float | None
    """Wall-clock seconds at which the backend is removed, as its source does not list it; None: it stays."""
    last_probe_at: float | None
    """Wall-clock seconds of the backend's last probe that ended; None: none has."""

    @property
    def versions(self) -> VersionSet:
        return advertised_versions(self.member)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ServiceStatus:
    """Status of one service: its fleet and offer, its load and its part in the agreement."""

    gateway: GatewayStatus
    view: ServiceView
    rates: ServiceRates

    @property
    def name(self) -> str:
        return self.view.service.name

    @property
    def scheme(self) -> Scheme:
        return self.view.service.dialect.scheme

    @property
    def agreement(self) -> ServiceReport | None:
        """State of this replica in the agreement about the service; None: there are no replicas."""
        report = self.gateway.agreement
        return None if report is None else report.services.get(self.name)

    @property
    def held_by_replicas(self) -> tuple[str, ...]:
        """Names of the replicas that hold the next step of the offer back."""
        report = self.gateway.agreement
        return () if report is None else report.holding(self.name)

    @property
    def sources(self) -> tuple[SourceReport, ...]:
        """State of the sources of the service's backends; empty: the configuration names them all."""
        return self.gateway.sources_of.get(self.name, ())

    @property
    def requests(self) -> int:
        in_flight, waiting = self.gateway.in_flight, self.gateway.report.waiting_by_member
        keys = [member.key for member in self.view.members.all]
        return sum(in_flight.get(key, 0) + waiting.get(key, 0) for key in keys)

    def backends(self, begin: int = 0, end: int | None = None) -> Iterator[BackendStatus]:
        """Makes the status of the service's backends in a range of positions, each on demand."""
        members = self.view.members
        return map(self._backend, members.all[begin:end], members.summaries[begin:end])

    def oldest_first(self) -> list[str]:
        """Names of the service's backends, those with the lowest maximum first."""
        versions = {each.backend.name: advertised_versions(each) for each in self.view.members.all}
        return sorted(versions, key=lambda name: versions[name].highest if versions[name] else ())

    def backend(self, name: str) -> BackendStatus:
        """Makes the status of one backend of the service. Raises `KeyError` if it is not configured."""
        members = self.view.members
        at = members.positions[name]
        return self._backend(members.all[at], members.summaries[at])

    def _backend(self, member: Member, summary: MemberSummary) -> BackendStatus:
        gateway, backend, key = self.gateway, member.backend, member.key
        ejected, leaves_at = gateway.report.ejected.get(key), backend.leaves_at
        return BackendStatus(
            member=member,
            summary=summary,
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
    """Immutable status of a whole gateway at one moment."""

    snapshot: Snapshot
    build: BuildInfo
    config: ConfigInForce
    report: WorkerReport
    rates: Callable[[str], ServiceRates]
    """Returns the recent requests per second of a service: `Rates.of`."""
    last_probe_at: Mapping[tuple[str, str], float]
    """Wall-clock seconds of the last probe of a backend, by (service, backend)."""
    certificate_expiry: Mapping[str, float]
    """Wall-clock seconds at which certificates expire, by path."""
    now: float
    """Wall-clock time of this status in seconds."""
    monotonic: float
    """Time of this status in seconds by the monotonic clock, which dates facts."""
    not_serving: str = ""
    """Sentence that says why no client is accepted; empty: clients are accepted."""
    workers: tuple[WorkerState, ...] = ()
    agreement: AgreementReport | None = None
    """State of the agreement of replicas; None: there are no replicas."""
    engine: EngineReport | None = None
    """State of the engine beside the gateway; None: there is none."""
    sources: tuple[SourceReport, ...] = ()
    state_writes: StateWrites | None = None
    """Writes of the state file so far; None: there is no such file."""
    in_flight: Mapping[str, int] = field(init=False)
    """Requests in flight by backend (member key), including those of the engine."""
    sources_of: Mapping[str, tuple[SourceReport, ...]] = field(init=False)
    """State of the sources of backends by service; services without one have no entry."""

    def __post_init__(self) -> None:
        """Computes once what the status of every service or backend reads: `sources_of` and `in_flight`."""
        found: dict[str, tuple[SourceReport, ...]] = {}
        for each in self.sources:
            found[each.service] = (*found.get(each.service, ()), each)
        object.__setattr__(self, "sources_of", found)
        in_flight = with_engine(self.report.in_flight_by_member, self.engine)
        object.__setattr__(self, "in_flight", in_flight)

    def service(self, name: str) -> ServiceStatus | None:
        """Makes the status of one service; None: it is not configured."""
        view = self.snapshot.views.get(name)
        return None if view is None else self.of(view)

    def services(self) -> Iterator[ServiceStatus]:
        """Makes the status of each service on demand, in the configuration's order."""
        return map(self.of, self.snapshot.views.values())

    def of(self, view: ServiceView) -> ServiceStatus:
        """Makes the status of a service of the snapshot."""
        return ServiceStatus(self, view, self.rates(view.service.name))
