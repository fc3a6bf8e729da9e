"""What all workers together have reported: sums of their last reports.

A worker that has ended has no connections and no requests any more, but what it has counted stays counted:
requests and the like in the metrics of this process (`telemetry.merging`), the rest here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, final

from gateway.telemetry.merging import Counted
from gateway.telemetry.process_families import WorkerUse
from gateway.workers.messages import Report
from gateway.workers.worker_handle import WorkerHandle


@final
class CutOff(NamedTuple):
    """What was under way in workers that ended without being told to, by their last reports. A worker may
    have finished some of it, and begun more, since it reported."""

    requests: int = 0
    tunnels: int = 0
    """They are no requests any more."""

    def __str__(self) -> str:
        """The end of a log line about what has happened; empty: nothing was under way."""
        if not any(self):
            return ""
        return f" (by its last report: requests under way {self.requests}, tunnels {self.tunnels})"


@final
class Reports:
    """Of the workers that run at this moment, and of those that have ended. `count`: `Metrics.add`."""

    def __init__(self, running: Iterable[WorkerHandle], count: Callable[[Counted], None]) -> None:
        self._running = running
        """Looked at anew by each method."""
        self._count = count
        self._cpu_seconds: dict[int, float] = {}
        """By slot, of those that have ended."""
        self._cut_off: dict[int, CutOff] = {}
        """Requests and tunnels that were cut off, by slot."""
        self._access_log_dropped = 0
        self._process_log_dropped = 0

    def received(self, handle: WorkerHandle, report: Report) -> None:
        """A worker has said how it is."""
        handle.report = report
        if report.counted is not None:
            self._count(report.counted)

    def retire(self, handle: WorkerHandle) -> None:
        """This worker has ended."""
        if handle.report is not None:
            before = self._cpu_seconds.get(handle.slot, 0.0)
            self._cpu_seconds[handle.slot] = before + handle.report.stats.cpu_seconds
            self._access_log_dropped += handle.report.access_log_dropped
            self._process_log_dropped += handle.report.process_log_dropped

    def count_cut_off(self, handle: WorkerHandle) -> CutOff:
        """Count what was under way in this worker, which has ended without being told to: it has written no
        line about it."""
        report = handle.report
        if report is None:
            return CutOff()
        cut = CutOff(sum(report.in_flight_by_service.values()), sum(report.tunnels_open.values()))
        before = self.cut_off(handle.slot)
        self._cut_off[handle.slot] = CutOff(before.requests + cut.requests, before.tunnels + cut.tunnels)
        return cut

    def cut_off(self, slot: int) -> CutOff:
        """The sum for the workers of this slot."""
        return self._cut_off.get(slot, CutOff())

    def in_flight_by_member(self) -> Mapping[str, int]:
        """Requests in flight by member key."""
        return _sum(report.in_flight_by_member for _, report in self._last())

    def in_flight_by_service(self) -> Mapping[str, int]:
        """Requests in flight by service."""
        return _sum(report.in_flight_by_service for _, report in self._last())

    def waiting_by_member(self) -> Mapping[str, int]:
        """Requests in queues by member key."""
        return _sum(report.waiting_by_member for _, report in self._last())

    def connections(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Idle and active connections by service and backend."""
        idle: Counter[tuple[str, str]] = Counter()
        active: Counter[tuple[str, str]] = Counter()
        for _, report in self._last():
            for key, (idle_here, active_here) in report.connections.items():
                idle[key] += idle_here
                active[key] += active_here
        return {key: (idle[key], active[key]) for key in idle}

    def use(self) -> Mapping[str, WorkerUse]:
        """What is used of the limits, by worker."""
        return {str(handle.slot): report.use for handle, report in self._last()}

    def tunnels_open(self) -> Mapping[str, int]:
        """Tunnels that are open, by service."""
        return _sum(report.tunnels_open for _, report in self._last())

    def cpu_seconds(self, slot: int) -> float:
        """What the workers of this slot have taken of the processor."""
        running = sum(report.stats.cpu_seconds for handle, report in self._last() if handle.slot == slot)
        return self._cpu_seconds.get(slot, 0.0) + running

    def access_log_dropped(self) -> int:
        """Lines of the access log that were lost."""
        return self._access_log_dropped + sum(report.access_log_dropped for _, report in self._last())

    def process_log_dropped(self) -> int:
        """Lines of the process log that were lost."""
        return self._process_log_dropped + sum(report.process_log_dropped for _, report in self._last())

    def _last(self) -> Iterator[tuple[WorkerHandle, Report]]:
        return ((handle, handle.report) for handle in self._running if handle.report is not None)


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
