"""A backend that leaves the body of a request unread and answers it as a second request.

It writes on plain sockets with Nagle's algorithm, as many servers do: the kernel holds the second response
back until the gateway has acknowledged the first one. Both are written in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.core.fleet.backend import Backend
from tests.kit.ironic import NEW, versions
from tests.kit.messages import VERSION_FIELD, request, response
from tests.kit.networks import LOOPBACK

HIDDEN: Final = request("GET", "/hidden")
"""The body that such a backend takes for a request."""


class UnreadBodyBackend:
    """Takes whatever follows a head for the next one. The content of each response is the target."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self._listener.setblocking(False)
        self._tasks = [asyncio.get_running_loop().create_task(self._accept())]
        self.targets: list[str] = []
        """What it was asked for."""

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            sock.setblocking(False)
            self._tasks.append(loop.create_task(self._serve(sock)))

    async def _serve(self, sock: socket.socket) -> None:
        data = b""
        with sock, suppress(ConnectionError):
            while piece := await asyncio.get_running_loop().sock_recv(sock, 65536):
                *heads, data = (data + piece).split(b"\r\n\r\n")
                for head in heads:
                    self._respond(sock, head.decode("latin-1").split("\r\n"))

    def _respond(self, sock: socket.socket, lines: list[str]) -> None:
        target = lines[0].split(" ")[1]
        self.targets.append(target)
        served = [line for line in lines if line.startswith(VERSION_FIELD)]
        sock.send(response(200, *served, body=target.encode()))

    @property
    def backend(self) -> Backend:
        return Backend("unread", LOOPBACK, self._listener.getsockname()[1], declared=versions(NEW))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()


@asynccontextmanager
async def unread_body_backend() -> AsyncIterator[UnreadBodyBackend]:
    backend = UnreadBodyBackend()
    try:
        yield backend
    finally:
        await backend.close()
