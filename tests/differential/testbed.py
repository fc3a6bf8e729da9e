"""One worker of the data plane between a client and a backend that keeps what arrives, all on loopback.

Cases run one after another, so what the gateway recorded and forwarded belongs to the case without doubt. The
backend answers as real servers do: it says that it served the version that it was sent. What the gateway
learns from responses is not fed back, so a case never depends on another one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, NamedTuple, final

from gateway.controlplane.resolver import addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import NegotiationResult
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.settings import load
from gateway.settings.sections.listen import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord
from tests.differential.apis import APIS, DOMAIN, Api, Header, Query, configuration
from tests.differential.draft import Case
from tests.kit.waiting import PATIENCE

LOOPBACK: Final = "127.0.0.1"
TIMEOUT: Final = PATIENCE
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\nContent-Length: *([0-9]+)\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\nTransfer-Encoding: *chunked\r\n", re.IGNORECASE)
_HOST: Final = re.compile(rb"\r\nHost: *([a-z]+)\.%b" % DOMAIN.encode(), re.IGNORECASE)


_AFTER_NEGOTIATION: Final = (NegotiationResult.SERVED, NegotiationResult.UNAVAILABLE, None)


class Result(NamedTuple):
    """What became of a case."""

    case: Case
    response: bytes
    """The head of the response to the client; empty: the connection was closed without one."""
    forwarded: bytes
    """The request as the backend got it; empty: it got none."""
    negotiated: str
    """The version that the gateway logged as negotiated; empty: none was."""


def head_of(data: bytes) -> bytes:
    """The first head in `data` with its empty line; empty while it is not complete."""
    end = data.find(_END)
    return data[: end + len(_END)] if end >= 0 else b""


def body_length(head: bytes) -> int:
    found = _LENGTH.search(head)
    return int(found[1]) if found else 0


# --- the backend -------------------------------------------------------------------------------------------


class _Backend(asyncio.Protocol):
    """One connection from the gateway. All connections share `received`."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = head_of(self._data)
        if not head:
            return
        if _CHUNKED.search(head):
            if not self._data.endswith(b"0\r\n\r\n"):
                return
            size = len(self._data)
        else:
            size = len(head) + body_length(head)
            if len(self._data) < size:
                return
        request, self._data = self._data[:size], self._data[size:]
        assert self._transport is not None
        self._transport.write(self._testbed.respond(request, head))


def version_in(api: Api, head: bytes) -> str:
    """The version that the gateway wrote, where servers of this API look first; empty: none."""
    for location in api.locations:
        match location:
            case Header(name, spelling):
                before, _, after = map(re.escape, spelling.partition("{}"))
                found = re.search(rf"\r\n{re.escape(name)}: {before}([^\r\n]*){after}\r\n".encode(), head)
            case Query(name):
                found = re.search(rf"[?&]{re.escape(name)}=([^& ]*)".encode(), head)
            case _:
                continue
        if found is not None:
            return found[1].decode("latin-1")
    return ""


# --- the client --------------------------------------------------------------------------------------------


@final
class _Client(asyncio.Protocol):
    """One connection to the gateway."""

    def __init__(self) -> None:
        self.open = False
        self._data = b""
        self._method = ""
        self._done: asyncio.Future[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = head_of(self._data)
        while head.startswith(b"HTTP/1.1 1"):
            self._data = self._data[len(head) :]
            head = head_of(self._data)
        if not head or self._done is None or self._done.done():
            return
        bodiless = self._method == "HEAD" or head[9:12] in (b"204", b"304")
        if len(self._data) >= len(head) + (0 if bodiless else body_length(head)):
            self._done.set_result(head)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._done is not None and not self._done.done():
            self._done.set_result(head_of(self._data))

    async def exchange(self, case: Case) -> bytes:
        """Send the case; gives the head of the response."""
        assert self._transport is not None
        self._data, self._method = b"", case.method
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(case.raw)
        head = await self._done
        if b"\r\nConnection: close\r\n" in head or head[9:12] == b"400":
            self.close()
        return head

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.close()


# --- both and the gateway ----------------------------------------------------------------------------------


@final
class Testbed:
    """The gateway with its client and its backend."""

    __test__ = False  # pytest: not a class of tests

    def __init__(self) -> None:
        self._client: _Client | None = None
        self._case: Case | None = None
        self._received: list[bytes] = []
        self._records: list[tuple[NegotiationResult | None, str]] = []
        self._worker: Worker | None = None
        self._sockets = ListeningSockets(slots=1)
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Testbed]:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Backend(self), LOOPBACK, 0)
        port = self._server.sockets[0].getsockname()[1]
        settings = load(configuration(port), filename="differential.yaml", environ={}).require()
        snapshot_holder = SnapshotHolder(Snapshot.configured(settings.services, now=monotonic()))
        self._worker = Worker(
            limits=settings.limits,
            timeouts=settings.timeouts,
            trusted=settings.trusted_proxies,
            snapshots=snapshot_holder,
            resolve=addresses_only,
            observe=lambda *_: None,
            metrics=Metrics(),
            record=self._record,
        )
        listen = Listen(LOOPBACK, 0)
        self._sockets = await ListeningSockets.bind([listen])
        await self._worker.listen([(listen, sock) for _, sock in self._sockets.of_slot(0)])
        try:
            yield self
        finally:
            if self._client is not None:
                self._client.close()
            await self._worker.abort()
            self._sockets.close()
            self._server.close()
            await self._server.wait_closed()

    def _record(self, record: RequestRecord) -> None:
        self._records.append((record.result, record.version))

    async def run(self, case: Case) -> Result:
        """Send one case through the gateway."""
        assert self._worker is not None
        self._received.clear()
        self._records.clear()
        self._case = case
        async with asyncio.timeout(TIMEOUT):
            if self._client is None or not self._client.open:
                host, port = self._sockets.addresses[0]
                loop = asyncio.get_running_loop()
                _, self._client = await loop.create_connection(_Client, host, port)
            response = await self._client.exchange(case)
        assert len(self._received) <= 1, f"sent twice: {case.raw!r}"
        assert len(self._records) <= 1, f"recorded twice: {case.raw!r}"
        forwarded = self._received[0] if self._received else b""
        result, version = self._records[0] if self._records else (None, "")
        if forwarded:
            assert self._records, f"forwarded, but not recorded: {case.raw!r}"
            # `unavailable`: the response that came did not satisfy the gateway. The version stands.
            assert result in _AFTER_NEGOTIATION, f"forwarded, but recorded as {result}: {case.raw!r}"
        return Result(case, response, forwarded, version)

    def respond(self, request: bytes, head: bytes) -> bytes:
        """Keep the request, and make the response of a server that served the version in it."""
        self._received.append(request)
        found = _HOST.search(head)
        assert found is not None, head
        assert self._case is not None
        api = APIS[found[1].decode().lower()]
        version = version_in(api, head)
        lines = [
            f"{name}: {value.replace('{}', version)}"
            for name, value in api.response.items()
            if version or "{}" not in value
        ]
        lines += self._case.response_lines
        start = ("HTTP/1.1 200 OK", "Content-Type: text/plain", "Content-Length: 2")
        body = b"" if head.startswith(b"HEAD ") else b"ok"
        return "\r\n".join((*start, *lines, "", "")).encode("latin-1") + body
