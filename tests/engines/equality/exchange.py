"""A client that sends bytes as they are and reads whole responses, over connections that stay open."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple, final

from tests.differential.testbed import LOOPBACK, head_of

TIMEOUT: Final = 15.0
CLIENT: Final = "127.0.0.2"
"""The address of clients: not that of HAProxy, which the gateway trusts."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+) *\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked *\r\n", re.IGNORECASE)
_CLOSE: Final = re.compile(rb"\r\nconnection: *close *\r\n", re.IGNORECASE)


class Answer(NamedTuple):
    """A response. Status 0: the connection was closed without one."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name.lower()]


NOTHING: Final = Answer(0, (), b"")


def body_end(data: bytes, start: int, *, bodiless: bool) -> int:
    """Where the message with its head before `start` ends; -1: not yet, or only with the connection.

    `bodiless`: a message without a length has no body.
    """
    head = data[:start]
    if _CHUNKED.search(head):
        return _chunked_end(data, start)
    if found := _LENGTH.search(head):
        end = start + int(found[1])
        return end if len(data) >= end else -1
    return start if bodiless else -1


def _chunked_end(data: bytes, at: int) -> int:
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end].partition(b";")[0], 16)
        if size == 0:
            trailer = data.find(b"\r\n\r\n", end)
            return trailer + 4 if trailer >= 0 else -1
        at = end + 2 + size + 2
        if at > len(data):
            return -1
    return -1


@final
class Connection:
    """One after the other. Opened when it is needed, again when the other side has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, raw: bytes) -> Answer:
        """Send a request; gives the response. A connection is never used after a doubtful one."""
        async with asyncio.timeout(TIMEOUT):
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(
                    LOOPBACK, self._port, local_addr=(CLIENT, 0)
                )
            assert self._reader is not None
            self._writer.write(raw)
            head, body, whole = await _read(self._reader, raw.startswith(b"HEAD "))
        if not whole or _CLOSE.search(head) or head[9:12] == b"400" or b" HTTP/1.1\r\n" not in raw:
            await self.close()
        return _answer(head, body)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None


async def _read(reader: asyncio.StreamReader, to_head: bool) -> tuple[bytes, bytes, bool]:
    """The head, the body, and whether the message ended before the connection did."""
    data = b""
    while True:
        head = head_of(data)
        if head.startswith(b"HTTP/1.1 1"):
            data = data[len(head) :]
            continue
        if head:
            bodiless = to_head or head[9:12] in (b"204", b"304")
            end = len(head) if bodiless else body_end(data, len(head), bodiless=False)
            if end >= 0:
                return head, data[len(head) : end], True
        try:
            more = await reader.read(65536)
        except ConnectionError:
            more = b""
        if not more:
            return head, data[len(head) :], False
        data += more


def _answer(head: bytes, body: bytes) -> Answer:
    if not head:
        return NOTHING
    lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    return Answer(int(lines[0].split(" ")[1]), headers, body)
