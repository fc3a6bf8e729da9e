"""The fake ironic-api of the fault run: on any address, with slow paths and connections that end.

    python -m tests.load.fault_backend NAME HOST PORT HIGHEST RECORDS [CERTIFICATE KEY]

What it does: as `backend`, and it reads or writes slowly on the paths for that. It says `Connection: close`
in some responses, as servers with a limit for requests on a connection do, so a gateway must connect anew.
With a certificate it speaks TLS.

Rules: it knows nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.kit.messages import Message
from tests.kit.servers import StreamServer
from tests.load.backend import BACKLOG, RecordingIronic, TrackingReader, serve, with_field
from tests.load.records import RecordFile
from tests.load.tls import server_context
from tests.load.workload import (
    DRIPPED,
    IMAGE,
    LARGE,
    LARGE_PIECES,
    PIECES_A_SECOND,
    SLOW_IMAGE,
    SLOW_INTAKE,
    pieces,
    rate_of,
    slow_pieces,
)
from tests.scenarios.fakes import END, Head

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
    name, host, port, highest, records, *pair = sys.argv[1:]
    tls = server_context(*pair) if pair else None
    server = FaultIronic(name, host, int(highest), RecordFile(Path(records)), tls)
    asyncio.run(serve(server, int(port)))
