"""Gathers what workers have counted, and hands it to the thread of the database every five seconds.

    worker  ->  UsageReport  ->  UsageKeeper  ->  Batch  ->  a thread of its own  ->  Database

The event loop never waits for the disk, and no error of the database reaches a request.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import time
from typing import Final, TypeVar, final

from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.reading import UsageError, days_between, missing
from gateway.core.usage.record import Gap, UsageRecord, UsageReport
from gateway.runtime.process import end_tasks

TAKE: Final = 1.0
"""Seconds between two reports of a worker in this process."""
COMMITS: Final = 5
"""Number of such reports that one transaction gathers."""
MAX_WAIT: Final = 30.0
"""Seconds that a question waits for the disk."""
_OLDEST: Final = 6.0
"""Seconds that a request of a lost report may be older than the loss."""
MAX_WAITING: Final = 200_000
"""Most rows of reports that wait while the thread is busy, as with a disk that hangs."""
_MAX_SENDERS: Final = 1000
"""Most processes whose last report is remembered."""

_T = TypeVar("_T")
_log = logging.getLogger("skewgate.usage")


async def _nothing() -> None:
    """Report of a process without a worker."""


@final
class UsageKeeper:
    """Keeper of the record of usage, from `start` to `close`, on the running loop.

    `state`: makes a batch of the present state, at a Unix time. `collect`: waits for reports of workers."""

    def __init__(
        self, database: Database, state: Callable[[float], Batch], collect: Callable[[], Awaitable[None]]
    ) -> None:
        self._database = database
        self._state = state
        self._collect = collect
        self.report: Callable[[], Awaitable[UsageReport | None]] = _nothing
        """Reports what the worker in this process has counted since the last call. The worker sets it."""
        self.incomplete = False
        """Whether the record of today is incomplete."""
        self._reports: list[UsageReport] = []
        self._waiting = 0
        """Number of rows in these reports."""
        self._gaps: list[Gap] = []
        self._sequences: dict[str, int] = {}
        """Number of the last report by incarnation of the process that sent it."""
        self._failing = False
        self._thread = ThreadPoolExecutor(1, "usage")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to gather reports."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name="usage")

    def received(self, report: UsageReport | None) -> None:
        """Take the report of a process, once."""
        if report is None or report.sequence <= (last := self._sequences.get(report.incarnation, 0)):
            return
        if report.sequence > last + 1:
            self.lost("a report of a process has not arrived")
        self._sequences.pop(report.incarnation, None)  # the last one to report is the last one in order
        self._sequences[report.incarnation] = report.sequence
        if len(self._sequences) > _MAX_SENDERS:
            del self._sequences[next(iter(self._sequences))]
        self._reports.append(report)
        self._waiting += len(report.rows)
        if self._waiting > MAX_WAITING:
            days = {day for each in self._reports for day, _ in each.rows}
            lost = "requests waited for a slow disk, and were given up"
            self._gaps += missing(days, lost)
            self._reports, self._waiting, self.incomplete = [], 0, True

    def lost(self, why: str) -> None:
        """Mark the record as incomplete, because requests were not reported."""
        now = time()
        self._gaps += missing(days_between(now - _OLDEST, now), why)
        self.incomplete = True

    async def read(self, service: str | None, days: int | None) -> UsageRecord:
        """Read the record of the last `days` whole UTC days and of today; None: all. Raises `UsageError`."""
        return await self._fresh(lambda: self._database.read(service, days, time()))

    async def export(self) -> bytes:
        """Copy the database as it is at this moment, as one file. Raises `UsageError`."""
        return await self._fresh(lambda: self._database.export(time()))

    async def close(self) -> None:
        """Write the last reports, and that this run has ended in order."""
        await end_tasks(self._task)
        await self._gather(last=True)
        await self._run(self._database.close)
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        for second in count():
            await self._gather(commit=second % COMMITS == 0)
            await asyncio.sleep(TAKE)

    async def _gather(self, *, commit: bool = True, last: bool = False) -> None:
        """Take what the worker in this process has counted; `commit`: and write what has come so far."""
        try:
            self.received(await self.report())
            if not commit:
                return
            batch = self._state(time())
            batch = batch._replace(reports=self._reports, gaps=[*batch.gaps, *self._gaps])
            self._reports, self._waiting, self._gaps = [], 0, []
            self.incomplete = await self._run(lambda: self._database.commit(batch, last=last))
        except Exception as problem:  # noqa: BLE001 - counting goes on, and the record says what is missing
            if not self._failing:
                bug = not isinstance(problem, UsageError)
                _log.error("%s; it is kept in memory until it can be written", problem, exc_info=bug)
            self._failing = self.incomplete = True
        else:
            if self._failing:
                _log.info("usage is written again")
            self._failing = False

    async def _fresh(self, call: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(MAX_WAIT):
                await self._collect()
                await self._gather()
                return await self._run(call)
        except TimeoutError:
            raise UsageError("the database of usage does not answer: is its disk slow?") from None

    async def _run(self, call: Callable[[], _T]) -> _T:
        """Run a call in the thread of the database. It ends even if nobody waits for it any more."""
        try:
            return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, call))
        except sqlite3.Error as problem:
            raise UsageError(f"the record of usage cannot be used: {problem}") from None
