"""A backend on loopback that says whatever a test tells it to say, and the services that name it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from gateway.controlplane.cell import Cell
from gateway.core.backend import Backend, Member
from gateway.core.service import ProbePlan, Service
from gateway.core.snapshot import Snapshot
from gateway.dialects.ironic import Ironic

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK: Final = "127.0.0.1"
PATIENCE: Final = 10.0
"""Seconds that a test waits for what must happen."""


def ironic(lowest: str = "1.1", highest: str = "1.58") -> Behaviour:
    """What a healthy Ironic says on /v1."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"id": "v1"},
            headers={
                "X-OpenStack-Ironic-API-Minimum-Version": lowest,
                "X-OpenStack-Ironic-API-Maximum-Version": highest,
            },
        )

    return answer


class FakeBackend:
    """Serves `behaviour`; remembers every request; tests may wait for the next one."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[web.Request] = []
        self.port = 0
        self._came = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        async with self._came:
            self.requests.append(request)
            self._came.notify_all()
        return await self.behaviour(request)

    async def came(self, number: int) -> None:
        """Wait until `number` requests came in all."""
        async with asyncio.timeout(PATIENCE), self._came:
            await self._came.wait_for(lambda: len(self.requests) >= number)

    def backend(self, name: str = "api-1") -> Backend:
        return Backend(name, LOOPBACK, self.port)


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[FakeBackend]:
    backend = FakeBackend(behaviour)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


def service(*backends: Backend, interval: float = 0.02, timeout: float = 2.0, **more: object) -> Service:
    plan = ProbePlan(interval, timeout, headers=more.pop("headers", ()))  # type: ignore[arg-type]
    return Service("baremetal", Ironic(), backends, probe=plan, **more)  # type: ignore[arg-type]


def cell_of(*services: Service) -> Cell:
    return Cell(Snapshot.configured(services, now=0.0))


def member(cell: Cell, backend: str = "api-1") -> Member:
    found = cell.current.fleet.pools["baremetal"].member(backend)
    assert found is not None
    return found


async def until(cell: Cell, holds: Callable[[Snapshot], bool]) -> None:
    """Wait until the cell's snapshot is so; woken by the cell, not by a clock."""
    changed = asyncio.Event()
    unsubscribe = cell.subscribe(lambda before, after: changed.set())
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds(cell.current):
                await changed.wait()
                changed.clear()
    finally:
        unsubscribe()


async def until_member(cell: Cell, holds: Callable[[Member], bool], backend: str = "api-1") -> None:
    """The same for one backend."""

    def so(snapshot: Snapshot) -> bool:
        found = snapshot.fleet.pools["baremetal"].member(backend)
        return found is not None and holds(found)

    await until(cell, so)
