"""Worker processes that do what a test says (`fake_worker` is their program), and a data plane of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.settings import Settings
from gateway.settings.sections.listen import Listen
from gateway.telemetry.worker_report import Ejected
from gateway.workers.messages import AttemptFailed, ClientUse, LeaseUse
from gateway.workers.shares import TokenBroker
from gateway.workers.supervisor import Timing, WorkerProcesses
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, upto
from tests.kit.waiting import PATIENCE, Changes

PROGRAM: Final = Path(__file__).with_name("fake_worker.py")
API: Final = Backend("api-1", "127.0.0.1", 1)
PATIENT: Final = Timing(ttl=60.0, start=60.0, first_pause=0.01, longest_pause=0.05)
"""Nobody is killed for being slow, on a machine that is."""


@final
class FakeWorker:
    """A worker process as the test has it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.told: list[dict[str, Any]] = []
        """What it has got from the main process, in order."""
        self.pid = 0
        self.gone = False

    def order(self, kind: str, *values: object) -> None:
        """See `fake_worker.FakeWorker.order`."""
        self._writer.write(json.dumps({"kind": kind, "values": values}).encode() + b"\n")

    def say(self, kind: str, *values: object) -> None:
        """Let it send a message to the main process."""
        self.order("say", kind, *values)

    @property
    def slot(self) -> int:
        return int(self.of("Start")[0]["slot"])

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What it has got of a kind."""
        return [message for message in self.told if message["kind"] == kind]


@final
class Control:
    """The workers that have begun, in this order."""

    def __init__(self, place: Path) -> None:
        self.path = place / "control"
        self.workers: list[FakeWorker] = []
        self.silent: tuple[str, ...] = ()
        """Kinds of messages that workers which begin from now on do not answer."""
        self.exit_at_once: int | None = None
        """The exit code of workers that begin from now on."""
        self._something = Changes()
        self._connections: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = FakeWorker(writer)
        if self.silent:
            worker.order("silent", *self.silent)
        if self.exit_at_once is not None:
            worker.order("exit", self.exit_at_once)
        worker.order("begin")
        async for line in reader:
            message = json.loads(line)
            if message["kind"] == "began":
                worker.pid = message["pid"]
                self.workers.append(worker)
            else:
                worker.told.append(message)
            self._something.notify()
        worker.gone = True
        self._something.notify()
        writer.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the workers have told what makes it true."""
        await self._something.until(holds)

    async def worker(self, number: int) -> FakeWorker:
        """The one that has begun as this one of all, from 0, once it was told where it is."""
        await self.until(lambda: len(self.workers) > number and bool(self.workers[number].of("Start")))
        return self.workers[number]


@asynccontextmanager
async def control_at(place: Path) -> AsyncIterator[Control]:
    control = Control(place)
    server = await asyncio.start_unix_server(control.connected, control.path)
    try:
        yield control
    finally:
        server.close()
        for worker in control.workers:
            worker._writer.close()
        await asyncio.sleep(0)


@final
class SharedByAll:
    """Stands for what all workers share."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []
        self.held_back: dict[str, int] = {}

    def joined(self, slot: int, send: Callable[[object], None]) -> None:
        self.heard.append((slot, "joined"))

    def received(self, slot: int, message: AttemptFailed | LeaseUse | ClientUse) -> None:
        self.heard.append((slot, type(message).__name__))

    def left(self, slot: int) -> None:
        self.heard.append((slot, "left"))

    def ejected(self) -> dict[str, Ejected]:
        return {}


@final
class Plane:
    """A data plane of fake workers, and what it is about."""

    def __init__(self, control: Control, processes: WorkerProcesses, holder: SnapshotHolder) -> None:
        self.control = control
        self.processes = processes
        self.holder = holder
        self.acknowledged = 0
        self.shared = SharedByAll()

    async def serve(self) -> None:
        await self.processes.start()
        await self.processes.listen()

    def learn(self, highest: int) -> None:
        """A probe brings something new."""
        learn(self.holder, "api-1", upto(highest), float(highest))

    def state(self, slot: int) -> str:
        return next(each.state for each in self.processes.workers() if each.slot == slot)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something of the data plane is true."""
        assert await self.processes._changes.until(holds, PATIENCE)


def settings_of(holder: SnapshotHolder, drain: float = 5.0) -> Settings:
    services = tuple(view.service for view in holder.current.views.values())
    return Settings((Listen("127.0.0.1", 0),), services, timeouts=Timeouts(drain=drain))


def processes_of(
    settings: Settings,
    number: int,
    holder: SnapshotHolder,
    sockets: ListeningSockets,
    control: Path,
    shared: SharedByAll | None = None,
    *,
    acknowledged: Callable[[], None] = lambda: None,
    timing: Timing = PATIENT,
) -> WorkerProcesses:
    """Their program is the fake worker, which heeds `control`."""
    return WorkerProcesses(
        settings,
        number,
        holder,
        sockets,
        cast(TokenBroker, shared or SharedByAll()),
        lambda counted: None,
        acknowledged=acknowledged,
        timing=timing,
        program=(sys.executable, "-S", "-E", str(PROGRAM), str(control)),
    )


@asynccontextmanager
async def plane_at(
    place: Path, number: int = 2, timing: Timing = PATIENT, drain: float = 5.0
) -> AsyncIterator[Plane]:
    """Nothing of it is left afterwards."""
    holder = holder_of(service(API))
    settings = settings_of(holder, drain)
    async with control_at(place) as control:
        sockets = await ListeningSockets.bind(settings.listen, number)
        shared = SharedByAll()
        plane: Plane

        def acknowledged() -> None:
            plane.acknowledged += 1

        processes = processes_of(
            settings, number, holder, sockets, control.path, shared, acknowledged=acknowledged, timing=timing
        )
        plane = Plane(control, processes, holder)
        plane.shared = shared
        try:
            yield plane
        finally:
            await processes.abort()
            sockets.close()


def agree(holder: SnapshotHolder, seq: int, rule: str = "guaranteed") -> None:
    """Put a record in force, as `controlplane.worker_agreement` does."""
    versions = VersionSet.between(Version(1, 1), Version(1, 10 + seq))
    holder.agree({"baremetal": Agreed(AgreedRecord(seq, rule, versions, versions, versions, versions))})
