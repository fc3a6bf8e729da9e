"""Scripted backends: servers on loopback that do with each connection what a test has written down."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, final

from gateway.core.fleet.backend import Backend, BackendTls
from tests.kit.clients import Ended, ended
from tests.kit.ironic import NEW, versions
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, read_message, response
from tests.kit.networks import LOOPBACK, closed_port, reset
from tests.kit.servers import StreamServer
from tests.kit.waiting import PATIENCE, Changes

_STREAM: Final = 1 << 20


@final
class UpstreamConnection:
    """One connection from the gateway to a backend."""

    def __init__(
        self, backend: ScriptedBackend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.backend = backend
        self.reader = reader
        self.writer = writer

    async def request(self) -> Message:
        """Read the next whole request, and add it to the list of the backend."""
        message = await read_message(self.reader)
        self.backend.record_request(message)
        return message

    async def head(self) -> Message:
        """Read only the head of the next request, and add it to the list of the backend."""
        message = Message(await self.reader.readuntil(b"\r\n\r\n"), b"", "none")
        self.backend.record_request(message)
        return message

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError  # uvloop raises a RuntimeError
        self.writer.write(data)
        await self.writer.drain()

    def half_close(self) -> None:
        """Close the sending side at once, not in the next turn of the loop."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset."""
        reset(self.writer)

    async def ended(self) -> Ended:
        """Wait until the gateway closes the connection."""
        return await ended(self.reader)


Script = Callable[[UpstreamConnection], Awaitable[None]]


DOCUMENTS: Final = {"/": b'{"versions": []}', "/v1": b'{"id": "v1"}'}
"""Short discovery documents, as those of an Ironic that shows no range in them."""


def ironic_response(message: Message, body: bytes | None = None) -> bytes:
    """The response of an Ironic that served the requested version."""
    if body is None:
        body = DOCUMENTS.get(message.target.partition("?")[0], b'{"nodes": []}')
    return response(
        200,
        f"{VERSION_FIELD}: {message.one(VERSION_FIELD)}",
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.90",
        "Content-Type: application/json",
        body=b"" if message.method == "HEAD" else body,
    )


async def serve(upstream: UpstreamConnection) -> None:
    """Respond correctly to every request, and keep connections open."""
    while True:
        message = await upstream.request()
        if VERSION_FIELD.lower() in message.names:
            await upstream.send(ironic_response(message))
        else:
            body = b"" if message.method == "HEAD" else DOCUMENTS["/"]
            await upstream.send(response(200, "Content-Type: application/json", body=body))


def respond_with(*responses: bytes) -> Script:
    """Send one of these responses to each request in turn; then close."""

    async def script(upstream: UpstreamConnection) -> None:
        for data in responses:
            await upstream.request()
            await upstream.send(data)

    return script


def always(data: bytes) -> Script:
    """Send the same bytes to every request, and keep connections open."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(data)

    return script


async def no_reply(upstream: UpstreamConnection) -> None:
    """Read one request and close: nobody knows whether it was executed."""
    await upstream.request()


async def never_respond(upstream: UpstreamConnection) -> None:
    """Read a request and send nothing."""
    await upstream.request()
    await upstream.ended()


@final
class ScriptedBackend:
    """A server that runs `script` for every connection. When a script returns, its connection is closed."""

    def __init__(
        self,
        script: Script,
        name: str,
        declared: str | None,
        server_tls: ssl.SSLContext | None = None,
        tls: BackendTls | None = None,
    ) -> None:
        self._server_tls = server_tls
        self.tls = tls
        """How the gateway speaks to it."""
        self.script = script
        self.name = name
        self.declared = declared
        self.requests: list[Message] = []
        self.connections = 0
        self.port = 0
        self.error: BaseException | None = None
        self._server = StreamServer(self._run, limit=_STREAM, on_accept=self._accepted)
        self._changed = Changes()

    async def start(self) -> None:
        await self._server.start(tls=self._server_tls)
        self.port = self._server.port

    def _accepted(self) -> None:
        self.connections += 1
        self._changed.notify()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.script(UpstreamConnection(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has closed it
        except AssertionError as error:
            self.error = error

    def record_request(self, message: Message) -> None:
        self.requests.append(message)
        self._changed.notify()

    async def received(self, number: int = 1) -> Message:
        """Wait for request number `number`, counted from 1."""
        await self._changed.until(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def connected(self, number: int = 1) -> None:
        """Wait until `number` connections were made."""
        await self._changed.until(lambda: self.connections >= number)

    async def disconnected(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(PATIENCE):
            while handlers := self._server.handlers:
                await asyncio.wait(handlers)

    @property
    def only_request(self) -> Message:
        """The only request that came; fails if there were others."""
        (message,) = self.requests
        return message

    @property
    def backend(self) -> Backend:
        declared = versions(self.declared) if self.declared else None
        return Backend(self.name, LOOPBACK, self.port, declared=declared, tls=self.tls)

    async def close(self) -> None:
        await self._server.stop()
        if self.error is not None:
            raise self.error


def refusing_backend(name: str = "dead", declared: str = NEW, weight: int = 1) -> Backend:
    """A backend that refuses connections."""
    return Backend(name, LOOPBACK, closed_port(), weight=weight, declared=versions(declared))
