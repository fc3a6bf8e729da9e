"""From counts and the current snapshot to metric families: every name, label and help text of /metrics.

Runs only when somebody scrapes. It counts nothing and changes nothing. Names and labels are a public contract
(docs/metrics.md).
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeAlias, final

from prometheus_client import registry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.snapshot import ServiceView, SnapshotSource
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.counters import (
    BUCKETS,
    NO_SERVICE,
    OTHER,
    BackendCounters,
    Counters,
    Histogram,
    ServiceCounters,
)

InFlightCounts: TypeAlias = Mapping[str, int]
"""Requests in flight by service."""

ConnectionCounts: TypeAlias = Mapping[tuple[str, str], tuple[int, int]]
"""(idle, active) by (service, backend)."""

Rows: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Label values and the value, for each series of a family."""

_BUCKET_LABELS: Final = (*map(floatToGoString, BUCKETS), "+Inf")


@final
class Collector(registry.Collector):
    """The one collector of our registry."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._snapshots: SnapshotSource | None = None
        self._in_flight: Callable[[], InFlightCounts] = dict
        self._connections: Callable[[], ConnectionCounts] = dict
        self._dropped_lines: Mapping[str, Callable[[], int]] = {}

    def watch(
        self,
        snapshots: SnapshotSource,
        in_flight: Callable[[], InFlightCounts],
        connections: Callable[[], ConnectionCounts],
    ) -> None:
        self._snapshots, self._in_flight, self._connections = snapshots, in_flight, connections

    def watch_logs(self, dropped_lines: Mapping[str, Callable[[], int]]) -> None:
        """`dropped_lines` by `access_log` and `process_log`."""
        self._dropped_lines = dropped_lines

    def collect(self) -> Iterator[Metric]:
        """All families. Gauges of services exist only once there is a snapshot to read."""
        yield from self._process()
        yield from self._requests()
        yield from self._negotiations()
        yield from self._retries()
        yield from self._backend_counters()
        if self._snapshots is not None:
            views = self._snapshots.current.views
            yield from self._offers(views)
            yield from self._backends(views)

    # --- the process ----------------------------------------------------------------------------------------

    def _process(self) -> Iterator[Metric]:
        counters = self._counters
        build = (version_of_skewgate(), platform.python_version(), loop_name())
        yield _gauge("build_info", "What is running; always 1.", ("version", "python", "loop"), [(build, 1)])
        yield _gauge(
            "config_last_reload_successful",
            "1 if the configuration was read successfully the last time, else 0.",
            (),
            [((), counters.last_reload_successful)],
        )
        yield _gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            (),
            [((), counters.last_success_at)],
        )
        yield _counter(
            "config_reloads",
            "Reloads of the configuration, by result.",
            ("result",),
            (((result,), count) for result, count in counters.reloads.items()),
        )
        yield _counter(
            "client_errors",
            "Requests that are not valid HTTP, or exceed a limit, by reason.",
            ("reason",),
            (((reason,), count) for reason, count in sorted(counters.client_errors.items())),
        )
        yield _counter(
            "admin_errors",
            "Requests and connections that the admin listener refused or cut off, by reason.",
            ("reason",),
            (((reason,), count) for reason, count in counters.admin_errors.items()),
        )
        yield _histogram(
            "event_loop_lag_seconds",
            "How late the event loop of a worker woke up.",
            ("worker",),
            (((worker,), lags) for worker, lags in counters.lags.items()),
        )
        for log, dropped_lines in self._dropped_lines.items():
            yield _counter(
                f"{log}_dropped",
                f"Lines of the {log.replace('_', ' ')} that could not be written.",
                (),
                [((), dropped_lines())],
            )

    # --- requests -------------------------------------------------------------------------------------------

    def _services(self) -> list[tuple[str, ServiceCounters]]:
        """Every service that is or was configured, by name."""
        return sorted(self._counters.services.items())

    def _all_services(self) -> list[tuple[str, ServiceCounters]]:
        """The same, then `none` (no service matched) and `other` (no longer configured), if it has counts."""
        services = [*self._services(), (NO_SERVICE, self._counters.unrouted)]
        unconfigured = self._counters.unconfigured
        return [*services, (OTHER, unconfigured)] if any(unconfigured.requests.values()) else services

    def _requests(self) -> Iterator[Metric]:
        services = self._all_services()
        yield _counter(
            "requests",
            "Finished requests; code `none`: no response began, backend `none`: a local response.",
            ("service", "code", "backend"),
            (
                ((service, str(status) if status else "none", backend), count)
                for service, counters in services
                for (backend, status), count in sorted(counters.requests.items())
            ),
        )
        yield _histogram(
            "request_duration_seconds",
            "From the complete head of a request to the last byte of its response.",
            ("service",),
            (((service,), counters.durations) for service, counters in services),
        )

    def _negotiations(self) -> Iterator[Metric]:
        services = self._services()
        yield _counter(
            "negotiations",
            "Requests by requested version and by the result of their negotiation.",
            ("service", "requested", "result"),
            (
                ((service, requested.value, result.value), count)
                for service, counters in services
                for (requested, result), count in counters.negotiations.items()
            ),
        )
        yield _counter(
            "served_version",
            "Requests by served version; `other`: no backend has advertised it, or it is not known.",
            ("service", "version"),
            (
                ((service, text), count)
                for service, counters in services
                for text, count in counters.served.items()
            ),
        )
        yield _counter(
            "offer_changes",
            "How often an end of the offer moved.",
            ("service", "bound", "direction"),
            (
                ((service, bound, direction), count)
                for service, counters in services
                for (bound, direction), count in counters.offer_changes.items()
            ),
        )

    def _retries(self) -> Iterator[Metric]:
        services = self._services()
        yield _counter(
            "retries",
            "Requests sent on to another backend, by reason.",
            ("service", "reason"),
            (
                ((service, reason), count)
                for service, counters in services
                for reason, count in counters.retries.items()
            ),
        )
        yield _counter(
            "retries_given_up",
            "Requests that could have been sent again, but waited too long for the retry budget.",
            ("service",),
            (((service,), counters.retries_given_up) for service, counters in services),
        )

    def _backend_counters(self) -> Iterator[Metric]:
        backends: list[tuple[tuple[str, str], BackendCounters]] = [
            ((service, backend), counters)
            for service, service_counters in self._services()
            for backend, counters in service_counters.backends.items()
        ]
        yield _histogram(
            "backend_duration_seconds",
            "From the first byte of a request to a backend until the head of its response.",
            ("service", "backend"),
            ((labels, counters.durations) for labels, counters in backends),
        )
        yield _histogram(
            "probe_duration_seconds",
            "How long probes took, failed ones included.",
            ("service", "backend"),
            ((labels, counters.probes) for labels, counters in backends),
        )
        yield _counter(
            "probe_failures",
            "Probes that failed, by reason.",
            ("service", "backend", "reason"),
            (
                ((*labels, reason), count)
                for labels, counters in backends
                for reason, count in counters.probe_failures.items()
            ),
        )
        yield _counter(
            "contradictions",
            "Responses with another served version than the negotiated one, or without the expected one.",
            ("service", "backend"),
            ((labels, counters.version_mismatches) for labels, counters in backends),
        )
        yield _counter(
            "deferred_facts",
            "Facts from requests that had to wait, because too much changed.",
            ("service", "backend"),
            ((labels, counters.deferred) for labels, counters in backends),
        )

    # --- the present state ----------------------------------------------------------------------------------

    def _offers(self, views: Mapping[str, ServiceView]) -> Iterator[Metric]:
        in_flight = self._in_flight()
        yield _gauge(
            "requests_in_flight",
            "Requests whose response has not ended.",
            ("service",),
            (((service,), in_flight.get(service, 0)) for service in views),
        )
        yield _gauge(
            "offer_info",
            "The range that clients are shown; always 1. Both ends are empty while nothing is offered.",
            ("service", "min", "max"),
            (
                ((service, *ends(view.offer.versions, view.service.dialect.scheme)), 1)
                for service, view in views.items()
            ),
        )
        yield _gauge(
            "phase",
            "The phase of the upgrade: 1 for the present one, 0 for the others.",
            ("service", "phase"),
            (
                ((service, phase.value), view.offer.phase is phase)
                for service, view in views.items()
                for phase in Phase
            ),
        )
        yield _gauge(
            "offer_held",
            "The rule that holds the offer: 1 for that rule, 0 for the others; all 0 if none does.",
            ("service", "rule"),
            (
                ((service, rule.value), view.offer.held_rule is rule)
                for service, view in views.items()
                for rule in HeldRule
            ),
        )

    def _backends(self, views: Mapping[str, ServiceView]) -> Iterator[Metric]:
        connections = self._connections()
        members = [
            ((service, member.backend.name), member, view.service.dialect.scheme)
            for service, view in views.items()
            for member in view.pool.members
        ]
        yield _gauge(
            "backend_info",
            "The range of a backend's advertisement; always 1. Both ends are empty without one.",
            ("service", "backend", "min", "max"),
            (((*labels, *ends(_advertised(member), scheme)), 1) for labels, member, scheme in members),
        )
        yield _gauge(
            "backend_up",
            "1 while the last probe of a backend succeeded; for declared backends always 1.",
            ("service", "backend"),
            ((labels, member.freshness is Freshness.FRESH) for labels, member, _ in members),
        )
        yield _gauge(
            "backend_draining",
            "1 while an operator has drained a backend.",
            ("service", "backend"),
            ((labels, member.drained) for labels, member, _ in members),
        )
        yield _gauge(
            "backend_connections",
            "Connections to a backend, by state.",
            ("service", "backend", "state"),
            (
                ((*labels, state), count)
                for labels, _, _ in members
                for state, count in zip(("idle", "active"), connections.get(labels, (0, 0)), strict=True)
            ),
        )


def ends(versions: VersionSet, scheme: Scheme) -> tuple[str, str]:
    """Lowest and highest as text, both empty for the empty set."""
    return (scheme.format(versions.lowest), scheme.format(versions.highest)) if versions else ("", "")


def _advertised(member: Member) -> VersionSet:
    return member.advertisement.versions if member.advertisement is not None else NO_VERSIONS


def version_of_skewgate() -> str:
    """The installed distribution's version; `unknown` if it runs from a bare source tree."""
    try:
        return version("skewgate")
    except PackageNotFoundError:
        return "unknown"


def loop_name() -> str:
    """`asyncio` or `uvloop`: the package of the running event loop; `none` without one."""
    try:
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]
    except RuntimeError:
        return "none"


def _gauge(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"skewgate_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, float(value))
    return family


def _counter(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = CounterMetricFamily(f"skewgate_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, float(value))
    return family


def _histogram(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(f"skewgate_{name}", text, labels=labels)
    for values, histogram in rows:
        buckets = list(zip(_BUCKET_LABELS, map(float, histogram.cumulative()), strict=True))
        family.add_metric(values, buckets, histogram.total)
    return family
