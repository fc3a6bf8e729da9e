"""The supervisor of worker processes: starts, watches, replaces and ends them.

    SnapshotHolder  ->  Publisher  ->  WorkerHandle, one for each slot  ->  worker processes
                                       <-  acknowledgements, facts, reports

Each slot has a task that starts a worker and, when it has ended, the next one with the same listening
sockets. A worker serves only once it holds what all others hold. The main process waits for a worker only in
the methods of `DataPlane` that say so, and then not for ever. It decides nothing about offers and requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.core.decision.decision import DocumentKey
from gateway.core.fleet.publication import Publication
from gateway.dataplane.documents.cached import CachedDocuments
from gateway.dataplane.edge.balance import ConnectionCounts
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.errors import StartupError
from gateway.runtime.timer import Timer
from gateway.settings import Settings
from gateway.telemetry.counters import Counted
from gateway.telemetry.status import WorkerState
from gateway.telemetry.worker_report import WorkerReport, WorkerStats, plus
from gateway.workers import messages
from gateway.workers.build_id import build_id
from gateway.workers.publisher import Publisher, Recipient, holds_records, lowest_held, offers
from gateway.workers.reports import Reports
from gateway.workers.shares import TokenBroker
from gateway.workers.stand_in_acceptor import StandInAcceptor
from gateway.workers.worker_handle import PROGRAM, WorkerHandle, WorkerStage, ending_of

_PROBED: Final = CachedDocuments()
"""Discovery documents known to the main process: those that probes have read, as it serves no client."""

BEATS: Final = 4
"""Report requests (beats) to a worker in one TTL. One that leaves so many unanswered is replaced. They are
counted, not timed: after the main process itself has stood still, workers still get their time."""
COLLECT: Final = 1.0
"""Seconds for which `collect` waits for the reports of workers. Then their last ones count."""
CUT: Final = 5.0
"""Seconds after the drain time within which all workers must have ended."""
END: Final = 1.0
"""Seconds for workers that must end at once: they cut all connections, and write their logs."""

_log = logging.getLogger("skewgate.workers")


@final
class Timing(NamedTuple):
    """The times by which workers are supervised, in seconds."""

    ttl: float = 3.0
    """Time without a sign of life after which a worker is replaced."""
    start: float = 30.0
    """Time in which a new worker must acknowledge its first message."""
    first_pause: float = 0.1
    """Pause before the next worker of a slot after two early ends in a row. It doubles with each more."""
    longest_pause: float = 5.0
    steady: float = 10.0
    """Time of serving after which the end of a worker does not count as early."""


TIMING: Final = Timing()


@final
class WorkerProcesses:
    """The data plane of `number` worker processes. `count`: called with their counts. `acknowledged`: called
    whenever `held` may have changed. `usage`: the record of usage, if there is one. `program`: the command of
    a worker, without its arguments."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        snapshot_holder: SnapshotHolder,
        sockets: ListeningSockets,
        shared: TokenBroker,
        count: Callable[[Counted], None],
        *,
        acknowledged: Callable[[], None] = lambda: None,
        usage: UsageKeeper | None = None,
        timing: Timing = TIMING,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._number = number
        self._snapshot_holder = snapshot_holder
        self._sockets = sockets
        self._shared = shared
        self._acknowledged = acknowledged
        self._timing = timing
        self._program = tuple(program)
        self._code = build_id()
        self._deadlines: messages.Deadlines | None = None
        """The deadlines for refusals that workers were sent last; None: none were."""
        self._connection_counts = ConnectionCounts(number)
        self._stand_in = StandInAcceptor(sockets, self._connection_counts)
        self._publisher = Publisher(snapshot_holder, settings)
        self._handles: dict[int, WorkerHandle] = {}
        self._reports = Reports(self._handles.values(), count, usage)
        self._restarts = dict.fromkeys(range(number), 0)
        self._slots: set[asyncio.Task[None]] = set()
        self._changes = Changes()
        self._beat = 0
        self._beat_timer = Timer()
        self._promised = 0
        """Number of the last change (snapshot, settings) reported, or to be, as in force in all workers."""
        self._start_failure = ""
        """The reason why a worker could not be started the first time."""
        self._started = False
        self._listening = False
        self._paused = False
        """Whether this data plane has accepted clients, and does not any more."""
        self._ending = False

    async def start(self) -> None:
        for slot in range(self._number):
            # Owned by `_slots` until `abort`.
            self._slots.add(asyncio.get_running_loop().create_task(self._keep(slot), name=f"worker {slot}"))
        self._on_beat()
        # Not for ever: a worker that takes too long is killed.
        await self._changes.until(lambda: bool(self._start_failure) or self._all_are(WorkerStage.LIVE))
        if self._start_failure:
            await self.abort()
            raise StartupError(self._start_failure)
        self._started = True

    async def listen(self) -> None:
        def serves() -> bool:
            stages = {handle.stage for handle in self._handles.values()}
            return WorkerStage.SERVING in stages and WorkerStage.LIVE not in stages

        self._listening = True
        for handle in self._handles.values():
            self._serve(handle)
        self._cover()
        if not await self._changes.until(serves, self._timing.start):
            raise StartupError("the workers do not serve; the log says why")

    async def stop_accepting(self) -> None:
        self._listening, self._paused = False, True
        self._cover()
        # A worker that is about to serve sends `Serving` before `Stopped`.
        ready = {WorkerStage.SERVING, WorkerStage.LIVE}
        paused = [each for each in self._handles.values() if each.stage in ready]
        for handle in paused:
            handle.pause()
        await self._all_stopped(paused)

    async def drain(self, seconds: float) -> None:
        self._ending = True
        self._cover()
        self._changes.changed()  # no slot waits any longer to start another worker
        for handle in list(self._handles.values()):
            if handle.stage is WorkerStage.STARTING:
                handle.dismiss()
            elif handle.stage is not WorkerStage.DRAINING:
                handle.drain(seconds)
        await self._all_stopped(tuple(self._handles.values()))
        if not await self._changes.until(lambda: not self._handles, seconds + CUT):
            for handle in self._handles.values():
                handle.kill(f"has not ended {CUT:g} s after the drain time")
        await self.abort()

    async def abort(self) -> None:
        self._ending = True
        self._cover()
        serving = [handle for handle in self._handles.values() if handle.stage is WorkerStage.SERVING]
        for handle in serving:
            handle.drain(0.0)
        if serving:
            await self._changes.until(lambda: not {*serving} & {*self._handles.values()}, END)
        self.kill()
        slots, self._slots = self._slots, set()
        await asyncio.gather(*slots)
        self._beat_timer.cancel()
        self._publisher.close()
        self._stand_in.close()
        self._connection_counts.close()

    def kill(self) -> None:
        self._ending = True
        self._cover()
        for handle in self._handles.values():
            handle.dismiss()
        self._changes.changed()

    async def _all_stopped(self, handles: Iterable[WorkerHandle]) -> None:
        """Wait until none of these workers accepts clients any more. One that hangs is killed."""

        def accepting() -> list[WorkerHandle]:
            running = self._handles.values()
            return [handle for handle in handles if handle in running and not handle.stopped]

        if not await self._changes.until(lambda: not accepting(), self._timing.ttl):
            for handle in accepting():
                handle.kill(f"has not stopped accepting within {self._timing.ttl:g} s")
            await self._changes.until(lambda: not accepting())

    async def _keep(self, slot: int) -> None:
        """Keep a worker running in a slot: start the next when one has ended, until the data plane ends."""
        failures = 0
        while True:
            handle = WorkerHandle(slot, self._received)
            how = await self._live(handle)
            if self._ending:
                if not handle.dismissed or handle.why_killed:
                    _log.warning("worker %d (process %d) has ended: %s", slot, handle.pid, how)
                return
            if not self._started:
                self._start_failure = f"worker {slot} could not start: {how}"
                self._changes.changed()
                return
            served = handle.serving_at
            failures = 0 if served and monotonic() - served >= self._timing.steady else failures + 1
            self._restarts[slot] += 1
            pause = self._pause(failures)
            _log.error(
                "worker %d (process %d) has ended: %s; its connections are cut%s; a new worker is started%s",
                slot,
                handle.pid,
                how,
                self._reports.count_cut_off(handle),
                f" in {pause:g} s" if pause else " now",
            )
            if await self._changes.until(lambda: self._ending, pause):
                return

    def _pause(self, failures: int) -> float:
        """Seconds to pause before the next worker is started. After a first failure there is no pause."""
        if failures <= 1:
            return 0.0
        pause: float = self._timing.first_pause * 2.0 ** min(failures - 2, 30)
        return min(pause, self._timing.longest_pause)

    async def _live(self, handle: WorkerHandle) -> str:
        """Run one worker until its end. Returns the reason for its end, for the log."""
        slot = handle.slot
        listeners = tuple((index, sock.fileno()) for index, sock in self._sockets.of_slot(slot))
        balance = self._connection_counts.descriptors(slot)

        def first_message(settings: Settings, everything: Publication) -> messages.Start:
            return messages.Start(settings, everything, slot, self._number, listeners, balance)

        self._handles[slot] = handle
        try:
            inherited = [*(descriptor for _, descriptor in listeners), *balance.all()]
            await handle.start(self._program, self._code, inherited)
            if self._ending:
                handle.dismiss()
            handle.recipient = self._publisher.add(handle.send, first_message)
            if self._deadlines is not None:
                handle.send(self._deadlines)
            self._shared.joined(slot, handle.send)
            code = await handle.ended()
        except OSError as error:
            return f"{self._program[0]} cannot be run: {error.strerror or error}"
        finally:
            self._forget(handle)
        return f"it {handle.why_killed}, and was killed" if handle.why_killed else ending_of(code)

    def _forget(self, handle: WorkerHandle) -> None:
        del self._handles[handle.slot]
        self._connection_counts.ended(handle.slot)
        if able := self._receivers():  # connections that were given to the ended one go to another one
            self._connection_counts.move(handle.slot, min(able, key=self._connection_counts.count))
        self._cover()
        self._reports.retire(handle)
        if handle.recipient is not None:
            self._publisher.remove(handle.recipient)
            self._shared.left(handle.slot)
        self._changes.changed()
        self._acknowledged()

    def _receivers(self) -> list[int]:
        """Slots of workers that take connections: they serve, or have just stopped."""
        return [handle.slot for handle in self._handles.values() if handle.serving_at is not None]

    def _cover(self) -> None:
        """Let the main process accept clients for slots whose worker is dead, while another one serves. A
        worker that is about to serve accepts itself."""
        vacant = []
        if self._listening and not self._ending:
            stages = {slot: handle.stage for slot, handle in self._handles.items()}
            if WorkerStage.SERVING in stages.values():
                slots = range(self._number)
                vacant = [
                    slot for slot in slots if stages.get(slot, WorkerStage.STARTING) is WorkerStage.STARTING
                ]
        self._stand_in.cover(vacant, self._receivers())

    def _received(self, handle: WorkerHandle, message: object) -> None:
        recipient, well = handle.recipient, True
        if recipient is None:
            well = False  # it was not sent anything yet
        elif isinstance(message, messages.Ack):
            handle.unanswered = 0
            well = self._publisher.acknowledged(recipient, message.number)
            if well:
                self._advance(handle, recipient)
        elif isinstance(message, messages.Report):
            handle.unanswered = 0
            self._reports.received(handle, message)
        elif isinstance(message, messages.LearnedFacts):
            well = self._publisher.facts(recipient, message)
        elif isinstance(message, messages.AttemptFailed | messages.LeaseUse | messages.ClientUse):
            self._shared.received(handle.slot, message)
        elif isinstance(message, messages.Serving) and handle.stage is not WorkerStage.STARTING:
            self._serves(handle)
        elif isinstance(message, messages.Stopped) and handle.stops_due:
            self._stops(handle)
        else:
            well = False
        if not well:
            handle.kill(f"has sent a message that is not valid now ({str(message)[:80]})")
        self._changes.changed()

    def _advance(self, handle: WorkerHandle, recipient: Recipient) -> None:
        """Let a worker serve once it has acknowledged all that the others hold."""
        if (
            handle.stage is WorkerStage.STARTING
            and recipient.held is not None
            and recipient.changes >= self._promised
            and holds_records(recipient.held, self._snapshot_holder.current)
        ):
            handle.stage = WorkerStage.LIVE
            if self._listening:
                self._serve(handle)
                self._cover()
        self._acknowledged()

    def _serve(self, handle: WorkerHandle) -> None:
        if handle.stage in {WorkerStage.LIVE, WorkerStage.SERVING} and not self._ending:
            handle.serve()

    def _serves(self, handle: WorkerHandle) -> None:
        if handle.stage is WorkerStage.LIVE:
            handle.stage = WorkerStage.SERVING
            handle.serving_at = monotonic()
            self._cover()
            _log.info(
                "worker %d serves: process %d, started %.1f s ago",
                *(handle.slot, handle.pid, handle.serving_at - handle.began_at),
            )

    def _stops(self, handle: WorkerHandle) -> None:
        handle.stops_due -= 1
        handle.stopped = not handle.stops_due
        if handle.stage is WorkerStage.SERVING:
            handle.stage = WorkerStage.LIVE
            self._cover()

    def _on_beat(self) -> None:
        self._beat_timer.set(self._timing.ttl / BEATS, self._on_beat)
        self._beat += 1
        now = monotonic()
        for handle in self._handles.values():
            if handle.held is None:
                if now - handle.began_at > self._timing.start:
                    handle.kill(f"has not started within {self._timing.start:g} s")
            elif handle.unanswered >= BEATS:
                handle.kill(f"has not answered for {self._timing.ttl:g} s")
            else:
                handle.unanswered += 1
                handle.send(messages.ReportRequest(self._beat, counters=True))

    async def collect(self, *, counters: bool) -> None:
        self._beat += 1
        number = self._beat
        asked = [handle for handle in self._handles.values() if handle.held is not None]
        for handle in asked:
            handle.send(messages.ReportRequest(number, counters))

        def answered(handle: WorkerHandle) -> bool:
            report = handle.report
            return (report is not None and report.number >= number) or handle not in self._handles.values()

        await self._changes.until(lambda: all(map(answered, asked)), COLLECT)

    def configured(self, settings: Settings) -> None:
        self._publisher.configured(settings)

    async def in_force(self) -> bool:
        """Wait until the present snapshot is in force in every worker, for two TTL at most: a worker that
        does not acknowledge it is killed by then. A worker that starts holds it before it serves."""
        await self._snapshot_holder.notified()
        self._snapshot_holder.apply_batch()
        self._promised = target = self._publisher.changes
        return await self._changes.until(
            lambda: all(
                handle.recipient is not None and handle.recipient.changes >= target
                for handle in self._handles.values()
                if handle.stage is not WorkerStage.STARTING
            ),
            2 * self._timing.ttl,
        )

    def held(self, service: str) -> int | None:
        held = [handle.held for handle in self._handles.values() if handle.held is not None]
        return lowest_held(service, self._snapshot_holder.current, held)

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """Send every worker the deadlines by service, which it checks before it refuses a version."""
        self._deadlines = messages.Deadlines(deadlines)
        self._tell_all(self._deadlines)

    def reopen_logs(self) -> None:
        self._tell_all(messages.Do("reopen_logs"))

    def read_certificates(self) -> None:
        self._tell_all(messages.Do("read_certificates"))

    def _tell_all(self, message: messages.Do | messages.Deadlines) -> None:
        """Send a message to all workers, also to those that start: they may have read the files before it."""
        for handle in self._handles.values():
            handle.send(message)

    @property
    def not_serving(self) -> str:
        if self._ending:
            return "the gateway is shutting down"
        serving = [handle for handle in self._handles.values() if handle.stage is WorkerStage.SERVING]
        if serving:
            # The main process is a moment ahead: an offer is of use to clients once the workers hold it.
            ahead = offers(self._snapshot_holder.current) and not all(offers(each.held) for each in serving)
            return "the workers do not hold the offer yet" if ahead else ""
        if self._listening:
            return "no worker serves at this moment: the log says why"
        if self._paused:
            return "no clients are accepted: another gateway is taking over"
        return "the gateway is starting: it does not listen yet"

    def report(self) -> WorkerReport:
        serving = {slot for slot, handle in self._handles.items() if handle.stage is WorkerStage.SERVING}
        processes = {
            str(slot): WorkerStats(up=slot in serving, restarts=restarts)
            for slot, restarts in self._restarts.items()
        }
        known = WorkerReport(ejected=self._shared.ejected(), processes=processes)
        return plus(known, self._reports.total())

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        return self._reports.in_flight_by_member()

    @property
    def held_back(self) -> Mapping[str, int]:
        return self._shared.held_back

    @property
    def cached_documents(self) -> Container[DocumentKey]:
        """The discovery documents that probes have read. A worker keeps those of its requests for itself."""
        return _PROBED

    def workers(self) -> Iterator[WorkerState]:
        for slot, restarts in self._restarts.items():
            handle = self._handles.get(slot)
            if handle is None:
                yield WorkerState(slot, 0, 0, WorkerStage.STARTING.value, restarts)
            else:
                connections = 0 if handle.report is None else handle.report.worker.use[str(slot)].clients
                yield WorkerState(slot, handle.pid, connections, handle.stage.value, restarts, handle.held)

    def _all_are(self, stage: WorkerStage) -> bool:
        return len(self._handles) == self._number and all(
            handle.stage is stage for handle in self._handles.values()
        )


@final
class Changes:
    """A condition variable of one event loop: `until` waits, `changed` checks all conditions again."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def changed(self) -> None:
        """Let everything that waits in `until` check its condition again."""
        happened, self._next = self._next, asyncio.Event()
        happened.set()

    async def until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `holds()` is true, for `seconds` at most; None: for ever. Returns whether it is."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await self._next.wait()
        except TimeoutError:
            return holds()
        return True
