"""The gateway that took over is killed while the one before it still finishes its requests. Nobody but the
dead one's own clients loses anything, and the next gateway starts at once."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, final

import aiohttp
import pytest

from gateway.demo.ironic import SERVED
from tests.kit.backends import ScriptedBackend, UpstreamConnection, ironic_response
from tests.kit.networks import free_port
from tests.kit.processes import finish, ready, start
from tests.kit.waiting import PATIENCE, until

pytestmark = pytest.mark.processes

CONFIGURATION: Final = """
workers: {workers}
listen: 127.0.0.1:{port}
state: {folder}/state.json
admin: {{listen: 127.0.0.1:{admin}}}
access_log: {{format: off}}
timeouts: {{drain: 40s}}
services:
  baremetal:
    dialect: ironic
    backends: [{{name: api-1, url: "http://127.0.0.1:{backend}", versions: 1.1-1.58}}]
"""


@final
class Street:
    """Gateways one after the other, with one configuration and one log, before a backend that answers `/slow`
    when it is told to."""

    def __init__(self, folder: Path, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.port, self.admin = free_port(), free_port()
        self.may_answer = asyncio.Event()
        self.backend = ScriptedBackend(self._serve, "api-1", "1.1-1.58")
        self._file = folder / "skewgate.yaml"
        self._log = folder / "log"

    async def _serve(self, upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            if message.target == "/slow":
                await self.may_answer.wait()
            await upstream.send(ironic_response(message))

    async def open(self, workers: int) -> None:
        await self.backend.start()
        self._file.write_text(
            CONFIGURATION.format(
                workers=workers,
                port=self.port,
                admin=self.admin,
                folder=self._file.parent,
                backend=self.backend.backend.port,
            )
        )

    async def begin(self, *options: str) -> Process:
        with self._log.open("ab") as stderr:
            return await start("run", *options, "-c", str(self._file), stderr=stderr)

    async def ready(self) -> None:
        await ready(self.session, f"http://127.0.0.1:{self.admin}")

    async def logged(self, text: str) -> None:
        async def is_there() -> bool:
            return text in self._log.read_text()

        await until(is_there, f"{text!r} in the log")

    async def get(self, path: str = "/v1/nodes") -> int:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.get(url, headers={SERVED: "1.31"}) as response:
            await response.read()
            return response.status

    async def slow(self) -> asyncio.Task[int]:
        """One more request that the backend has got, and does not answer yet."""

        def got() -> int:
            return sum(each.target == "/slow" for each in self.backend.requests)

        before, task = got(), asyncio.create_task(self.get("/slow"))
        async with asyncio.timeout(PATIENCE):
            while got() == before:
                await self.backend.received(len(self.backend.requests) + 1)
        return task

    async def pin(self, version: str) -> object:
        """Whether it is in the state file."""
        url = f"http://127.0.0.1:{self.admin}/services/baremetal/ceiling"
        async with self.session.put(url, json={"version": version}) as response:
            assert response.status == 200
            return (await response.json())["kept"]


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        found = Street(tmp_path, session)
        yield found
        await found.backend.close()


async def killed(street: Street, of_second: int = 0) -> tuple[Process, list[asyncio.Task[int]]]:
    """The first gateway, which was taken over and drains, and the request that it still has. The second one
    serves, has so many such requests, and is killed."""
    first = await street.begin()
    await street.ready()
    slow = [await street.slow()]
    second = await street.begin("--take-over")
    await street.logged(f"process {second.pid} serves now")
    await street.ready()
    slow += [await street.slow() for _ in range(of_second)]
    second.kill()

    async def is_gone() -> bool:
        return second.returncode is not None  # `wait` would wait for its workers: they have its output

    await until(is_gone, "the end of the second gateway")
    return first, slow


async def test_the_next_gateway_serves_and_saves_while_the_first_one_finishes(street: Street) -> None:
    await street.open(workers=1)
    first, [slow] = await killed(street)

    third = await street.begin()
    await street.ready()
    assert await street.get() == 200
    assert await street.pin("1.40") is True

    assert first.returncode is None
    assert not slow.done()
    street.may_answer.set()
    assert await slow == 200
    assert (await finish(first)).code == 0
    assert await street.get() == 200
    third.terminate()
    assert (await finish(third)).code == 0


async def test_with_workers_those_of_the_dead_one_finish_their_requests_too(street: Street) -> None:
    """They accept nobody any more: the next gateway has the address at once."""
    await street.open(workers=2)
    first, slow = await killed(street, of_second=3)

    third = await street.begin()
    await street.ready()
    assert await street.get() == 200
    assert await street.pin("1.40") is True

    assert not any(each.done() for each in slow)
    street.may_answer.set()
    assert await asyncio.gather(*slow) == [200] * 4
    assert (await finish(first)).code == 0
    assert await street.get() == 200
    third.terminate()
    assert (await finish(third)).code == 0
