"""The text of /metrics: byte for byte what the library would write, but in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, exposition, registry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.utils import floatToGoString

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.exposition import PIECE, Form, form_of, pieces
from gateway.telemetry.histogram import BUCKETS, Histogram
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series.declaring import Family, Kind
from tests.kit.ironic import holder_of, reconfigure
from tests.telemetry.builders import record

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
LARGEST_HISTOGRAM = 4096
"""Characters of the longest histogram here: by so much a piece may be longer."""


class Library(registry.Collector):
    """The same families for the library's own encoders."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            name, text, labels = family.name, family.description, family.labels
            metric: Any
            match family.kind:
                case Kind.COUNTER:
                    metric = CounterMetricFamily(name, text, labels=labels)
                case Kind.GAUGE:
                    metric = GaugeMetricFamily(name, text, labels=labels)
                case Kind.HISTOGRAM:
                    metric = HistogramMetricFamily(name, text, labels=labels)
            for values, found in family.rows:
                if family.kind is Kind.HISTOGRAM:
                    bounds = (*map(floatToGoString, BUCKETS), "+Inf")
                    buckets = [(b, float(n)) for b, n in zip(bounds, accumulate(found.counts), strict=True)]
                    metric.add_metric(values, buckets, found.total)
                else:
                    metric.add_metric(values, float(found))
            yield metric


def written_by_library(families: Iterable[Family], form: Form) -> bytes:
    its_registry = CollectorRegistry(auto_describe=False)
    its_registry.register(Library(families))
    if form is Form.OPEN_METRICS:
        return open_metrics.generate_latest(its_registry)  # type: ignore[no-untyped-call, no-any-return]
    return exposition.generate_latest(its_registry)


@st.composite
def families(draw: st.DrawFn) -> list[Family]:
    texts = st.text(st.characters(codec="utf-8"), max_size=8)
    numbers = st.one_of(st.integers(0, 2**53), st.floats(allow_nan=False), st.booleans())
    found = []
    for index in range(draw(st.integers(0, 3))):
        prefix = draw(st.sampled_from(["skewgate_", "process_"]))
        labels = draw(st.sampled_from([(), ("service",), ("backend", "service"), ("a", "le_", "z")]))
        rows = draw(st.lists(st.tuples(*(texts for _ in labels)), max_size=4, unique=True))
        if draw(st.booleans()):
            found.append(
                Family(
                    draw(st.sampled_from([Kind.COUNTER, Kind.GAUGE])),
                    f"{prefix}name_{index}",
                    "A sentence.",
                    labels,
                    [(row, draw(numbers)) for row in rows],
                )
            )
        else:
            histograms = []
            for row in rows:
                histogram = Histogram()
                histogram.counts = draw(st.lists(st.integers(0, 10**7), min_size=16, max_size=16))
                histogram.total = draw(st.floats(0, 1e12))
                histograms.append((row, histogram))
            found.append(Family(Kind.HISTOGRAM, f"{prefix}name_{index}", "A sentence.", labels, histograms))
    return found


@given(families())
def test_it_is_what_the_library_writes(found: list[Family]) -> None:
    for form in Form:
        assert b"".join(pieces(found, form)) == written_by_library(found, form)


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept, form",
    [
        ("", Form.TEXT),
        ("*/*", Form.TEXT),
        ("text/plain;version=0.0.4", Form.TEXT),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", Form.TEXT_1_0),
        ("application/openmetrics-text", Form.OPEN_METRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=dots", Form.OPEN_METRICS),
        ("application/openmetrics-text;version=7.\ud800", Form.OPEN_METRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;q=0.5", Form.TEXT),
        ("application/openmetrics-text;version=1.x", Form.TEXT),
        (PROMETHEUS, Form.OPEN_METRICS),
    ],
)
def test_the_form_is_one_of_three_whatever_is_accepted(accept: str, form: Form) -> None:
    assert form_of(accept) is form
    assert form.value.isascii()


# --- large fleets -------------------------------------------------------------------------------------------


def services(number: int, backends: int, *, first: int = 0) -> list[Service]:
    """Services with so many backends each."""
    members = tuple(Backend(f"api-{index}", "10.0.0.1", 6385) for index in range(first, first + backends))
    return [Service(f"service-{index}", Ironic(), members) for index in range(number)]


def watching(configured: list[Service]) -> tuple[Metrics, SnapshotHolder]:
    holder, metrics = holder_of(*configured), Metrics()
    metrics.watch(holder)
    holder.subscribe(metrics.snapshot_changed)
    return metrics, holder


@pytest.mark.parametrize("number, backends", [(1, 100), (50, 2)])
@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_a_large_fleet_is_written_in_short_pieces(number: int, backends: int, accept: str) -> None:
    metrics, _ = watching(services(number, backends))

    found = list(metrics.exposition(accept)[0])

    assert all(PIECE <= len(piece) <= PIECE + LARGEST_HISTOGRAM for piece in found[:-1])
    text = b"".join(found).decode()
    read = list(parse_openmetrics(text) if accept else parse_text(text))  # type: ignore[no-untyped-call]
    (up,) = (family for family in read if family.name == "skewgate_backend_up")
    assert len(up.samples) == number * backends


def test_a_scrape_goes_on_while_the_fleet_changes() -> None:
    """All families of one scrape show the backends that there were at its beginning."""
    metrics, holder = watching(services(3, 60))
    for turn in range(4):
        begun = metrics.exposition(OPEN_METRICS)[0]
        found = [next(begun) for _ in range(1 + turn % 3)]
        before = {member.backend.name for member in holder.current.views["service-0"].members.all}
        metrics.record(record(service="service-0", backend=min(before), status=200 + turn, version=""))
        reconfigure(holder, services(1 + turn % 3, 60, first=turn))
        metrics.record(record(service="service-2", backend="gone", status=100 + turn, version=f"1.{turn}"))
        found += begun

        read = list(parse_openmetrics(b"".join(found).decode()))  # type: ignore[no-untyped-call]
        for family in read:
            shown = {s.labels["backend"] for s in family.samples if "backend" in s.labels}
            if shown and family.name != "skewgate_requests":
                assert shown == before
