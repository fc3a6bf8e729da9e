"""A fake ironic-api as a process, which writes every execution to a file that survives its death.

    python -m tests.load.backend NAME PORT HIGHEST RECORDS

What it does: it responds as the fake Ironic of the scenarios does (406 with the range for a version that it
does not serve), and it receives and sends large bodies piece by piece. When a request takes effect, before
the first byte of the response, it writes an `Execution`. On SIGTERM it closes the listener and idle
connections, and completes the requests in progress, as servers do.

Rules: it knows nothing of the gateway. Probes have no identity and are not recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, SupportsIndex

from tests.kit.messages import Message, read_message
from tests.kit.servers import StreamServer
from tests.load.connection import framed
from tests.load.records import Execution, RecordFile
from tests.load.workload import ANSWERED, BETWEEN, DELAY, DIGEST, IMAGE, SLOW, digest, ident_of, pieces
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


if __name__ == "__main__":
    name, port, highest, records = sys.argv[1:]
    asyncio.run(serve(RecordingIronic(name, int(highest), RecordFile(Path(records))), int(port)))
