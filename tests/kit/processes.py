"""The command as a process, and waiting for its effects (never for time to pass)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import aiohttp

from gateway.runtime import compiled
from tests.kit.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
TIMEOUT = 2 * PATIENCE
"""Seconds. To start takes 1.5 seconds of processor time where no module was compiled to bytecode before: ten
times as long on a machine that runs ten of them."""

_started: list[asyncio.subprocess.Process] = []


class Ended(NamedTuple):
    """The result of a process."""

    code: int
    out: str
    err: str


async def start(
    *argv: str,
    stderr: int | IO[bytes] = asyncio.subprocess.PIPE,
    within: Sequence[str] = (),
    python: str | Path = sys.executable,
    **environ: str,
) -> asyncio.subprocess.Process:
    """`skewgate ARGV`, in an environment whose only SKEWGATE_ variables are those of `environ`, and the one
    that says which build the tests are about."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SKEWGATE_") or name == compiled.VARIABLE
    }
    process = await asyncio.create_subprocess_exec(
        *within,
        *(python, "-W", "error", "-P", "-m", "gateway", *argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environ},
    )
    _started.append(process)
    return process


def kill_left() -> None:
    """End what a test that failed has left running: it would slow down all tests that follow."""
    while _started:
        if (process := _started.pop()).returncode is None:
            with suppress(ProcessLookupError):
                process.kill()


async def finish(process: asyncio.subprocess.Process) -> Ended:
    """Wait for the end of a process."""
    try:
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"did not end:\n{out.decode()}\n{(err or b'').decode()}") from None
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), (err or b"").decode())


async def call(*argv: str, **environ: str) -> Ended:
    """Run a process to its end."""
    return await finish(await start(*argv, stderr=asyncio.subprocess.PIPE, **environ))


async def ready(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the gateway with its admin listener at `url` is ready."""

    async def is_ready() -> bool:
        try:
            async with session.get(f"{url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    await until(is_ready, f"ready at {url}")
