"""The command as a process of its own, and how to wait for what it does (never for time to pass)."""

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
PATIENCE = 20.0
"""Seconds after which something that should happen has not happened."""


class Ended(NamedTuple):
    """What a process left behind."""

    code: int
    out: str
    err: str


async def start(*argv: str, **environ: str) -> asyncio.subprocess.Process:
    """`skewgate ARGV`, in an environment without anything of ours but `environ`."""
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
    """Wait for its end."""
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"did not end:\n{out.decode()}\n{err.decode()}") from None
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def call(*argv: str, **environ: str) -> Ended:
    """Run it to its end."""
    return await finish(await start(*argv, **environ))


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look again and again, until it holds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not await holds():  # noqa: ASYNC110 - what another process does sets no event here
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    """Until the gateway whose admin listener is at `url` says that it is ready."""

    async def answers() -> bool:
        try:
            async with session.get(f"{url}/readyz") as reply:
                return reply.status == 200
        except aiohttp.ClientConnectionError:
            return False

    await until(answers, f"ready at {url}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
