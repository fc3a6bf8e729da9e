"""What workers have reported, together: of those that run, and what stays of those that have ended."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.core.usage.record import UsageReport
from gateway.telemetry.counters import Counted
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series.process import OfProcess
from gateway.telemetry.worker_report import WorkerReport, WorkerStats, WorkerUse
from gateway.workers.messages import Report
from gateway.workers.reports import Reports
from gateway.workers.worker_handle import WorkerHandle

USE = WorkerUse(1, 100, 0, 64, 0, 65536)
GAUGES = WorkerReport(
    in_flight_by_member={"s/b": 2},
    in_flight_by_service={"s": 2},
    waiting_by_member={"s/b": 1},
    connections={("s", "b"): (3, 2)},
    tunnels_open={"s": 4},
)


def report(
    slot: int,
    gauges: WorkerReport = GAUGES,
    *,
    counted: Counted | None = None,
    cpu: float = 0.0,
    lost: int = 0,
) -> Report:
    worker = gauges._replace(
        use={str(slot): USE},
        processes={str(slot): WorkerStats(cpu_seconds=cpu, resident_bytes=4096, open_fds=30)},
        access_log_dropped=lost,
        process_log_dropped=2 * lost,
    )
    return Report(1, worker, counted)


def test_gauges_are_sums_of_those_that_run_and_forget_who_has_ended() -> None:
    handles = {slot: WorkerHandle(slot, lambda _, __: None) for slot in range(2)}
    reports = Reports(handles.values(), Metrics().add)
    assert (reports.total(), reports.in_flight_by_member()) == (WorkerReport(), {})
    for slot, handle in handles.items():
        reports.received(handle, report(slot, cpu=1.0, lost=1))
    process = WorkerStats(cpu_seconds=1.0, resident_bytes=4096, open_fds=30)
    assert reports.total() == WorkerReport(
        in_flight_by_member={"s/b": 4},
        in_flight_by_service={"s": 4},
        waiting_by_member={"s/b": 2},
        connections={("s", "b"): (6, 4)},
        tunnels_open={"s": 8},
        use={"0": USE, "1": USE},
        processes={"0": process, "1": process},
        access_log_dropped=2,
        process_log_dropped=4,
    )
    assert reports.in_flight_by_member() == {"s/b": 4}

    reports.retire(handles.pop(0))
    assert reports.total() == GAUGES._replace(
        use={"1": USE},
        processes={"0": WorkerStats(cpu_seconds=1.0), "1": process},
        access_log_dropped=2,
        process_log_dropped=4,
    )
    assert reports.in_flight_by_member() == {"s/b": 2}


def test_R3_V7_what_was_under_way_in_a_worker_that_died_is_counted_by_its_slot() -> None:
    handles = {slot: WorkerHandle(slot, lambda _, __: None) for slot in range(2)}
    reports = Reports(handles.values(), Metrics().add)
    idle = report(0, WorkerReport(in_flight_by_service={"s": 0}))
    busy = report(0, WorkerReport(in_flight_by_service={"s": 7, "t": 1}, tunnels_open={"s": 2}))
    for last, text in (
        (None, ""),
        (idle, ""),
        (busy, " (by its last report: requests under way 8, tunnels 2)"),
        (
            report(0, WorkerReport(tunnels_open={"s": 2})),
            " (by its last report: requests under way 0, tunnels 2)",
        ),
    ):
        handle = WorkerHandle(0, lambda _, __: None)
        if last is not None:
            reports.received(handle, last)
        reports.retire(handle)
        assert str(reports.count_cut_off(handle)) == text
    processes = reports.total().processes
    assert {name: (each.cut_requests, each.cut_tunnels) for name, each in processes.items()} == {"0": (8, 4)}


def test_what_is_told_is_counted_once() -> None:
    worker, main = Metrics(), Metrics()
    handle = WorkerHandle(0, lambda _, __: None)
    reports = Reports([handle], main.add)
    worker.count(OfProcess.client_errors, "head")
    reports.received(handle, report(0, counted=worker.take()))
    reports.received(handle, report(0))
    reports.received(handle, report(0, counted=worker.take()))
    reports.retire(handle)

    assert main.take() == {(): {OfProcess.client_errors.full_name: {"head": 1}}}


numbers = st.integers(0, 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("reports"), numbers, st.floats(0, 9), st.integers(0, 9)),
        st.tuples(st.just("ends"), numbers, st.just(0.0), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_nothing_that_only_rises_falls(history: list[tuple[str, int, float, int]]) -> None:
    """Each process begins at zero and only rises. Sometimes one ends before it has reported anything."""
    handles = {slot: WorkerHandle(slot, lambda _, __: None) for slot in range(2)}
    reports = Reports(handles.values(), Metrics().add)
    rises = dict.fromkeys(handles, (0.0, 0))
    before = (0.0, 0.0, 0, 0)
    lost_in_all = 0
    for what, slot, cpu, lost in history:
        if what == "ends":
            reports.retire(handles.pop(slot))
            handles[slot] = WorkerHandle(slot, lambda _, __: None)
            rises[slot] = (0.0, 0)
        else:
            lost_in_all += lost
            rises[slot] = (rises[slot][0] + cpu, rises[slot][1] + lost)
            reports.received(handles[slot], report(slot, cpu=rises[slot][0], lost=rises[slot][1]))
        total = reports.total()
        first, second = (total.processes.get(name, WorkerStats()).cpu_seconds for name in "01")
        after = (first, second, total.access_log_dropped, total.process_log_dropped)
        assert all(new >= old for old, new in zip(before, after, strict=True))
        assert after[2:] == (lost_in_all, 2 * lost_in_all)
        before = after


class Usage:
    """Gets what workers have counted for the record of usage."""

    def __init__(self) -> None:
        self.reports: list[UsageReport] = []
        self.losses: list[str] = []

    def received(self, report: UsageReport) -> None:
        self.reports.append(report)

    def lost(self, why: str) -> None:
        self.losses.append(why)


@pytest.mark.parametrize(
    "served, numbers, losses",
    [
        (True, [1, 2, 0], 0),
        (True, [1, 2], 1),
        (True, [], 1),
        (False, [], 0),
    ],
    ids=["in order", "killed", "killed before its first report", "never served"],
)
def test_usage_is_lost_with_a_worker_that_has_served_and_sent_no_last_report(
    served: bool, numbers: list[int], losses: int
) -> None:
    handle, usage = WorkerHandle(0, lambda _, __: None), Usage()
    reports = Reports([handle], Metrics().add, cast(UsageKeeper, usage))
    handle.serving_at = 1.0 if served else None
    found = [UsageReport("w", sequence + 1, {}) for sequence in range(len(numbers))]
    for number, each in zip(numbers, found, strict=True):
        reports.received(handle, report(0)._replace(number=number, usage=each))

    reports.retire(handle)

    assert usage.reports == found
    assert len(usage.losses) == losses
