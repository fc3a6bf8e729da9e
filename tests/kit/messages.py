"""HTTP/1.1 messages as bytes: builders of requests and responses, and a strict reader.

The reader accepts only what the gateway may write. Every test here relies on it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from tests.kit.waiting import PATIENCE

KIB: Final = 1024

HOST: Final = "api.example"
VERSION_FIELD: Final = "X-OpenStack-Ironic-API-Version"
MIN_FIELD: Final = "X-OpenStack-Ironic-API-Minimum-Version"
MAX_FIELD: Final = "X-OpenStack-Ironic-API-Maximum-Version"
STANDARD_FIELD: Final = "OpenStack-API-Version"
LOWEST: Final = "1.1"
"""The version at which an Ironic serves a request without one."""

_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK: Final = re.compile(rb"[0-9A-Fa-f]{1,15}\r\n")


class Message(NamedTuple):
    """One request or response as it was on the wire."""

    head: bytes
    """The start line and the field section, with the empty line."""
    body: bytes
    framing: str
    """`none`, `length`, `chunked` or `close`."""

    @property
    def start_line(self) -> str:
        return self.head.partition(b"\r\n")[0].decode("latin-1")

    @property
    def fields(self) -> list[tuple[str, str]]:
        return read_fields(self.head)

    def every(self, name: str) -> list[str]:
        """All values of a field; the case of the name does not matter."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def one(self, name: str) -> str:
        """The value of a field that must be present exactly once."""
        (value,) = self.every(name)
        return value

    def get(self, name: str) -> str | None:
        """The values of a field, joined as in RFC 9110 5.2; None: it is missing."""
        return ", ".join(self.every(name)) or None

    @property
    def names(self) -> set[str]:
        return {key.lower() for key, _ in self.fields}

    @property
    def status(self) -> int:
        return int(self.start_line.split(" ")[1])

    @property
    def method(self) -> str:
        return self.start_line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.start_line.split(" ")[1]


def read_fields(head: bytes) -> list[tuple[str, str]]:
    """Name and value of each line; fails where a line is not exactly one field."""
    lines = head[:-4].split(b"\r\n")[1:]
    found = []
    for line in lines:
        match = _FIELD.fullmatch(line)
        assert match is not None, f"not a field: {line!r}"
        found.append((match[1].decode(), match[2].decode("latin-1")))
    return found


async def read_message(reader: asyncio.StreamReader, *, response_to: str | None = None) -> Message:
    """The next response to a request of method `response_to`; None: the next request."""
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        message = Message(head, b"", "none")
        lengths, codings = message.every("content-length"), message.every("transfer-encoding")
        assert len(lengths) + len(codings) <= 1, head
        if response_to is not None:
            assert re.fullmatch(r"HTTP/1\.1 [1-5][0-9]{2} [^\r\n]*", message.start_line), message.start_line
            if response_to == "HEAD" or message.status < 200 or message.status in (204, 304):
                return message
        if codings:
            assert codings == ["chunked"]
            return Message(head, await _read_chunks(reader), "chunked")
        if lengths:
            assert re.fullmatch(r"[0-9]+", lengths[0])
            return Message(head, await reader.readexactly(int(lengths[0])), "length")
        if response_to is None:
            return message
        return Message(head, await reader.read(), "close")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Chunks without extensions and without trailers: the gateway must never forward those."""
    pieces: list[bytes] = []
    while True:
        line = await reader.readuntil(b"\r\n")
        assert _CHUNK.fullmatch(line), line
        size = int(line, 16)
        data = await reader.readexactly(size + 2)
        assert data[-2:] == b"\r\n", data[-16:]
        if not size:
            return b"".join(pieces)
        pieces.append(data[:-2])


# --- bytes as they are, from whoever ----------------------------------------------------------------------

_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+) *\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked *\r\n", re.IGNORECASE)


class Raw(NamedTuple):
    """A message as its bytes. `whole`: it has ended before its connection did."""

    head: bytes
    """Empty: the connection was closed before its end."""
    body: bytes
    whole: bool


async def read_raw(reader: asyncio.StreamReader, *, response_to: bytes | None = None) -> Raw:
    """The next final response to a request of this method; None: the next request. Nobody may send more
    before there is an answer: it would be lost."""
    data = b""
    while True:
        head = head_of(data)
        if response_to is not None and head.startswith(b"HTTP/1.1 1"):
            data = data[len(head) :]
            continue
        if head:
            if response_to == b"HEAD" or (response_to and head[9:12] in (b"204", b"304")):
                return Raw(head, b"", whole=True)
            end = body_end(data, len(head), bodiless=response_to is None)
            if end >= 0:
                return Raw(head, data[len(head) : end], whole=True)
        try:
            more = await reader.read(65536)
        except ConnectionError:
            more = b""
        if not more:
            return Raw(head, data[len(head) :], whole=False)
        data += more


def head_of(data: bytes) -> bytes:
    """The first head in `data` with its empty line; empty while it is not complete."""
    end = data.find(_END)
    return data[: end + len(_END)] if end >= 0 else b""


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


# --- messages as a test writes them ------------------------------------------------------------------------


def request(
    method: str = "GET",
    target: str = "/v1/nodes",
    *lines: str,
    body: bytes = b"",
    host: str | None = HOST,
    http: str = "1.1",
) -> bytes:
    """A request as bytes. A body gets a length, unless `lines` frame it already."""
    head = [f"{method} {target} HTTP/{http}"]
    if host is not None:
        head.append(f"Host: {host}")
    head += lines
    framed = any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines)
    if body and not framed:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def request_head(*lines: str, start: str = "GET /v1/nodes HTTP/1.1", host: bool = True) -> bytes:
    """A request head that may hold anything. `host`: with a valid `Host` line."""
    return "\r\n".join((start, *([f"Host: {HOST}"] if host else []), *lines, "", "")).encode("latin-1")


SMUGGLED: Final = b"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n\r\n"
"""A valid request, behind or in another one, that must reach no backend."""


def version_line(version: str) -> str:
    """The field line by which a client of Ironic requests a version."""
    return f"{VERSION_FIELD}: {version}"


def response(
    status: int = 200, *lines: str, body: bytes = b"", reason: str = "OK", served: str | None = LOWEST
) -> bytes:
    """A response as bytes. It gets a length, unless `lines` frame it or the status has no body.

    `served`: a successful one names this version, as that of every Ironic does, unless `lines` name one.
    """
    head = [f"HTTP/1.1 {status} {reason}", *lines]
    if served and 200 <= status < 300 and not any(line.startswith(VERSION_FIELD) for line in lines):
        head.append(version_line(served))
    framed = any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines)
    if not framed and status >= 200 and status not in (204, 304):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def chunked(*pieces: bytes) -> bytes:
    """A whole chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"
