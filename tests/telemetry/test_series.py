"""The declarations of series, and all places that count: labels are checked here, since no type does it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from gateway.telemetry.counters import Counters
from gateway.telemetry.histogram import Histogram
from gateway.telemetry.series.catalog import GROUPS, SERIES
from gateway.telemetry.series.declaring import (
    BACKEND,
    OPEN,
    OTHER,
    PROCESS,
    SERVICE,
    Counter,
    Gauge,
    Group,
    HistogramSeries,
    Keys,
    Series,
    UpTo,
    counter,
    gauge,
)
from gateway.telemetry.series.service import OfGate
from tests.architecture.source import Module, gateway_modules, read_module

METHODS: Final = {"count": Counter, "observe": HistogramSeries, "set": Gauge, "cell": Series}
"""Methods of `Metrics` and `OwnerCounters` that take a series, and the kind that each takes."""

VALUES: Final = {"observe": 1, "set": 1}
"""Arguments between the series and the values of its labels."""

NAMED: Final = {group.__name__: group for group in GROUPS}
HOLDERS: Final = ("gateway/telemetry/collector.py", "gateway/telemetry/counters.py")
"""Modules that may look into the cells of a table."""


class Site(NamedTuple):
    """One call that names a series."""

    where: str
    method: str
    call: ast.Call
    series: Series | None
    """None: it is named by something else than `Group.name`."""


def sites(module: Module) -> Iterator[Site]:
    for node in module.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        named = named_series(node.args[0])
        if node.func.attr in METHODS and (
            named is not None or ast.unparse(node.func.value).endswith("metrics")
        ):
            yield Site(module.at(node), node.func.attr, node, named)


def named_series(node: ast.expr) -> Series | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMED:
        found = getattr(NAMED[node.value.id], node.attr)
        assert isinstance(found, Series)
        return found
    return None


def faults(site: Site) -> Iterator[str]:
    """What is wrong with a call: the kind of the series, its owner, or the values of its labels."""
    series, call = site.series, site.call
    if series is None:
        yield "the series is not named as `Group.name`"
        return
    if not isinstance(series, METHODS[site.method]) or series.read is not None:
        yield f"`{site.method}` takes no {type(series).__name__} like {series.name}"
    if site.method == "cell":
        return
    if {each.arg for each in call.keywords} != set(series.level.labels):
        yield f"{series.name} is of ({', '.join(series.level.labels)})"
    values = call.args[1 + VALUES.get(site.method, 0) :]
    if any(isinstance(each, ast.Starred) for each in values):
        return
    if len(values) != len(series.labels):
        yield f"{series.name} has the labels ({', '.join(series.labels)})"
        return
    for value, (label, known) in zip(values, series.labels.items(), strict=True):
        if isinstance(value, ast.Constant) and isinstance(known, tuple) and value.value not in known:
            yield f"{label}={value.value!r} is not in the closed set"


def test_every_place_that_counts_gives_what_the_series_declares() -> None:
    found = [site for module in gateway_modules() for site in sites(module)]
    assert len(found) > 30
    assert [f"{site.where}: {fault}" for site in found for fault in faults(site)] == []


@pytest.mark.parametrize(
    "call, fault",
    [
        ('m.count(OfService.retries, "tls", service=s)', ""),
        ("m.count(OfService.retries, reason, service=s)", ""),
        ("m.count(OfService.offer_changes, *change, service=s)", ""),
        ('m.count(OfService.retries, "tsl", service=s)', "reason='tsl' is not in the closed set"),
        ("m.count(OfService.retries, service=s)", "retries has the labels (reason)"),
        ("m.count(OfService.retries, r, service=s, backend=b)", "retries is of (service)"),
        ("m.count(OfBackend.ejections, r, service=s)", "ejections is of (service, backend)"),
        ("m.observe(OfService.retries, 1.0, r, service=s)", "`observe` takes no Counter like retries"),
        (
            "m.observe(OfProcess.event_loop_lag_seconds, 1.0)",
            "event_loop_lag_seconds has the labels (worker)",
        ),
        ("m.set(OfService.tunnels_open, 1, service=s)", "`set` takes no Gauge like tunnels_open"),
        ("self._metrics.count(series)", "the series is not named as `Group.name`"),
    ],
)
def test_a_wrong_place_is_found(call: str, fault: str) -> None:
    (site,) = sites(read_module("gateway/x.py", call))
    assert list(faults(site)) == ([fault] if fault else [])


def test_every_series_that_is_counted_is_counted_somewhere() -> None:
    counting = [each for each in gateway_modules() if not each.inside("telemetry.series")]
    named = {name for each in counting for name in re.findall(r"\b[A-Z]\w+\.\w+", each.text)}
    counted = {f"{group.__name__}.{each.name}" for group in GROUPS for each in group.series if not each.read}
    assert counted <= named


def test_only_two_modules_look_into_the_cells() -> None:
    """Whoever keeps a reference takes it by `Table.cell`: a worker tells nothing of another one."""
    looking = {
        module.path
        for module in gateway_modules()
        if module.inside("telemetry", "dataplane")
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr == "cells"
    }
    assert looking == set(HOLDERS)


# --- declarations ------------------------------------------------------------------------------------------


def test_names_and_texts_can_be_written_as_they_are() -> None:
    names = [*(each.full_name for group in GROUPS for each in group.series), OfGate.evidence.full_name]
    assert len(names) == len(set(names)) == len(SERIES)
    for series in SERIES.values():
        assert not set('"\\\n') & set(series.text), series.name
        assert series.text.endswith("."), series.name
        assert len(set(series.all_labels)) == len(series.all_labels), series.name
        assert series.kind is not HistogramSeries.kind or series.read is None, series.name


def test_a_declaration_says_everything_about_a_series() -> None:
    class OfThings(Group, level=SERVICE):
        found = counter("Things that were found.", {"kind": ("a", "b"), "size": ("s",)})
        rate = gauge("Things per second.", read=lambda it, now: 1)

    found, rate = OfThings.series
    assert (found.full_name, found.level, found.all_labels) == (
        "skewgate_found",
        SERVICE,
        ("service", "kind", "size"),
    )
    assert found.new_cell() == {("a", "s"): 0, ("b", "s"): 0}
    assert (found.text, rate.text) == ("Things that were found.", "Things per second.")


def test_closed_sets_are_closed_and_bounds_hold() -> None:
    with_other, without = Keys({"reason": ("a", OTHER)}), Keys({"reason": ("a",)})
    assert with_other.admit("x", {"a": 0, OTHER: 0}, None) == OTHER
    with pytest.raises(KeyError):
        without.admit("x", {"a": 0}, None)

    bounded, unbounded = Keys({"version": UpTo(2)}), Keys({"worker": OPEN})
    assert bounded.at_zero == (OTHER,)
    assert bounded.admit("1", {OTHER: 0}, None) == "1"
    assert bounded.admit("2", {OTHER: 0, "1": 0}, None) == OTHER
    assert unbounded.at_zero == ()
    assert unbounded.admit("x", dict.fromkeys(range(1000)), None) == "x"


def test_a_cell_is_made_when_something_is_counted_and_goes_with_its_owner() -> None:
    counters = Counters()
    assert counters.process.cells == {}
    for series in SERIES.values():
        if series.read is None and series.level is PROCESS:
            first = counters.process.cell(series)
            assert counters.process.cell(series) is first
            assert all(isinstance(each, int | Histogram) for each in first.values())
    assert {series.level for series in SERIES.values()} == {PROCESS, SERVICE, BACKEND}
