"""The admin listener on a real socket, in front of a cell that a test fills; requests written by hand where
it matters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession

from gateway.admin import AdminContext, AdminSite, create_app
from gateway.controlplane.cell import Cell
from gateway.controlplane.reload import ConfigInForce, Reloaded
from gateway.settings.secret import Secret
from gateway.telemetry.metrics import Metrics


@dataclass
class Stand:
    """What the admin listener looks at, and how to ask it."""

    cell: Cell
    metrics: Metrics = field(default_factory=Metrics)
    result: Reloaded = field(default_factory=Reloaded)
    reloads: int = 0
    is_kept: bool = True
    draining: bool = False
    load: Mapping[str, int] = field(default_factory=dict)
    probed_at: Mapping[tuple[str, str], float] = field(default_factory=dict)
    port: int = 0
    session: ClientSession | None = None

    async def reload(self) -> Reloaded:
        self.reloads += 1
        return self.result

    async def kept(self) -> bool:
        return self.is_kept

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> ClientResponse:
        assert self.session is not None
        return await self.session.request(
            method, f"http://127.0.0.1:{self.port}{target}", headers=headers, **more
        )

    async def json(self, target: str, **more: Any) -> Any:
        reply = await self.ask("GET", target, **more)
        assert reply.status == 200, await reply.text()
        return await reply.json()

    async def raw(self, *lines: str) -> int:
        """Send these lines and a blank one; the status of the reply."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode("latin-1"))
        status = int((await reader.readline()).split()[1])
        writer.close()
        await writer.wait_closed()
        return status


@asynccontextmanager
async def admin(cell: Cell, token: str | None = None, hosts: tuple[str, ...] = ()) -> AsyncIterator[Stand]:
    stand = Stand(cell)
    stand.metrics.watch(cell, dict, dict)
    app = create_app(
        AdminContext(
            snapshots=cell,
            metrics=stand.metrics,
            config=lambda: ConfigInForce("0123456789ab", 1790000000.0),
            reload=stand.reload,
            obey=cell.obey,
            kept=stand.kept,
            last_probe_at=lambda: stand.probed_at,
            load=lambda: stand.load,
            draining=lambda: stand.draining,
            token=Secret(token) if token is not None else None,
            hosts=hosts,
        )
    )
    site = AdminSite(app, "127.0.0.1", 0)
    await site.start()
    try:
        async with ClientSession() as session:
            stand.port, stand.session = site.address[1], session
            yield stand
    finally:
        await site.stop()
