"""A real HAProxy, and the driver of the gateway beside it, which keeps it at the gateway's snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

from gateway.engines.haproxy.driver import HaproxyDriver, Places, replace_file
from gateway.engines.haproxy.texts import HaproxyOptions, configuration_text, map_text
from gateway.engines.table import compile_table
from tests.engines.equality.gateway import RunningGateway
from tests.engines.equality.haproxy import running_haproxy
from tests.kit.networks import LOOPBACK, free_port
from tests.kit.processes import TIMEOUT

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
