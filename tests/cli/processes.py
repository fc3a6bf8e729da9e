"""The command as a process, and waiting for its effects (never for time to pass)."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import aiohttp

from gateway.runtime import compiled
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]
TIMEOUT = 2 * PATIENCE
"""Seconds. To start takes 1.5 seconds of processor time where no module was compiled to bytecode before: ten
times as long on a machine that runs ten of them."""

OWN_PORTS = range(10_000, 30_000)
"""Below the ephemeral ones of Linux, which begin at 32768."""

_given: set[int] = set()
"""Ports that this process has been given: whoever got one may not have bound it yet."""

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
    """One that nobody has. Not of those that the kernel gives to whoever asks for any port: other tests do so
    all the time, and a process takes a second to bind the one that it was told. For the same reason none is
    given twice, and tests that run beside these (pytest-xdist) have others."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = OWN_PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    if len(_given) > len(own) // 2:
        _given.clear()  # those of long ago are free again, or taken
    while True:
        port = secrets.choice(own)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
