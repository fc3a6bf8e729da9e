"""A client with one raw connection."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, final

from tests.kit.messages import Message, read_message
from tests.kit.networks import reset
from tests.kit.waiting import PATIENCE

_STREAM: Final = 1 << 20


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
