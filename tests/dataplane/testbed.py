"""A worker on loopback between clients and scripted backends, all with raw sockets in the loop of the test.

At the end of each test nothing may remain: no request in flight, no retry and no active connection, and no
callback may have raised. So every test here checks that too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from time import monotonic, time
from typing import Any, Final, final

from gateway.controlplane.resolver import Resolve, addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.backend_tls import BackendTls
from gateway.core.fleet.fleet import Fact, ProbeSucceeded
from gateway.core.fleet.limits import DEFAULT_LIMITS
from gateway.core.fleet.match import Match
from gateway.core.fleet.retry import Retry
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.fleet.timeouts import DEFAULT_TIMEOUTS
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.context import draw_bits
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.exchange.stages import Stage
from gateway.dataplane.limits.arrival import MIN_RATE_GRACE
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.worker import Worker
from gateway.dialects.openstack.ironic import Ironic
from gateway.settings import Limits, Timeouts
from gateway.settings.sections.listen import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.series.now import Now
from gateway.tls.server import ServerCertificates
from tests.kit.clients import Ended
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, read_message, response
from tests.kit.servers import StreamServer
from tests.kit.waiting import PATIENCE

LOOPBACK: Final = "127.0.0.1"
NEW: Final = "1.1-1.90"
OLD: Final = "1.1-1.58"
_STREAM: Final = 1 << 20
RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket sends a reset."""


async def until(holds: Callable[[], bool]) -> None:
    """Run the event loop until `holds` is true; for conditions without an event."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


def versions(text: str) -> VersionSet:
    """A set of Ironic versions: `1.1-1.58`."""
    return VersionSet.read(text, Ironic().scheme)


# --- backends ----------------------------------------------------------------------------------------------


@final
class UpstreamConnection:
    """One connection from the gateway to a backend."""

    def __init__(
        self, backend: ScriptedBackend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.backend = backend
        self.reader = reader
        self.writer = writer

    async def request(self) -> Message:
        """Read the next whole request, and add it to the list of the backend."""
        message = await read_message(self.reader)
        self.backend.record_request(message)
        return message

    async def head(self) -> Message:
        """Read only the head of the next request, and add it to the list of the backend."""
        message = Message(await self.reader.readuntil(b"\r\n\r\n"), b"", "none")
        self.backend.record_request(message)
        return message

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError  # uvloop raises a RuntimeError
        self.writer.write(data)
        await self.writer.drain()

    def half_close(self) -> None:
        """Close the sending side at once, not in the next turn of the loop."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        reset(self.writer)

    async def ended(self) -> Ended:
        """Wait until the gateway closes the connection."""
        return await ended(self.reader)


Script = Callable[[UpstreamConnection], Awaitable[None]]


DOCUMENTS: Final = {"/": b'{"versions": []}', "/v1": b'{"id": "v1"}'}
"""Short discovery documents, as those of an Ironic that shows no range in them."""


def ironic_response(message: Message, body: bytes | None = None) -> bytes:
    """The response of an Ironic that served the requested version."""
    if body is None:
        body = DOCUMENTS.get(message.target.partition("?")[0], b'{"nodes": []}')
    return response(
        200,
        f"{VERSION_FIELD}: {message.one(VERSION_FIELD)}",
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.90",
        "Content-Type: application/json",
        body=b"" if message.method == "HEAD" else body,
    )


async def serve(upstream: UpstreamConnection) -> None:
    """Respond correctly to every request, and keep connections open."""
    while True:
        message = await upstream.request()
        if VERSION_FIELD.lower() in message.names:
            await upstream.send(ironic_response(message))
        else:
            body = b"" if message.method == "HEAD" else DOCUMENTS["/"]
            await upstream.send(response(200, "Content-Type: application/json", body=body))


def respond_with(*responses: bytes) -> Script:
    """Send one of these responses to each request in turn; then close."""

    async def script(upstream: UpstreamConnection) -> None:
        for data in responses:
            await upstream.request()
            await upstream.send(data)

    return script


def always(data: bytes) -> Script:
    """Send the same bytes to every request, and keep connections open."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(data)

    return script


async def never_respond(upstream: UpstreamConnection) -> None:
    """Read a request and send nothing."""
    await upstream.request()
    await upstream.ended()


@final
class ScriptedBackend:
    """A server that runs `script` for every connection. When a script returns, its connection is closed."""

    def __init__(
        self,
        script: Script,
        name: str,
        declared: str | None,
        server_tls: ssl.SSLContext | None = None,
        tls: BackendTls | None = None,
    ) -> None:
        self._server_tls = server_tls
        self.tls = tls
        """How the gateway speaks to it."""
        self.script = script
        self.name = name
        self.declared = declared
        self.requests: list[Message] = []
        self.connections = 0
        self.port = 0
        self.error: BaseException | None = None
        self._server = StreamServer(self._run, limit=_STREAM, on_accept=self._accepted)
        self._changed = asyncio.Event()

    async def start(self) -> None:
        await self._server.start(tls=self._server_tls)
        self.port = self._server.port

    def _accepted(self) -> None:
        self.connections += 1
        self._changed.set()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.script(UpstreamConnection(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has closed it
        except AssertionError as error:
            self.error = error

    def record_request(self, message: Message) -> None:
        self.requests.append(message)
        self._changed.set()

    async def received(self, number: int = 1) -> Message:
        """Wait for request number `number`, counted from 1."""
        await self._until(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def connected(self, number: int = 1) -> None:
        """Wait until `number` connections were made."""
        await self._until(lambda: self.connections >= number)

    async def disconnected(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(PATIENCE):
            while handlers := self._server.handlers:
                await asyncio.wait(handlers)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    @property
    def only_request(self) -> Message:
        """The only request that came; fails if there were others."""
        (message,) = self.requests
        return message

    @property
    def backend(self) -> Backend:
        declared = versions(self.declared) if self.declared else None
        return Backend(self.name, LOOPBACK, self.port, declared=declared, tls=self.tls)

    async def close(self) -> None:
        await self._server.stop()
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

    async def send_bytewise(self, data: bytes) -> None:
        """Send one byte per segment."""
        for position in range(len(data)):
            self.writer.write(data[position : position + 1])
            if position % 64 == 0:
                await self.writer.drain()

    async def response(self, method: str = "GET") -> Message:
        """The next response, interim or final."""
        return await read_message(self.reader, response_to=method)

    async def request(self, *parts: bytes, method: str | None = None) -> Message:
        await self.send(*parts)
        return await self.response(method or parts[0].split(b" ", 1)[0].decode("latin-1"))

    async def ended(self) -> Ended:
        """Wait until the gateway closes the connection."""
        return await ended(self.reader)

    async def is_open(self) -> bool:
        """Whether the gateway still serves requests on this connection."""
        answer = await self.request(b"GET /v1/nodes HTTP/1.1\r\nHost: still.there\r\n\r\n")
        return answer.status == 200

    def half_close(self) -> None:
        """Close the sending side, and go on reading."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Close with a reset."""
        reset(self.writer)


async def ended(reader: asyncio.StreamReader) -> Ended:
    """Read until the other end closes or resets (`aborted`)."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while piece := await reader.read(_STREAM):
                pieces.append(piece)
    except ConnectionResetError:
        return Ended(b"".join(pieces), aborted=True)
    return Ended(b"".join(pieces), aborted=False)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, at once."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed already
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


# --- the gateway -------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Listener:
    """How clients reach a gateway. `client_tls`: of the clients that `Gateway.client` makes. `relay`: instead
    they have no TLS, and are connected by this (`tls_relay`)."""

    listen: Listen = field(default_factory=lambda: Listen(LOOPBACK, 0))
    certificates: ServerCertificates | None = None
    client_tls: ssl.SSLContext | None = None
    relay: Callable[[tuple[str, int], int], socket.socket] | None = None


@final
class Clock:
    """The monotonic time of a gateway. It runs as the machine's does, and a test turns it forward; once it is
    stopped, it moves by that alone."""

    def __init__(self) -> None:
        self._turned = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return (monotonic() if self._stopped_at is None else self._stopped_at) + self._turned

    def stop(self) -> None:
        self._stopped_at = monotonic()

    def turn(self, seconds: float) -> None:
        self._turned += seconds


@final
class Gateway:
    """One worker with its metrics, records, facts and clients."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        timeouts: dict[str, float],
        limits: dict[str, int],
        trusted: Sequence[str],
        resolve: Resolve = addresses_only,
        shared: SharedLimits | None = None,
    ) -> None:
        self.snapshot_holder = snapshot_holder
        self.metrics = Metrics()
        self.records: list[RequestRecord] = []
        self.facts: list[tuple[str, str, Fact]] = []
        self.clients: list[Client] = []
        self.listener = Listener()
        self.sockets = ListeningSockets(slots=1)
        self._record_added = asyncio.Event()
        self.clock = Clock()
        self.ahead = 0.0
        """Seconds by which the test has turned on the time of day."""
        self.worker = Worker(
            # A busy machine is no reason to refuse requests here.
            limits=replace(Limits(shed_lag=None), **limits),
            timeouts=replace(Timeouts(), **timeouts),
            trusted=[ip_network(network) for network in trusted],
            snapshots=snapshot_holder,
            resolve=resolve,
            observe=self._observe,
            metrics=self.metrics,
            record=self._record,
            clock=self.clock,
            random_bits=self._draw,
            shared=shared,
        )
        self.worker.context.wall_clock = lambda: time() + self.ahead
        self._drawn: int | None = None
        self._drawn_once: list[int] = []

    def prefer(self, index: int, of: int) -> None:
        """From now on draw backend `index` of `of`, which are equal, in the order of the configuration.

        The one drawn gets the request unless it has more in flight than the next one.
        """
        self._drawn = -(-(index << (RANDOM_BITS // 2)) // of)

    def draw(self, always: int, *once: int) -> None:
        """From now on draw these bits; before them, one after the other, those of `once`."""
        self._drawn, self._drawn_once = always, list(once)

    def turn(self, seconds: float) -> None:
        """Let so many seconds pass at once: everything whose deadline they bring is ended."""
        self.clock.turn(seconds)
        self.worker.check_deadlines()

    @property
    def read_so_far(self) -> int:
        """Bytes that have come from clients, of heads and bodies that are not complete."""
        return sum(one._arrival._received for one in self.worker._clients)

    async def has_read(self, size: int) -> None:
        """Wait until `read_so_far` is `size` at least."""
        await until(lambda: self.read_so_far >= size)

    def _draw(self) -> int:
        if self._drawn_once:
            return self._drawn_once.pop(0)
        return draw_bits() if self._drawn is None else self._drawn

    def _observe(self, service: str, backend: str, fact: Fact) -> None:
        self.facts.append((service, backend, fact))
        self.snapshot_holder.observe(service, backend, fact)

    def _record(self, record: RequestRecord) -> None:
        self.metrics.record(record)
        if self.worker.context.tracing is not None:
            self.worker.context.tracing.finish(record)
        self.records.append(record)
        self._record_added.set()

    async def start(self) -> None:
        listen, certificates = self.listener.listen, self.listener.certificates
        self.sockets = await ListeningSockets.bind([listen])
        await self.worker.listen(
            [(listen, sock) for _, sock in self.sockets.of_slot(0)],
            None if certificates is None else {listen: certificates},
        )
        self.metrics.watch(self.snapshot_holder, lambda: Now(self.worker.report()))

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.sockets.addresses[0]

    async def drain(self, seconds: float) -> None:
        """Whoever connects from now on is refused; the requests under way have so many seconds."""
        await self.worker.stop_accepting()
        self.sockets.close()
        await self.worker.drain(seconds)

    async def client(self, small_buffer: int = 0) -> Client:
        """A new connection. `small_buffer`: the bytes that its socket takes unread."""
        address, tls, limit = self.address, self.listener.client_tls, small_buffer or _STREAM
        if self.listener.relay is not None:
            sock, tls = self.listener.relay(address, small_buffer), None
        else:
            sock = socket.socket()
            if small_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small_buffer)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
        name = None if tls is None else "localhost"
        client = Client(*await asyncio.open_connection(sock=sock, limit=limit, ssl=tls, server_hostname=name))
        self.clients.append(client)
        return client

    async def request(self, *parts: bytes) -> Message:
        """Send one request on a new connection; gives the response."""
        client = await self.client()
        answer = await client.request(*parts)
        client.writer.close()
        return answer

    async def recorded(self, number: int = 1) -> RequestRecord:
        """Wait for record number `number`, counted from 1."""
        async with asyncio.timeout(PATIENCE):
            while len(self.records) < number:
                self._record_added.clear()
                await self._record_added.wait()
        return self.records[number - 1]

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 if there is none."""
        text = b"".join(self.metrics.exposition("")[0]).decode()
        for line in text.splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                if found.items() >= labels.items():
                    return float(match[3])
        return 0.0

    @property
    def stages(self) -> list[Stage]:
        """The stages of the exchanges that have not ended."""
        running = (client.exchange for client in self.worker._clients)
        return [exchange.stage for exchange in running if exchange is not None]

    def nothing_left(self) -> bool:
        """Whether no request, no retry and no backend connection is active."""
        report = self.worker.report()
        return (
            not any(report.in_flight_by_member.values())
            and not any(report.in_flight_by_service.values())
            and self.worker.context.retry_budget.idle()
            and not any(active for _, active in report.connections.values())
        )

    async def close(self) -> None:
        """Reset all clients, as when they crash; then nothing may remain."""
        for client in self.clients:
            client.reset()
        try:
            await until(self.nothing_left)
        except TimeoutError:
            retries = not self.worker.context.retry_budget.idle()
            raise AssertionError(f"left: retries {retries}, {self.worker.report()}") from None
        finally:
            await self.worker.abort()
            self.sockets.close()
        await until(lambda: not any(any(counts) for counts in self.worker.report().connections.values()))


@final
class Testbed:
    """The backends and gateways of one test; the fixture closes and checks them."""

    __test__ = False  # pytest: not a class of tests

    def __init__(self) -> None:
        self.backends: list[ScriptedBackend] = []
        self.gateways: list[Gateway] = []
        self.callback_errors: list[dict[str, Any]] = []
        self.min_rate_grace = MIN_RATE_GRACE
        """Of gateways that are started from now on."""
        self.backend_tls: tuple[ssl.SSLContext, BackendTls] | None = None
        """Of backends that are started from now on: their context, and how the gateway speaks to them."""
        self.listener = Listener()
        """Of gateways that are started from now on."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.callback_errors.append(context))

    async def backend(
        self, script: Script = serve, *, name: str = "", declared: str | None = NEW
    ) -> ScriptedBackend:
        tls = self.backend_tls or (None, None)
        backend = ScriptedBackend(script, name or f"api-{len(self.backends) + 1}", declared, *tls)
        await backend.start()
        self.backends.append(backend)
        return backend

    async def gateway(
        self,
        *backends: ScriptedBackend | Backend,
        match: Match | None = None,
        retry: Retry | None = None,
        trusted: Sequence[str] = (),
        limits: dict[str, int] | None = None,
        resolve: Resolve = addresses_only,
        upgrade: Collection[str] = (),
        shared: SharedLimits | None = None,
        **timeouts: float,
    ) -> Gateway:
        """A worker in front of one Ironic service; `timeouts` in seconds by their names in the settings."""
        gateway = Gateway(
            snapshot_holder_of(
                *backends,
                match=match,
                retry=retry,
                timeouts=replace(Timeouts(), **timeouts),
                limits=replace(Limits(), **limits or {}),
                upgrade=upgrade,
            ),
            timeouts,
            limits or {},
            trusted,
            resolve,
            shared,
        )
        gateway.worker.context.min_rate_grace = self.min_rate_grace
        gateway.listener = self.listener
        await gateway.start()
        self.gateways.append(gateway)
        return gateway

    async def gateway_and_backend(self, script: Script, **more: Any) -> tuple[Gateway, ScriptedBackend]:
        """One backend and a gateway in front of it, as most tests need."""
        backend = await self.backend(script)
        return await self.gateway(backend, **more), backend

    async def close(self) -> None:
        try:
            for gateway in self.gateways:
                await gateway.close()
        finally:
            for backend in self.backends:
                await backend.close()
        assert not self.callback_errors, f"a callback raised: {self.callback_errors}"


def service_of(
    *backends: ScriptedBackend | Backend,
    match: Match | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    limits: Limits = DEFAULT_LIMITS,
    upgrade: Collection[str] = (),
) -> Service:
    """One Ironic service named `baremetal`."""
    values = tuple(
        backend.backend if isinstance(backend, ScriptedBackend) else backend for backend in backends
    )
    return Service(
        "baremetal",
        Ironic(),
        values,
        match=match or Match(),
        retry=retry or Retry(),
        timeouts=timeouts,
        limits=limits,
        upgrade=frozenset(upgrade),
    )


def snapshot_holder_of(
    *backends: ScriptedBackend | Backend,
    match: Match | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    limits: Limits = DEFAULT_LIMITS,
    upgrade: Collection[str] = (),
) -> SnapshotHolder:
    service = service_of(
        *backends, match=match, retry=retry, timeouts=timeouts, limits=limits, upgrade=upgrade
    )
    return SnapshotHolder(Snapshot.configured([service], now=0.0))


def probe_succeeded(gateway: Gateway, backend: ScriptedBackend | Backend, text: str) -> None:
    """Observe a successful probe of `backend` that found these versions."""
    gateway.snapshot_holder.observe(
        "baremetal", backend.name, ProbeSucceeded(Advertisement(versions(text)), monotonic())
    )


async def settle() -> None:
    """Let everything happen that can happen while no time passes: all sides are in this event loop."""
    for _ in range(30):
        await asyncio.sleep(0)


async def wait_ticks(gateway: Gateway, ticks: int = 3) -> None:
    """Wait until the coarse clock of the gateway has moved on so often: it checks all deadlines."""
    for _ in range(ticks):
        before = gateway.worker.context.now
        await until(lambda before=before: gateway.worker.context.now != before)  # type: ignore[misc]


def closed_port() -> int:
    """A port of loopback on which no process listens."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def refusing_backend(name: str = "dead", declared: str = NEW, weight: int = 1) -> Backend:
    """A backend that refuses connections."""
    return Backend(name, LOOPBACK, closed_port(), weight=weight, declared=versions(declared))


def highest_version(text: str = NEW) -> Version:
    return versions(text).highest


def service_in_force(gateway: Gateway) -> Service:
    return gateway.snapshot_holder.current.views["baremetal"].service


def reload(gateway: Gateway, **changes: Any) -> None:
    """What a reload does with a file in which this is changed."""
    holder = gateway.snapshot_holder
    service = replace(service_in_force(gateway), **changes)
    holder.update(Snapshot.configured([service], now=0.0, after=holder.current))
