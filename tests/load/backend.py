"""The fake ironic-api as a process, which writes every execution to a file that survives its death.

    python -m tests.load.backend NAME PORT HIGHEST RECORDS
    python -m tests.load.backend --faults NAME HOST PORT HIGHEST RECORDS [CERTIFICATE KEY]

What it does: it responds as the fake Ironic of the scenarios does (406 with the range for a version that it
does not serve), and it receives and sends large bodies piece by piece. When a request takes effect, before
the first byte of the response, it writes an `Execution`. On SIGTERM it closes the listener and idle
connections, and completes the requests in progress, as servers do.

With `--faults` it also reads or writes slowly on the paths for that. It says `Connection: close` in some
responses, as servers with a limit for requests on a connection do, so a gateway must connect anew. With a
certificate it speaks TLS.

Rules: it knows nothing of the gateway. Probes have no identity and are not recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, SupportsIndex

from tests.kit.messages import Message, read_message
from tests.kit.servers import StreamServer
from tests.load.connection import framed, server_context
from tests.load.records import Execution, RecordFile
from tests.load.workload import (
    ANSWERED,
    BETWEEN,
    DELAY,
    DIGEST,
    DRIPPED,
    IMAGE,
    LARGE,
    LARGE_PIECES,
    PIECES_A_SECOND,
    SLOW,
    SLOW_IMAGE,
    SLOW_INTAKE,
    digest,
    ident_of,
    pieces,
    rate_of,
    slow_pieces,
)
from tests.scenarios.fakes import END, OWN, Head, Ironic, bound_socket

BACKLOG: Final = 128


class TrackingReader(asyncio.StreamReader):
    """A reader that knows whether a request is incomplete, or has no response yet."""

    unfinished = False
    """Bytes have come since the last whole request."""
    responding = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.unfinished = True
        super().feed_data(data)


class RecordingIronic(Ironic):
    """One API server. The scenario keeps its port reserved while the server is down."""

    def __init__(self, name: str, highest: int, records: RecordFile) -> None:
        super().__init__(highest)
        self._name = name
        self._records = records
        self._readers: dict[asyncio.StreamWriter, TrackingReader] = {}
        self._finishing = False

    async def listen(self, port: int) -> None:
        self.port = port
        self._server = StreamServer(self._serve, new_reader=TrackingReader)
        await self._server.start(sock=bound_socket(port), backlog=BACKLOG)

    async def finish(self) -> None:
        """Accept nothing more. Return when every request that has begun to arrive has its response."""
        self._finishing = True
        await self._server.stop_accepting()
        for writer, reader in self._readers.items():
            if not (reader.unfinished or reader.responding):
                writer.close()
        await asyncio.gather(*self._server.handlers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, TrackingReader)
        self._readers[writer] = reader
        try:
            while reader.unfinished or not self._finishing:
                message = await read_message(reader)
                reader.unfinished, reader.responding = False, True
                await self._respond(message, writer)
                reader.responding = False
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client has closed the connection, or was idle for too long
        finally:
            del self._readers[writer]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()  # the gateway has the response before the process ends

    async def _respond(self, message: Message, writer: asyncio.StreamWriter) -> None:
        head = Head.parse(message.head[: -len(END)], message.body)
        refusals = len(self.refused)
        ident = ident_of(head.target)
        response = self._response(head)
        if ident:
            response = with_field(response, f"{ANSWERED}: {ident}")
        executed = len(self.refused) == refusals
        self._record(head, executed=executed)
        if executed:
            await self._send(message.method, head.target.partition("?")[0], ident, response, writer)
        else:
            writer.write(self._with_connection_field(response))
        await writer.drain()

    async def _send(
        self, method: str, path: str, ident: str, response: bytes, writer: asyncio.StreamWriter
    ) -> None:
        """Send the response to a request that was executed."""
        if path == SLOW:
            await asyncio.sleep(DELAY)
        if path == IMAGE and method == "GET":
            await self._send_body(response, pieces(ident), BETWEEN, writer)
        else:
            writer.write(self._with_connection_field(response))

    def _record(self, head: Head, *, executed: bool) -> None:
        ident = ident_of(head.target)
        if ident:
            # A server takes no version as 1.1. A gateway must always send a number.
            version = head.get(OWN) or f"1.{self.lowest}"
            self._records.append(Execution(ident, self._name, version, monotonic(), refused=not executed))

    def _with_connection_field(self, response: bytes) -> bytes:
        return with_field(response, "Connection: close") if self._finishing else response

    async def _send_body(
        self, response: bytes, body: Sequence[bytes], between: float, writer: asyncio.StreamWriter
    ) -> None:
        """Send an image piece by piece: half of the images by length, the other half chunked."""
        checksum = digest(b"".join(body))
        framing, parts = framed(body, by_length=int(checksum, 16) % 2 == 0)
        lines = [line for line in response.partition(END)[0].split(b"\r\n") if b"Content-Length" not in line]
        head = b"\r\n".join([*lines, f"{DIGEST}: {checksum}".encode(), framing.encode()]) + END
        writer.write(self._with_connection_field(head))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(between)

    def _resource(
        self, method: str, path: str, query: str, minor: int, head: Head
    ) -> tuple[int, bytes, bool]:
        if path == IMAGE and method != "GET":
            received = digest(head.body)
            intact = received == head.get(DIGEST)
            return (200 if intact else 400), json.dumps({"received": received}).encode(), True
        if path in (SLOW, IMAGE):
            return 200, b"{}", True
        return super()._resource(method, path, query, minor, head)


def with_field(response: bytes, line: str) -> bytes:
    """The response with one more field line."""
    return response.replace(b"\r\n", f"\r\n{line}\r\n".encode(), 1)


async def serve(server: RecordingIronic, port: int) -> None:
    """Serve until SIGTERM."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    await server.listen(port)
    await terminated.wait()
    await server.finish()


REQUESTS_ON_CONNECTION: Final = 20
"""After so many responses a connection ends."""
DRIP_SECONDS: Final = 1.2
"""How long the head of a response on `DRIPPED` takes."""
DRIPS: Final = 24

RECEIVE_BUFFER: Final = 48 * 1024
"""Bytes of the kernel and of the reader. A larger buffer would take a slow upload at once."""
TLS_RECEIVE_BUFFER: Final = 16 * 1024
"""Over TLS: asyncio decrypts all that the kernel has, and so keeps as much again. With 48 KiB the slowest
intake would still work for two seconds, the gateway's time-out, after its kernel has taken everything."""
READ_BUFFER: Final = 16 * 1024


class PacedReader(TrackingReader):
    """A reader that takes the body of a request on `SLOW_INTAKE` at the rate in its path."""

    def __init__(self) -> None:
        super().__init__(limit=READ_BUFFER)
        self._rate = 0

    async def readuntil(self, separator: bytes = b"\n") -> bytes:  # type: ignore[override]
        found = await super().readuntil(separator)
        if separator == END:
            path = found.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
            self._rate = rate_of(path) if path.startswith(SLOW_INTAKE) else 0
        return found

    async def readexactly(self, n: int) -> bytes:
        if not self._rate:
            return await super().readexactly(n)
        parts = []
        while n:
            parts.append(await super().readexactly(min(n, self._rate // PIECES_A_SECOND)))
            n -= len(parts[-1])
            await asyncio.sleep(len(parts[-1]) / self._rate)
        return b"".join(parts)


class FaultIronic(RecordingIronic):
    """An API server with the slow paths."""

    def __init__(
        self, name: str, host: str, highest: int, records: RecordFile, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(name, highest, records)
        self._tls = tls
        self._host = host
        self._responses: Counter[asyncio.Task[None] | None] = Counter()
        """By connection: each has a task of its own."""

    async def listen(self, port: int) -> None:
        self.port = port
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        buffer = RECEIVE_BUFFER if self._tls is None else TLS_RECEIVE_BUFFER
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        listener.bind((self._host, port))
        self._server = StreamServer(self._serve, new_reader=PacedReader)
        await self._server.start(sock=listener, tls=self._tls, backlog=BACKLOG)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tls is not None:  # TLS has buffers of its own, of 512 KiB
            writer.transport.set_read_buffer_limits(READ_BUFFER)  # type: ignore[attr-defined]
        try:
            await super()._serve(reader, writer)
        finally:
            del self._responses[asyncio.current_task()]

    async def _respond(self, message: Message, writer: asyncio.StreamWriter) -> None:
        self._responses[asyncio.current_task()] += 1
        await super()._respond(message, writer)
        if self._is_last:
            writer.close()

    @property
    def _is_last(self) -> bool:
        """Whether the connection ends after the response in progress."""
        return self._responses[asyncio.current_task()] >= REQUESTS_ON_CONNECTION

    def _with_connection_field(self, response: bytes) -> bytes:
        if self._is_last and not self._finishing:
            return with_field(response, "Connection: close")
        return super()._with_connection_field(response)

    async def _send(
        self, method: str, path: str, ident: str, response: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if path == DRIPPED:
            await self._drip(self._with_connection_field(response), writer)
        elif path == LARGE:
            await self._send_body(response, pieces(ident, count=LARGE_PIECES), 0.0, writer)
        elif path.startswith(SLOW_IMAGE):
            await self._send_body(response, slow_pieces(ident, rate_of(path)), 1 / PIECES_A_SECOND, writer)
        else:
            await super()._send(method, path, ident, response, writer)

    async def _drip(self, response: bytes, writer: asyncio.StreamWriter) -> None:
        """Send the head byte by byte for a while, then the rest."""
        for number in range(DRIPS):
            writer.write(response[number : number + 1])
            await asyncio.sleep(DRIP_SECONDS / DRIPS)
        writer.write(response[DRIPS:])

    def _resource(
        self, method: str, path: str, query: str, minor: int, head: Head
    ) -> tuple[int, bytes, bool]:
        if path.startswith((LARGE, SLOW_IMAGE, DRIPPED)):
            return 200, b"{}", True
        if path.startswith(SLOW_INTAKE):
            path = IMAGE
        return super()._resource(method, path, query, minor, head)


if __name__ == "__main__":
    if sys.argv[1] == "--faults":
        name, host, port, highest, records, *pair = sys.argv[2:]
        tls = server_context(*pair) if pair else None
        server: RecordingIronic = FaultIronic(name, host, int(highest), RecordFile(Path(records)), tls)
    else:
        name, port, highest, records = sys.argv[1:]
        server = RecordingIronic(name, int(highest), RecordFile(Path(records)))
    asyncio.run(serve(server, int(port)))
