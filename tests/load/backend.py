"""A fake ironic-api as a process of its own, which counts what it executes in a file that survives its death.

    python -m tests.load.backend NAME PORT HIGHEST JOURNAL

What it does: answers as the other tests' Ironic does (406 with the range to a version that it does not
serve), takes and sends large bodies piece by piece, and writes an `Execution` at the moment when a request
takes effect, before the reply's first byte. SIGTERM ends it as servers end: the listener is closed, idle
connections are closed, what is under way is finished.

Rules: it knows nothing of the gateway. Probes carry no identity and are not written down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import Final, SupportsIndex

from tests.dataplane.wire import Message, read_message
from tests.load.connection import framed
from tests.load.records import Execution, Journal
from tests.load.wares import BETWEEN, DELAY, DIGEST, IMAGE, SLOW, digest, ident_of, pieces
from tests.scenarios.fakes import END, LOOPBACK, OWN, Head, Ironic

BACKLOG: Final = 128


class Noticing(asyncio.StreamReader):
    """Knows whether a request has begun to come that is not answered yet."""

    heard = False
    """Something has come since the last whole request."""
    answering = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.heard = True
        super().feed_data(data)


class Counting(Ironic):
    """One API server at a port of its own, which somebody else keeps reserved while it is down."""

    def __init__(self, name: str, highest: int, journal: Journal) -> None:
        super().__init__(highest)
        self._name = name
        self._journal = journal
        self._readers: dict[asyncio.StreamWriter, Noticing] = {}
        self._leaving = False

    async def listen(self, port: int) -> None:
        ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind((LOOPBACK, port))
        self.port = port
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: asyncio.StreamReaderProtocol(Noticing(), self._serve), sock=ours, backlog=BACKLOG
        )

    async def leave(self) -> None:
        """Accept nothing more, and return when all that had begun to arrive is answered."""
        assert self._server is not None
        self._leaving = True
        self._server.close()
        for writer, reader in self._readers.items():
            if not (reader.heard or reader.answering):
                writer.close()
        await asyncio.gather(*(task for task in self._serving.values() if task is not None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, Noticing)
        self._serving[writer] = asyncio.current_task()
        self._readers[writer] = reader
        try:
            while reader.heard or not self._leaving:
                message = await read_message(reader)
                reader.heard, reader.answering = False, True
                await self._answer(message, writer)
                reader.answering = False
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # whoever asked has gone, or was quiet for longer than a server waits
        finally:
            del self._serving[writer], self._readers[writer]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()  # what was said is with the gateway before the process ends

    async def _answer(self, message: Message, writer: asyncio.StreamWriter) -> None:
        head = Head.parse(message.head[: -len(END)], message.body)
        refusals = len(self.refused)
        reply = self._reply(head)
        executed = len(self.refused) == refusals
        self._note(head, executed=executed)
        path = head.target.partition("?")[0]
        if executed and path == SLOW:
            await asyncio.sleep(DELAY)
        if executed and path == IMAGE and message.method == "GET":
            await self._send_image(reply, ident_of(head.target), writer)
        else:
            writer.write(self._marked(reply))
        await writer.drain()

    def _note(self, head: Head, *, executed: bool) -> None:
        ident = ident_of(head.target)
        if ident:
            # Silence is 1.1 to a server; a gateway always writes a number, so this is seen when it does not.
            version = head.get(OWN) or f"1.{self.lowest}"
            self._journal.note(Execution(ident, self._name, version, monotonic(), refused=not executed))

    def _marked(self, reply: bytes) -> bytes:
        return reply.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if self._leaving else reply

    async def _send_image(self, reply: bytes, ident: str, writer: asyncio.StreamWriter) -> None:
        """Piece by piece; of every two images one says its length, the other is chunked."""
        body = pieces(ident)
        whole = digest(b"".join(body))
        framing, parts = framed(body, by_length=int(whole, 16) % 2 == 0)
        lines = [line for line in reply.partition(END)[0].split(b"\r\n") if b"Content-Length" not in line]
        head = b"\r\n".join([*lines, f"{DIGEST}: {whole}".encode(), framing.encode()]) + END
        writer.write(self._marked(head))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(BETWEEN)

    def _resource(
        self, method: str, path: str, query: str, minor: int, head: Head
    ) -> tuple[int, bytes, bool]:
        if path == IMAGE and method != "GET":
            got = digest(head.body)
            said = head.get(DIGEST)
            return (200 if got == said else 400), json.dumps({"got": got}).encode(), True
        if path in (SLOW, IMAGE):
            return 200, b"{}", True
        return super()._resource(method, path, query, minor, head)


async def serve(name: str, port: int, highest: int, journal: Path) -> None:
    """Until SIGTERM."""
    server = Counting(name, highest, Journal(journal))
    asked_to_leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_leave.set)
    await server.listen(port)
    await asked_to_leave.wait()
    await server.leave()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
