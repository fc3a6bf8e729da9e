"""Metrics of one process: what the data plane, the prober and the admin listener call.

    RequestRecord -> Metrics.record -> Counters -> Collector (names, labels) -> /metrics

The hot path costs a few dict operations: it formats nothing and looks nothing up in a registry. Whatever can
be read from the current snapshot is read when somebody scrapes. The registry is our own: the library's global
one is shared with whatever else is imported.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import Snapshot, SnapshotSource
from gateway.telemetry.collector import Collector, ConnectionCounts, InFlightCounts
from gateway.telemetry.counters import (
    BUCKETS,
    MAX_CLIENT_ERROR_REASONS,
    OTHER,
    BackendCounters,
    Counters,
    Histogram,
    ServiceCounters,
)
from gateway.telemetry.request_record import RequestRecord

_SERVED: Final = NegotiationResult.SERVED

_NOT_READ: Final = RequestedKind.NONE
"""The label `requested` in a transparent service, where nobody reads what was requested."""


@final
class Metrics:
    """Counts what happens. `client_errors`: reasons whose series exist at zero (constants of the data
    plane)."""

    def __init__(self, client_errors: Collection[str] = ()) -> None:
        self._counters = Counters(time.time())
        self._counters.client_errors.update(dict.fromkeys(client_errors, 0))
        self._by_service: dict[str, ServiceCounters] = {"": self._counters.unrouted}
        """As `Counters.services`, and requests that no service matched under the empty name."""
        self._snapshots: SnapshotSource | None = None
        self._collector = Collector(self._counters)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)

    # --- what is watched: read at a scrape only -------------------------------------------------------------

    def watch(
        self,
        snapshots: SnapshotSource,
        in_flight: Callable[[], InFlightCounts],
        connections: Callable[[], ConnectionCounts],
    ) -> None:
        """Set where gauges are read: `in_flight` by service, `connections` as (idle, active) by (service,
        backend)."""
        self._snapshots = snapshots
        self._collector.watch(snapshots, in_flight, connections)
        self._add_series(snapshots.current)

    def watch_logs(self, access_log: Callable[[], int], process_log: Callable[[], int]) -> None:
        """Show how many lines each log has lost (threats L2, R-B8)."""
        self._collector.watch_logs({"access_log": access_log, "process_log": process_log})

    # --- the hot path ---------------------------------------------------------------------------------------

    def record(self, request: RequestRecord) -> None:
        """Count one finished request."""
        counters = self._by_service.get(request.service) or self._of_new_service(request.service)
        backend = request.backend
        key = (backend, request.status)
        requests = counters.requests
        if key in requests:
            requests[key] += 1
        else:
            counters.count_request(*key)
        seconds = request.seconds
        durations = counters.durations
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.total += seconds
        result = request.result
        if result is not None:
            counters.negotiations[request.requested or _NOT_READ, result] += 1
            if result is _SERVED:
                version = request.version
                if version in counters.served:
                    counters.served[version] += 1
                else:
                    self._count_new_version(request.service, counters, version)
        seconds = request.backend_seconds
        if seconds >= 0 and backend in counters.backends:
            durations = counters.backends[backend].durations
            durations.counts[bisect_left(BUCKETS, seconds)] += 1
            durations.total += seconds

    def _of_new_service(self, service: str) -> ServiceCounters:
        """The counters of a service seen for the first time, or of one that is not configured any more."""
        if self._snapshots is not None:
            self._add_series(self._snapshots.current)
        return self._by_service.get(service, self._counters.unconfigured)

    def _count_new_version(self, service: str, counters: ServiceCounters, version: str) -> None:
        view = self._snapshots.current.views.get(service) if self._snapshots is not None else None
        if view is not None:
            counters.add_series(view)
        counters.count_served(version, view)

    def _add_series(self, snapshot: Snapshot) -> None:
        self._counters.add_series(snapshot)
        self._by_service.update(self._counters.services)

    # --- now and then ---------------------------------------------------------------------------------------

    def client_error(self, reason: str) -> None:
        """A client broke the rules of HTTP. `reason` is a constant of the data plane."""
        errors = self._counters.client_errors
        if reason not in errors and len(errors) >= MAX_CLIENT_ERROR_REASONS:
            reason = OTHER
        errors[reason] = errors.get(reason, 0) + 1

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

    def deferred(self, service: str, backend: str) -> None:
        """A fact that a request brought about a backend has to wait, because too much changes."""
        if (counters := self._backend(service, backend)) is not None:
            counters.deferred += 1

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
        self._add_series(after)
        for name, view in after.views.items():
            old = before.views.get(name)
            if old is not None and old is not view:
                for change in offer_changes(old.offer, view.offer):
                    self._counters.services[name].offer_changes[change] += 1

    def served(self) -> Mapping[str, Mapping[str, int]]:
        """Requests served since the start, by service and version. The inner mappings are live."""
        return {name: counters.served for name, counters in self._counters.services.items()}

    # --- the scrape -----------------------------------------------------------------------------------------

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body of /metrics and its content type: OpenMetrics if `accept` prefers it, else the text
        format."""
        if self._snapshots is not None:
            self._add_series(self._snapshots.current)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


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
