"""A client with one raw connection."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple, final

from tests.kit.messages import Message, read_message, read_raw
from tests.kit.networks import LOOPBACK, reset
from tests.kit.waiting import PATIENCE

_STREAM: Final = 1 << 20
ELSEWHERE: Final = "127.0.0.2"
"""Where clients are: not where a proxy in front is, which a gateway may trust."""
_CLOSE: Final = re.compile(rb"\r\nconnection: *close *\r\n", re.IGNORECASE)


class Ended(NamedTuple):
    """How a connection ended: the bytes that were left to read, and whether it was reset."""

    rest: bytes
    aborted: bool


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


class Answer(NamedTuple):
    """A response, whatever it is. Status 0: the connection was closed without one."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: bytes
    head: bytes = b""

    @classmethod
    def of(cls, head: bytes, body: bytes) -> Answer:
        if not head:
            return cls(0, (), b"")
        start, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        return cls(int(start.split(" ")[1]), headers, body, head)

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name.lower()]


@final
class ByteClient:
    """A client that sends bytes as they are, one request after the other, on a connection that is opened when
    it is needed, and again when the other side has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, raw: bytes) -> Answer:
        """Send a request; gives the response. A connection is never used after a doubtful one."""
        async with asyncio.timeout(PATIENCE):
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(
                    LOOPBACK, self._port, local_addr=(ELSEWHERE, 0)
                )
            assert self._reader is not None
            self._writer.write(raw)
            head, body, whole = await read_raw(self._reader, response_to=raw.partition(b" ")[0])
        if not whole or _CLOSE.search(head) or head[9:12] == b"400" or b" HTTP/1.1\r\n" not in raw:
            self.close()
        return Answer.of(head, body)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None
