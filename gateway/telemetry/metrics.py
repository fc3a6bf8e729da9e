"""Metrics of one process: what the data plane, the prober and the admin listener call.

    RequestRecord -> Metrics.record -> Counters -> Collector (names, labels) -> exposition (text) -> /metrics

The hot path costs a few dict operations: it formats nothing and looks nothing up in a registry. Whatever can
be read from the current snapshot is read when somebody scrapes. There is no registry: the library's global
one is shared with whatever else is imported.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.ejection import EjectionReason
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import Snapshot, SnapshotSource
from gateway.telemetry.agreement import AgreementReport
from gateway.telemetry.collector import Collector
from gateway.telemetry.counters import (
    BUCKETS,
    MAX_CLIENT_ERROR_REASONS,
    OTHER,
    BackendCounters,
    Counters,
    Histogram,
    ServiceCounters,
    TunnelCounters,
)
from gateway.telemetry.discovery import NameReport, SourceReport
from gateway.telemetry.engine import EngineReport
from gateway.telemetry.merging import Counted, add, take
from gateway.telemetry.process_families import StateWrites
from gateway.telemetry.process_stats import ProcessStats, read_stats
from gateway.telemetry.rates import RequestCounts
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.worker_report import WorkerReport

_SERVED: Final = NegotiationResult.SERVED

_NOT_READ: Final = RequestedKind.NONE
"""The label `requested` in a transparent service, where nobody reads what was requested."""


@final
class Metrics:
    """Counts what happens. `client_errors`: reasons whose series exist at zero (constants of the data
    plane). `per_backend`: see `collector.Collector`."""

    def __init__(self, client_errors: Collection[str] = (), *, per_backend: bool = True) -> None:
        self._counters = Counters(time.time())
        self._counters.client_errors.update(dict.fromkeys(client_errors, 0))
        self._by_service: dict[str, ServiceCounters] = {"": self._counters.unrouted}
        """As `Counters.services`, and requests that no service matched under the empty name."""
        self._snapshots: SnapshotSource | None = None
        self._with_series: Snapshot | None = None
        """The snapshot whose services, backends and offers have series."""
        self._collector = Collector(self._counters, per_backend=per_backend)

    # --- what is watched: read at a scrape only -------------------------------------------------------------

    def watch(self, snapshots: SnapshotSource, report: Callable[[], WorkerReport] = WorkerReport) -> None:
        """Set where gauges are read: of services and backends in `snapshots`, and of all workers in
        `report`."""
        self._snapshots = snapshots
        self._collector.watch(snapshots, report)
        self._update_series()

    def watch_admin(self, connections: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        """Show the connections of each listener for operators, as (open, limit)."""
        self._collector.process.admin_connections = connections

    def watch_names(
        self, names: Callable[[], Iterable[NameReport]], sources: Callable[[], Iterable[SourceReport]]
    ) -> None:
        """Show what is known of the names of backends, and of the sources of those that come and go."""
        self._collector.names, self._collector.sources = names, sources

    def watch_agreement(self, report: Callable[[], AgreementReport | None]) -> None:
        """Show how this replica stands to the others. None: it stands alone."""
        self._collector.agreement = report

    def watch_engine(self, report: Callable[[], EngineReport | None]) -> None:
        """Show how the engine beside this gateway stands. None: there is none."""
        self._collector.engine = report

    def watch_config(self, config_hash: Callable[[], str]) -> None:
        """Show which configuration is in force."""
        self._collector.process.config_hash = config_hash

    def watch_state(self, writes: Callable[[], StateWrites | None]) -> None:
        """Show whether the state file can be written. None: there is none."""
        self._collector.process.state_writes = writes

    # --- the hot path ---------------------------------------------------------------------------------------

    def record(self, request: RequestRecord) -> None:
        """Count one finished request."""
        counters = self._by_service.get(request.service) or self._of_new_service(request.service)
        backend = request.backend
        key = (backend, request.status)
        requests = counters.requests
        count = requests.get(key)
        if count is not None:
            requests[key] = count + 1
        else:
            counters.count_request(*key)
        seconds = request.seconds
        durations = counters.durations
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.total += seconds
        counters.bytes_in += request.bytes_in
        counters.bytes_out += request.bytes_out
        result = request.result
        if result is not None:
            counters.negotiations[request.requested or _NOT_READ, result] += 1
            if result is _SERVED:
                version = request.version
                count = counters.served.get(version)
                if count is not None:
                    counters.served[version] = count + 1
                else:
                    self._count_new_version(request.service, counters, version)
        seconds = request.backend_seconds
        of_backend = counters.backends.get(backend)
        if seconds >= 0 and of_backend is not None:
            durations = of_backend.durations
            durations.counts[bisect_left(BUCKETS, seconds)] += 1
            durations.total += seconds

    def _of_new_service(self, service: str) -> ServiceCounters:
        """The counters of a service seen for the first time, or of one that is not configured any more."""
        self._update_series()
        return self._by_service.get(service, self._counters.unconfigured)

    def _count_new_version(self, service: str, counters: ServiceCounters, version: str) -> None:
        view = self._snapshots.current.views.get(service) if self._snapshots is not None else None
        counters.count_served(version, view)

    # --- which series there are -----------------------------------------------------------------------------

    def _update_series(self) -> None:
        """Add the series of what is configured and on offer, and drop those of what is not configured any
        more. Costs what has changed: a view is the same object while nothing of its service has."""
        if self._snapshots is None or (current := self._snapshots.current) is self._with_series:
            return
        before, self._with_series = self._with_series, current
        views, services = current.views, self._counters.services
        news = current.news_since(before) if before is not None else [(None, view) for view in views.values()]
        for old, view in news:
            service = view.service
            counters = services.get(service.name)
            if counters is None:
                counters = services[service.name] = self._by_service[service.name] = ServiceCounters()
            if old is None or old.service is not service:
                counters.configure({backend.name for backend in service.backends})
            counters.add_offer(view.offer, service.dialect.scheme)
        for name in services.keys() - views.keys() if len(services) != len(views) else ():
            del services[name], self._by_service[name]

    # --- now and then ---------------------------------------------------------------------------------------

    def client_error(self, reason: str) -> None:
        """A client broke the rules of HTTP. `reason` is a constant of the data plane."""
        errors = self._counters.client_errors
        if reason not in errors and len(errors) >= MAX_CLIENT_ERROR_REASONS:
            reason = OTHER
        errors[reason] = errors.get(reason, 0) + 1

    def handshake(self, result: str) -> None:
        """A TLS handshake of a client has ended. `result` is one of `counters.HANDSHAKE_RESULTS`."""
        handshakes = self._counters.handshakes
        handshakes[result if result in handshakes else OTHER] += 1

    def certificates_reloaded(self, *, ok: bool) -> None:
        """Certificates whose files have changed were read again."""
        self._counters.certificate_reloads["success" if ok else "failure"] += 1

    def watch_certificates(self, expiry: Callable[[], Mapping[str, float]]) -> None:
        """Show when each certificate in force expires: seconds since the epoch, by path."""
        self._collector.process.certificate_expiry = expiry

    def admin_error(self, reason: str) -> None:
        """The admin listener refused or cut off a request. `reason` is one of `counters.ADMIN_ERRORS`."""
        self._counters.admin_errors[reason] += 1

    def retry(self, service: str, reason: str) -> None:
        """A request was sent to another backend."""
        retries = self._service(service).retries
        retries[reason if reason in retries else OTHER] += 1

    def retry_given_up(self, service: str) -> None:
        """A request could have been sent again, but waited too long for the retry budget."""
        self._service(service).retries_given_up += 1

    def refused(self, service: str, reason: str) -> None:
        """A request was not admitted. `reason` is one of `counters.ADMISSION_REASONS`."""
        self._service(service).refused[reason] += 1

    def deferred(self, service: str, backend: str) -> None:
        """A fact that a request brought about a backend has to wait, because too much changes."""
        if (counters := self._backend(service, backend)) is not None:
            counters.deferred += 1

    def ejected(self, service: str, backend: str, reason: EjectionReason) -> None:
        """A backend was ejected."""
        if (counters := self._backend(service, backend)) is not None:
            counters.ejections[reason] += 1

    def queue_refused(self, service: str, backend: str, reason: str) -> None:
        """A request got no place in the queue of a backend, or waited there too long. `reason` is one of
        `counters.QUEUE_REFUSALS`."""
        if (counters := self._backend(service, backend)) is not None:
            counters.queue_refused[reason] += 1

    def out_of_step(self, service: str, backend: str, reason: str) -> None:
        """A backend has sent what answers no request, or another one. `reason` is one of
        `counters.OUT_OF_STEP`."""
        if (counters := self._backend(service, backend)) is not None:
            counters.out_of_step[reason] += 1

    def version_mismatch(self, service: str, backend: str) -> None:
        """A backend named another served version than the negotiated one (threats V9), or none."""
        if (counters := self._backend(service, backend)) is not None:
            counters.version_mismatches += 1

    def probed(self, service: str, backend: str, seconds: float, failure: str | None) -> None:
        """A probe ended after `seconds`. `failure` is None or one of `counters.PROBE_FAILURES`."""
        if (counters := self._backend(service, backend)) is None:
            return
        counters.probes.add(seconds)
        if failure is not None:
            failures = counters.probe_failures
            failures[failure if failure in failures else OTHER] += 1

    def certificate_seen(self, service: str, backend: str, expiry: float) -> None:
        """A backend has shown a probe its certificate. `expiry`: seconds since the epoch."""
        if (counters := self._backend(service, backend)) is not None:
            counters.certificate_expiry = expiry

    def tunnels(self, service: str) -> TunnelCounters:
        """What is counted of the upgrades of a service, by the data plane itself."""
        return self._service(service).tunnels

    def _service(self, service: str) -> ServiceCounters:
        return self._by_service.get(service) or self._of_new_service(service)

    def _backend(self, service: str, backend: str) -> BackendCounters | None:
        """None: the backend is not configured any more."""
        return self._service(service).backends.get(backend)

    def reloaded(self, *, ok: bool, at: float) -> None:
        """A reload ended. `at` is wall-clock seconds."""
        counters = self._counters
        counters.reloads["success" if ok else "failure"] += 1
        counters.last_reload_successful = ok
        if ok:
            counters.last_success_at = at

    def lag(self, worker: str, seconds: float) -> None:
        """The event loop of `worker` woke up `seconds` late."""
        self._counters.lags.setdefault(worker, Histogram()).add(seconds)

    def snapshot_changed(self, before: Snapshot, after: Snapshot) -> None:
        """Count how the offers changed; a subscriber of the snapshot holder."""
        self._update_series()
        for old, view in after.news_since(before):
            counters = self._counters.services.get(view.service.name)
            if old is not None and counters is not None:
                for change in offer_changes(old.offer, view.offer):
                    counters.offer_changes[change] += 1

    def update_series(self, _before: Snapshot, _after: Snapshot) -> None:
        """As `snapshot_changed` in a worker process, whose parent counts how the offers change."""
        self._update_series()

    # --- several processes ----------------------------------------------------------------------------------

    def tunnels_open(self) -> Mapping[str, int]:
        """Returns the number of open tunnels of this process by service, of services that have some."""
        services = self._counters.services.items()
        return {name: counters.tunnels.open for name, counters in services if counters.tunnels.open}

    def take(self) -> Counted:
        """What was counted since the last call, for the parent of this process. From here on it is not
        counted here any more."""
        return take(self._counters)

    def add(self, counted: Counted) -> None:
        """Count what a worker process has counted."""
        self._update_series()
        add(self._counters, counted)

    # --- what others read -----------------------------------------------------------------------------------

    def served(self) -> Mapping[str, Mapping[str, int]]:
        """Requests served since the start, by service and version. The inner mappings are live."""
        return {name: counters.served for name, counters in self._counters.services.items()}

    def request_counts(self) -> Mapping[str, RequestCounts]:
        """Requests since the start, by service, and within it by backend, result and reason. The inner
        mappings are live."""
        services = self._counters.services.items()
        return {
            name: RequestCounts(each.requests, each.negotiations, each.refused) for name, each in services
        }

    # --- the scrape -----------------------------------------------------------------------------------------

    def exposition(self, accept: str, stats: ProcessStats | None = None) -> tuple[Iterator[bytes], str]:
        """The body of /metrics and its content type: OpenMetrics if `accept` prefers it, else the text
        format. The body comes in pieces: others may run between two of them. `stats`: a look at the process,
        by default one that takes no time."""
        from gateway.telemetry.exposition import form_of, pieces  # noqa: PLC0415 - not every start is scraped

        self._update_series()
        form = form_of(accept)
        return pieces(self._collector.collect(stats or read_stats()), form), form.value


def offer_changes(before: Offer, after: Offer) -> list[tuple[str, str]]:
    """Which ends of an offer moved, as (bound, direction). An offer that appears or vanishes has no
    direction."""
    if not before.versions or not after.versions:
        return []
    ends: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "min": (before.versions.lowest, after.versions.lowest),
        "max": (before.versions.highest, after.versions.highest),
    }
    return [(bound, "up" if new > old else "down") for bound, (old, new) in ends.items() if new != old]
