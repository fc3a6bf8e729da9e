"""A plain HTTP balancer: each request goes to the next server in turn. It stands in where HAProxy is missing.

It does what a round-robin balancer does by its manual: it checks the health of its servers, leaves out those
that are down, and sends a request on to the next server when a connection is refused. It knows nothing of
versions, and this module must not know them either.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, Protocol, final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

LOOPBACK: Final = "127.0.0.1"
RETRIES: Final = 3
"""Further servers that a request is tried on, where the one before refused the connection."""
FALL: Final = 3
"""Checks in a row that fail before a server is down."""
RISE: Final = 2
"""Checks in a row that succeed before it is up again."""
BACKLOG: Final = 128

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Fields that concern one connection, in small letters (RFC 9110, 7.6.1)."""


class Target(NamedTuple):
    """One server of a pool, on loopback."""

    name: str
    port: int


class Pool(NamedTuple):
    """The servers of one service, which has a port of its own."""

    name: str
    targets: tuple[Target, ...]


class Timing(NamedTuple):
    """Seconds."""

    check_interval: float
    """Between two health checks of one server."""
    timeout: float
    """For a response, and for a health check."""


class Balancer(Protocol):
    """What stands in front of the fleet in place of the gateway."""

    @property
    def name(self) -> str:
        """Product and method: `HAProxy 2.6.12, round robin`."""

    def port(self, pool: str) -> int:
        """Of loopback, where clients of that pool send their requests. From `start` to `close`."""

    async def start(self) -> None:
        """Return once requests are served. Raises `StartupError`."""

    async def close(self) -> None:
        """End. Requests in flight are finished first."""


def listening_socket() -> socket.socket:
    """A socket that listens on a free port of loopback."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind((LOOPBACK, 0))
    listening.listen(BACKLOG)
    return listening


@final
class Rotation:
    """Servers in turn, without those that are down. Where all are down, none is left out."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._next = 0
        self._down: set[Target] = set()
        self._streaks = dict.fromkeys(self._targets, 0)
        """Checks in a row that ended unlike the state of the target."""

    def take(self) -> Target:
        """The server of the next request."""
        order = self._targets[self._next :] + self._targets[: self._next]
        target = next((each for each in order if each not in self._down), order[0])
        self._next = (self._targets.index(target) + 1) % len(self._targets)
        return target

    def checked(self, target: Target, *, healthy: bool) -> None:
        """Take in the result of a health check."""
        down = target in self._down
        if healthy is not down:
            self._streaks[target] = 0
            return
        self._streaks[target] += 1
        if self._streaks[target] >= (RISE if down else FALL):
            self._streaks[target] = 0
            self._down ^= {target}


@final
class RoundRobin:
    """The balancer of this module. Each request has a connection of its own to its server, as with HAProxy's
    `http-server-close`, so that no request is lost on a connection that the server closes at that moment."""

    name = "plain round robin"

    def __init__(self, pools: Sequence[Pool], timing: Timing) -> None:
        self._pools = tuple(pools)
        self._timing = timing
        self._running = AsyncExitStack()
        self._ports: dict[str, int] = {}

    def port(self, pool: str) -> int:
        return self._ports[pool]

    async def start(self) -> None:
        stack = self._running
        timeout = aiohttp.ClientTimeout(total=self._timing.timeout)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=timeout,
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        )
        for pool in self._pools:
            rotation = Rotation(pool.targets)
            checks = (self._check(session, rotation, each) for each in pool.targets)
            tasks = [asyncio.create_task(each) for each in checks]  # noqa: TID251 - `close` ends them
            stack.push_async_callback(_cancel, tasks)
            self._ports[pool.name] = await self._listen(session, rotation)

    async def close(self) -> None:
        await self._running.aclose()

    async def _listen(self, session: aiohttp.ClientSession, rotation: Rotation) -> int:
        """Serve requests on a free port, which is returned."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await _response(session, request, rotation)

        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=self._timing.timeout)
        await runner.setup()
        self._running.push_async_callback(runner.cleanup)
        listening = listening_socket()
        await web.SockSite(runner, listening).start()
        return int(listening.getsockname()[1])

    async def _check(self, session: aiohttp.ClientSession, rotation: Rotation, target: Target) -> None:
        """Look after the health of one server: it is well where `/` is answered below 400."""
        url = f"http://{LOOPBACK}:{target.port}/"
        while True:
            await asyncio.sleep(self._timing.check_interval)
            try:
                async with session.get(url, allow_redirects=False) as response:
                    healthy = response.status < 400
            except (aiohttp.ClientError, TimeoutError):
                healthy = False
            rotation.checked(target, healthy=healthy)


async def _response(
    session: aiohttp.ClientSession, request: web.BaseRequest, rotation: Rotation
) -> web.StreamResponse:
    """What the client gets: a server's response, or an error of the balancer."""
    body = await request.read()
    try:
        return await _send(session, request, body, rotation)
    except TimeoutError:
        return web.Response(status=504, text="The server did not answer in time.\n")
    except aiohttp.ClientConnectorError:
        return web.Response(status=503, text="No server could be reached.\n")
    except aiohttp.ClientError:
        return web.Response(status=502, text="The server did not answer with a valid response.\n")


async def _send(
    session: aiohttp.ClientSession, request: web.BaseRequest, body: bytes, rotation: Rotation
) -> web.Response:
    """The response of the next server in turn. One that refuses the connection has executed nothing, so the
    one after it is tried."""
    headers = end_to_end(request.headers)
    for retry in range(1 + RETRIES):
        url = URL(f"http://{LOOPBACK}:{rotation.take().port}{request.raw_path}", encoded=True)
        try:
            async with session.request(
                request.method, url, headers=headers, data=body or None, allow_redirects=False
            ) as response:
                content = await response.read()
                return web.Response(
                    status=response.status,
                    reason=response.reason,
                    headers=end_to_end(response.headers),
                    body=content,
                )
        except aiohttp.ClientConnectorError:
            if retry == RETRIES:
                raise
    raise AssertionError("each way through the loop ends it")


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """`headers` without those that concern one connection."""
    named = {name.strip().lower() for line in headers.getall("Connection", ()) for name in line.split(",")}
    left_out = HOP_BY_HOP | named
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in left_out)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
