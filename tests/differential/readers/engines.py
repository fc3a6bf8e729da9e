"""The readers that are processes: Node with Express, PHP, and Rack on Puma, each with its own HTTP server.

A captured request is sent to them as it is; they answer with what they read from it, as JSON. Debian's
packages have all of them (.ci/packages).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path as File
from typing import Any, Final, final

from tests.differential.apis import PATHS, QUERY_NAMES
from tests.differential.readers.view import MediaType, View, media_type
from tests.differential.readers.wsgi import key_of
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.waiting import PATIENCE

START_TIMEOUT: Final = 30.0
TIMEOUT: Final = PATIENCE
LANES: Final = 2
"""Connections to one engine."""
_HERE: Final = File(__file__).parent
_SPEC: Final = json.dumps({"queries": QUERY_NAMES, "paths": [(path.prefix, path.before) for path in PATHS]})
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


def _view(described: dict[str, Any], *, cgi: bool) -> View:
    """One request as an engine described it."""

    def media_types(field: str) -> list[MediaType]:
        return [
            media_type(str(name), ((str(key), str(value)) for key, value in pairs))
            for name, pairs in described[field]
        ]

    def header(name: str) -> list[str]:
        value = described["headers"].get(key_of(name) if cgi else name.lower())
        return [] if value is None else [str(value)]

    return View(
        method=str(described["method"]),
        path=str(described["path"]),
        header=header,
        query=lambda name: list(described["queries"][name]),
        accept=lambda: media_types("accept"),
        content_type=lambda: media_types("content_type"),
        route=lambda location: list(described["paths"][PATHS.index(location)]),
    )


@final
class Engine:
    """A running engine."""

    def __init__(self, name: str, port: int, *, cgi: bool, keep: bool) -> None:
        self.name = name
        self._port = port
        self._cgi = cgi
        self._keep = keep
        """Whether several requests may follow each other on a connection. PHP closes it; Puma forgets to
        answer a malformed request that is not the first."""

    async def read(self, requests: Sequence[bytes]) -> list[View | None]:
        views: list[View | None] = [None] * len(requests)
        waiting = iter(enumerate(requests))
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._lane(waiting, views))
        return views

    async def _lane(self, waiting: Iterator[tuple[int, bytes]], views: list[View | None]) -> None:
        """Send requests on one connection, which is opened anew when the engine closes it."""
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for at, request in waiting:
            if streams is None:
                streams = await asyncio.open_connection(LOOPBACK, self._port)
            reader, writer = streams
            # The answer to HEAD would have no body. No engine looks for a version elsewhere because of it.
            writer.write(b"GET " + request[5:] if request.startswith(b"HEAD ") else request)
            try:
                async with asyncio.timeout(TIMEOUT):
                    head, body = await _response(reader)
            except TimeoutError:
                raise AssertionError(f"{self.name} does not answer {request!r}") from None
            if head[9:12] == b"200":
                views[at] = _view(json.loads(body), cgi=self._cgi)
            if head[9:12] != b"200" or not self._keep:
                await _close(writer)
                streams = None
        if streams is not None:
            await _close(streams[1])


async def _response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length is None:
        return head, await reader.read()
    return head, await reader.readexactly(int(length[1]))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


# --- processes ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def engines() -> AsyncIterator[tuple[Engine, ...]]:
    """All three, running."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(_running("node", [str(_HERE / "node_server.js"), "{port}"]))
        php = await stack.enter_async_context(
            _running("php", ["-S", f"{LOOPBACK}:{{port}}", str(_HERE / "php_server.php")])
        )
        bind = ["--quiet", "--threads", "1:1", "--bind", f"tcp://{LOOPBACK}:{{port}}"]
        rack = await stack.enter_async_context(_running("puma", [*bind, str(_HERE / "rack_server.ru")]))
        yield (
            Engine("Node", node, cgi=False, keep=True),
            Engine("PHP", php, cgi=True, keep=False),
            Engine("Rack", rack, cgi=True, keep=False),
        )


@asynccontextmanager
async def _running(program: str, arguments: Sequence[str]) -> AsyncIterator[int]:
    """Run a server on a free port until the end of the block; gives the port."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        program,
        *(argument.replace("{port}", str(port)) for argument in arguments),
        # Debian has the modules of Node there; other builds of Node do not look there by themselves.
        env={**os.environ, "SPEC": _SPEC, "NODE_PATH": "/usr/share/nodejs", "RACK_ENV": "production"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(process, port, program)
        yield port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, program: str) -> None:
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            assert process.returncode is None, f"{program} ended with {process.returncode}"
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)  # another process: there is no event
            else:
                await _close(writer)
                return
