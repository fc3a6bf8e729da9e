"""Laws of `plus`, which adds the reports of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.worker_report import Ejected, WorkerReport, WorkerStats, WorkerUse, plus

numbers = st.integers(0, 9)
seconds = numbers.map(lambda number: number / 4)  # sums of such numbers are exact in any order
keys = st.sampled_from("abc")
counts = st.dictionaries(keys, numbers)
uses = st.builds(WorkerUse, *[numbers] * 7)
processes = st.builds(
    WorkerStats,
    *(st.booleans(), numbers, seconds, st.none() | numbers, st.none() | numbers, numbers, numbers),
)
reports = st.builds(
    WorkerReport,
    *(counts, counts, counts),
    connections=st.dictionaries(st.tuples(keys, keys), st.tuples(numbers, numbers)),
    tunnels_open=counts,
    ejected=st.just({}),
    use=st.dictionaries(keys, uses),
    processes=st.dictionaries(keys, processes),
    access_log_dropped=numbers,
    process_log_dropped=numbers,
)


@given(reports, reports, reports)
def test_the_order_of_adding_means_nothing(one: WorkerReport, two: WorkerReport, three: WorkerReport) -> None:
    assert plus(one, two) == plus(two, one)
    assert plus(plus(one, two), three) == plus(one, plus(two, three))


@given(reports)
def test_an_empty_report_adds_nothing(one: WorkerReport) -> None:
    assert plus(one, WorkerReport()) == one == plus(WorkerReport(), one)


@given(reports, reports)
def test_what_is_added_stays_as_it_was(one: WorkerReport, other: WorkerReport) -> None:
    before = repr((one, other))
    plus(one, other)
    assert repr((one, other)) == before


@given(st.lists(reports))
def test_the_sum_is_that_of_each_field(found: list[WorkerReport]) -> None:
    total = reduce(plus, found, WorkerReport())

    for name in ("in_flight_by_member", "in_flight_by_service", "waiting_by_member", "tunnels_open"):
        assert getattr(total, name) == summed(getattr(each, name) for each in found)
    assert total.access_log_dropped == sum(each.access_log_dropped for each in found)
    assert total.process_log_dropped == sum(each.process_log_dropped for each in found)
    for at in range(2):
        assert {key: pair[at] for key, pair in total.connections.items()} == summed(
            {key: pair[at] for key, pair in each.connections.items()} for each in found
        )
    for field in WorkerStats._fields:
        known = summed(
            {
                key: number
                for key, one in each.processes.items()
                if (number := getattr(one, field)) is not None
            }
            for each in found
        )
        assert {key: getattr(each, field) for key, each in total.processes.items()} == {
            key: known.get(key) for key in total.processes
        }


def summed(found: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    total: Counter[Any] = Counter()
    for each in found:
        total.update(each)
    return dict(total)


def test_those_of_different_workers_stand_side_by_side() -> None:
    one, other = WorkerUse(1, 100, 0, 64, 0, 4096), WorkerUse(2, 100, 3, 64, 5, 4096, 1)
    ejected = Ejected("5 failures in a row", 30.0)
    total = plus(WorkerReport(use={"0": one}), WorkerReport(use={"1": other}, ejected={"s/b": ejected}))
    assert total == WorkerReport(use={"0": one, "1": other}, ejected={"s/b": ejected})


def test_two_cannot_decide_about_one_member() -> None:
    report = WorkerReport(ejected={"s/b": Ejected("5 failures in a row", 30.0)})
    with pytest.raises(TypeError, match="two values of Ejected have no sum"):
        plus(report, report)


@given(reports)
def test_what_lasts_is_what_only_rises(report: WorkerReport) -> None:
    lasting = report.lasting()
    assert lasting == WorkerReport(
        processes={
            name: WorkerStats(cpu_seconds=each.cpu_seconds) for name, each in report.processes.items()
        },
        access_log_dropped=report.access_log_dropped,
        process_log_dropped=report.process_log_dropped,
    )
    assert lasting.lasting() == lasting
