"""The command as a process, and waiting for its effects (never for time to pass)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import aiohttp

ROOT = Path(__file__).parents[2]
TIMEOUT = 20.0
"""Seconds after which an expected event counts as missing."""


class Ended(NamedTuple):
    """The result of a process."""

    code: int
    out: str
    err: str


async def start(*argv: str, **environ: str) -> asyncio.subprocess.Process:
    """`skewgate ARGV`, in an environment whose only SKEWGATE_ variables are those of `environ`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEWGATE_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-P", "-m", "gateway", *argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environ},
    )


async def finish(process: asyncio.subprocess.Process) -> Ended:
    """Wait for the end of a process."""
    try:
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"did not end:\n{out.decode()}\n{err.decode()}") from None
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def call(*argv: str, **environ: str) -> Ended:
    """Run a process to its end."""
    return await finish(await start(*argv, **environ))


async def until(condition: Callable[[], Awaitable[bool]], description: str) -> None:
    """Check the condition again and again until it is true."""
    try:
        async with asyncio.timeout(TIMEOUT):
            while not await condition():  # noqa: ASYNC110 - another process sets no event here
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never happened: {description}") from None


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the gateway with its admin listener at `url` is ready."""

    async def is_ready() -> bool:
        try:
            async with session.get(f"{url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    await until(is_ready, f"ready at {url}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
