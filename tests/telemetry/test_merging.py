"""What several processes have counted, in the metrics of one: nothing is lost, nothing is counted twice, and
no counter falls."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from time import thread_time
from types import SimpleNamespace
from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import EXECUTED, NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.failures import EjectionReason
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dialects.openstack.ironic import Ironic
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.telemetry.counters import MAX_SUBTOTALS, Counted, ServiceCounters
from gateway.telemetry.histogram import BUCKETS, Histogram
from gateway.telemetry.metrics import CountsByService, Metrics
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord
from gateway.telemetry.series.backend import OUT_OF_STEP, QUEUE_REFUSALS, OfBackend
from gateway.telemetry.series.catalog import SERIES
from gateway.telemetry.series.declaring import OTHER, Counter, Gauge, HistogramSeries, Series
from gateway.telemetry.series.process import HANDSHAKE_RESULTS, RESULTS, OfProcess
from gateway.telemetry.series.service import (
    ADMISSION_REASONS,
    MAX_VERSIONS,
    RETRY_REASONS,
    OfGate,
    OfRequests,
    OfService,
    TunnelEnding,
)
from tests.kit.examples import examples
from tests.kit.ironic import holder_of, learn, upto
from tests.telemetry.builders import record

Event: TypeAlias = Callable[[Metrics], None]
"""Something that a worker counts."""

Config: TypeAlias = dict[str, tuple[str, ...]]
"""The names of backends by service."""

SERVICES: Final = ("a", "b")
BACKENDS: Final = ("x", "y")
FULL: Final[Config] = dict.fromkeys(SERVICES, BACKENDS)
MOST: Final = 3.0
"""To take a report, or to add it, may hold a loop for so many times as long as it takes to send and receive
it, which nobody is spared: 6 ms for a thousand backends (measured). A third of that is usual."""


def service_of(name: str, backends: Iterable[str]) -> Service:
    return Service(name, Ironic(), tuple(Backend(each, "10.0.0.1", 6385) for each in backends))


def snapshot_of(config: Config) -> Snapshot:
    holder = holder_of(*(service_of(service, names) for service, names in config.items()))
    for service, names in config.items():
        for name in names:
            learn(holder, name, upto(90), service=service)
    return holder.current


class Held:
    """A snapshot that the test replaces, as a publication does."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.current = snapshot

    def apply_batch(self) -> None:
        """Nothing waits."""


class Process:
    """The metrics of one process, and what it knows."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.metrics = Metrics()
        self.held = Held(snapshot)
        self.metrics.watch(self.held)

    def learn(self, snapshot: Snapshot) -> None:
        before, self.held.current = self.held.current, snapshot
        self.metrics.update_series(before, snapshot)


def through_a_channel(counted: Counted) -> Counted:
    data = pickle.dumps(counted, pickle.HIGHEST_PROTOCOL)
    return pickle.loads(data)  # type: ignore[no-any-return]  # noqa: S301 - our own


def told(process: Process) -> Counted:
    """What a process gives away, as it comes out of a channel."""
    return through_a_channel(process.metrics.take())


def counters(metrics: Metrics) -> dict[str, float]:
    """All counters and histograms of /metrics but those of the process, by series."""
    pieces, _ = metrics.exposition("")
    found, kind = {}, ""
    for line in b"".join(pieces).decode().splitlines():
        if line.startswith("# TYPE"):
            kind = line.rpartition(" ")[2]
        elif not line.startswith("#") and kind != "gauge" and not line.startswith("process_"):
            series, _, value = line.rpartition(" ")
            found[series] = float(value)
    return found


# --- what happens to a worker ------------------------------------------------------------------------------

# Sums of these come out the same in whichever order they are added.
seconds = st.sampled_from([0.0, 0.25, 0.5, 2.0, 64.0])
services = st.sampled_from([*SERVICES, "", "never configured"])
backends = st.sampled_from([*BACKENDS, "none", "never configured"])


@st.composite
def requests(draw: st.DrawFn) -> Event:
    finished = record(
        service=draw(services),
        backend=draw(backends),
        status=draw(st.sampled_from([0, 200, 201, 406, 503, 999])),
        requested=draw(st.sampled_from([*RequestedKind, None])),
        result=draw(st.sampled_from([*NegotiationResult, None])),
        version=draw(st.sampled_from(["1.1", "1.31", "1.90", "7.7", "none at all", ""])),
        seconds=draw(seconds),
        backend_seconds=draw(seconds | st.just(-1.0)),
        bytes_in=draw(st.integers(0, 9)),
        bytes_out=draw(st.integers(0, 9)),
    )
    return lambda metrics: metrics.record(finished)


def counting(
    series: Counter, *details: st.SearchStrategy[object], key: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[Event]:
    """Calls of `Metrics.count` for a service or a backend."""
    owners = dict(zip(series.all_labels, details, strict=False))
    labels = st.fixed_dictionaries(owners)
    keys = st.just(()) if key is None else key.map(lambda found: (found,))
    return st.tuples(keys, labels).map(lambda found: lambda m: m.count(series, *found[0], **found[1]))


def probed(found: tuple[str, str, float, str | None]) -> Event:
    service, backend, took, failure = found

    def event(metrics: Metrics) -> None:
        metrics.observe(OfBackend.probe_duration_seconds, took, service=service, backend=backend)
        if failure is not None:
            metrics.count(OfBackend.probe_failures, failure, service=service, backend=backend)

    return event


def upgraded(service: str, ending: TunnelEnding | None, metrics: Metrics) -> None:
    tunnelled = metrics.cell(OfService.tunnel_bytes, service)
    tunnelled["in"] += 3
    tunnelled["out"] += 5
    if ending is None:
        metrics.count(OfService.upgrades, "removed", service=service)
    else:
        metrics.count(OfService.upgrades, "forwarded", service=service)
        metrics.count(OfService.tunnels, ending, service=service)


rare: st.SearchStrategy[Event] = st.one_of(
    counting(OfService.retries, services, key=st.sampled_from([*RETRY_REASONS, "another"])),
    counting(OfService.retries_given_up, services),
    counting(OfService.requests_refused, services, key=st.sampled_from(ADMISSION_REASONS)),
    counting(OfBackend.contradictions, services, backends),
    counting(OfBackend.deferred_facts, services, backends),
    counting(OfBackend.ejections, services, backends, key=st.sampled_from(EjectionReason)),
    counting(OfBackend.queue_refused, services, backends, key=st.sampled_from(QUEUE_REFUSALS)),
    counting(OfBackend.out_of_step, services, backends, key=st.sampled_from(OUT_OF_STEP)),
    st.tuples(services, backends, seconds, st.sampled_from([None, "timeout", "another"])).map(probed),
    counting(OfProcess.client_errors, key=st.sampled_from(["head", "chunk"])),
    counting(OfProcess.tls_handshakes, key=st.sampled_from([*HANDSHAKE_RESULTS, "another"])),
    counting(OfProcess.certificate_reloads, key=st.sampled_from(RESULTS)),
    st.tuples(st.sampled_from("01"), seconds).map(
        lambda found: lambda m: m.observe(OfProcess.event_loop_lag_seconds, found[1], found[0])
    ),
    st.tuples(services, st.sampled_from([*TunnelEnding, None])).map(lambda found: partial(upgraded, *found)),
)
events: st.SearchStrategy[Event] = st.one_of(requests(), rare)


# --- the laws ----------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 2), events, st.booleans()), max_size=40))
def test_the_sums_of_all_workers_are_what_one_process_would_have_counted(
    history: list[tuple[int, Event, bool]],
) -> None:
    snapshot = snapshot_of(FULL)
    alone, main = Process(snapshot), Process(snapshot)
    workers = [Process(snapshot) for _ in range(3)]
    for number, event, reports in history:
        event(alone.metrics)
        event(workers[number].metrics)
        if reports:
            main.metrics.add(told(workers[number]))
    for worker in workers:
        main.metrics.add(told(worker))

    assert counters(main.metrics) == counters(alone.metrics)
    for service in SERVICES:
        assert main.metrics.evidence(service) == alone.metrics.evidence(service)
    for worker in workers:
        assert told(worker) == {}, "each count is told once"


def counted_series() -> list[Series]:
    """Every series that is counted by `Metrics.count` or `Metrics.observe`."""
    found = [each for each in SERIES.values() if each.read is None and not isinstance(each, Gauge)]
    found.remove(OfRequests.requests)
    found.remove(OfGate.evidence)
    return found


def test_whatever_can_be_counted_is_told() -> None:
    """Of everything something, which the law above may not happen to draw."""
    snapshot = snapshot_of(FULL)
    alone, main, worker = Process(snapshot), Process(snapshot), Process(snapshot)
    for metrics in (alone.metrics, worker.metrics):
        metrics.record(record(service="a", backend="x", bytes_in=2))
        for series in counted_series():
            owner = dict(zip(series.level.labels, ("a", "x"), strict=False))
            key = next(iter(series.keys.at_zero), "0")
            if isinstance(series, Counter):
                metrics.count(series, *series.keys.texts(key), **owner)
            elif isinstance(series, HistogramSeries):
                metrics.observe(series, 0.5, *series.keys.texts(key), **owner)
    before = counters(main.metrics)
    main.metrics.add(told(worker))

    after = counters(main.metrics)
    assert after == counters(alone.metrics)
    risen = {name.partition("{")[0] for name, count in after.items() if count > before.get(name, 0)}
    assert "skewgate_requests_total" in risen
    endings = {Counter: "_total", HistogramSeries: "_count"}
    assert risen >= {f"{series.full_name}{endings[type(series)]}" for series in counted_series()}


configs = st.dictionaries(
    st.sampled_from(SERVICES),
    st.lists(st.sampled_from(BACKENDS), min_size=1, unique=True).map(tuple),
    min_size=1,
)
numbers = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("counts"), numbers, events),
        st.tuples(st.just("reports"), numbers, st.none()),
        st.tuples(st.just("dies"), numbers, st.none()),
        st.tuples(st.just("learns"), numbers, st.none()),
        st.tuples(st.just("reload"), st.just(0), configs),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=examples(60))
@given(steps)
def test_no_counter_falls_whoever_dies_is_late_or_comes_back(history: list[tuple[str, int, object]]) -> None:
    """A worker may be several configurations behind; a service that was removed and came back began at zero
    when it came back, and does not fall after that, either."""
    main = Process(snapshot_of(FULL))
    workers = [Process(main.held.current) for _ in range(3)]
    before = counters(main.metrics)
    for what, number, detail in history:
        if what == "counts":
            detail(workers[number].metrics)  # type: ignore[operator]
        elif what == "reports":
            main.metrics.add(told(workers[number]))
        elif what == "dies":
            workers[number] = Process(main.held.current)
        elif what == "learns":
            workers[number].learn(main.held.current)
        else:
            before = ending(before, detail)  # type: ignore[arg-type]
            main.learn(snapshot_of(detail))  # type: ignore[arg-type]
        after = counters(main.metrics)
        fallen = {
            name: (count, after.get(name)) for name, count in before.items() if after.get(name, -1) < count
        }
        assert not fallen
        before = after


def ending(before: dict[str, float], config: Config) -> dict[str, float]:
    """Without the series that a reload to `config` ends."""

    def stays(series: str) -> bool:
        labels = dict(
            part.split("=", 1) for part in series[series.find("{") + 1 : -1].split(",") if "=" in part
        )
        service, backend = (labels.get(name, "").strip('"') for name in ("service", "backend"))
        return service not in SERVICES or (
            service in config and (backend not in BACKENDS or backend in config[service])
        )

    return {series: count for series, count in before.items() if stays(series)}


# --- requests are counted in subtotals, which are poured when somebody reads -------------------------------


def finished(event: Event) -> RequestRecord:
    """The record that an event of `requests` hands to the metrics."""
    found: list[RequestRecord] = []
    event(SimpleNamespace(record=found.append))  # type: ignore[arg-type]
    return found[0]


def counted_plainly(history: Iterable[RequestRecord]) -> dict[tuple[str, int, str], int]:
    """Requests by service, status and backend, of the services that are configured."""
    count: dict[tuple[str, int, str], int] = {}
    for each in history:
        if each.service in SERVICES:
            status = each.status if each.status < 600 else 0
            backend = each.backend if each.backend in {*BACKENDS, "none"} else OTHER
            key = (each.service, status, backend)
            count[key] = count.get(key, 0) + 1
    return count


@settings(max_examples=examples(60))
@given(st.lists(requests().map(finished), max_size=40))
def test_requests_are_counted_as_a_plain_count_finds_them(history: list[RequestRecord]) -> None:
    process = Process(snapshot_of(FULL))
    for each in history:
        process.metrics.record(each)

    found = {
        (service, *key): count
        for service, counts in process.metrics.request_counts().items()
        for key, count in counts.requests.items()
        if count
    }
    assert found == counted_plainly(history)
    served = [each for each in history if each.service == "a" and each.result in EXECUTED]
    assert sum(process.metrics.served()["a"].values()) == len(served)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.one_of(requests(), configs), st.booleans()), max_size=40))
def test_no_count_depends_on_when_somebody_reads(history: list[tuple[Event | Config, bool]]) -> None:
    """A reload comes between some of them: each request counts by what was configured when it ended."""
    rarely, often = Process(snapshot_of(FULL)), Process(snapshot_of(FULL))
    for step, reads in history:
        if isinstance(step, dict):
            snapshot = snapshot_of(step)
            rarely.learn(snapshot)
            often.learn(snapshot)
        else:
            step(rarely.metrics)
            step(often.metrics)
        if reads:
            counters(often.metrics)

    # In the same order, too, as /metrics has them.
    assert list(counters(often.metrics).items()) == list(counters(rarely.metrics).items())


def test_a_request_counts_by_what_was_configured_when_it_ended() -> None:
    process = Process(snapshot_of({"a": ("x", "y")}))
    for backend in ("x", "y", "z"):
        process.metrics.record(record(service="a", backend=backend))
    process.learn(snapshot_of({"a": ("y", "z")}))
    process.metrics.record(record(service="a", backend="z"))
    process.metrics.record(record(service="a", backend="x"))

    counts = process.metrics.request_counts()["a"].requests
    assert {backend: count for (status, backend), count in counts.items() if status == 200} == {
        "y": 1,
        "z": 1,
        OTHER: 2,
    }


def test_clients_cannot_make_subtotals_without_bound() -> None:
    process = Process(snapshot_of(FULL))
    for minor in range(3 * MAX_SUBTOTALS):
        refused = NegotiationResult.ABOVE_MAX
        process.metrics.record(record(service="a", backend="none", result=refused, version=f"2.{minor}"))

    counts = process.metrics.request_counts()["a"]
    assert counts.results[RequestedKind.EXACT, NegotiationResult.ABOVE_MAX] == 3 * MAX_SUBTOTALS
    assert counts.requests[200, "none"] == 3 * MAX_SUBTOTALS


def test_a_look_at_one_service_leaves_the_subtotals_of_the_others() -> None:
    """`/status` looks at each of a thousand services, and each look moved the subtotals of all: 2 s."""
    services = {name: ServiceCounters() for name in ("a", "b")}
    for counters_of_one in services.values():
        key = (NO_BACKEND, 200, None, None, "")
        counters_of_one.new_subtotal(key, None).requests = 2

    counts = CountsByService(services, lambda each: each.requests)
    assert counts["a"][200, NO_BACKEND] == 2
    assert [name for name, each in services.items() if each.subtotals] == ["b"]
    assert set(counts) == {"a", "b"}
    assert "c" not in counts


@given(st.lists(st.sampled_from(BUCKETS) | st.floats(0, 64), max_size=30))
def test_durations_are_in_the_buckets_that_a_search_finds(durations: list[float]) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)

    found = [bisect_left(BUCKETS, each) for each in durations]
    assert histogram.counts == [found.count(at) for at in range(len(BUCKETS) + 1)]
    assert histogram.total == pytest.approx(sum(durations))


# --- what came of something that is gone -------------------------------------------------------------------


def test_what_comes_of_a_removed_service_counts_as_one_that_was_under_way() -> None:
    main, worker = Process(snapshot_of(FULL)), Process(snapshot_of(FULL))
    worker.metrics.record(record(service="a", backend="x"))
    worker.metrics.record(record(service="b", backend="y"))
    main.learn(snapshot_of({"b": ("x",)}))
    main.metrics.add(told(worker))

    found = counters(main.metrics)
    assert found['skewgate_requests_total{backend="other",code="200",service="other"}'] == 1
    assert found['skewgate_requests_total{backend="other",code="200",service="b"}'] == 1
    assert not [series for series in found if 'service="a"' in series or 'backend="y"' in series]


def test_a_backend_that_the_worker_has_just_learned_of_has_its_own_series() -> None:
    main, worker = Process(snapshot_of({"a": ("x",)})), Process(snapshot_of({"a": ("x",)}))
    both = snapshot_of({"a": ("x", "y")})
    main.learn(both)
    worker.learn(both)
    worker.metrics.record(record(service="a", backend="y"))
    main.metrics.add(told(worker))

    assert counters(main.metrics)['skewgate_requests_total{backend="y",code="200",service="a"}'] == 1


def test_a_worker_counts_no_moves_of_an_offer() -> None:
    worker = Process(snapshot_of(FULL))
    before = worker.held.current
    less = SnapshotHolder(before)
    less.observe("a", "x", ProbeSucceeded(upto(58), 2.0))
    worker.learn(less.current)

    assert less.current.views["a"].offer != before.views["a"].offer
    assert told(worker) == {}


# --- bounds ------------------------------------------------------------------------------------------------


def test_workers_cannot_bring_more_series_than_there_may_be() -> None:
    main = Process(snapshot_of(FULL))
    served, errors = OfService.served_version.full_name, OfProcess.client_errors.full_name
    for worker in range(3):
        versions = {f"1.{worker}{number}": 1 for number in range(MAX_VERSIONS)}
        reasons = {f"reason {worker} {number}": 1 for number in range(100)}
        main.metrics.add(through_a_channel({("a",): {served: versions}, (): {errors: reasons}}))

    found = counters(main.metrics)
    counts = [
        count
        for series, count in found.items()
        if series.startswith('skewgate_served_version_total{service="a"')
    ]
    errors_found = [name for name in found if name.startswith("skewgate_client_errors_total")]
    assert (len(counts), sum(counts)) == (MAX_VERSIONS, 3 * MAX_VERSIONS)
    assert len(errors_found) == len(CLIENT_ERROR_REASONS) + 1
    assert found[f'skewgate_client_errors_total{{reason="{OTHER}"}}'] == 300


def test_what_is_zero_is_not_told() -> None:
    assert len(pickle.dumps(Process(snapshot_of(FULL)).metrics.take())) < 300


def test_a_thousand_backends_hold_no_loop_for_long() -> None:
    config = {"a": tuple(f"backend-{number}" for number in range(1000))}
    snapshot = Snapshot.configured([service_of("a", config["a"])], now=0.0)
    main, worker = Process(snapshot), Process(snapshot)
    main.metrics.update_series(snapshot, snapshot)
    taking, sending, adding = [], [], []
    for _ in range(5):
        for number, name in enumerate(config["a"] * 3):
            worker.metrics.record(record(service="a", backend=name, status=200 + number // 1000))
        began = thread_time()
        counted = worker.metrics.take()
        taking.append(thread_time() - began)
        began = thread_time()
        received = through_a_channel(counted)
        sending.append(thread_time() - began)
        began = thread_time()
        main.metrics.add(received)
        adding.append(thread_time() - began)

    assert min(taking) < MOST * min(sending)
    assert min(adding) < MOST * min(sending)
