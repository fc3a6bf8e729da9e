"""Metrics of one process, for the data plane, the prober and the admin listener to count in.

    RequestRecord -> Metrics.record -> Counters -> Collector (names, labels) -> exposition (text) -> /metrics

The hot path costs a few dict operations: it formats nothing and looks nothing up in a registry. Whatever can
be read from the current snapshot is read at a scrape. There is no registry: the library's global one is
shared with whatever else is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, final

from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import Snapshot, SnapshotSource
from gateway.telemetry.collector import Collector
from gateway.telemetry.counters import UNROUTED, Counted, Counters, OwnerCounters, ServiceCounters
from gateway.telemetry.process_stats import ProcessStats, read_stats
from gateway.telemetry.recent import RequestCounts, TrafficCounts
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.series.declaring import BACKEND, PROCESS, Cell, Counter, Gauge, HistogramSeries, Series
from gateway.telemetry.series.now import Now
from gateway.telemetry.series.process import OfConfiguration
from gateway.telemetry.series.service import OfGate, OfService

_Counts = TypeVar("_Counts")


@final
class Metrics:
    """All metrics of one process, counted and written here. `per_backend`: as for `collector.Collector`."""

    def __init__(self, *, per_backend: bool = True) -> None:
        self._counters = Counters()
        self._by_service: dict[str, ServiceCounters] = {UNROUTED: self._counters.unrouted}
        """Counters by service: `Counters.services` and, for speed, those of requests that matched none."""
        self._snapshots: SnapshotSource | None = None
        self._now: Callable[[], Now] = Now
        self._with_series: Snapshot | None = None
        """Last snapshot whose services, backends and offers were given series."""
        self._collector = Collector(self._counters, per_backend=per_backend)
        # This process runs, so the configuration was read.
        self.set(OfConfiguration.config_last_reload_successful, 1)
        self.set(OfConfiguration.config_last_reload_success_timestamp_seconds, time.time())

    def watch(self, snapshots: SnapshotSource, now: Callable[[], Now] = Now) -> None:
        """Sets the sources of the configured services and backends, and of the values of gauges (`now`)."""
        self._snapshots, self._now = snapshots, now
        self._update_series()

    def record(self, request: RequestRecord) -> None:
        counters = self._by_service.get(request.service) or self._of_new_service(request.service)
        key = (request.backend, request.status, request.requested, request.result, request.version)
        subtotal = counters.subtotals.get(key)
        if subtotal is None:
            views = self._snapshots.current.views if self._snapshots is not None else {}
            subtotal = counters.new_subtotal(key, views.get(request.service))
        subtotal.requests += 1
        subtotal.bytes_in += request.bytes_in
        subtotal.bytes_out += request.bytes_out
        counters.durations.add(request.seconds)
        if subtotal.of_backend is not None and request.backend_seconds >= 0:
            subtotal.of_backend.add(request.backend_seconds)

    def _of_new_service(self, service: str) -> ServiceCounters:
        """Counters of a service seen for the first time; `unconfigured` if it is not configured any more."""
        self._update_series()
        return self._by_service.get(service, self._counters.unconfigured)

    def _update_series(self) -> None:
        """Adds series for new services, backends and offers; drops those of removed services and backends."""
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
            counters.pour()  # under the keys that its requests had until now
            if old is None or old.service is not service:
                counters.configure({backend.name for backend in service.backends})
            counters.add_offer(view.offer, service.dialect.scheme)
        for name in services.keys() - views.keys() if len(services) != len(views) else ():
            del services[name], self._by_service[name]

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        """Counts one event in a metric series; nothing for a backend that is not configured any more. `key`
        has the label values in the order of declaration."""
        table = self._table(series, service, backend)
        if table is not None:
            series.count(table.cell(series), key[0] if len(key) == 1 else key, table)

    def observe(
        self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
    ) -> None:
        """Adds a duration to a histogram series. The other parameters are those of `count`."""
        table = self._table(series, service, backend)
        if table is not None:
            series.observe(table.cell(series), key[0] if len(key) == 1 else key, table).add(seconds)

    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None:
        """Sets the value of a gauge that has no labels of its own."""
        table = self._table(series, service, backend)
        if table is not None:
            table.cell(series)[()] = value

    def cell(self, series: Series, service: str) -> Cell:
        """Returns the cell (counts) of a service's series, for frequent use: see `OwnerCounters.cell`."""
        return self._service(service).cell(series)

    def _table(self, series: Series, service: str, backend: str) -> OwnerCounters | None:
        """Counters of the owner of a metric series; None: it is a backend that is not configured any more."""
        level = series.level
        if level is PROCESS:
            return self._counters.process
        found = self._service(service)
        return found.backends.get(backend) if level is BACKEND else found

    def _service(self, service: str) -> ServiceCounters:
        return self._by_service.get(service) or self._of_new_service(service)

    def snapshot_changed(self, before: Snapshot, after: Snapshot) -> None:
        """Subscriber to new snapshots: updates the metric series, and counts changes of offers."""
        self._update_series()
        for old, view in after.news_since(before):
            if old is not None:
                for change in offer_changes(old.offer, view.offer):
                    self.count(OfService.offer_changes, *change, service=view.service.name)

    def update_series(self, _before: Snapshot, _after: Snapshot) -> None:
        """Subscriber to new snapshots in a worker: updates the metric series, counts no changes of offers."""
        self._update_series()

    def take(self) -> Counted:
        """Returns a worker's counts since the last call, for the main process, and sets them to zero."""
        return self._counters.take()

    def add(self, counted: Counted) -> None:
        self._update_series()
        self._counters.add(counted)

    def served(self) -> Mapping[str, Mapping[str, int]]:
        """Returns requests served since the start, by service and version: see `CountsByService`."""
        return CountsByService(self._counters.services, lambda counters: counters.served)

    def request_counts(self) -> Mapping[str, RequestCounts]:
        """Returns requests since the start by service: see `CountsByService`."""
        return CountsByService(
            self._counters.services,
            lambda each: RequestCounts(
                each.requests, each.negotiations, each.cell(OfService.requests_refused)
            ),
        )

    def traffic(self) -> Mapping[str, TrafficCounts]:
        """Returns the number of requests since the start by service: see `CountsByService`."""
        return CountsByService(self._counters.services, lambda each: TrafficCounts.of(each.requests))

    def evidence(self, service: str) -> Mapping[tuple[str, str, bool], int]:
        """Returns requests of a service since the start, by the keys of `OfGate.evidence`."""
        counters = self._service(service)
        counters.pour()
        return counters.cell(OfGate.evidence)

    def exposition(self, accept: str, stats: ProcessStats | None = None) -> tuple[Iterator[bytes], str]:
        """Returns the body of /metrics in pieces, between which others may run, and its content type."""
        from gateway.telemetry.exposition import form_of, pieces  # noqa: PLC0415 - not every start is scraped

        self._update_series()
        form = form_of(accept)
        now = self._now()._replace(
            stats=stats or read_stats(),
            views={} if self._snapshots is None else self._snapshots.current.views,
            wall_offset=time.time() - time.monotonic(),
        )
        return pieces(self._collector.collect(now), form), form.value


@final
class CountsByService(Mapping[str, _Counts]):
    """Live counts by service. Each look-up moves the subtotals of that service alone, so that the counts of
    one of a thousand services do not cost those of all. What a look-up returns grows with later ones."""

    def __init__(
        self, services: Mapping[str, ServiceCounters], read: Callable[[ServiceCounters], _Counts]
    ) -> None:
        self._services = services
        self._read = read

    def __getitem__(self, service: str) -> _Counts:
        counters = self._services[service]
        counters.pour()
        return self._read(counters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._services)

    def __len__(self) -> int:
        return len(self._services)


def offer_changes(before: Offer, after: Offer) -> list[tuple[str, str]]:
    """Returns how the ends of an offer moved: (`min` or `max`, `up` or `down`); none if it is new or gone."""
    if not before.versions or not after.versions:
        return []
    ends: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "min": (before.versions.lowest, after.versions.lowest),
        "max": (before.versions.highest, after.versions.highest),
    }
    return [(bound, "up" if new > old else "down") for bound, (old, new) in ends.items() if new != old]
