"""`drain --wait` beside HAProxy: who is idle has no request, neither of the gateway nor of any HAProxy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import final

import aiohttp
import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.snapshot import Snapshot
from gateway.demo.ironic import NEW, SERVED
from gateway.settings import load
from tests.cli.test_roll import Installer
from tests.engines.equality.haproxy import running_haproxy
from tests.engines.test_haproxy_driver import following, places, wait_for, write
from tests.kit.fleets import OLD as OLD_RELEASE
from tests.kit.fleets import brief_session, running_fleet
from tests.kit.networks import free_port
from tests.kit.processes import call, finish, start
from tests.kit.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]

OLD = "baremetal/old"
"""It alone serves what the requests ask for."""
SERVICES = """
services:
  baremetal:
    dialect: ironic
    offer: {{policy: reachable}}
    backends:
      - {{name: old, url: "http://127.0.0.1:{port}", versions: "1.1-1.5"}}
      - {{name: new, url: "http://127.0.0.1:1", versions: "1.6-1.9"}}
"""
REQUEST = b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nX-OpenStack-Ironic-API-Version: 1.3\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@final
class SlowBackend:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.port = 0
        self.arrived = 0
        self.goes_on = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.arrived += 1
            await self.goes_on.wait()
            writer.write(RESPONSE)
            await writer.drain()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def slow_backend() -> AsyncIterator[SlowBackend]:
    backend = SlowBackend()
    async with await asyncio.start_server(backend.serve, "127.0.0.1", 0) as server:
        backend.port = server.sockets[0].getsockname()[1]
        yield backend
        backend.goes_on.set()


@asynccontextmanager
async def open_requests(port: int, backend: SlowBackend, number: int) -> AsyncIterator[None]:
    """So many, through HAProxy, which the backend has got."""

    async def arrived() -> bool:
        return backend.arrived == number

    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    for _, writer in clients:
        writer.write(REQUEST)
    try:
        await until(arrived, "the backend has the requests")
        yield
    finally:
        for _, writer in clients:
            writer.close()
            await writer.wait_closed()


def fleet(port: int) -> Snapshot:
    text = f"listen: 127.0.0.1:0\n{SERVICES.format(port=port)}"
    services = load(text, filename="drain.yaml", environ={}).require().services
    return Snapshot.configured(services, now=monotonic())


async def test_the_requests_that_haproxy_has_at_a_drained_backend_count(tmp_path: Path) -> None:
    async with slow_backend() as backend:
        port = free_port()
        where, holder = places(tmp_path, port), SnapshotHolder(fleet(backend.port))
        write(holder.current, where)
        async with following(holder, where) as driver, running_haproxy(where.configuration, port):
            await wait_for(driver, "")
            assert driver.report().in_flight == {}

            async def has(expected: int) -> bool:
                return driver.report().in_flight == {OLD: expected}

            async with open_requests(port, backend, 2):
                holder.apply("baremetal", Drain("old"))
                assert driver.report().in_flight == {OLD: 1}  # nobody has counted them
                await until(lambda: has(2), "HAProxy has told of both")
                backend.goes_on.set()
                await until(lambda: has(0), "HAProxy has told of their end")
            holder.apply("baremetal", Drain("old", drained=False))
            assert driver.report().in_flight == {}
            holder.apply("baremetal", Drain("old"))
            assert driver.report().in_flight == {OLD: 1}
            await until(lambda: has(0), "HAProxy was asked again")


async def test_a_process_that_finishes_after_a_reload_may_have_one(tmp_path: Path) -> None:
    async with slow_backend() as backend:
        port = free_port()
        where, holder = places(tmp_path, port, hard_stop_after=2), SnapshotHolder(fleet(backend.port))
        write(holder.current, where)
        async with following(holder, where) as driver, running_haproxy(where.configuration, port) as old:
            await wait_for(driver, "")
            holder.apply("baremetal", Drain("old"))

            async def has(expected: int) -> bool:
                return driver.report().in_flight == {OLD: expected}

            await until(lambda: has(0), "it is idle")
            async with running_haproxy(where.configuration, port, instead_of=old.pid) as new:

                async def met() -> bool:
                    return driver.report().pid == new.pid

                await until(met, "the driver has met the new process")
                assert await has(1)
                await until(lambda: has(0), "the old process has ended")
                assert driver.report().draining == 0


async def test_one_that_does_not_run_has_none(tmp_path: Path) -> None:
    where, holder = places(tmp_path, 1), SnapshotHolder(fleet(1))
    holder.apply("baremetal", Drain("old"))
    async with await asyncio.start_unix_server(lambda _reader, _writer: None, where.socket):
        pass  # the socket stays, and nobody has it
    async with following(holder, where) as driver:
        assert driver.report().in_flight == {OLD: 1}
        await wait_for(driver, "nobody listens")
        assert driver.report().in_flight == {OLD: 0}


@asynccontextmanager
async def beside_haproxy(folder: Path, services: str) -> AsyncIterator[tuple[str, int]]:
    """A gateway as the control plane of a HAProxy: its admin listener, and the port of HAProxy."""
    gateway, admin, port = free_port(), free_port(), free_port()
    file = folder / "skewgate.yaml"
    file.write_text(
        f"listen: 127.0.0.1:{gateway}\nadmin: {{listen: 127.0.0.1:{admin}}}\nwatch: false\n"
        f"trusted_proxies: [127.0.0.0/8]\n{services}"
    )
    places_of = ("--bind", f"127.0.0.1:{port}", "--socket", f"{folder}/s.sock")
    argv = ("engine", "haproxy", "-c", str(file), *places_of)
    assert (await call(*argv, "--write")).code == 0
    configuration = folder / "both.cfg"
    own = f"global\n  stats socket {folder}/s.sock mode 600 level admin\n"
    configuration.write_text(own + (folder / "haproxy.cfg").read_text())
    with (folder / "log").open("wb") as log:
        process = await start(*argv, stderr=log)
    async with running_haproxy(configuration, port):

        async def follows() -> bool:
            return "HAProxy is in sync" in (folder / "log").read_text()

        await until(follows, "HAProxy is in sync")
        yield f"http://127.0.0.1:{admin}", port
    process.terminate()
    assert (await finish(process)).code == 0


async def test_drain_and_wait_return_when_haproxy_has_no_request_there(tmp_path: Path) -> None:
    async with (
        slow_backend() as backend,
        beside_haproxy(tmp_path, SERVICES.format(port=backend.port)) as (admin, port),
    ):
        drain = ("drain", OLD, "--wait", "--admin", admin)
        wait = ("wait", "baremetal", "--backend", "old", "--drained", "--admin", admin)
        async with open_requests(port, backend, 2):
            ended = await call(*drain, "--timeout", "3")
            assert ended.code == 1
            assert "drained, 2 requests in flight, and it still waits" in ended.err
            assert "old may have requests in flight" in (await call(*wait, "--timeout", "1s")).err
            backend.goes_on.set()
            for command in (wait, drain):
                ended = await call(*command)
                assert ended.code == 0, ended.err


async def test_a_roll_through_haproxy_loses_nothing(tmp_path: Path) -> None:
    statuses: Counter[int] = Counter()

    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        while True:
            async with session.get(url, headers={SERVED: "1.31"}) as response:
                await response.read()
                statuses[response.status] += 1
            await asyncio.sleep(0.01)

    async def pin_at_first(_: str) -> None:
        installer.release = OLD_RELEASE if len(installer.calls) <= 2 else NEW

    async with running_fleet(OLD_RELEASE, OLD_RELEASE) as fleet, brief_session() as session:
        installer = Installer(list(fleet))
        installer.called = pin_at_first
        services = "services:\n  baremetal:\n    dialect: ironic\n    probe: {interval: 200ms}\n"
        services += f"    offer: {{stabilization: 200ms}}\n    backends: [{', '.join(fleet.entries)}]\n"
        async with installer.listening(), beside_haproxy(tmp_path, services) as (admin, port):
            asking = asyncio.create_task(ask(session, f"http://127.0.0.1:{port}/v1/nodes"))
            passes = ("--exec", installer.command, "--exec", installer.command)
            command = ("roll", "baremetal", *passes, "--expect", NEW.text)
            journal = ("--journal", str(tmp_path / "journal.json"), "--gate", "1s")
            ended = await call(*command, *journal, "--admin", admin)
            asking.cancel()
            uniform = await call("wait", "baremetal", "--offer", NEW.text, "--admin", admin)

    assert ended.code == 0, ended.err
    assert installer.calls == ["api-1", "api-2"] * 2
    assert uniform.code == 0
    assert statuses.keys() == {200}
