"""The fake ironic-api as a process, which writes every execution to a file that survives its death.

    python -m tests.load.backend NAME HOST PORT HIGHEST RECORDS [CERTIFICATE KEY]

What it does: it responds as the fake Ironic of the scenarios does (406 with the range for a version that it
does not serve), receives and sends large bodies piece by piece, and reads or writes slowly on the paths for
that. When a request takes effect, before the first byte of the response, it writes an `Execution`. It says
`Connection: close` in some responses, as servers with a limit for requests on a connection do, so a gateway
must connect anew. With a certificate it speaks TLS. On SIGTERM it closes the listener and idle connections,
and completes the requests in progress, as servers do.

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
from collections.abc import Iterable
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


class PacedReader(asyncio.StreamReader):
    """A reader that takes the body of a request on `SLOW_INTAKE` at the rate in its path, and knows what has
    become of its requests."""

    unfinished = False
    """Bytes have come since the last whole request."""
    responding = False
    requests = 0

    def __init__(self) -> None:
        super().__init__(limit=READ_BUFFER)
        self._rate = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.unfinished = True
        super().feed_data(data)

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


class RecordingIronic(Ironic):
    """One API server. The scenario keeps its port reserved while the server is down."""

    def __init__(
        self, name: str, highest: int, records: RecordFile, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(highest)
        self.tls = tls
        self._name = name
        self._records = records
        self._readers: dict[asyncio.StreamWriter, PacedReader] = {}
        self._finishing = False

    async def listen(self, host: str, port: int) -> None:
        listener = bound_socket(port, host)
        buffer = RECEIVE_BUFFER if self.tls is None else TLS_RECEIVE_BUFFER
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._server = StreamServer(self._serve, new_reader=PacedReader)
        await self._server.start(sock=listener, tls=self.tls, backlog=BACKLOG)

    async def finish(self) -> None:
        """Accept nothing more. Return when every request that has begun to arrive has its response."""
        self._finishing = True
        await self._server.stop_accepting()
        for writer, reader in self._readers.items():
            if not (reader.unfinished or reader.responding):
                writer.close()
        await asyncio.gather(*self._server.handlers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, PacedReader)
        self._readers[writer] = reader
        if self.tls is not None:  # TLS has buffers of its own, of 512 KiB
            writer.transport.set_read_buffer_limits(READ_BUFFER)  # type: ignore[attr-defined]
        try:
            while reader.requests < REQUESTS_ON_CONNECTION and (reader.unfinished or not self._finishing):
                message = await read_message(reader)
                reader.unfinished, reader.responding = False, True
                reader.requests += 1
                await self._respond(message, reader, writer)
                reader.responding = False
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client has closed the connection, or was idle for too long
        finally:
            del self._readers[writer]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()  # the gateway has the response before the process ends

    async def _respond(self, message: Message, reader: PacedReader, writer: asyncio.StreamWriter) -> None:
        head = Head.parse(message.head[: -len(END)], message.body)
        path, ident = head.target.partition("?")[0], ident_of(head.target)
        refusals = len(self.refused)
        response = self._response(head)
        executed = len(self.refused) == refusals
        if ident:
            response = with_fields(response, f"{ANSWERED}: {ident}")
            # A server takes no version as 1.1. A gateway must always send a number.
            version = head.get(OWN) or f"1.{self.lowest}"
            self._records.append(Execution(ident, self._name, version, monotonic(), refused=not executed))
        if executed and path == SLOW:
            await asyncio.sleep(DELAY)
        if self._finishing or reader.requests == REQUESTS_ON_CONNECTION:
            response = with_fields(response, "Connection: close")
        if executed and path == IMAGE and message.method == "GET":
            await send_body(response, pieces(ident), BETWEEN, writer)
        elif executed and path == LARGE:
            await send_body(response, pieces(ident, count=LARGE_PIECES), 0.0, writer)
        elif executed and path.startswith(SLOW_IMAGE):
            await send_body(response, slow_pieces(ident, rate_of(path)), 1 / PIECES_A_SECOND, writer)
        elif executed and path == DRIPPED:
            await drip(response, writer)
        else:
            writer.write(response)
        await writer.drain()

    def _resource(
        self, method: str, path: str, query: str, minor: int, head: Head
    ) -> tuple[int, bytes, bool]:
        if path.startswith((IMAGE, SLOW_INTAKE)) and method != "GET":
            received = digest(head.body)
            intact = received == head.get(DIGEST)
            return (200 if intact else 400), json.dumps({"received": received}).encode(), True
        if path.startswith((SLOW, IMAGE, LARGE, DRIPPED)):
            return 200, b"{}", True
        return super()._resource(method, path, query, minor, head)


def with_fields(response: bytes, *lines: str) -> bytes:
    """The response with more field lines."""
    return response.replace(b"\r\n", "\r\n".join(("", *lines, "")).encode(), 1)


async def send_body(response: bytes, body: list[bytes], between: float, writer: asyncio.StreamWriter) -> None:
    """Send a body piece by piece: half of all bodies by length, the other half chunked."""
    checksum = digest(b"".join(body))
    framing, parts = framed(body, by_length=int(checksum, 16) % 2 == 0)
    lines = [line for line in response.partition(END)[0].split(b"\r\n") if b"Content-Length" not in line]
    writer.write(with_fields(b"\r\n".join(lines) + END, f"{DIGEST}: {checksum}", framing))
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(between)


async def drip(response: bytes, writer: asyncio.StreamWriter) -> None:
    """Send the head byte by byte for a while, then the rest."""
    for number in range(DRIPS):
        writer.write(response[number : number + 1])
        await asyncio.sleep(DRIP_SECONDS / DRIPS)
    writer.write(response[DRIPS:])


async def main(name: str, host: str, port: str, highest: str, records: str, *pair: str) -> None:
    """Serve until SIGTERM."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    tls = server_context(*pair) if pair else None
    server = RecordingIronic(name, int(highest), RecordFile(Path(records)), tls)
    await server.listen(host, int(port))
    await terminated.wait()
    await server.finish()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
