"""A server of byte streams for tests, whose end leaves no connection open: not even one that comes meanwhile.

With a bare `asyncio.start_server`, a connection whose handler had not begun when the test ended is closed by
nobody. The collector finds it in the middle of another test, and that one fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, final

from tests.kit.networks import LOOPBACK

LIMIT: Final = 64 * 1024
TURNS: Final = 3
"""Turns of the event loop from an accepted connection to its protocol."""

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@final
class StreamServer:
    """Calls `serve` for every connection, and closes the connection when that returns."""

    def __init__(
        self,
        serve: Serve,
        *,
        limit: int = LIMIT,
        new_reader: Callable[[], asyncio.StreamReader] | None = None,
        on_accept: Callable[[], None] = lambda: None,
    ) -> None:
        self._serve = serve
        self._on_accept = on_accept
        self._new_reader = new_reader or (lambda: asyncio.StreamReader(limit=limit))
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._open = False
        self.port = 0

    async def start(
        self,
        host: str | None = LOOPBACK,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        path: str | None = None,
        tls: ssl.SSLContext | None = None,
        backlog: int = 100,
    ) -> None:
        """Listen on a port of `host` (0: a free one), on a bound socket, or on a unix socket."""
        loop = asyncio.get_running_loop()
        if path is not None:
            self._server = await loop.create_unix_server(self._protocol, path, ssl=tls, backlog=backlog)
        elif sock is not None:
            self._server = await loop.create_server(self._protocol, sock=sock, ssl=tls, backlog=backlog)
        else:
            self._server = await loop.create_server(self._protocol, host, port, ssl=tls, backlog=backlog)
        if path is None:
            self.port = self._server.sockets[0].getsockname()[1]
        self._open = True

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(self._new_reader(), self._accept)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        self._on_accept()
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._writers[writer] = task
        # Not in the handler: a task that is cancelled before it has begun runs no line of it.
        task.add_done_callback(lambda _: self._end(writer))

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.pop(writer, None)
        writer.close()

    @property
    def handlers(self) -> list[asyncio.Task[None]]:
        """Those that run."""
        return list(self._writers.values())

    async def stop_accepting(self) -> None:
        """Accept no more. Every connection that was accepted before has reached its handler.

        The listeners are taken out of the loop first: CPython 3.11 forgets a connection, without closing it,
        whose server is closed between its acceptance and its transport (`Server._attach` asserts).
        """
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.SelectorEventLoop):
            for listener in self._server.sockets:
                loop.remove_reader(listener)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._server.close()

    async def stop(self, *, cancel: bool = True) -> None:
        """Accept no more, end every handler and close every connection. Raises what a handler raised.

        `cancel` False: the connections are closed first, and the handlers end by that.
        """
        await self.stop_accepting()
        self._open = False
        writers = dict(self._writers)
        for writer, task in writers.items():
            if cancel:
                task.cancel()
            else:
                writer.close()
        if writers:
            await asyncio.wait(writers.values())
        for writer in writers:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        for task in writers.values():
            if not task.cancelled():
                task.result()


@asynccontextmanager
async def serving(
    serve: Serve, host: str = LOOPBACK, port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[StreamServer]:
    """A running server, stopped at the end."""
    server = StreamServer(serve)
    await server.start(host, port, tls=tls)
    try:
        yield server
    finally:
        await server.stop()
