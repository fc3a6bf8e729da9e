"""Gateways with several workers, without processes: what each worker holds, on its way and acknowledged.

`ManyWorkers` is a timeline: `snapshot` is what a gateway with one worker would have. Beside it are the
running gateways, each a `Process` with its `WorkerAgreement` and its workers. Time and messages pass only
when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.worker_agreement import WorkerAgreement
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from tests.core.timeline import Timeline

TURNS = 6
"""Turns of the loop after which everything has happened that waits for nothing."""


class Worker:
    """At most one update is on its way to it, or its acknowledgement on the way back."""

    def __init__(self, started_with: Snapshot) -> None:
        self.held: Snapshot | None = None
        self.sent: Snapshot | None = started_with
        self.acknowledged: Snapshot | None = None
        self.live = False
        """It counts, and serves."""

    def gets_it(self) -> None:
        if self.sent is not None:
            self.held = self.sent


class Disk:
    """The state file. A write ends at once, when `is_done` is called, or never."""

    def __init__(self) -> None:
        self.records: Mapping[str, AgreedRecord] = {}
        self.stuck = False
        self._done = asyncio.Event()

    async def write(self, records: Mapping[str, AgreedRecord]) -> bool:
        while self.stuck:
            await self._done.wait()
        self.records = dict(records)
        return True

    def is_done(self) -> None:
        self.stuck = False
        self._done.set()
        self._done.clear()


class Process:
    """One gateway. With no workers (`alone`) it serves by itself."""

    def __init__(self, snapshot: Snapshot, disk: Disk, *, alone: bool, orphans: Callable[[], bool]) -> None:
        self.holder = SnapshotHolder(snapshot, lambda: 0.0)
        self.alone = alone
        self.workers: list[Worker] = []
        self.disk = disk
        self.agreement = WorkerAgreement(
            self.holder,
            self._held,
            restored=disk.records,
            alone=alone,
            orphans=orphans,
            save=self._save,
        )

    async def _save(self) -> bool:
        return await self.disk.write(self.agreement.to_save())

    def _held(self, service: str) -> int | None:
        return min(
            (_seq(worker.acknowledged, service) for worker in self.workers if worker.live), default=None
        )

    # -- what happens

    def starts_a_worker(self) -> None:
        self.workers.append(Worker(self.holder.current))

    def ends_a_worker(self, at: int) -> None:
        if self.workers:
            del self.workers[at % len(self.workers)]
            self.agreement.acknowledged()

    def acknowledges(self, worker: Worker) -> None:
        """What it was sent is in force there, and the main process gets to know."""
        if worker.sent is None:
            return
        worker.gets_it()
        worker.acknowledged, worker.sent = worker.sent, None
        if not worker.live:
            names = self.holder.current.views
            worker.live = all(
                _seq(worker.acknowledged, name) == _seq(self.holder.current, name) for name in names
            )
        self.agreement.acknowledged()

    def sends(self, worker: Worker) -> None:
        """Whatever is new, if it has acknowledged what it was sent before."""
        if worker.sent is None and worker.acknowledged is not self.holder.current:
            worker.sent = self.holder.current

    def serving(self) -> Iterator[Snapshot]:
        if self.alone:
            yield self.holder.current
        for worker in self.workers:
            if worker.live and worker.held is not None:
                yield worker.held


def _seq(snapshot: Snapshot | None, service: str) -> int:
    view = None if snapshot is None else snapshot.views.get(service)
    record = None if view is None or view.agreed is None else view.agreed.record
    return 0 if record is None else record.seq


class ManyWorkers(Timeline):
    """`process` is the gateway that learns; `earlier` is being taken over, and drains. `orphans` are what
    workers hold whose main process was killed."""

    def __init__(self, one: Service, saved: SavedState | None = None, workers: int = 2) -> None:
        super().__init__(one, saved)
        self.loop = asyncio.new_event_loop()
        self.disk = Disk()
        self.orphans: list[Snapshot] = []
        self.earlier: Process | None = None
        self.process = self._started(workers, {} if saved is None else {one.name: saved})

    def close(self) -> None:
        for process in (self.process, self.earlier):
            if process is not None:
                self.loop.run_until_complete(process.agreement.close())
        self.loop.close()

    def do(self, happens: Callable[[], object]) -> None:
        """In the loop, until nothing moves that waits for nothing."""

        async def run() -> None:
            happens()
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    # -- to the gateway that learns

    def reload(self, one: Service) -> str:
        result = super().reload(one)
        holder = self.process.holder
        after = Snapshot.configured([one], now=self.now, after=holder.current)
        self.do(lambda: holder.update(after))
        return result

    def restart(self, one: Service) -> str:
        """The main process is killed, and its workers are orphans until they have drained. Whoever is still
        being taken over has ended before: the next process could not know of it."""
        self.earlier_one_ends()
        saved = self.snapshot.saved()
        result = super().restart(one)
        self.orphans += self.process.serving() if not self.process.alone else ()
        self._leave(self.process)
        self.process = self._started(len(self.process.workers), saved)
        return result

    def is_taken_over(self, workers: int) -> None:
        """Another process begins with its knowledge; this one holds still, and drains."""
        if self.earlier is not None:
            return
        self.disk.is_done()
        self.do(lambda: None)
        self.earlier = self.process
        self.do(self.earlier.agreement.hold)
        self.disk.records = dict(self.earlier.agreement.to_save())
        saved = self.snapshot.saved()
        super().restart(self.view.service)
        self.process = self._started(workers, saved, takes_over=True)

    def earlier_one_ends(self) -> None:
        if self.earlier is not None:
            self._leave(self.earlier)
            self.earlier = None
            self.do(self.process.agreement.release)

    def orphans_end(self) -> None:
        self.orphans.clear()
        self.do(self.process.agreement.acknowledged)

    def _take(self, fleet: Fleet) -> None:
        super()._take(fleet)
        holder = self.process.holder
        self.do(lambda: holder.update(holder.current.with_fleet(self.snapshot.fleet, self.now)))
        if self.earlier is not None:
            known = self.earlier.holder
            if known.current.views[self.name].service is self.view.service:  # it learns the same
                self.do(lambda: known.update(known.current.with_fleet(self.snapshot.fleet, self.now)))

    def _started(self, workers: int, saved: Mapping[str, SavedState], *, takes_over: bool = False) -> Process:
        process = Process(
            Snapshot.configured([self.view.service], now=self.now, saved=saved),
            self.disk,
            alone=workers == 0,
            orphans=lambda: bool(self.orphans),
        )
        if takes_over:
            self.do(lambda: process.agreement.hold(everything=False))
        self.do(process.agreement.start)
        for _ in range(workers):
            process.starts_a_worker()
        return process

    def _leave(self, process: Process) -> None:
        self.loop.run_until_complete(process.agreement.close())

    # -- what clients see

    def views(self) -> Iterator[ServiceView]:
        """By which requests are answered anywhere at this moment."""
        processes = [self.process] if self.earlier is None else [self.process, self.earlier]
        for process in processes:
            for snapshot in process.serving():
                yield snapshot.views[self.name]
        for snapshot in self.orphans:
            view = snapshot.views[self.name]
            assert view.agreed is not None
            yield view.with_agreed(replace(view.agreed, attached=False), 0.0)

    def rest(self) -> None:
        """No other process serves any more, and all messages arrive."""
        self.disk.is_done()
        self.orphans_end()
        self.earlier_one_ends()
        process = self.process
        for _ in range(100):
            before = process.holder.current
            for worker in process.workers:
                self.do(lambda worker=worker: process.acknowledges(worker))  # type: ignore[misc]
                process.sends(worker)
            everything_there = all(
                worker.sent is None and worker.live and worker.held is before for worker in process.workers
            )
            if process.holder.current is before and everything_there:
                return
        raise AssertionError("it does not come to rest")
