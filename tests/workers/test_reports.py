"""What workers have reported, together: of those that run, and what stays of those that have ended."""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.merging import Counted
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_families import WorkerUse
from gateway.telemetry.process_stats import ProcessStats
from gateway.workers.messages import Report
from gateway.workers.reports import Reports
from gateway.workers.worker_handle import WorkerHandle

USE = WorkerUse(1, 100, 0, 64, 0, 65536)


def report(number: int, *, counted: Counted | None = None, cpu: float = 0.0, lost: int = 0) -> Report:
    return Report(
        number=number,
        in_flight_by_member={"s/b": 2},
        in_flight_by_service={"s": 2},
        waiting_by_member={"s/b": 1},
        connections={("s", "b"): (3, 2)},
        tunnels_open={"s": 4},
        use=USE,
        stats=ProcessStats(cpu, None, None, 4096, 30, 1024),
        access_log_dropped=lost,
        process_log_dropped=2 * lost,
        counted=counted,
    )


def test_gauges_are_sums_of_those_that_run_and_forget_who_has_ended() -> None:
    handles = {slot: WorkerHandle(slot, lambda _, __: None) for slot in range(2)}
    reports = Reports(handles.values(), Metrics().add)
    for handle in handles.values():
        reports.received(handle, report(1))
    assert reports.in_flight_by_member() == {"s/b": 4}
    assert reports.in_flight_by_service() == {"s": 4}
    assert reports.waiting_by_member() == {"s/b": 2}
    assert reports.connections() == {("s", "b"): (6, 4)}
    assert reports.tunnels_open() == {"s": 8}

    reports.retire(handles.pop(0))
    assert reports.in_flight_by_member() == {"s/b": 2}
    assert reports.connections() == {("s", "b"): (3, 2)}
    assert reports.tunnels_open() == {"s": 4}
    assert reports.use() == {"1": USE}


def test_R3_V7_what_was_under_way_in_a_worker_that_died_is_counted_by_its_slot() -> None:
    handles = {slot: WorkerHandle(slot, lambda _, __: None) for slot in range(2)}
    reports = Reports(handles.values(), Metrics().add)
    idle = report(1)._replace(in_flight_by_service={"s": 0}, tunnels_open={})
    busy = report(2)._replace(in_flight_by_service={"s": 7, "t": 1}, tunnels_open={"s": 2})
    for last, text in (
        (None, ""),
        (idle, ""),
        (busy, " (by its last report: requests under way 8, tunnels 2)"),
        (
            busy._replace(in_flight_by_service={}),
            " (by its last report: requests under way 0, tunnels 2)",
        ),
    ):
        handle = WorkerHandle(0, lambda _, __: None)
        if last is not None:
            reports.received(handle, last)
        reports.retire(handle)
        assert str(reports.count_cut_off(handle)) == text
    assert reports.cut_off(0) == (8, 4)
    assert reports.cut_off(1) == (0, 0)


def test_what_is_told_is_counted_once() -> None:
    worker, parent = Metrics(), Metrics()
    handle = WorkerHandle(0, lambda _, __: None)
    reports = Reports([handle], parent.add)
    worker.client_error("head")
    reports.received(handle, report(1, counted=worker.take()))
    reports.received(handle, report(2))
    reports.received(handle, report(3, counted=worker.take()))
    reports.retire(handle)

    assert parent.take().client_errors == {"head": 1}


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
            reports.received(handles[slot], report(1, cpu=rises[slot][0], lost=rises[slot][1]))
        after = (
            reports.cpu_seconds(0),
            reports.cpu_seconds(1),
            reports.access_log_dropped(),
            reports.process_log_dropped(),
        )
        assert all(new >= old for old, new in zip(before, after, strict=True))
        assert after[2:] == (lost_in_all, 2 * lost_in_all)
        before = after
