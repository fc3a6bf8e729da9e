"""A real HAProxy with a configuration of a test, and the driver of the gateway that keeps it up to date."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text, map_text
from gateway.engines.haproxy.driver import HaproxyDriver, Places, replace_file
from gateway.engines.table import compile_table
from tests.engines.equality.gateway import RunningGateway
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.processes import TIMEOUT
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


_HARD_STOP: Final = 5


@final
class RunningEngine:
    """`port`: where HAProxy listens."""

    def __init__(self, gateway: RunningGateway, places: Places, port: int) -> None:
        self.port = port
        self.driver = HaproxyDriver(gateway.snapshots, self._on_news, lambda: (), places)
        self._followed = 0
        """Updates of the map that somebody has waited for."""
        self._news = asyncio.Event()

    def _on_news(self) -> None:
        self._news.set()

    async def follow(self) -> None:
        """Wait until the driver has given HAProxy one more map, and says that it is in force. The snapshot
        must have changed once since the last time, or the gateway have begun."""
        wanted = self._followed + 1
        async with asyncio.timeout(TIMEOUT):
            while (report := self.driver.report()).updates < wanted or report.problem:
                self._news.clear()
                await self._news.wait()
        self._followed = report.updates


@asynccontextmanager
async def running_engine(gateway: RunningGateway, folder: Path) -> AsyncIterator[RunningEngine]:
    port = free_port()
    options = HaproxyOptions(
        map_path=str(folder / "skewgate.map"),
        gateway=f"{LOOPBACK}:{gateway.port}",
        binds=(f"{LOOPBACK}:{port}",),
        socket=f"{folder / 'haproxy.sock'} level admin",
        hard_stop_after=f"{_HARD_STOP}s",
    )
    file = folder / "haproxy.cfg"
    places = Places(str(folder / "haproxy.sock"), folder / "skewgate.map", file, options, _HARD_STOP)
    table = compile_table(gateway.snapshots.current)
    replace_file(places.map_file, map_text(table))
    replace_file(file, configuration_text(table, options))
    engine = RunningEngine(gateway, places, port)
    async with running_haproxy(file, port):
        await engine.driver.start()
        try:
            await engine.follow()
            yield engine
        finally:
            await engine.driver.close()
