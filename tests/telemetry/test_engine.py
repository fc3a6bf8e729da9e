"""What /metrics says of an engine beside the gateway."""

from __future__ import annotations

from gateway.telemetry.neighbours import EngineReport
from gateway.telemetry.series.neighbours import OfEngine
from gateway.telemetry.series.now import Now
from tests.telemetry.builders import samples

REPORT = EngineReport(
    name="haproxy",
    release="2.6.12",
    pid=7,
    problem="",
    rows={"baremetal": 174, "compute": 0},
    held={"baremetal": 3, "compute": 0},
    draining=1,
    missing=("p1",),
    inexpressible={"compute": "it has operations"},
    updates=5,
    failures=2,
)


def values(report: EngineReport | None) -> dict[tuple[str, tuple[str, ...]], float]:
    found = samples(OfEngine, Now(engine=report))
    return {(name, labels): value for name, rows in found.items() for labels, value in rows.items()}


def test_without_an_engine_there_is_nothing() -> None:
    assert values(None) == {}


def test_what_it_does_and_what_goes_past_the_gateway() -> None:
    found = values(REPORT)
    assert found[("engine_up", ("haproxy",))] == 1.0
    assert found[("engine_rows", ("haproxy", "baremetal"))] == 174.0
    assert found[("engine_rows", ("haproxy", "compute"))] == 0.0
    assert found[("engine_draining", ("haproxy",))] == 1.0
    assert found[("engine_missing_pools", ("haproxy",))] == 1.0
    assert found[("engine_updates", ("haproxy", "failure"))] == 2.0
    assert found[("engine_updates", ("haproxy", "success"))] == 5.0


def test_one_that_does_not_follow_is_down() -> None:
    assert values(REPORT._replace(problem="it is too old"))[("engine_up", ("haproxy",))] == 0.0
