"""docs/metrics.md against what a running gateway exposes: every series, with its type and its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gateway.assembly.admin import now
from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import Advertisement, RequestedKind
from gateway.core.fleet.failures import EjectionReason
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.telemetry.neighbours import AgreementReport, EngineReport, ServiceReport
from gateway.telemetry.series.backend import PROBE_FAILURES, QUEUE_REFUSALS, OfBackend
from gateway.telemetry.series.process import ADMIN_ERRORS, HANDSHAKE_RESULTS
from gateway.telemetry.series.service import ADMISSION_REASONS, RETRY_REASONS
from gateway.telemetry.worker_report import WorkerReport, WorkerStats, plus
from tests.docs.metrics_table import with_table
from tests.docs.pages import page, rows, section
from tests.kit.certificates import Authority
from tests.kit.gateways import gateway_of
from tests.kit.waiting import until

PAGE = page("docs/metrics.md")
NAME = re.compile(r"`([^`]+)`")

CONFIGURATION = """
listen: [{{address: "127.0.0.1:0", tls: {{certificates: [{{certificate: {0}, key: {1}}}]}}}}]
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
state: {2}
services:
  baremetal:
    dialect: ironic
    lifecycle: {{sunset: {{below: "1.20", at: 2999-12-31}}}}
    skew: {{releases: 1}}
    backends:
      - {{name: old, url: "http://127.0.0.1:9", versions: 1.1-1.58, max_connections: 8}}
      - {{name: new, url: "http://127.0.0.1:9"}}
  found:
    dialect: ironic
    match: {{path: /found}}
    backends:
      - {{file: {3}}}
"""

Series = Mapping[str, tuple[str, frozenset[str]]]


def documented() -> Series:
    """Type and labels of every series on the page."""
    found = {}
    for series, kind, labels, _ in rows(section(PAGE, "Series")):
        found[series.strip("`")] = (kind, frozenset(NAME.findall(labels)))
    return found


async def scrape(folder: Path) -> str:
    """/metrics of a running gateway that has something of everything."""
    targets = folder / "targets.json"
    targets.write_text('[{"targets": ["localhost:9"]}]')
    text = CONFIGURATION.format(*Authority().server().write(folder), folder / "state.json", targets)
    async with gateway_of(text) as gateway, aiohttp.ClientSession() as client:
        # What probes would bring, one of them over TLS.
        gateway.metrics.set(
            OfBackend.backend_certificate_expiry_timestamp_seconds,
            1790000000.0,
            service="baremetal",
            backend="old",
        )
        versions = gateway.settings.services[0].backends[0].declared
        assert versions is not None
        gateway.snapshot_holder.observe(
            "baremetal", "new", ProbeSucceeded(Advertisement(versions), monotonic())
        )
        await until(lambda: bool(gateway.snapshot_holder.current.views["found"].members.all))
        # What several workers would be.
        worker = WorkerStats(up=True, restarts=0, cpu_seconds=1.0, resident_bytes=1, open_fds=1)
        report = plus(gateway.status().report, WorkerReport(processes={"0": worker}))
        about = {"baremetal": ServiceReport(attached=True, since=0.0, seq=1)}
        engine = EngineReport("haproxy", "2.6", 1, "", {"baremetal": 1}, {}, 0, (), {}, 0, 0)
        agreement = AgreementReport("a", "", (), about)
        shown = now(gateway.parts, gateway._served.admin.connections())._replace(
            report=report, engine=engine, agreement=agreement
        )
        gateway.metrics.watch(gateway.snapshot_holder, lambda: shown)
        async with client.get(f"{gateway.admin_url}/metrics") as response:
            return await response.text()


async def exposed(folder: Path) -> Series:
    """Type and labels of every series of a running gateway."""
    found = {}
    for family in text_string_to_metric_families(await scrape(folder)):
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(labels) == 1, f"{family.name}: no series at the start, or several sets of labels"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, labels.pop())
    return found


def test_the_table_is_the_one_that_the_declarations_make() -> None:
    assert with_table(PAGE) == PAGE, "python -m tests.docs.metrics_table docs/metrics.md"


def test_a_new_row_comes_after_that_of_the_series_declared_before_it() -> None:
    lines = PAGE.splitlines(keepends=True)
    (row,) = (line for line in lines if line.startswith("| `skewgate_retries_given_up_total`"))
    changed = PAGE.replace(row, "| `skewgate_gone` | gauge | – | a series that is no more |\n")  # noqa: RUF001
    assert sorted(with_table(changed).splitlines()) == sorted(PAGE.splitlines())
    (before,) = (line for line in lines if line.startswith("| `skewgate_requests_refused_total`"))
    assert before + row in with_table(changed)


async def test_the_page_lists_what_is_exposed(tmp_path: Path) -> None:
    assert documented() == await exposed(tmp_path)


def values(label: str) -> tuple[str, ...]:
    """The values of a label, according to the page."""
    (row,) = (row for row in rows(section(PAGE, "Labels")) if row[0] == label)
    return tuple(NAME.findall(row[1]))


def test_the_closed_sets_are_whole() -> None:
    assert values("`requested`") == tuple(RequestedKind)
    assert values("`result` of negotiations") == tuple(NegotiationResult)
    assert values("`phase`") == tuple(Phase)
    assert values("`rule`") == tuple(HeldRule)
    assert values("`reason` of retries") == (*RETRY_REASONS, "other")
    assert values("`reason` of ejections") == tuple(EjectionReason)
    assert values("`reason` of requests that a queue refused") == QUEUE_REFUSALS
    assert values("`reason` of refused requests") == ADMISSION_REASONS
    assert values("`reason` of probe failures") == PROBE_FAILURES
    assert values("`reason` of admin errors") == ADMIN_ERRORS
    assert values("`result` of TLS handshakes") == (*HANDSHAKE_RESULTS, "other")
    assert values("`reason` of client errors") == (*CLIENT_ERROR_REASONS, "other")
