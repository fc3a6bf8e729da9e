"""The main process of a real worker process, as a test plays it: it sends what a main process sends, and
hears what the worker says."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final, TypeVar, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.publication import publication
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.fleet.timeouts import Timeouts
from gateway.dataplane.edge.balance import ConnectionCounts
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.settings import Settings
from gateway.settings.sections.listen import Listen
from gateway.workers.build_id import build_id
from gateway.workers.channel import Channel
from gateway.workers.messages import Ack, LearnedFacts, Report, Serve, Serving, Start, Update
from tests.kit.clients import Client
from tests.kit.ironic import versions
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE

PROGRAM: Final = (sys.executable, "-W", "error", "-P", "-m", "gateway.workers")

Said = TypeVar("Said")


def record(seq: int, offered: str) -> AgreedRecord:
    """One that has come to rest."""
    found = versions(offered)
    return AgreedRecord(seq, "guaranteed 1", found, found, found, found)


@final
class MainProcess:
    """Of one worker. `holder` is what the main process knows."""

    def __init__(self, holder: SnapshotHolder, settings: Settings, sockets: ListeningSockets) -> None:
        self.holder = holder
        self.settings = settings
        self.sockets = sockets
        self.connection_counts = ConnectionCounts(2)
        self.said: list[Any] = []
        """What the worker has said, in order."""
        self.hung_up = False
        """The worker has closed the channel."""
        self.pid = 0
        """Of the worker."""
        self.clients: list[Client] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._number = 0
        self._published: Snapshot | None = None
        self._something = asyncio.Event()

    # --- the process

    async def start(self, program: Sequence[str] = PROGRAM, **environ: str) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = [sock.fileno() for _, sock in self.sockets.of_slot(0)]
        inherited = [*listening, *self.connection_counts.descriptors(0).all()]
        with theirs:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - as the main process does it
                [*program, "--channel", str(theirs.fileno()), "--code", build_id()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), *inherited),
                start_new_session=True,
                env={**os.environ, **environ},
            )
        self.pid, self.hung_up = self._process.pid, False
        self.said.clear()
        self._channel = Channel(ours, self._received, self._ended)
        await self._channel.open()

    def _received(self, message: object) -> None:
        self.said.append(message)
        self._something.set()

    def _ended(self) -> None:
        self.hung_up = True
        self._something.set()

    async def ended(self) -> tuple[int, str]:
        """Wait until the process has ended: its exit code, and what it has logged."""
        process = self._process
        assert process is not None
        async with asyncio.timeout(PATIENCE):
            _, logged = await asyncio.to_thread(process.communicate)
        return process.returncode, logged.decode()

    async def dead(self) -> None:
        """Wait until the process that was started is no more."""
        assert self._process is not None
        await asyncio.to_thread(self._process.wait)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def hang_up(self) -> None:
        """As when the main process is killed."""
        assert self._channel is not None
        self._channel.close()

    async def close(self) -> None:
        self.connection_counts.close()
        for client in self.clients:
            client.reset()
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()

    # --- the channel

    def send(self, message: object) -> None:
        assert self._channel is not None
        self._channel.send(message)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the worker has said what makes it true."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                assert not self.hung_up, f"the worker is gone: {await self.ended()}"
                self._something.clear()
                await self._something.wait()

    async def gone(self) -> None:
        """Wait until the worker has closed the channel."""
        async with asyncio.timeout(PATIENCE):
            while not self.hung_up:
                self._something.clear()
                await self._something.wait()

    def of(self, kind: type[Said]) -> list[Said]:
        """What the worker has said of a kind."""
        return [message for message in self.said if isinstance(message, kind)]

    async def heard(self, kind: type[Said], number: int = 1) -> Said:
        """The message of this kind that is number so and so, from 1."""
        await self.until(lambda: len(self.of(kind)) >= number)
        return self.of(kind)[number - 1]

    async def begin(self) -> None:
        """Everything up to the point where the worker serves."""
        self.send_start()
        await self.acknowledged()
        self.send(Serve())
        await self.heard(Serving)

    def send_start(self) -> None:
        listeners = tuple((position, sock.fileno()) for position, sock in self.sockets.of_slot(0))
        self._number, self._published = 1, self.holder.current
        everything, balance = publication(None, self.holder.current), self.connection_counts.descriptors(0)
        self.send(Start(self.settings, everything, 0, 2, listeners, balance))

    def publish(self, *, facts_seen: int = 0, settings: Settings | None = None) -> None:
        """Send what has changed since the last time."""
        self._number += 1
        difference = publication(self._published, self.holder.current)
        self._published = self.holder.current
        self.send(Update(self._number, difference, facts_seen, settings))

    async def acknowledged(self) -> None:
        """Wait until the worker holds what was sent last."""
        await self.until(lambda: Ack(self._number) in self.said)

    async def facts(self, number: int = 1) -> LearnedFacts:
        return await self.heard(LearnedFacts, number)

    async def report(self, number: int) -> Report:
        """The answer to the beat of this number."""
        await self.until(lambda: any(report.number == number for report in self.of(Report)))
        return next(report for report in self.of(Report) if report.number == number)

    # --- clients

    async def client(self) -> Client:
        address = self.sockets.addresses[0]
        client = Client(*await asyncio.open_connection(*address))
        self.clients.append(client)
        return client


@asynccontextmanager
async def main_process_of(
    *services: Service,
    agreed: Agreed | None = None,
    listen: Sequence[Listen] = (Listen(LOOPBACK, 0),),
    drain: float = 5.0,
    start: bool = True,
    **more: Any,
) -> AsyncIterator[MainProcess]:
    """A main process with one worker process, of which nothing is left afterwards."""
    snapshot = Snapshot.configured(services, now=monotonic(), agreed=agreed)
    settings = Settings(tuple(listen), services, timeouts=Timeouts(drain=drain), **more)
    sockets = await ListeningSockets.bind(settings.listen, 1)
    main = MainProcess(SnapshotHolder(snapshot), settings, sockets)
    try:
        if start:
            await main.start()
        yield main
    finally:
        await main.close()
        sockets.close()
