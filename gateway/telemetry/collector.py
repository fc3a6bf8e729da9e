"""From counts and the current snapshot to metric families: names, labels and help texts of /metrics. Those
about the process as a whole are in `telemetry.process_families`.

Runs only when somebody scrapes. It counts nothing and changes nothing. Names and labels are a public contract
(docs/metrics.md). How families are written is in `telemetry.exposition`.

A scrape is made in pieces, and requests, facts and reloads come between them. So which services and backends
there are is read once, and whatever may grow is copied before it is iterated over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.doubt import NEVER
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.snapshot import ServiceView, SnapshotSource
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.agreement import AgreementReport, agreement_families
from gateway.telemetry.counters import (
    ANY_BACKEND,
    NO_SERVICE,
    OTHER,
    BackendCounters,
    Counters,
    ServiceCounters,
)
from gateway.telemetry.discovery import NameReport, SourceReport, name_families, source_families
from gateway.telemetry.engine import EngineReport, engine_families
from gateway.telemetry.families import Family, counter, gauge, histogram
from gateway.telemetry.process_families import ProcessFamilies
from gateway.telemetry.process_stats import ProcessStats
from gateway.telemetry.request_record import NO_BACKEND
from gateway.telemetry.worker_report import WorkerReport

_BACKEND_LABELS: Final = ("backend", "service")


class _CountedBackend(NamedTuple):
    labels: tuple[str, str]
    counters: BackendCounters


class _ViewedBackend(NamedTuple):
    labels: tuple[str, str]
    member: Member
    scheme: Scheme


@final
class Collector:
    """Makes all families. `per_backend`: also those whose series grow with the number of backends times
    something else; without them a backend has five series."""

    def __init__(self, counters: Counters, *, per_backend: bool = True) -> None:
        self._counters = counters
        self._per_backend = per_backend
        self.process = ProcessFamilies(counters)
        """Those about the process as a whole."""
        self._snapshots: SnapshotSource | None = None
        self._report: Callable[[], WorkerReport] = WorkerReport
        self.names: Callable[[], Iterable[NameReport]] = tuple
        self.sources: Callable[[], Iterable[SourceReport]] = tuple
        self.agreement: Callable[[], AgreementReport | None] = lambda: None
        self.engine: Callable[[], EngineReport | None] = lambda: None

    def watch(self, snapshots: SnapshotSource, report: Callable[[], WorkerReport]) -> None:
        """Set where the present state is read: of services and backends, and of all workers."""
        self._snapshots, self._report = snapshots, report

    def collect(self, stats: ProcessStats) -> Iterator[Family]:
        """All families of one scrape. `stats`: a look at the process at this moment. Gauges of services exist
        only once there is a snapshot to read."""
        views = self._snapshots.current.views if self._snapshots is not None else None
        report = self._report()
        services = sorted(self._counters.services.items())
        backends = [
            _CountedBackend((backend, service), counters)
            for service, service_counters in services
            for backend, counters in service_counters.backends.items()
        ]
        yield from self.process.collect(stats, report)
        yield from self._requests(services)
        yield from _negotiations(services)
        yield from _tunnels(services, report.tunnels_open)
        yield from name_families(self.names())
        yield from source_families(self.sources())
        yield from agreement_families(self.agreement())
        yield from engine_families(self.engine())
        if self._per_backend:
            yield from _backend_counters(backends)
            yield from _backend_faults(backends)
            yield from _certificates(backends)
        if views is not None:
            yield from _offers(views, report.in_flight_by_service)
            yield from self._backends(views, report)

    # --- requests -------------------------------------------------------------------------------------------

    def _requests(self, configured: Iterable[tuple[str, ServiceCounters]]) -> Iterator[Family]:
        """Of every service, then of `none` (no service matched) and of `other` (no longer configured), if it
        has counts."""
        services = [*configured, (NO_SERVICE, self._counters.unrouted)]
        if any(self._counters.unconfigured.requests.values()):
            services.append((OTHER, self._counters.unconfigured))
        yield counter(
            "requests",
            "Finished requests; code `none`: no response began, backend `none`: a local response.",
            ("backend", "code", "service"),
            (
                ((backend, str(status) if status else "none", service), count)
                for service, counters in services
                for (backend, status), count in self._by_backend(counters)
            ),
        )
        yield histogram(
            "request_duration_seconds",
            "From the complete head of a request to the last byte of its response.",
            ("service",),
            (((service,), counters.durations) for service, counters in services),
        )
        yield counter(
            "body_bytes",
            "Bytes of bodies: of requests from clients (in), and of responses to them (out).",
            ("direction", "service"),
            (
                ((direction, service), count)
                for service, counters in services
                for direction, count in (("in", counters.bytes_in), ("out", counters.bytes_out))
            ),
        )

    def _by_backend(self, counters: ServiceCounters) -> list[tuple[tuple[str, int], int]]:
        """A copy of the counts by (backend, status). Not sorted: that could hold the loop for too long."""
        if self._per_backend:
            return list(counters.requests.items())
        sums: dict[tuple[str, int], int] = {}
        for (backend, status), count in counters.requests.items():
            key = (backend if backend == NO_BACKEND else ANY_BACKEND, status)
            sums[key] = sums.get(key, 0) + count
        return list(sums.items())

    # --- the present state of backends ----------------------------------------------------------------------

    def _backends(self, views: Mapping[str, ServiceView], report: WorkerReport) -> Iterator[Family]:
        members = [
            _ViewedBackend((member.backend.name, service), member, view.service.dialect.scheme)
            for service, view in views.items()
            for member in view.pool.members
        ]
        yield gauge(
            "backend_up",
            "1 while the last probe of a backend succeeded; for declared backends always 1.",
            _BACKEND_LABELS,
            ((labels, member.freshness is Freshness.FRESH) for labels, member, _ in members),
        )
        yield gauge(
            "backend_draining",
            "1 while an operator has drained a backend.",
            _BACKEND_LABELS,
            ((labels, member.drained) for labels, member, _ in members),
        )
        if any(member.backend.source for _, member, _ in members):
            yield gauge(
                "backend_leaving",
                "1 while a backend that its source lists no more still counts; only of those with a source.",
                _BACKEND_LABELS,
                ((labels, member.backend.leaving) for labels, member, _ in members if member.backend.source),
            )
        yield gauge(
            "offer_held_by",
            "1 while a backend must be upgraded, revived or removed for the offer to move.",
            _BACKEND_LABELS,
            ((labels, labels[0] in views[labels[1]].offer.held_by) for labels, _, _ in members),
        )
        yield from self._held_back(members, report)
        if self._per_backend:
            yield from _details(members, report)

    def _held_back(self, members: list[_ViewedBackend], report: WorkerReport) -> Iterator[Family]:
        """Who gets no requests for the moment, and what waits."""
        yield gauge(
            "backend_ejected",
            "1 while a backend is ejected.",
            _BACKEND_LABELS,
            ((labels, member.key in report.ejected) for labels, member, _ in members),
        )
        yield gauge(
            "backend_unhealthy",
            "1 while the health check of a backend says no.",
            _BACKEND_LABELS,
            ((labels, member.unhealthy is not None) for labels, member, _ in members),
        )
        if self._per_backend:
            yield gauge(
                "queue_length",
                "Requests that wait for a backend with a bound.",
                _BACKEND_LABELS,
                ((labels, report.waiting_by_member.get(member.key, 0)) for labels, member, _ in members),
            )


def _details(members: list[_ViewedBackend], report: WorkerReport) -> Iterator[Family]:
    """What is left out with `per_backend: false`."""
    yield gauge(
        "backend_info",
        "The range of a backend's advertisement; always 1. Both ends are empty without one.",
        ("backend", "max", "min", "service"),
        (
            ((backend, highest, lowest, service), 1)
            for (backend, service), member, scheme in members
            for lowest, highest in (ends(_advertised(member), scheme),)
        ),
    )
    since_1970 = time.time() - time.monotonic()
    yield gauge(
        "backend_advertisement_timestamp_seconds",
        "When the request was sent that brought the advertisement of a backend.",
        _BACKEND_LABELS,
        (
            (labels, round(member.advertised_at + since_1970, 3))
            for labels, member, _ in members
            if member.advertised_at > NEVER
        ),
    )
    yield gauge(
        "backend_connections",
        "Connections to a backend, by state.",
        ("backend", "service", "state"),
        (
            ((backend, service, state), count)
            for (backend, service), _, _ in members
            for state, count in zip(
                ("idle", "active"), report.connections.get((service, backend), (0, 0)), strict=True
            )
        ),
    )
    yield gauge(
        "backend_connections_limit",
        "How many connections a backend with a bound of its own may have (max_connections).",
        _BACKEND_LABELS,
        (
            (labels, member.backend.max_connections)
            for labels, member, _ in members
            if member.backend.max_connections
        ),
    )


def _negotiations(services: list[tuple[str, ServiceCounters]]) -> Iterator[Family]:
    yield counter(
        "negotiations",
        "Requests by requested version and by the result of their negotiation.",
        ("requested", "result", "service"),
        (
            ((requested.value, result.value, service), count)
            for service, counters in services
            for (requested, result), count in counters.negotiations.items()
        ),
    )
    yield counter(
        "served_version",
        "Requests by served version; `other`: no backend has advertised it, or it is not known.",
        ("service", "version"),
        (
            ((service, text), count)
            for service, counters in services
            for text, count in list(counters.served.items())
        ),
    )
    yield counter(
        "offer_changes",
        "How often an end of the offer moved.",
        ("bound", "direction", "service"),
        (
            ((bound, direction, service), count)
            for service, counters in services
            for (bound, direction), count in counters.offer_changes.items()
        ),
    )
    yield counter(
        "retries",
        "Requests sent on to another backend, by reason.",
        ("reason", "service"),
        (
            ((reason, service), count)
            for service, counters in services
            for reason, count in counters.retries.items()
        ),
    )
    yield counter(
        "requests_refused",
        "Requests that were refused because of their client or of the load, by reason.",
        ("reason", "service"),
        (
            ((reason, service), count)
            for service, counters in services
            for reason, count in counters.refused.items()
        ),
    )
    yield counter(
        "retries_given_up",
        "Requests that could have been sent again, but waited too long for the retry budget.",
        ("service",),
        (((service,), counters.retries_given_up) for service, counters in services),
    )


def _tunnels(services: list[tuple[str, ServiceCounters]], opened: Mapping[str, int]) -> Iterator[Family]:
    yield counter(
        "upgrades",
        "Requests with an upgrade: forwarded to a backend, or removed since the service does not allow it.",
        ("result", "service"),
        (
            ((result, service), count)
            for service, counters in services
            for result, count in (
                ("forwarded", counters.tunnels.forwarded),
                ("removed", counters.tunnels.removed),
            )
        ),
    )
    yield gauge(
        "tunnels_open",
        "Tunnels that are open.",
        ("service",),
        (((service,), opened.get(service, 0)) for service, _ in services),
    )
    yield counter(
        "tunnels",
        "Tunnels that have ended, by how.",
        ("result", "service"),
        (
            ((ending.value, service), count)
            for service, counters in services
            for ending, count in counters.tunnels.ended.items()
        ),
    )
    yield counter(
        "tunnel_bytes",
        "Bytes in tunnels, from clients (in) and to them (out).",
        ("direction", "service"),
        (
            ((direction, service), count)
            for service, counters in services
            for direction, count in (("in", counters.tunnels.bytes_in), ("out", counters.tunnels.bytes_out))
        ),
    )


def _backend_counters(backends: list[_CountedBackend]) -> Iterator[Family]:
    yield histogram(
        "backend_duration_seconds",
        "From the first byte of a request to a backend until the head of its response.",
        _BACKEND_LABELS,
        ((labels, counters.durations) for labels, counters in backends),
    )
    yield histogram(
        "probe_duration_seconds",
        "How long probes took, failed ones included.",
        _BACKEND_LABELS,
        ((labels, counters.probes) for labels, counters in backends),
    )
    yield counter(
        "probe_failures",
        "Probes that failed, by reason.",
        ("backend", "reason", "service"),
        (
            ((backend, reason, service), count)
            for (backend, service), counters in backends
            for reason, count in counters.probe_failures.items()
        ),
    )
    yield counter(
        "contradictions",
        "Responses with another served version than the negotiated one, or without the expected one.",
        _BACKEND_LABELS,
        ((labels, counters.version_mismatches) for labels, counters in backends),
    )
    yield counter(
        "deferred_facts",
        "Facts from requests that had to wait, because too much changed.",
        _BACKEND_LABELS,
        ((labels, counters.deferred) for labels, counters in backends),
    )


def _backend_faults(backends: list[_CountedBackend]) -> Iterator[Family]:
    yield counter(
        "ejections",
        "How often a backend was ejected, by reason.",
        ("backend", "reason", "service"),
        (
            ((backend, reason.value, service), count)
            for (backend, service), counters in backends
            for reason, count in counters.ejections.items()
        ),
    )
    yield counter(
        "queue_refused",
        "Requests that found no place in the queue of a full backend, or waited there too long.",
        ("backend", "reason", "service"),
        (
            ((backend, reason, service), count)
            for (backend, service), counters in backends
            for reason, count in counters.queue_refused.items()
        ),
    )
    yield counter(
        "out_of_step",
        "Connections to a backend that were closed because its responses did not answer their requests.",
        ("backend", "reason", "service"),
        (
            ((backend, reason, service), count)
            for (backend, service), counters in backends
            for reason, count in counters.out_of_step.items()
        ),
    )


def _certificates(backends: list[_CountedBackend]) -> Iterator[Family]:
    yield gauge(
        "backend_certificate_expiry_timestamp_seconds",
        "When the certificate expires that a backend has shown to the last probe that saw it.",
        _BACKEND_LABELS,
        (
            (labels, counters.certificate_expiry)
            for labels, counters in backends
            if counters.certificate_expiry
        ),
    )


def _offers(views: Mapping[str, ServiceView], in_flight: Mapping[str, int]) -> Iterator[Family]:
    yield gauge(
        "requests_in_flight",
        "Requests whose response has not ended.",
        ("service",),
        (((service,), in_flight.get(service, 0)) for service in views),
    )
    yield gauge(
        "offer_info",
        "The range that clients are shown; always 1. Both ends are empty while nothing is offered.",
        ("max", "min", "service"),
        (
            ((highest, lowest, service), 1)
            for service, view in views.items()
            for lowest, highest in (ends(view.offer.versions, view.service.dialect.scheme),)
        ),
    )
    yield gauge(
        "phase",
        "The phase of the upgrade: 1 for the present one, 0 for the others.",
        ("phase", "service"),
        (
            ((phase.value, service), view.offer.phase is phase)
            for service, view in views.items()
            for phase in Phase
        ),
    )
    yield gauge(
        "offer_held",
        "The rule that holds the offer: 1 for that rule, 0 for the others; all 0 if none does.",
        ("rule", "service"),
        (
            ((rule.value, service), view.offer.held_rule is rule)
            for service, view in views.items()
            for rule in HeldRule
        ),
    )


def ends(versions: VersionSet, scheme: Scheme) -> tuple[str, str]:
    """Lowest and highest as text, both empty for the empty set."""
    return (scheme.format(versions.lowest), scheme.format(versions.highest)) if versions else ("", "")


def _advertised(member: Member) -> VersionSet:
    return member.advertisement.versions if member.advertisement is not None else NO_VERSIONS
