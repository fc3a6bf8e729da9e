"""A worker on loopback between clients and scripted backends, all by raw sockets in the test's own loop.

When a test ends everything must be back at nothing: requests in flight, loads, retries, active connections.
So every test here is also a test of that, and of no callback having raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_network
from time import monotonic
from typing import Any, Final, NamedTuple, final

from gateway.controlplane.cell import Cell
from gateway.core.backend import Backend
from gateway.core.decision import Verdict
from gateway.core.dialect import Advert, AskKind
from gateway.core.fleet import Answered, Fact
from gateway.core.ranges import VersionSet
from gateway.core.service import Match, RetryPlan, Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.dataplane.worker import Worker
from gateway.dialects.ironic import Ironic
from gateway.settings import Limits, Timeouts
from gateway.settings.values import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.outcome import Outcome
from tests.dataplane.wire import (
    HIGHEST,
    LOWEST,
    PATIENCE,
    SERVED,
    Ended,
    Message,
    read_message,
    reply,
)

LOOPBACK: Final = "127.0.0.1"
NEW: Final = "1.1-1.90"
OLD: Final = "1.1-1.58"
_STREAM: Final = 1 << 20
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() a reset."""


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until it is so; for what has no event of its own."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)


def versions(text: str) -> VersionSet:
    """`1.1-1.58`."""
    return VersionSet.read(text, Ironic().scheme)


# --- backends ----------------------------------------------------------------------------------------------


@final
class Hop:
    """One connection from the gateway to a backend."""

    def __init__(
        self, backend: ScriptedBackend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.backend = backend
        self.reader = reader
        self.writer = writer

    async def request(self) -> Message:
        """The next whole request; the backend's list has it, too."""
        message = await read_message(self.reader)
        self.backend.note(message)
        return message

    async def head(self) -> Message:
        """Only the next request's head."""
        message = Message(await self.reader.readuntil(b"\r\n\r\n"), b"", "none")
        self.backend.note(message)
        return message

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def half_close(self) -> None:
        """Say the end, at once and not when the loop comes to it."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close it with RST."""
        reset(self.writer)

    async def ended(self) -> Ended:
        """Wait until the gateway ends it."""
        return await ended(self.reader)


Script = Callable[[Hop], Awaitable[None]]


def ironic_reply(message: Message, body: bytes = b'{"nodes": []}') -> bytes:
    """What an Ironic says that served what it was asked for."""
    return reply(
        200,
        f"{SERVED}: {message.one(SERVED)}",
        f"{LOWEST}: 1.1",
        f"{HIGHEST}: 1.90",
        "Content-Type: application/json",
        body=b"" if message.method == "HEAD" else body,
    )


async def serve(hop: Hop) -> None:
    """An honest server with keep-alive."""
    while True:
        message = await hop.request()
        await hop.say(ironic_reply(message) if SERVED.lower() in message.names else reply(200, body=b"ok"))


def answering(*replies: bytes) -> Script:
    """Reads one request after the other and says these; then closes."""

    async def script(hop: Hop) -> None:
        for data in replies:
            await hop.request()
            await hop.say(data)

    return script


def always(data: bytes) -> Script:
    """Says the same to every request, on connections that stay open."""

    async def script(hop: Hop) -> None:
        while True:
            await hop.request()
            await hop.say(data)

    return script


@final
class ScriptedBackend:
    """A server of which every connection runs `script`. When a script returns, its connection is closed."""

    def __init__(self, script: Script, name: str, declared: str | None) -> None:
        self.script = script
        self.name = name
        self.declared = declared
        self.requests: list[Message] = []
        self.connections = 0
        self.port = 0
        self.error: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0, limit=_STREAM)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._changed.set()
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.script(Hop(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway left
        except AssertionError as error:
            self.error = error
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def note(self, message: Message) -> None:
        self.requests.append(message)
        self._changed.set()

    async def came(self, number: int = 1) -> Message:
        """Wait for the request of this number, from 1."""
        await self._until(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def connected(self, number: int = 1) -> None:
        """Wait until so many connections were made."""
        await self._until(lambda: self.connections >= number)

    async def gone(self) -> None:
        """Wait until no connection is left."""
        async with asyncio.timeout(PATIENCE):
            while self._tasks:
                await asyncio.wait(self._tasks)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    @property
    def only(self) -> Message:
        """The one request that came; an assertion when there were others."""
        (message,) = self.requests
        return message

    @property
    def backend(self) -> Backend:
        declared = versions(self.declared) if self.declared else None
        return Backend(self.name, LOOPBACK, self.port, declared=declared)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.error is not None:
            raise self.error


# --- clients -----------------------------------------------------------------------------------------------


@final
class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def reply(self, method: str = "GET") -> Message:
        """The next final reply or interim one."""
        return await read_message(self.reader, reply_to=method)

    async def ask(self, *parts: bytes, method: str | None = None) -> Message:
        await self.send(*parts)
        return await self.reply(method or parts[0].split(b" ", 1)[0].decode("latin-1"))

    async def ended(self) -> Ended:
        """Wait until the gateway ends the connection."""
        return await ended(self.reader)

    async def is_open(self) -> bool:
        """Whether the gateway still answers here."""
        answer = await self.ask(b"GET /v1/nodes HTTP/1.1\r\nHost: still.there\r\n\r\n")
        return answer.status == 200

    def finish(self) -> None:
        """Say no more, but listen."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Leave with RST."""
        reset(self.writer)


async def ended(reader: asyncio.StreamReader) -> Ended:
    """Read on until the other end closes (not aborted) or resets (aborted)."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while piece := await reader.read(_STREAM):
                pieces.append(piece)
    except ConnectionResetError:
        return Ended(b"".join(pieces), aborted=True)
    return Ended(b"".join(pieces), aborted=False)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, at once."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


# --- the gateway -------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A copy of an outcome, which itself is valid only while it is told."""

    service: str
    backend: str
    method: str
    status: int
    ask: AskKind | None
    verdict: Verdict | None
    version: str
    attempts: int
    bytes_out: int
    error: str
    target: str
    client: str


@final
class Stand:
    """One worker with what it tells, and its clients."""

    def __init__(
        self, cell: Cell, timeouts: dict[str, float], limits: dict[str, int], trusted: Sequence[str]
    ) -> None:
        self.cell = cell
        self.metrics = Metrics()
        self.outcomes: list[Seen] = []
        self.facts: list[tuple[str, str, Fact]] = []
        self.clients: list[Client] = []
        self._told = asyncio.Event()
        self.worker = Worker(
            limits=Limits().model_copy(update=limits),
            timeouts=Timeouts().model_copy(update=timeouts),
            trusted=[ip_network(each) for each in trusted],
            snapshots=cell,
            observe=self._observe,
            metrics=self.metrics,
            record=self._record,
        )

    def _observe(self, service: str, backend: str, fact: Fact) -> None:
        self.facts.append((service, backend, fact))
        self.cell.observe(service, backend, fact)

    def _record(self, outcome: Outcome) -> None:
        self.metrics.record(outcome)
        self.outcomes.append(Seen(*(getattr(outcome, name) for name in Seen._fields)))
        self._told.set()

    async def start(self) -> None:
        await self.worker.start([Listen(LOOPBACK, 0)])
        self.metrics.watch(self.cell, self.worker.in_flight, self.worker.connections)

    async def client(self, small_buffer: int = 0) -> Client:
        """A new connection; `small_buffer`: how little its socket takes unread, in bytes."""
        sock = socket.socket()
        if small_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.worker.addresses[0])
        limit = small_buffer or _STREAM
        client = Client(*await asyncio.open_connection(sock=sock, limit=limit))
        self.clients.append(client)
        return client

    async def ask(self, *parts: bytes) -> Message:
        """One request on a connection of its own."""
        client = await self.client()
        answer = await client.ask(*parts)
        client.writer.close()
        return answer

    async def told(self, number: int = 1) -> Seen:
        """Wait for the outcome of this number, from 1."""
        async with asyncio.timeout(PATIENCE):
            while len(self.outcomes) < number:
                self._told.clear()
                await self._told.wait()
        return self.outcomes[number - 1]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 when there is none."""
        text = self.metrics.exposition("")[0].decode()
        for line in text.splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                if found.items() >= labels.items():
                    return float(match[3])
        return 0.0

    def nothing_left(self) -> bool:
        """No request, no retry and no connection under way."""
        worker = self.worker
        return (
            not any(worker.load.values())
            and not any(worker.in_flight().values())
            and worker.context.budget.idle()
            and not any(active for _, active in worker.connections().values())
        )

    async def close(self) -> None:
        """Leave as clients do when they crash; then nothing may be left."""
        for client in self.clients:
            client.reset()
        try:
            await until(self.nothing_left)
        except TimeoutError:
            raise AssertionError(
                f"left behind: load {dict(self.worker.load)}, in flight {dict(self.worker.in_flight())}, "
                f"retrying {not self.worker.context.budget.idle()}, "
                f"connections {dict(self.worker.connections())}"
            ) from None
        finally:
            await self.worker.abort()
        await until(lambda: not any(any(counts) for counts in self.worker.connections().values()))


@final
class House:
    """What a test builds; torn down and checked by the fixture."""

    def __init__(self) -> None:
        self.backends: list[ScriptedBackend] = []
        self.stands: list[Stand] = []
        self.accidents: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, accident: self.accidents.append(accident))

    async def backend(
        self, script: Script = serve, *, name: str = "", declared: str | None = NEW
    ) -> ScriptedBackend:
        backend = ScriptedBackend(script, name or f"api-{len(self.backends) + 1}", declared)
        await backend.start()
        self.backends.append(backend)
        return backend

    async def gateway(
        self,
        *backends: ScriptedBackend | Backend,
        match: Match | None = None,
        retry: RetryPlan | None = None,
        trusted: Sequence[str] = (),
        limits: dict[str, int] | None = None,
        **timeouts: float,
    ) -> Stand:
        """A worker in front of one Ironic service; `timeouts` in seconds by their names in the settings."""
        stand = Stand(cell_of(*backends, match=match, retry=retry), timeouts, limits or {}, trusted)
        await stand.start()
        self.stands.append(stand)
        return stand

    async def behind(self, script: Script, **more: Any) -> tuple[Stand, ScriptedBackend]:
        """The usual case: one backend and a gateway in front of it."""
        backend = await self.backend(script)
        return await self.gateway(backend, **more), backend

    async def close(self) -> None:
        try:
            for stand in self.stands:
                await stand.close()
        finally:
            for backend in self.backends:
                await backend.close()
        assert not self.accidents, f"a callback raised: {self.accidents}"


def service_of(
    *backends: ScriptedBackend | Backend, match: Match | None = None, retry: RetryPlan | None = None
) -> Service:
    """One Ironic service named `baremetal`."""
    plain = tuple(each.backend if isinstance(each, ScriptedBackend) else each for each in backends)
    return Service("baremetal", Ironic(), plain, match=match or Match(), retry=retry or RetryPlan())


def cell_of(
    *backends: ScriptedBackend | Backend, match: Match | None = None, retry: RetryPlan | None = None
) -> Cell:
    return Cell(Snapshot.configured([service_of(*backends, match=match, retry=retry)], now=0.0))


def heard(stand: Stand, backend: ScriptedBackend | Backend, text: str) -> None:
    """As if a probe had just brought this advert."""
    stand.cell.observe("baremetal", backend.name, Answered(Advert(versions(text)), monotonic()))


def refusing_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def nobody(name: str = "dead", declared: str = NEW, weight: int = 1) -> Backend:
    """A backend that refuses connections."""
    return Backend(name, LOOPBACK, refusing_port(), weight=weight, declared=versions(declared))


def newest(text: str = NEW) -> Version:
    return versions(text).highest
