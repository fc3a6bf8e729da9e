"""The exposition of /metrics, read back with the library's own parsers."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import Advertisement, RequestedKind
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.local_responses.failures import Failure
from gateway.dialects.openstack.ironic import Ironic
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.telemetry.counters import BackendCounters, ServiceCounters
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series.backend import BackendState, OfBackend
from gateway.telemetry.series.catalog import GROUPS
from gateway.telemetry.series.neighbours import OfEngine, OfNames, OfReplicas, OfSources
from gateway.telemetry.series.now import Now
from gateway.telemetry.series.process import OfConfiguration, OfProcess, OfWorkers
from gateway.telemetry.series.service import MAX_EVIDENCE, OfGate, OfOffers, OfService
from gateway.telemetry.status import StateWrites
from gateway.telemetry.worker_report import WorkerReport, WorkerStats, WorkerUse
from tests.kit.ironic import holder_of, learn, reconfigure, upto
from tests.kit.metrics import Sample, Scrape
from tests.telemetry.builders import NEW, OLD, record, snapshot_holder

SOMETIMES: Final = (OfWorkers, OfNames, OfSources, OfReplicas, OfEngine)
"""Groups of series that a gateway may have no reason for."""

CONTRACT: Final = {
    series.full_name: series.kind.value
    for group in GROUPS
    if group not in SOMETIMES
    for series in group.series
    if series not in (BackendState.backend_leaving, OfOffers.sunset_timestamp_seconds, OfOffers.skew_releases)
}
"""Names and types of all others."""


def exposition(metrics: Metrics, accept: str = "") -> tuple[bytes, str]:
    """The whole body, and its content type."""
    pieces, content_type = metrics.exposition(accept)
    return b"".join(pieces), content_type


def read(metrics: Metrics) -> dict[Sample, float]:
    body, _ = exposition(metrics)
    return Scrape(body.decode()).samples


def value(samples: Mapping[Sample, float], name: str, **labels: str) -> float | None:
    return samples.get((f"skewgate_{name}", frozenset(labels.items())))


def series(samples: Mapping[Sample, float], name: str) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: number for (found, labels), number in samples.items() if found == f"skewgate_{name}"}


BUSY = WorkerReport(in_flight_by_service={"baremetal": 3}, connections={("baremetal", "old"): (2, 1)})


def watching(*, known: bool = True) -> Metrics:
    metrics = Metrics()
    metrics.watch(
        snapshot_holder(known=known),
        lambda: Now(BUSY._replace(connections={**BUSY.connections, ("gone", "x"): (9, 9)})),
    )
    return metrics


def test_every_metric_of_the_contract_is_there_with_its_type() -> None:
    metrics = watching()
    metrics.observe(OfProcess.event_loop_lag_seconds, 0.001, "0")

    body, content_type = exposition(metrics)

    assert content_type.startswith("text/plain; version=0.0.4")
    assert {family.name: family.type for family in parse_text(body.decode())} == CONTRACT
    assert all(family.documentation for family in parse_text(body.decode()))


def test_openmetrics_is_given_if_accept_prefers_it() -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    body, content_type = exposition(watching(), accept)

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
    assert {family.name for family in families} == set(CONTRACT)
    assert body.endswith(b"# EOF\n")


def test_known_series_exist_at_zero() -> None:
    samples = read(watching())

    assert len(series(samples, "negotiations_total")) == 4 * len(NegotiationResult)
    for labels in (
        {"service": "baremetal", "backend": "old", "code": "200"},
        {"service": "baremetal", "backend": "none", "code": "503"},
        {"service": "none", "backend": "none", "code": "503"},
    ):
        assert value(samples, "requests_total", **labels) == 0
    assert value(samples, "served_version_total", service="baremetal", version="1.58") == 0
    assert value(samples, "served_version_total", service="baremetal", version="other") == 0
    for name in ("old", "new"):
        backend = {"service": "baremetal", "backend": name}
        assert value(samples, "probe_failures_total", **backend, reason="timeout") == 0
        assert value(samples, "contradictions_total", **backend) == 0
        assert value(samples, "backend_duration_seconds_count", **backend) == 0
    assert value(samples, "retries_total", service="baremetal", reason="connect") == 0
    assert value(samples, "config_reloads_total", result="failure") == 0
    assert value(samples, "offer_changes_total", service="baremetal", bound="max", direction="up") == 0


def test_a_request_is_counted_in_every_series() -> None:
    metrics = watching()
    metrics.record(record(version="1.31", seconds=0.004, backend_seconds=0.003))
    metrics.record(
        record(
            backend="none",
            status=406,
            requested=RequestedKind.MALFORMED,
            result=NegotiationResult.MALFORMED,
            version="",
            seconds=0.0001,
            backend_seconds=-1.0,
        )
    )
    metrics.record(record(requested=None, result=None, version=""))
    metrics.record(
        record(service="", backend="none", status=404, requested=None, result=None, backend_seconds=-1.0)
    )
    metrics.record(record(status=0, backend="none", backend_seconds=-1.0))

    samples = read(metrics)

    counted = {
        tuple(sorted(dict(labels).items())): n for labels, n in series(samples, "requests_total").items() if n
    }
    assert counted == {
        (("backend", "old"), ("code", "200"), ("service", "baremetal")): 2,
        (("backend", "none"), ("code", "406"), ("service", "baremetal")): 1,
        (("backend", "none"), ("code", "none"), ("service", "baremetal")): 1,
        (("backend", "none"), ("code", "404"), ("service", "none")): 1,
    }
    labels = {"service": "baremetal"}
    assert value(samples, "negotiations_total", **labels, requested="exact", result="served") == 2
    assert value(samples, "negotiations_total", **labels, requested="malformed", result="malformed") == 1
    assert sum(series(samples, "negotiations_total").values()) == 3
    assert value(samples, "served_version_total", **labels, version="1.31") == 2
    assert value(samples, "request_duration_seconds_count", **labels) == 4
    assert value(samples, "request_duration_seconds_sum", **labels) == pytest.approx(0.0121)
    assert value(samples, "request_duration_seconds_bucket", **labels, le="0.0025") == 1
    assert value(samples, "request_duration_seconds_bucket", **labels, le="0.005") == 4
    assert value(samples, "request_duration_seconds_bucket", **labels, le="+Inf") == 4
    assert value(samples, "backend_duration_seconds_count", **labels, backend="old") == 2
    assert value(samples, "backend_duration_seconds_count", **labels, backend="new") == 0


def test_outcomes_are_by_backend_and_version_and_what_is_being_agreed_on_is_not_lost() -> None:
    metrics, unavailable = watching(), NegotiationResult.UNAVAILABLE
    for differing in (
        *({}, {"status": 500}, {"status": 0}, {"version": "1.58", "backend": "new"}),
        {"result": None, "requested": None, "version": "", "status": 504},
        {"backend": "none", "status": 406, "result": NegotiationResult.ABOVE_MAX},
        {"backend": "none", "status": 502},
        {"backend": "none", "status": 503, "result": unavailable},  # on offer, and nobody serves it
        {"backend": "none", "status": 503, "result": unavailable, "version": ""},  # replicas are agreeing
    ):
        metrics.record(record(**differing))

    assert metrics.evidence("baremetal") == {
        ("old", "1.31", False): 2,
        ("old", "1.31", True): 1,
        ("new", "1.58", False): 1,
        ("old", "", True): 1,
        ("none", "1.31", True): 1,
        ("none", "", True): 1,
    }


def test_without_an_offer_a_request_without_a_version_is_lost() -> None:
    metrics = watching(known=False)
    metrics.record(record(backend="none", status=503, result=NegotiationResult.UNAVAILABLE, version=""))

    assert metrics.evidence("baremetal") == {("none", "", True): 1}


def test_clients_and_removed_backends_cannot_make_outcomes_without_bound() -> None:
    counters = ServiceCounters()
    counters.backends["x"] = BackendCounters()
    cell = counters.cell(OfGate.evidence)
    for number in range(MAX_EVIDENCE + 9):
        OfGate.evidence.count(cell, ("x", f"1.{number}", False), counters)
    OfGate.evidence.count(cell, ("gone", "1.1", False), counters)

    assert len(cell) == MAX_EVIDENCE + 2
    assert (cell["x", "other", False], cell["other", "other", False]) == (9, 1)
    counters.configure(())
    assert cell.keys() == {("other", "other", False)}


def test_a_transparent_service_is_counted_as_such() -> None:
    metrics = watching()
    metrics.record(record(requested=None, result=NegotiationResult.TRANSPARENT, version=""))

    assert (
        value(
            read(metrics),
            "negotiations_total",
            service="baremetal",
            requested="none",
            result="transparent",
        )
        == 1
    )


def test_a_bound_of_a_bucket_belongs_to_it() -> None:
    metrics = watching()
    metrics.record(record(seconds=0.25))
    metrics.record(record(seconds=1e9))

    samples = read(metrics)

    assert value(samples, "request_duration_seconds_bucket", service="baremetal", le="0.25") == 1
    assert value(samples, "request_duration_seconds_bucket", service="baremetal", le="30.0") == 1
    assert value(samples, "request_duration_seconds_bucket", service="baremetal", le="+Inf") == 2


def test_gauges_show_the_present_state() -> None:
    metrics = Metrics()
    holder = snapshot_holder(known=False)
    metrics.watch(holder, lambda: Now(BUSY))

    samples = read(metrics)
    assert series(samples, "offer_info") == {
        frozenset({("service", "baremetal"), ("min", ""), ("max", "")}): 1
    }
    assert value(samples, "phase", service="baremetal", phase="unknown") == 1

    learn(holder, "old", upto(58))
    learn(holder, "new", upto(90))
    holder.observe("baremetal", "new", ProbeFailed("x", 2.0))
    samples = read(metrics)

    assert series(samples, "offer_info") == {
        frozenset({("service", "baremetal"), ("min", "1.1"), ("max", "1.58")}): 1
    }
    phases = {dict(labels)["phase"]: number for labels, number in series(samples, "phase").items()}
    assert phases == {"unknown": 0, "mixed": 1, "capped": 0, "stabilizing": 0, "uniform": 0}
    rules = {dict(labels)["rule"]: number for labels, number in series(samples, "offer_held").items()}
    held = {"ceiling": 0, "agreement": 0, "stabilization": 0, "state": 0, "guaranteed": 1, "at_least": 0}
    assert rules == held
    old, new = ({"service": "baremetal", "backend": name} for name in ("old", "new"))
    assert value(samples, "backend_info", **new, min="1.1", max="1.90") == 1
    assert (value(samples, "backend_up", **old), value(samples, "backend_up", **new)) == (1, 0)
    assert value(samples, "backend_draining", **old) == 0
    assert value(samples, "requests_in_flight", service="baremetal") == 3
    assert value(samples, "backend_connections", **old, state="idle") == 2
    assert value(samples, "backend_connections", **old, state="active") == 1
    assert value(samples, "backend_connections", **new, state="idle") == 0


def test_who_holds_the_offer_is_named_and_since_when_advertisements_stand() -> None:
    metrics = Metrics()
    holder = snapshot_holder()
    metrics.watch(holder)
    before, now = time.time() - time.monotonic(), read(metrics)

    old, new = ({"service": "baremetal", "backend": name} for name in ("old", "new"))
    assert (value(now, "offer_held_by", **old), value(now, "offer_held_by", **new)) == (1, 0)
    # Both were probed at second 1 of the clock that dates facts.
    assert value(now, "backend_advertisement_timestamp_seconds", **old) == pytest.approx(
        before + 1.0, abs=0.1
    )

    unknown = Metrics()
    unknown.watch(snapshot_holder(known=False))
    assert series(read(unknown), "backend_advertisement_timestamp_seconds") == {}
    assert value(read(unknown), "offer_held_by", **old) == 0


def test_bytes_of_bodies_are_counted_by_service() -> None:
    metrics = watching()
    metrics.record(record(bytes_in=7, bytes_out=532))
    metrics.record(record(bytes_in=3, bytes_out=0))
    metrics.record(record(service="", backend="none", status=404, requested=None, result=None, bytes_out=9))

    samples = read(metrics)

    labels = {"service": "baremetal"}
    assert value(samples, "body_bytes_total", **labels, direction="in") == 10
    assert value(samples, "body_bytes_total", **labels, direction="out") == 532
    assert value(samples, "body_bytes_total", service="none", direction="out") == 9


def test_what_is_used_is_beside_its_limit() -> None:
    metrics, use = Metrics(), WorkerUse(5, 100, 1, 64, 4096, 65536, 2)
    now = Now(
        WorkerReport(use={"0": use}),
        admin_connections={"admin": (2, 64)},
        config_hash="0123456789ab",
        state=StateWrites(False, 1790000000.0, 3, 1),
    )
    metrics.watch(snapshot_holder(), lambda: now)

    samples = read(metrics)

    shown = {
        name: value(samples, name, worker="0") for name in ("client_connections", "tls_handshakes_active")
    }
    assert shown == {"client_connections": 5, "tls_handshakes_active": 1}
    assert value(samples, "client_connections_limit", worker="0") == 100
    assert value(samples, "tls_handshakes_active_limit", worker="0") == 64
    assert value(samples, "held_body_bytes", worker="0") == 4096
    assert value(samples, "held_body_bytes_limit", worker="0") == 65536
    assert value(samples, "shedding_level", worker="0") == 2
    assert value(samples, "admin_connections", listener="admin") == 2
    assert value(samples, "admin_connections_limit", listener="admin") == 64
    assert value(samples, "config_info", hash="0123456789ab") == 1
    assert value(samples, "state_last_write_successful") == 0
    assert value(samples, "state_last_write_success_timestamp_seconds") == 1790000000.0
    assert value(samples, "state_writes_total", result="success") == 3
    assert value(samples, "state_writes_total", result="failure") == 1


def test_workers_that_are_processes_of_their_own_are_shown_each() -> None:
    metrics = watching()
    assert not [name for name, _ in read(metrics) if name.startswith("skewgate_worker_")]

    serving = WorkerStats(up=True, restarts=0, cpu_seconds=1.5, resident_bytes=4096, open_fds=30)
    starting = WorkerStats(False, 3, 9.0, resident_bytes=None, open_fds=None, cut_requests=5, cut_tunnels=2)
    report = WorkerReport(processes={"0": serving, "1": starting}, tunnels_open={"baremetal": 3})
    metrics.watch(snapshot_holder(), lambda: Now(report))
    samples = read(metrics)

    assert [value(samples, "worker_up", worker=worker) for worker in "01"] == [1, 0]
    assert [value(samples, "worker_restarts_total", worker=worker) for worker in "01"] == [0, 3]
    assert [value(samples, "worker_cpu_seconds_total", worker=worker) for worker in "01"] == [1.5, 9]
    assert [value(samples, "worker_resident_memory_bytes", worker=worker) for worker in "01"] == [4096, None]
    assert [value(samples, "worker_open_fds", worker=worker) for worker in "01"] == [30, None]
    assert [value(samples, "worker_cut_requests_total", worker=worker) for worker in "01"] == [0, 5]
    assert [value(samples, "worker_cut_tunnels_total", worker=worker) for worker in "01"] == [0, 2]
    assert value(samples, "tunnels_open", service="baremetal") == 3


def test_without_a_state_file_nothing_is_said_about_one() -> None:
    assert not [name for name, _ in read(watching()) if "state_" in name]


def test_the_expiry_of_the_certificate_of_a_backend_ends_with_the_backend() -> None:
    holder, metrics = snapshot_holder(), Metrics()
    metrics.watch(holder)
    expiry = OfBackend.backend_certificate_expiry_timestamp_seconds
    metrics.set(expiry, 1790000000.0, service="baremetal", backend="old")
    metrics.set(expiry, 1.0, service="baremetal", backend="gone")

    name = "backend_certificate_expiry_timestamp_seconds"
    assert list(series(read(metrics), name).values()) == [1790000000.0]

    reconfigure(holder, [Service("baremetal", Ironic(), (NEW,))])
    assert series(read(metrics), name) == {}


def test_offer_changes_are_counted_by_bound_and_direction() -> None:
    holder, metrics = snapshot_holder(known=False), Metrics()
    metrics.watch(holder)
    holder.subscribe(metrics.snapshot_changed)

    for at, highest in enumerate((58, 90, 90, 31)):
        learn(holder, "old", upto(highest), float(at))
        learn(holder, "new", upto(highest), float(at))
    for name in ("old", "new"):
        learn(holder, name, upto(31, 10), 100.0)

    samples = read(metrics)
    changes = {
        (dict(labels)["bound"], dict(labels)["direction"]): number
        for labels, number in series(samples, "offer_changes_total").items()
    }
    # Up with the last backend that serves more, down with the last one that serves less.
    assert changes == {("min", "up"): 1, ("min", "down"): 0, ("max", "up"): 1, ("max", "down"): 1}


def test_probes_retries_errors_mismatches_reloads_and_lag() -> None:
    metrics = watching()
    metrics.observe(OfBackend.probe_duration_seconds, 0.02, service="baremetal", backend="old")
    metrics.observe(OfBackend.probe_duration_seconds, 2.0, service="baremetal", backend="old")
    metrics.count(OfBackend.probe_failures, "timeout", service="baremetal", backend="old")
    metrics.observe(OfBackend.probe_duration_seconds, 0.01, service="baremetal", backend="old")
    metrics.count(OfBackend.probe_failures, "a dialect's new reason", service="baremetal", backend="old")
    metrics.observe(OfBackend.probe_duration_seconds, 0.01, service="baremetal", backend="gone")
    metrics.count(OfBackend.probe_failures, "timeout", service="baremetal", backend="gone")
    metrics.count(OfService.retries, Failure.CONNECT, service="baremetal")
    metrics.count(OfService.retries, "an unknown reason", service="baremetal")
    metrics.count(OfProcess.client_errors, "smuggling")
    metrics.count(OfBackend.contradictions, service="baremetal", backend="new")
    metrics.count(OfBackend.contradictions, service="baremetal", backend="gone")
    metrics.count(OfBackend.deferred_facts, service="baremetal", backend="new")
    metrics.count(OfBackend.deferred_facts, service="baremetal", backend="gone")
    metrics.count(OfService.retries_given_up, service="baremetal")
    metrics.count(OfService.retries_given_up, service="gone")
    metrics.count(OfConfiguration.config_reloads, "success")
    metrics.set(OfConfiguration.config_last_reload_success_timestamp_seconds, 1790000000.0)
    metrics.count(OfConfiguration.config_reloads, "failure")
    metrics.set(OfConfiguration.config_last_reload_successful, 0)
    metrics.observe(OfProcess.event_loop_lag_seconds, 0.02, "0")

    samples = read(metrics)

    old = {"service": "baremetal", "backend": "old"}
    assert value(samples, "probe_duration_seconds_count", **old) == 3
    assert value(samples, "probe_failures_total", **old, reason="timeout") == 1
    assert value(samples, "probe_failures_total", **old, reason="other") == 1
    assert sum(series(samples, "probe_failures_total").values()) == 2
    assert value(samples, "retries_total", service="baremetal", reason="connect") == 1
    assert value(samples, "retries_total", service="baremetal", reason="other") == 1
    assert value(samples, "client_errors_total", reason="smuggling") == 1
    assert value(samples, "contradictions_total", service="baremetal", backend="new") == 1
    assert value(samples, "deferred_facts_total", service="baremetal", backend="new") == 1
    assert value(samples, "retries_given_up_total", service="baremetal") == 1
    assert value(samples, "config_last_reload_successful") == 0
    assert value(samples, "config_last_reload_success_timestamp_seconds") == 1790000000.0
    assert value(samples, "config_reloads_total", result="success") == 1
    assert value(samples, "config_reloads_total", result="failure") == 1
    assert value(samples, "event_loop_lag_seconds_count", worker="0") == 1


def test_o7_clients_cannot_make_series() -> None:
    metrics = watching()
    metrics.record(record())
    before = set(read(metrics))
    chance = random.Random(7)

    for number in range(100_000):
        text = "".join(map(chr, chance.choices(range(1, 0x2FF), k=12))) if number % 2 else f"1.{number}"
        metrics.record(record(version=text, method=text, target=f"/{number}", client=text))
        metrics.count(OfService.retries, text, service="baremetal")

    samples = read(metrics)
    grown = {dict(labels)["version"] for _, labels in set(samples) - before}
    # `1.N` has a series when a backend advertised it: 1.2, 1.4 … 1.90 (1.58, on offer, had one before).
    assert grown == {f"1.{number}" for number in range(2, 91, 2)} - {"1.58"}
    assert sum(series(samples, "requests_total").values()) == 100_001


def test_o7_a_backend_cannot_make_series_without_bound() -> None:
    holder, metrics = snapshot_holder(known=False), Metrics()
    metrics.watch(holder)
    everything = Advertisement(VersionSet.between(Version(1, 0), Version(1, 999_999)))
    holder.observe("baremetal", "old", ProbeSucceeded(everything, 1.0))
    holder.observe("baremetal", "new", ProbeSucceeded(everything, 1.0))

    for number in range(5000):
        metrics.record(record(version=f"1.{number}"))
    for status in range(-10, 2000):
        metrics.record(record(status=status))

    samples = read(metrics)
    assert len(series(samples, "served_version_total")) == 512
    assert sum(series(samples, "served_version_total").values()) == 5000 + 2010
    codes = {dict(labels)["code"] for labels in series(samples, "requests_total")}
    assert codes == {"none", *map(str, range(100, 600))}


def test_client_error_reasons_are_a_closed_set() -> None:
    metrics = Metrics()
    assert value(read(metrics), "client_errors_total", reason="smuggling") == 0

    for number in range(1000):
        metrics.count(OfProcess.client_errors, f"reason {number}")

    samples = read(metrics)
    assert len(series(samples, "client_errors_total")) == len(CLIENT_ERROR_REASONS) + 1
    assert value(samples, "client_errors_total", reason="other") == 1000


def test_after_a_reload_new_services_are_counted_and_removed_ones_end() -> None:
    holder, metrics = snapshot_holder(), Metrics()
    metrics.watch(holder)
    holder.subscribe(metrics.snapshot_changed)
    metrics.record(record())

    reconfigure(holder, [Service("metal2", Ironic(), (OLD, NEW))])
    metrics.record(record(service="metal2"))
    metrics.record(record())  # it was under way when the service was removed
    metrics.record(record(service="never", backend="x"))
    metrics.observe(OfBackend.probe_duration_seconds, 0.1, service="baremetal", backend="old")
    metrics.count(OfService.retries, Failure.CONNECT, service="baremetal")

    samples = read(metrics)
    assert value(samples, "requests_total", service="metal2", backend="old", code="200") == 1
    assert value(samples, "requests_total", service="other", backend="other", code="200") == 2
    assert "baremetal" not in {dict(labels).get("service") for _, labels in samples}

    reconfigure(holder, [Service("baremetal", Ironic(), (OLD, NEW))])
    assert value(read(metrics), "requests_total", service="baremetal", backend="old", code="200") == 0


def test_the_series_of_a_removed_backend_end() -> None:
    holder, metrics = snapshot_holder(), Metrics()
    metrics.watch(holder)
    holder.subscribe(metrics.snapshot_changed)
    for status in (200, 404):
        metrics.record(record(status=status))
    metrics.record(record(backend="new"))

    reconfigure(holder, [Service("baremetal", Ironic(), (NEW,))])
    metrics.record(record())  # it was under way when the backend was removed
    metrics.count(OfBackend.contradictions, service="baremetal", backend="old")

    samples = read(metrics)
    assert "old" not in {dict(labels).get("backend") for _, labels in samples}
    assert value(samples, "requests_total", service="baremetal", backend="other", code="200") == 1
    assert value(samples, "requests_total", service="baremetal", backend="new", code="200") == 1
    assert value(samples, "request_duration_seconds_count", service="baremetal") == 4

    reconfigure(holder, [Service("baremetal", Ironic(), (OLD, NEW))])
    samples = read(metrics)
    assert value(samples, "requests_total", service="baremetal", backend="old", code="200") == 0
    assert value(samples, "requests_total", service="baremetal", backend="old", code="404") is None
    assert value(samples, "backend_duration_seconds_count", service="baremetal", backend="old") == 0


def test_any_number_of_reloads_leaves_no_more_series() -> None:
    holder, metrics = snapshot_holder(), Metrics()
    metrics.watch(holder)
    holder.subscribe(metrics.snapshot_changed)
    sizes = set()
    for number in range(20):
        backend = Backend(f"api-{number}", "10.0.0.1", 6385)
        reconfigure(holder, [Service(f"metal-{number}", Ironic(), (OLD, backend))])
        metrics.record(record(service=f"metal-{number}", backend=backend.name))
        sizes.add(len(read(metrics)))
    assert len(sizes) == 1


def test_series_by_backend_can_be_switched_off() -> None:
    holder, metrics = snapshot_holder(), Metrics(per_backend=False)
    metrics.watch(holder, lambda: Now(BUSY))
    for backend in ("old", "new", "none", "gone"):
        metrics.record(record(backend=backend))

    samples = read(metrics)

    named = {name for name, labels in samples if dict(labels).get("backend") in {"old", "new"}}
    assert named == {
        "skewgate_backend_up",
        "skewgate_backend_draining",
        "skewgate_backend_ejected",
        "skewgate_backend_unhealthy",
        "skewgate_offer_held_by",
    }
    assert value(samples, "requests_total", service="baremetal", backend="any", code="200") == 3
    assert value(samples, "requests_total", service="baremetal", backend="none", code="200") == 1
    assert (
        value(read(Metrics(per_backend=False)), "requests_total", service="none", backend="none", code="503")
        == 0
    )


def calls_of(function: Callable[[], object]) -> int:
    """How many functions it calls."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_a_change_costs_what_has_changed() -> None:
    """However many other services and backends there are."""
    costs = set()
    for services, backends in ((2, 2), (100, 2), (2, 50)):
        members = tuple(Backend(f"api-{index}", "10.0.0.1", 6385) for index in range(backends))
        configured = [Service(f"metal-{index}", Ironic(), members) for index in range(services)]
        holder, metrics = holder_of(*configured), Metrics()
        metrics.watch(holder)
        before = holder.current
        learn(holder, "api-0", upto(58), service="metal-0")
        after = holder.current
        costs.add(calls_of(partial(metrics.snapshot_changed, before, after)))
        costs.add(calls_of(partial(metrics.record, record(service="gone"))) - 10_000)
    assert len(costs) == 2


def test_lost_log_lines_are_counted_by_log() -> None:
    metrics = watching()
    assert value(read(metrics), "access_log_dropped_total") == 0

    metrics.watch(snapshot_holder(), lambda: Now(WorkerReport(access_log_dropped=7, process_log_dropped=9)))

    assert value(read(metrics), "access_log_dropped_total") == 7
    assert value(read(metrics), "process_log_dropped_total") == 9


def test_two_instances_share_nothing() -> None:
    first, second = watching(), watching()
    first.record(record())

    assert value(read(first), "requests_total", service="baremetal", backend="old", code="200") == 1
    assert value(read(second), "requests_total", service="baremetal", backend="old", code="200") == 0
