"""What was served in the last hour, and the requests of each minute, by samples a minute apart."""

from __future__ import annotations

import asyncio

from gateway.telemetry.metrics import Metrics
from gateway.telemetry.recent import (
    SPAN,
    HourlyTraffic,
    LastHour,
    RecentRequests,
    TrafficCounts,
)
from tests.telemetry.builders import record, snapshot_holder


class SampledProcess:
    """The counts of a process, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.counts: dict[str, dict[str, int]] = {"metal": {"1.58": 0}}
        self.recent = RecentRequests(lambda: self.counts, lambda: self.now)

    def minutes(self, number: int, requests: int = 0) -> None:
        """Let so many minutes pass, in each of which this many requests at 1.58 are served."""
        for _ in range(number):
            self.counts["metal"]["1.58"] += requests
            self.now += RecentRequests.every
            self.recent.sample()


def test_only_the_last_hour_counts() -> None:
    process = SampledProcess()
    process.recent.sample()
    process.minutes(120, requests=7)
    process.minutes(60, requests=1)
    assert process.recent.last_hour("metal") == LastHour({"1.58": 60}, SPAN)
    process.minutes(180)
    assert process.recent.last_hour("metal") == LastHour({"1.58": 0}, SPAN)


def test_what_came_since_the_last_sample_counts() -> None:
    process = SampledProcess()
    process.recent.sample()
    process.now += 30.0
    process.counts["metal"] = {"1.58": 3, "1.90": 4}
    assert process.recent.last_hour("metal") == LastHour({"1.58": 3, "1.90": 4}, 30.0)


def test_a_service_that_was_added_later_and_one_that_is_unknown() -> None:
    process = SampledProcess()
    process.recent.sample()
    process.minutes(5)
    process.counts["other"] = {"2": 9}
    assert process.recent.last_hour("other") == LastHour({"2": 9}, 300.0)
    assert process.recent.last_hour("nobody").served == {}


def test_before_the_first_sample_everything_is_new() -> None:
    process = SampledProcess()
    process.counts["metal"]["1.58"] = 2
    assert process.recent.last_hour("metal") == LastHour({"1.58": 2}, 0.0)


def test_an_idle_day_holds_one_copy() -> None:
    process = SampledProcess()
    process.minutes(1440)
    copies = {id(counts["metal"]) for _, counts in process.recent._samples}
    assert (len(process.recent._samples), len(copies)) == (61, 1)


async def test_it_samples_by_itself_until_it_is_closed() -> None:
    process = SampledProcess()
    process.recent.start()
    loop = asyncio.get_running_loop()
    timer = process.recent._timer._handle
    assert timer is not None
    assert RecentRequests.every - 1 < timer.when() - loop.time() <= RecentRequests.every
    process.recent.close()
    assert timer.cancelled()
    process.recent.close()


def test_a_service_that_came_back_began_at_zero() -> None:
    process = SampledProcess()
    process.recent.sample()
    process.minutes(1, requests=9)
    process.counts = {}
    process.minutes(0)
    process.recent.sample()
    process.counts = {"metal": {"1.58": 4}}
    assert process.recent.last_hour("metal").served == {"1.58": 4}
    process.minutes(70, requests=9)
    process.counts = {"metal": {"1.58": 5}}
    assert process.recent.last_hour("metal").served == {"1.58": 5}


# --- the requests of each minute ----------------------------------------------------------------------------


def sampled(*counts: dict[str, TrafficCounts]) -> HourlyTraffic:
    """The counts since the start at the end of each minute."""
    minutes = iter(counts)
    traffic = HourlyTraffic(lambda: next(minutes), lambda: 0.0)
    for _ in counts:
        traffic.sample()
    return traffic


def test_each_minute_has_what_was_counted_in_it() -> None:
    traffic = sampled(
        {"metal": TrafficCounts(5, 1)}, {"metal": TrafficCounts(15, 1)}, {"metal": TrafficCounts(15, 4)}
    )
    assert traffic.minutes("metal") == [TrafficCounts(10, 0), TrafficCounts(0, 3)]
    assert traffic.minutes("nobody") == []


def test_a_service_whose_counts_began_at_zero_again_has_no_negative_minute() -> None:
    traffic = sampled({"metal": TrafficCounts(50, 9)}, {}, {"metal": TrafficCounts(4, 2)})
    assert traffic.minutes("metal") == [TrafficCounts(4, 2)]


def test_no_more_than_an_hour_is_kept() -> None:
    traffic = sampled(*({"metal": TrafficCounts(number)} for number in range(200)))
    assert traffic.minutes("metal") == [TrafficCounts(1)] * 60


def test_traffic_is_that_of_all_statuses_and_backends() -> None:
    metrics = Metrics()
    metrics.watch(snapshot_holder())
    for status, backend in (200, "old"), (503, "old"), (500, "new"), (404, "new"):
        metrics.record(record(status=status, backend=backend))
    assert metrics.traffic()["baremetal"] == TrafficCounts(4, 2)
