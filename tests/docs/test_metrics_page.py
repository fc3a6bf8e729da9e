"""docs/metrics.md against what a running gateway exposes: every series, with its type and its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gateway import settings
from gateway.assembly import Gateway
from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.telemetry.counters import ADMIN_ERRORS, PROBE_FAILURES, RETRY_REASONS
from tests.docs.pages import page, rows, section

PAGE = page("docs/metrics.md")
NAME = re.compile(r"`([^`]+)`")

CONFIGURATION = """
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
access_log: {format: off}
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: old, url: "http://127.0.0.1:9", versions: 1.1-1.58}
"""

Series = Mapping[str, tuple[str, frozenset[str]]]


def documented() -> Series:
    """Type and labels of every series on the page."""
    found = {}
    for series, kind, labels, _ in rows(section(PAGE, "Series")):
        found[series.strip("`")] = (kind, frozenset(NAME.findall(labels)))
    return found


async def exposed() -> Series:
    """Type and labels of every series of a running gateway."""
    configured = settings.load(CONFIGURATION, filename="test", environ={}).require()
    async with (
        Gateway(configured) as gateway,
        aiohttp.ClientSession() as client,
        client.get(f"{gateway.admin_url}/metrics") as response,
    ):
        text = await response.text()
    found = {}
    for family in text_string_to_metric_families(text):
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(labels) == 1, f"{family.name}: no series at the start, or several sets of labels"
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, labels.pop())
    return found


async def test_the_page_lists_what_is_exposed() -> None:
    assert documented() == await exposed()


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
    assert values("`reason` of probe failures") == PROBE_FAILURES
    assert values("`reason` of admin errors") == ADMIN_ERRORS
    assert values("`reason` of client errors") == (*CLIENT_ERROR_REASONS, "other")


def test_alerts_use_series_that_exist() -> None:
    used = re.findall(r"skewgate_\w+", section(PAGE, "Worth an alert"))

    assert used
    assert set(used) <= documented().keys()
