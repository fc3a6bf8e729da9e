"""HAProxy itself, in the foreground, with a configuration that a test has made."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import until

PATH: Final = "/usr/sbin:/usr/local/sbin:/sbin"


def program() -> str:
    """Debian has it in sbin, which the PATH of users lacks."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path=PATH)
    assert found is not None
    return found


@asynccontextmanager
async def running_haproxy(
    file: Path, port: int, *, instead_of: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """One process with this file, once it accepts connections at this port of loopback. `instead_of`: the
    process that it lets finish, as in a reload."""
    reload = () if instead_of is None else ("-sf", str(instead_of))
    log = file.with_suffix(".log")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program(),
            "-db",
            "-f",
            file,
            *reload,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )

    async def accepts() -> bool:
        assert process.returncode is None, log.read_text(errors="replace")
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    try:
        await until(accepts, f"HAProxy accepts at port {port}")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
