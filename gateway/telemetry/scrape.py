"""From counts and the current snapshot to metric families: every name, label and help text of /metrics.

Runs only when somebody scrapes. It counts nothing and changes nothing. Names and labels are a public contract
(design section 6); beyond it are `skewgate_offer_held`, `skewgate_contradictions_total`,
`skewgate_deferred_facts_total`, `skewgate_retries_given_up_total` and `skewgate_access_log_dropped_total`.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeAlias, final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.core.backend import Standing
from gateway.core.offer import HeldRule, Phase
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import ServiceView, SnapshotSource
from gateway.core.version import Scheme
from gateway.telemetry.book import BOUNDS, NO_SERVICE, OTHER, BackendTally, Book, Histogram, Tally

Counts: TypeAlias = Mapping[str, int]
Connections: TypeAlias = Mapping[tuple[str, str], tuple[int, int]]
Rows: TypeAlias = Iterable[tuple[Sequence[str], float]]

_EDGES: Final = (*map(floatToGoString, BOUNDS), "+Inf")


@final
class Scrape(Collector):
    """The one collector of our registry."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._snapshots: SnapshotSource | None = None
        self._in_flight: Callable[[], Counts] = dict
        self._connections: Callable[[], Connections] = dict
        self._dropped: Callable[[], int] | None = None

    def watch(
        self,
        snapshots: SnapshotSource,
        in_flight: Callable[[], Counts],
        connections: Callable[[], Connections],
    ) -> None:
        self._snapshots, self._in_flight, self._connections = snapshots, in_flight, connections

    def watch_access_log(self, dropped: Callable[[], int]) -> None:
        self._dropped = dropped

    def collect(self) -> Iterator[Metric]:
        """All families; the gauges of services only once there is a snapshot to read."""
        yield from self._process()
        yield from self._requests()
        yield from self._negotiations()
        yield from self._retries()
        yield from self._backend_counts()
        if self._snapshots is not None:
            views = self._snapshots.current.views
            yield from self._offers(views)
            yield from self._backends(views)

    # --- the process ----------------------------------------------------------------------------------------

    def _process(self) -> Iterator[Metric]:
        book = self._book
        build = (version_of_skewgate(), platform.python_version(), loop_name())
        yield _gauge("build_info", "What is running; always 1.", ("version", "python", "loop"), [(build, 1)])
        yield _gauge(
            "config_last_reload_successful",
            "1 while the last reading of the configuration succeeded.",
            (),
            [((), book.last_reload_successful)],
        )
        yield _gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            (),
            [((), book.last_success_at)],
        )
        yield _counter(
            "config_reloads",
            "Reloads by result: success, failure.",
            ("result",),
            (((result,), count) for result, count in book.reloads.items()),
        )
        yield _counter(
            "client_errors",
            "Requests refused before routing, by what was wrong with them.",
            ("reason",),
            (((reason,), count) for reason, count in sorted(book.client_errors.items())),
        )
        yield _histogram(
            "event_loop_lag_seconds",
            "How late a worker's event loop woke up.",
            ("worker",),
            (((worker,), lags) for worker, lags in book.lags.items()),
        )
        if self._dropped is not None:
            lost = "Access log lines that could not be written."
            yield _counter("access_log_dropped", lost, (), [((), self._dropped())])

    # --- requests -------------------------------------------------------------------------------------------

    def _tallies(self) -> list[tuple[str, Tally]]:
        """Services, and the two collecting places: `none` always, `other` once something fell in there."""
        found = [*sorted(self._book.services.items()), (NO_SERVICE, self._book.unrouted)]
        strays = self._book.strays
        return [*found, (OTHER, strays)] if any(strays.requests.values()) else found

    def _requests(self) -> Iterator[Metric]:
        tallies = self._tallies()
        yield _counter(
            "requests",
            "Finished requests; backend `none`: answered by the gateway, code `none`: not at all.",
            ("service", "code", "backend"),
            (
                ((name, str(status) if status else "none", backend), count)
                for name, tally in tallies
                for (backend, status), count in sorted(tally.requests.items())
            ),
        )
        yield _histogram(
            "request_duration_seconds",
            "From a request's complete head to its reply's last byte.",
            ("service",),
            (((name,), tally.durations) for name, tally in tallies),
        )

    def _negotiations(self) -> Iterator[Metric]:
        services = sorted(self._book.services.items())
        yield _counter(
            "negotiations",
            "What requests asked for and what came of it; `silent` also where nobody reads it: transparent.",
            ("service", "ask", "outcome"),
            (
                ((name, ask.value, verdict.value), count)
                for name, tally in services
                for (ask, verdict), count in tally.negotiations.items()
            ),
        )
        yield _counter(
            "served_version",
            "Requests by settled version; `other`: one that no backend of the service has advertised.",
            ("service", "version"),
            (((name, text), count) for name, tally in services for text, count in tally.served.items()),
        )
        yield _counter(
            "offer_changes",
            "How often an end of the offer moved.",
            ("service", "bound", "direction"),
            (
                ((name, *labels), count)
                for name, tally in services
                for labels, count in tally.offer_changes.items()
            ),
        )

    def _retries(self) -> Iterator[Metric]:
        services = sorted(self._book.services.items())
        yield _counter(
            "retries",
            "Requests sent on to another backend, by why.",
            ("service", "reason"),
            (((name, reason), count) for name, tally in services for reason, count in tally.retries.items()),
        )
        yield _counter(
            "retries_given_up",
            "Requests that were not sent again because too many were already.",
            ("service",),
            (((name,), tally.retries_given_up) for name, tally in services),
        )

    def _backend_counts(self) -> Iterator[Metric]:
        each: list[tuple[tuple[str, str], BackendTally]] = [
            ((name, backend), counts)
            for name, tally in sorted(self._book.services.items())
            for backend, counts in tally.backends.items()
        ]
        yield _histogram(
            "backend_duration_seconds",
            "From a request's first byte to a backend until its reply's head.",
            ("service", "backend"),
            ((labels, counts.durations) for labels, counts in each),
        )
        yield _histogram(
            "probe_duration_seconds",
            "How long probes took, failed ones included.",
            ("service", "backend"),
            ((labels, counts.probes) for labels, counts in each),
        )
        yield _counter(
            "probe_failures",
            "Probes that brought nothing to believe.",
            ("service", "backend", "reason"),
            (
                ((*labels, reason), count)
                for labels, counts in each
                for reason, count in counts.probe_failures.items()
            ),
        )
        yield _counter(
            "contradictions",
            "Replies in which a backend said it executed another version than it was asked for.",
            ("service", "backend"),
            ((labels, counts.contradictions) for labels, counts in each),
        )
        yield _counter(
            "deferred_facts",
            "Facts from requests that had to wait, because what backends said changed too fast.",
            ("service", "backend"),
            ((labels, counts.deferred) for labels, counts in each),
        )

    # --- what stands now ------------------------------------------------------------------------------------

    def _offers(self, views: Mapping[str, ServiceView]) -> Iterator[Metric]:
        in_flight = self._in_flight()
        yield _gauge(
            "requests_in_flight",
            "Requests that are being answered.",
            ("service",),
            (((name,), in_flight.get(name, 0)) for name in views),
        )
        yield _gauge(
            "offer_info",
            "The range that clients are told, 1; both ends empty while nothing is offered.",
            ("service", "min", "max"),
            (
                ((name, *ends(view.offer.versions, view.service.dialect.scheme)), 1)
                for name, view in views.items()
            ),
        )
        yield _gauge(
            "phase",
            "Where a service's rolling upgrade stands: 1 for the phase it is in.",
            ("service", "phase"),
            (
                ((name, phase.value), view.offer.phase is phase)
                for name, view in views.items()
                for phase in Phase
            ),
        )
        yield _gauge(
            "offer_held",
            "What keeps the offer from being all that the fleet serves: 1 for the rule that does.",
            ("service", "rule"),
            (
                ((name, rule.value), view.offer.held_rule is rule)
                for name, view in views.items()
                for rule in HeldRule
            ),
        )

    def _backends(self, views: Mapping[str, ServiceView]) -> Iterator[Metric]:
        connections = self._connections()
        members = [
            ((name, member.backend.name), member, view.service.dialect.scheme)
            for name, view in views.items()
            for member in view.pool.members
        ]
        yield _gauge(
            "backend_info",
            "What a backend says it serves, 1; both ends empty while that is nothing.",
            ("service", "backend", "min", "max"),
            (
                ((*labels, *ends(member.advert.versions if member.advert else VersionSet(), scheme)), 1)
                for labels, member, scheme in members
            ),
        )
        yield _gauge(
            "backend_up",
            "1 while the last probe of a backend answered; declared ones count as answering.",
            ("service", "backend"),
            ((labels, member.standing is Standing.FRESH) for labels, member, _ in members),
        )
        yield _gauge(
            "backend_draining",
            "1 while an operator keeps new requests from a backend.",
            ("service", "backend"),
            ((labels, member.drained) for labels, member, _ in members),
        )
        yield _gauge(
            "backend_connections",
            "Connections to a backend.",
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


def version_of_skewgate() -> str:
    """The installed distribution's version; `unknown` when it runs from a bare source tree."""
    try:
        return version("skewgate")
    except PackageNotFoundError:
        return "unknown"


def loop_name() -> str:
    """`asyncio` or `uvloop`: the package of the running event loop, `none` without one."""
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
        buckets = list(zip(_EDGES, map(float, histogram.cumulative()), strict=True))
        family.add_metric(values, buckets, histogram.total)
    return family
