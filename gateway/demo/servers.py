"""Base class of the demonstration's API servers, which keep their port while they are stopped.

A server starts with a release, stops for an upgrade, is killed, or hangs. Its API is in `ironic` or
`catalog`. This module must not know the gateway: these are foreign servers in the same process.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, cast

from aiohttp import web

LOOPBACK: Final = "127.0.0.1"

SHUTDOWN_TIMEOUT: Final = 1.0
"""Maximum seconds for the open requests of a stopping server. Each takes a millisecond."""


class Release(NamedTuple):
    """A release of an API server, and the minor number of its newest version. The oldest one's is 1."""

    name: str
    highest: int

    @property
    def text(self) -> str:
        """The newest version of an API with versions of the form 1.N."""
        return f"1.{self.highest}"


class ServerState(StrEnum):
    """State of an API server of the demonstration."""

    RUNNING = "running"
    UPGRADING = "upgrading"
    KILLED = "killed"
    HANGING = "hanging"


def bind_loopback(port: int = 0) -> socket.socket:
    """Bind a socket to a loopback port, by default a free one. Several sockets may share the port."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, port))
    return bound


class ApiServer(ABC):
    """An API server that can stop and start again with another release.

    `changed` is called with the server after each change of `state` or `release`.
    """

    documents: ClassVar[frozenset[str]]
    """Paths of the server's discovery documents."""

    def __init__(self, name: str, release: Release) -> None:
        self.name = name
        self.release = release
        self.state = ServerState.UPGRADING
        self.changed: Callable[[ApiServer], None] = lambda server: None
        self.received: Counter[str] = Counter()
        """Number of requests to this server by the text of their version header, empty without one."""
        self.refused: list[str] = []
        """Versions that this server refused. It stays empty behind a correct gateway."""
        self.requests = 0
        """Number of requests to this server other than for discovery documents (probes, health checks)."""
        self._reserved: socket.socket | None = None
        """Socket that never listens. It keeps the port while the server is stopped: connections are refused,
        and no other process gets the port."""
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None
        self._answers = asyncio.Event()
        self._answers.set()
        self._connections: set[asyncio.BaseTransport] = set()

    @property
    def port(self) -> int:
        """The server's port, reserved from the first start until `close`."""
        assert self._reserved is not None
        return int(self._reserved.getsockname()[1])

    async def start(self, release: Release) -> None:
        self.release = release
        self._answers.set()
        self._reserved = self._reserved or bind_loopback()
        runner = web.AppRunner(self.application(), shutdown_timeout=SHUTDOWN_TIMEOUT, access_log=None)
        await runner.setup()
        self._listening = bind_loopback(self.port)
        await web.SockSite(runner, self._listening).start()
        self._runner = runner
        self._is(ServerState.RUNNING)

    async def stop(self) -> None:
        """Finish the server's open requests and refuse connections from now on."""
        self._is(ServerState.UPGRADING)
        await self._end()

    async def kill(self) -> None:
        """Cut all connections of the server at once, like a process that is killed."""
        self._is(ServerState.KILLED)
        for connection in self._connections:
            cast(asyncio.Transport, connection).abort()  # aiohttp names its base class only
        await self._end()

    def hang(self) -> None:
        """Accept connections and requests from now on, and answer none of them."""
        self._answers.clear()
        self._is(ServerState.HANGING)

    async def come_back(self) -> None:
        """Run the server again after `kill` or `hang`. Requests that wait since `hang` are answered."""
        if self.state is ServerState.KILLED:
            await self.start(self.release)
        elif self.state is ServerState.HANGING:
            self._answers.set()
            self._is(ServerState.RUNNING)

    async def close(self) -> None:
        """Stop the server and release its port."""
        await self._end()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    @abstractmethod
    def application(self) -> web.Application:
        """Return the API of the current release as an aiohttp application."""

    @web.middleware
    async def present(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Outermost middleware of each `application`: counts requests, and waits while the server hangs."""
        if (connection := request.transport) is not None and connection not in self._connections:
            self._connections = {each for each in self._connections if not each.is_closing()} | {connection}
        self.requests += request.path not in self.documents
        await self._answers.wait()
        return await handler(request)

    def _is(self, state: ServerState) -> None:
        self.state = state
        self.changed(self)

    async def _end(self) -> None:
        self._answers.set()
        runner, self._runner = self._runner, None
        if runner is None:
            return
        if self._listening is not None:
            # asyncio loses a connection that it has accepted in the turn before its server closes.
            asyncio.get_running_loop().remove_reader(self._listening)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await runner.cleanup()
