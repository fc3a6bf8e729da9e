"""A bare TCP relay on asyncio protocols: bytes in, the same bytes out, one backend connection per client.

It shows the cost of moving bytes in Python, so it must never read them. Usage: PORT HOST:PORT.
"""

import asyncio
import signal
import sys
from typing import cast

from bench.peers.event_loop import new_event_loop


class End(asyncio.Protocol):
    """One end of a relayed connection. Its other end sends what it receives."""

    transport: asyncio.Transport
    other: "End | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports implement asyncio.Transport, but are not subclasses of it.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()


class ClientEnd(End):
    """The end at the client. It keeps the bytes that arrive before the backend connection is established.

    They are few, because an HTTP client waits for its response before it sends more.
    """

    def __init__(self, backend: tuple[str, int], connecting: set[asyncio.Task[None]]) -> None:
        self.backend = backend
        self.connecting = connecting
        self.early: list[bytes] = []
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self.connect())
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        super().connection_lost(exc)

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, backend = await loop.create_connection(End, *self.backend)
        except OSError:
            self.transport.close()
            return
        if self.closed:
            backend.transport.close()
            return
        backend.other, self.other = self, backend
        backend.transport.writelines(self.early)
        self.early.clear()


async def serve(port: int, backend: tuple[str, int]) -> None:
    """Relay until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await loop.create_server(lambda: ClientEnd(backend, connecting), "127.0.0.1", port, backlog=1024)
    await stopped.wait()


if __name__ == "__main__":
    host, _, backend_port = sys.argv[2].rpartition(":")
    new_event_loop().run_until_complete(serve(int(sys.argv[1]), (host, int(backend_port))))
