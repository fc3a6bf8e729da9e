"""A gateway that may open few files: busy clients lose nothing, whoever else is connected."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from tests.cli.conftest import Write
from tests.kit.networks import free_port
from tests.kit.processes import finish, ready, start

pytestmark = pytest.mark.processes

FILES = 110
BUSY = 24
IDLE = 300
REQUEST = b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\n\r\n"
LOST = 3
"""Of 1,800, beside idle clients."""


@asynccontextmanager
async def gateway(write: Write, session: aiohttp.ClientSession) -> AsyncIterator[int]:
    """The port of one with `FILES`."""
    port, admin_port = free_port(), free_port()
    process = await start("run", "-c", str(write(port, admin_port)), within=("prlimit", f"--nofile={FILES}"))
    try:
        await ready(session, f"http://127.0.0.1:{admin_port}")
        yield port
    finally:
        process.terminate()
        await finish(process)


async def response(reader: asyncio.StreamReader) -> bool:
    """Whether a whole 200 has come."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return head.startswith(b"HTTP/1.1 200 ")


async def busy(port: int, number: int = 75) -> int:
    """How many of its requests a client loses. It connects anew after each loss, and every 25 requests."""
    lost, left = 0, number
    while left:
        reader = writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(min(left, 25)):
                left -= 1
                writer.write(REQUEST)
                lost += not await response(reader)
        except (OSError, asyncio.IncompleteReadError):
            lost += 1
        finally:
            if writer is not None:
                writer.close()
    return lost


async def silent(port: int) -> asyncio.StreamWriter:
    """A client that sends nothing."""
    return (await asyncio.open_connection("127.0.0.1", port))[1]


async def idle(port: int) -> asyncio.StreamWriter:
    """A client that keeps its connection after one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    with suppress(OSError, asyncio.IncompleteReadError):
        await response(reader)
    return writer


async def test_R3_V8_busy_clients_lose_nothing(write: Write, session: aiohttp.ClientSession) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > FILES
    async with gateway(write, session) as port:
        assert await asyncio.gather(*(busy(port) for _ in range(BUSY))) == [0] * BUSY


@pytest.mark.parametrize("other", [silent, idle])
async def test_R3_V8_busy_clients_lose_next_to_nothing_beside_idle_ones(
    write: Write, session: aiohttp.ClientSession, other: Callable[[int], Awaitable[asyncio.StreamWriter]]
) -> None:
    async with gateway(write, session) as port:
        others = [await other(port) for _ in range(IDLE)]
        lost = await asyncio.gather(*(busy(port) for _ in range(BUSY)))
        for writer in others:
            writer.close()
    assert sum(lost) <= LOST
