"""The sum of the reports of all worker processes, those that have ended included.

A worker that has ended has no connections and no requests any more, but its counts stay: requests and the
like in the metrics of this process (`telemetry.counters`), the rest here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple, final

from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.telemetry.counters import Counted
from gateway.telemetry.worker_report import WorkerReport, WorkerStats, plus
from gateway.workers.messages import Report
from gateway.workers.worker_handle import WorkerHandle


@final
class CutOff(NamedTuple):
    """The requests and tunnels under way in a worker that has ended unexpectedly, by its last report."""

    requests: int = 0
    tunnels: int = 0
    """Number of open tunnels in the worker, which do not count as requests any more."""

    def __str__(self) -> str:
        if not any(self):
            return ""
        return f" (by its last report: requests under way {self.requests}, tunnels {self.tunnels})"


@final
class Reports:
    """Sums of the reports of all workers. `running`: a live view of those running. `count`: `Metrics.add`.
    `usage`: gets what workers have counted for the record of usage; None: there is no record."""

    def __init__(
        self,
        running: Iterable[WorkerHandle],
        count: Callable[[Counted], None],
        usage: UsageKeeper | None = None,
    ) -> None:
        self._running = running
        self._count = count
        self._usage = usage
        self._ended = WorkerReport()
        """Values that only rise, summed up from the last reports of workers that have ended."""
        self._in_flight: Mapping[str, int] | None = None
        """Requests in flight by member key, in all workers; None: to be added up again."""

    def received(self, handle: WorkerHandle, report: Report) -> None:
        handle.report = report
        self._in_flight = None
        if report.counted is not None:
            self._count(report.counted)
        if report.usage is not None and self._usage is not None:
            self._usage.received(report.usage)

    def retire(self, handle: WorkerHandle) -> None:
        """Keep what only rises, such as CPU time, of the last report of a worker that has ended."""
        self._in_flight = None
        in_order = handle.report is not None and not handle.report.number
        if self._usage is not None and handle.serving_at is not None and not in_order:
            self._usage.lost("a worker process has ended unexpectedly")
        if handle.report is not None:
            self._ended = plus(self._ended, handle.report.worker.lasting())

    def count_cut_off(self, handle: WorkerHandle) -> CutOff:
        """Count requests and tunnels cut by the unexpected end of a worker, which has logged none of them."""
        if handle.report is None:
            return CutOff()
        last = handle.report.worker
        cut = CutOff(sum(last.in_flight_by_service.values()), sum(last.tunnels_open.values()))
        process = WorkerStats(cut_requests=cut.requests, cut_tunnels=cut.tunnels)
        self._ended = plus(self._ended, WorkerReport(processes={str(handle.slot): process}))
        return cut

    def total(self) -> WorkerReport:
        """The sum of the reports of all workers, those that have ended included."""
        return reduce(plus, self._last(), self._ended)

    def in_flight_by_member(self) -> Mapping[str, int]:
        """Requests in flight by member key, in all workers, added up anew after each report that comes."""
        if self._in_flight is None:
            nothing: Mapping[str, int] = {}
            self._in_flight = reduce(plus, (last.in_flight_by_member for last in self._last()), nothing)
        return self._in_flight

    def _last(self) -> Iterator[WorkerReport]:
        return (handle.report.worker for handle in self._running if handle.report is not None)
