"""Slow clients, and clients of slow backends, as a process: each sends one slow request and ends.

    python -m tests.load.slow_peers PORT NAME RECORDS [CA]

What it does: each client first completes a quick request, so that it is no newcomer. Then it reads a large
response slowly, sends its body or its head slowly, or requests a path on which the backend is slow. Bytes
move all the time, at 20 to 256 kB a second, a head at some bytes.

Rules: as of `clients`: every request is recorded, none is sent twice, and nothing is judged here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from tests.kit.messages import VERSION_FIELD, read_message, request
from tests.load.clients import PINNED
from tests.load.connection import HOST, Response, TlsLayer, client_context, fault_of, framed, record_of
from tests.load.records import RecordFile
from tests.load.workload import (
    DIGEST,
    DRIPPED,
    IMAGE,
    LARGE,
    LARGE_PIECES,
    NODES,
    PIECES_A_SECOND,
    SLOW_IMAGE,
    SLOW_INTAKE,
    SLOW_SECONDS,
    digest,
    pieces,
    rate_of,
    slow_pieces,
    target,
)

RECEIVE_BUFFER: Final = 4 * 1024
"""Bytes of the kernel. A large buffer is emptied before the sender may send again, so that nothing moves on
the wire meanwhile: with 16 KiB for more than a second at the slowest rate."""
FAST_RECEIVE_BUFFER: Final = 256 * 1024
HEAD_SECONDS: Final = 4.0
"""How long the head of a request of `slow head` takes."""


class Errand(NamedTuple):
    """What one slow client does. Rates are bytes a second; 0: as fast as it can."""

    kind: str
    method: str
    path: str
    size_of: int = 0
    """The rate that the size of the body follows; 0: no body."""
    reads: int = 0
    sends: int = 0
    by_length: bool = True
    drips_head: bool = False

    def body_due(self, ident: str) -> bytes:
        """The body of the response; empty: it has another one."""
        if self.path == LARGE:
            return b"".join(pieces(ident, count=LARGE_PIECES))
        return b"".join(slow_pieces(ident, rate_of(self.path))) if self.path.startswith(SLOW_IMAGE) else b""


ERRANDS: Final = (
    *(Errand("slow reader", "GET", LARGE, reads=rate) for rate in (20_000, 64_000, 128_000, 256_000)),
    Errand("slow upload", "PUT", IMAGE, 20_000, sends=20_000),
    Errand("slow upload", "POST", IMAGE, 64_000, sends=64_000, by_length=False),
    Errand("slow upload", "PUT", IMAGE, 256_000, sends=256_000),
    Errand("slow head", "GET", NODES, drips_head=True),
    Errand("slow head", "POST", NODES, drips_head=True),
    Errand("slow intake", "PUT", f"{SLOW_INTAKE}/100000", 100_000),
    Errand("slow intake", "POST", f"{SLOW_INTAKE}/100000", 100_000, by_length=False),
    Errand("slow intake", "POST", f"{SLOW_INTAKE}/150000", 150_000),
    Errand("slow intake", "PUT", f"{SLOW_INTAKE}/200000", 200_000, by_length=False),
    Errand("slow response", "GET", f"{SLOW_IMAGE}/20000"),
    Errand("slow response", "GET", f"{SLOW_IMAGE}/256000"),
    Errand("dripped head", "GET", DRIPPED),
    Errand("dripped head", "POST", DRIPPED),
)
KINDS: Final = tuple(dict.fromkeys(errand.kind for errand in ERRANDS))


class SlowClient:
    def __init__(
        self, port: int, name: str, records: RecordFile, errand: Errand, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = TlsLayer(tls, HOST) if tls is not None else None
        self._port = port
        self._name = name
        self._records = records
        self._errand = errand
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._reader = asyncio.StreamReader()
        self._pace = 0
        """Bytes a second that are read; 0: as they come."""
        self._received = 0
        self._reset = ""
        """What ended the connection, unless it was closed in order."""

    async def run(self) -> None:
        errand = self._errand
        quick = Errand(errand.kind, "GET", NODES)
        began = monotonic()
        receiving = None
        try:
            await asyncio.get_running_loop().sock_connect(self._socket, (HOST, self._port))
            await self._handshake()
            receiving = asyncio.create_task(self._receive())
            if await self._send(quick, f"{self._name}-quick"):
                await self._send(errand, f"{self._name}-slow")
        except OSError as error:
            self._record(quick, f"{self._name}-quick", began, Response(None, str(error)))
        finally:
            if receiving is not None:
                receiving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await receiving
            self._socket.close()

    async def _send(self, errand: Errand, ident: str) -> bool:
        """Send one request, and record it. Return whether there was a response."""
        body = slow_pieces(ident, errand.size_of) if errand.size_of else []
        if not body and errand.method == "POST":
            body = [json.dumps({"name": ident}).encode()]
        lines = [f"{VERSION_FIELD}: {PINNED}"]
        wire: Sequence[bytes] = body
        if body:
            framing, wire = framed(body, by_length=errand.by_length)
            lines += [framing, f"{DIGEST}: {digest(b''.join(body))}"]
        head = request(errand.method, target(errand.path, ident), *lines, host=f"{HOST}:{self._port}")
        began, response = monotonic(), Response(None)
        try:
            self._pace = errand.reads
            with contextlib.suppress(ConnectionError):  # the response may have come before that
                await self._send_slowly(errand, head, wire)
            await self._wait_until_fast(began if errand.reads else None)
            message = await read_message(self._reader, response_to=errand.method)
            sent = {"received": digest(b"".join(body))} if errand.size_of else None
            response = Response(message, fault_of(message, errand.body_due(ident), sent))
        except (OSError, asyncio.IncompleteReadError, TimeoutError, AssertionError) as error:
            response = Response(None, f"{type(error).__name__}: {error}{self._reset}")
        self._record(errand, ident, began, response)
        return response.message is not None

    async def _send_slowly(self, errand: Errand, head: bytes, body: Sequence[bytes]) -> None:
        """Send the request at the rate of the errand. Stop when a response comes before its end."""
        if errand.drips_head:
            for number in range(len(head) - 1):
                await self._send_all(head[number : number + 1])
                await asyncio.sleep(HEAD_SECONDS / len(head))
            head = head[-1:]
        await self._send_all(head)
        before = self._received
        for piece in body:
            if self._received > before or self._reader.at_eof():
                return
            await self._send_all(piece)
            if errand.sends:
                await asyncio.sleep(1 / PIECES_A_SECOND)

    async def _wait_until_fast(self, began: float | None) -> None:
        """Read slowly until `SLOW_SECONDS` after `began`, and fast from then on."""
        if began is not None:
            await asyncio.sleep(max(0.0, began + SLOW_SECONDS - monotonic()))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FAST_RECEIVE_BUFFER)
        self._pace = 0

    async def _handshake(self) -> None:
        if self._tls is None:
            return
        loop = asyncio.get_running_loop()
        while not self._tls.handshake():
            await loop.sock_sendall(self._socket, self._tls.outgoing())
            data = await loop.sock_recv(self._socket, RECEIVE_BUFFER)
            if not data:
                raise ConnectionResetError("closed in the handshake")
            self._tls.feed(data)
        await loop.sock_sendall(self._socket, self._tls.outgoing())

    async def _send_all(self, data: bytes) -> None:
        wire = data if self._tls is None else self._tls.sealed(data)
        await asyncio.get_running_loop().sock_sendall(self._socket, wire)

    async def _receive(self) -> None:
        """Read at the pace of now."""
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self._socket, self._pace // PIECES_A_SECOND or 64 * 1024):
                self._reader.feed_data(data if self._tls is None else self._tls.opened(data))
                self._received += len(data)
                if self._pace:
                    await asyncio.sleep(len(data) / self._pace)
        except OSError as error:
            self._reset = f", {type(error).__name__}"
        self._reader.feed_eof()  # an exception would hide the response that came before it

    def _record(self, errand: Errand, ident: str, began: float, response: Response) -> None:
        self._records.append(
            record_of(
                *(ident, errand.kind, errand.method, PINNED, began, response),
                streamed=bool(errand.size_of),
                dripped=errand.path == DRIPPED,
                established=errand is self._errand,
                slow=True,
            )
        )


async def run(port: int, name: str, path: Path, ca: str = "") -> None:
    records, tls = RecordFile(path), client_context(ca)
    async with asyncio.TaskGroup() as group:
        for number, errand in enumerate(ERRANDS):
            ident = f"{errand.kind.replace(' ', '-')}-{name}-{number}"
            client = SlowClient(port, ident, records, errand, tls)
            group.create_task(client.run())


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]))
