"""A backend on loopback that behaves as a test wants, and a service that is probed often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.service import Probe, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dialects.openstack.ironic import Ironic
from tests.kit.ironic import until_snapshot
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import Changes

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ironic(lowest: str = "1.1", highest: str = "1.58") -> Behaviour:
    """A healthy Ironic's response for /v1."""

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"id": "v1"},
            headers={
                "X-OpenStack-Ironic-API-Minimum-Version": lowest,
                "X-OpenStack-Ironic-API-Maximum-Version": highest,
            },
        )

    return respond


class FakeBackend:
    """Serves `behaviour` and keeps every request. Tests can wait for the next one."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[web.Request] = []
        self.port = 0
        self._received = Changes()
        self._server: TestServer | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self._handle)
        self._server = TestServer(app, host=LOOPBACK, port=self.port)
        await self._server.start_server(access_log=None, shutdown_timeout=0.1)
        self.port = self._server.port or 0

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self._received.notify()
        return await self.behaviour(request)

    async def received(self, number: int) -> None:
        """Wait until `number` requests came in total."""
        await self._received.until(lambda: len(self.requests) >= number)

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


def service(*backends: Backend, interval: float = 0.02, timeout: float = 2.0, **options: object) -> Service:
    plan = Probe(interval, timeout, headers=options.pop("headers", {}))  # type: ignore[arg-type]
    return Service("baremetal", Ironic(), backends, probe=plan, **options)  # type: ignore[arg-type]


async def until_member(
    snapshot_holder: SnapshotHolder, holds: Callable[[Member], bool], backend: str = "api-1"
) -> None:
    """Wait until `holds` is true of what is known of one backend."""

    def member_holds(snapshot: Snapshot) -> bool:
        member = snapshot.fleet.member_sets["baremetal"].member(backend)
        return member is not None and holds(member)

    await until_snapshot(snapshot_holder, member_holds)
