"""A real HAProxy with the map of a gateway's snapshot, and the gateway beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text
from gateway.engines.haproxy.map_file import entries, map_text
from gateway.engines.table import Pool, compile_table
from tests.cli.processes import free_port
from tests.differential.testbed import LOOPBACK
from tests.engines.equality.gateway import RunningGateway
from tests.engines.equality.haproxy import running_haproxy

_CHUNK: Final = 100
"""Entries in one command: less than its buffer of 16 KiB."""


@final
class RunningEngine:
    """`port`: where HAProxy listens."""

    def __init__(self, gateway: RunningGateway, folder: Path, port: int, pools: tuple[Pool, ...]) -> None:
        self.port = port
        self._gateway = gateway
        self._map = folder / "skewgate.map"
        self._socket = folder / "haproxy.sock"
        self._pools = pools

    async def follow(self) -> None:
        """Give HAProxy the map of the gateway's snapshot, as a whole."""
        rows = list(
            entries(compile_table(self._gateway.snapshots.current, {pool.name for pool in self._pools}))
        )
        version = (await self._say(f"prepare map {self._map}")).split()[-1]
        for at in range(0, len(rows), _CHUNK):
            lines = "\n".join(f"{key} {value}" for key, value in rows[at : at + _CHUNK])
            assert await self._say(f"add map @{version} {self._map} <<\n{lines}\n") == ""
        assert await self._say(f"commit map @{version} {self._map}") == ""

    async def _say(self, command: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            writer.write(f"{command}\n".encode())
            return (await reader.read()).decode().strip()
        finally:
            writer.close()


@asynccontextmanager
async def running_engine(gateway: RunningGateway, folder: Path) -> AsyncIterator[RunningEngine]:
    table = compile_table(gateway.snapshots.current)
    port = free_port()
    engine = RunningEngine(gateway, folder, port, table.pools)
    (folder / "skewgate.map").write_text(map_text(table))
    options = HaproxyOptions(
        map_path=str(folder / "skewgate.map"),
        gateway=f"{LOOPBACK}:{gateway.port}",
        binds=(f"{LOOPBACK}:{port}",),
        socket=f"{folder / 'haproxy.sock'} level admin",
    )
    file = folder / "haproxy.cfg"
    file.write_text(configuration_text(table, options))
    async with running_haproxy(file, port):
        yield engine
