"""The connection of one client: HTTP/1.1 as a correct client uses it, and a client's side of TLS.

What it does: it sends a request once, on a kept or a new connection, and reads the whole response with the
strict reader of the data plane's tests. It waits for the response while it sends a body in pieces, because
the response may come before the end of the body. `TlsLayer` turns plain bytes into records and back, so that
a slow client decides itself when it reads and writes how many bytes.

Rules: nothing is ever sent twice. The connection is kept only after a whole response that keeps it open. A
file of a certificate stands for TLS; without one, everything is plain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias, final

from tests.kit.certificates import Authority
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, chunked, read_message
from tests.load.records import Request
from tests.load.workload import ANSWERED, BETWEEN, DIGEST, digest

HOST: Final = "127.0.0.1"

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Response(NamedTuple):
    message: Message | None
    reason: str = ""


def framed(pieces: Sequence[bytes], *, by_length: bool) -> tuple[str, list[bytes]]:
    """The framing field of a body in pieces, and the pieces as they are on the wire."""
    if by_length:
        return f"Content-Length: {sum(map(len, pieces))}", list(pieces)
    coded = [chunked(piece).removesuffix(chunked()) for piece in pieces]
    return "Transfer-Encoding: chunked", [*coded, chunked()]


@final
class Connection:
    """A connection to a gateway on a port of loopback, over TLS or not. It opens when it is needed."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._streams: Streams | None = None
        self._completed = False
        self.established = False
        """Whether the connection of the last request had completed one before."""
        self.evicted = False
        """Whether the gateway had closed an established one while it was idle, and no response came since."""

    @property
    def is_open(self) -> bool:
        return self._streams is not None

    async def exchange(self, method: str, head: bytes, body: Sequence[bytes] = ()) -> Response:
        self.evicted = self.evicted and not self._completed
        try:
            streams = await self._open()
            message = await self._exchange(streams, method, head, body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as problem:
            self.close()
            return Response(None, f"{type(problem).__name__}: {problem}")
        except AssertionError as problem:
            self.close()
            return Response(None, f"not a valid response: {problem}")
        if message.every("Connection") == ["close"]:
            self.close()
        else:
            self._completed = self._streams is not None
        return Response(message)

    def close(self) -> None:
        streams, self._streams = self._streams, None
        self._completed = False
        if streams is not None:
            streams[1].close()

    async def _open(self) -> Streams:
        reader = self._streams[0] if self._streams is not None else None
        closed = reader is not None and (reader.at_eof() or reader.exception() is not None)
        self.evicted = self.evicted or (closed and self._completed)
        if closed:
            self.close()
        self.established = self._completed
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port, ssl=self._tls)
        return self._streams

    async def _exchange(self, streams: Streams, method: str, head: bytes, body: Sequence[bytes]) -> Message:
        reader, writer = streams
        response = asyncio.create_task(read_message(reader, response_to=method))
        try:
            writer.write(head)
            for number, piece in enumerate(body):
                if number:
                    await asyncio.sleep(BETWEEN)
                if response.done():  # the rest of the body would be read as the next request
                    self.close()
                    break
                writer.write(piece)
            return await response
        finally:
            if not response.done():
                response.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await response


def record_of(
    ident: str, kind: str, method: str, requested: str, began: float, response: Response, **more: Any
) -> Request:
    """The record of a request that has just ended. Several values of a field are joined, so that the result
    is not a version. `more`: further fields of the record."""

    def text(name: str) -> str:
        return "|".join(response.message.every(name)) if response.message else ""

    return Request(
        *(ident, kind, method, requested, began, monotonic()),
        status=response.message.status if response.message else 0,
        served=text(VERSION_FIELD),
        lowest=text(MIN_FIELD),
        highest=text(MAX_FIELD),
        fault=response.reason,
        answered=text(ANSWERED),
        **more,
    )


def fault_of(message: Message, body: bytes = b"", reply: object = None) -> str:
    """What is wrong with the body of a successful response; empty: nothing. It must be `body` and its digest,
    or else JSON, which is `reply` if that is given."""
    if message.status not in (200, 201):
        return ""
    if body:
        if message.body == body and message.every(DIGEST) == [digest(body)]:
            return ""
        return f"{len(message.body)} bytes came, which are not the {len(body)} bytes of this body"
    try:
        found = json.loads(message.body)
    except ValueError:
        return "the body is incomplete or malformed"
    return "" if reply in (None, found) else f"{found} came, and {reply} was due"


READ: Final = 64 * 1024


class Files(NamedTuple):
    """The files of a run: the CA, and certificate and key of a server, of the gateway or of a backend."""

    ca: Path
    certificate: Path
    key: Path


def write_files(folder: Path, *names: str) -> Files:
    """A CA, and one certificate for all these names."""
    authority = Authority("fault run")
    return Files(authority.write(folder), *authority.server(*names).write(folder))


def client_context(ca: str) -> ssl.SSLContext | None:
    """What a client needs to know the gateway by this CA; empty: no TLS."""
    return ssl.create_default_context(cafile=ca) if ca else None


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@final
class TlsLayer:
    """A client's TLS over a connection that somebody else reads and writes."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._received = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._outgoing, server_hostname=host)

    def handshake(self) -> bool:
        """One step. Return whether it is done. What is to be sent is in `outgoing`."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        self._received.write(data)

    def opened(self, data: bytes) -> bytes:
        """The plain bytes of the records that are complete with these bytes of the connection."""
        self.feed(data)
        found = []
        try:
            while plain := self._object.read(READ):
                found.append(plain)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(found)

    def sealed(self, data: bytes) -> bytes:
        self._object.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        return self._outgoing.read()
