"""An old and a new server behind gateways that take over from each other, in the loop of the test."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.demo.ironic import SERVED
from gateway.handover.connection import path_of
from gateway.handover.handover import Handover
from gateway.handover.inheritance import Inheritance
from gateway.handover.take_over import TakenOver, take_over
from gateway.settings import read_file
from tests.kit.fleets import Fleet, brief_session, running_fleet
from tests.kit.processes import kill_left
from tests.kit.waiting import PATIENCE, until

TIMEOUT = PATIENCE


class House:
    """Gateways with one state file, one after the other."""

    def __init__(self, folder: Path, backends: str, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.state = folder / "state.json"
        self.path = path_of(self.state)
        self.session = session
        self._ending: set[asyncio.Task[None]] = set()
        self._backends = backends
        self._stack = AsyncExitStack()
        self._closed: dict[Gateway, AsyncExitStack] = {}

    def write(self, *listen: str, more: str = "", name: str = "skewgate.yaml") -> Path:
        file = self.folder / name
        addresses = ", ".join(f"{{address: '{each}'}}" for each in listen or ("127.0.0.1:0",))
        file.write_text(
            f"listen: [{addresses}]\nadmin: {{listen: '127.0.0.1:0'}}\naccess_log: {{format: off}}\n"
            f"state: {self.state}\n{more}\nservices:\n  baremetal:\n    dialect: ironic\n"
            f"    probe: {{interval: 200ms}}\n    backends: [{self._backends}]\n"
        )
        return file

    def gateway(
        self, file: Path, taken: TakenOver | None = None, passed: Inheritance | None = None
    ) -> Gateway:
        """One that is not started. When another one has taken over, it ends, as its process would."""
        configured = read_file(file, environ=os.environ).require()
        handover = Handover(
            configured.state, taken=taken, passed=passed, handed_over=lambda: self._ends(gateway)
        )
        gateway = Gateway(configured, source=file, handover=handover)
        return gateway

    def _ends(self, gateway: Gateway) -> None:
        task = asyncio.get_running_loop().create_task(self.end(gateway))
        self._ending.add(task)

    async def start(
        self, file: Path, *, takes_over: bool = False, passed: Inheritance | None = None
    ) -> Gateway:
        """A gateway that serves. It is closed at the end of the test, or by `end`."""
        taken = await take_over(self.path) if takes_over else None
        assert not takes_over or taken is not None
        gateway = self.gateway(file, taken, passed)
        stack = AsyncExitStack()
        self._closed[gateway] = stack
        await stack.enter_async_context(gateway)
        self._stack.push_async_callback(stack.aclose)
        return gateway

    async def end(self, gateway: Gateway) -> None:
        """What the process does after a hand-over, or at a stop."""
        await self._closed[gateway].aclose()

    async def one_ended(self) -> None:
        """Wait until one more gateway was taken over and has ended."""
        await until(lambda: bool(self._ending))
        await self._ending.pop()

    async def close(self) -> None:
        await asyncio.gather(*self._ending)
        await self._stack.aclose()

    async def get(self, gateway: Gateway, version: str = "1.31") -> int:
        """The status of a request."""
        headers = {SERVED: version, "Connection": "close"}
        async with self.session.get(f"{gateway.urls[0]}/v1/nodes", headers=headers) as response:
            return response.status

    async def admin(self, gateway: Gateway, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.session.request(method, gateway.admin_url + path, json=body) as response:
            return response.status, await response.json()

    async def known(self, gateway: Gateway) -> None:
        """Wait until it has an offer."""
        async with asyncio.timeout(TIMEOUT):
            while (await self.offer(gateway))["max"] is None:  # noqa: ASYNC110 - it is asked over HTTP
                await asyncio.sleep(0.01)

    async def offer(self, gateway: Gateway) -> Any:
        _, document = await self.admin(gateway, "GET", "/status")
        return document["services"]["baremetal"]["offer"]


class OtherRelease:
    """The other end of a hand-over, as bytes: what another release says is written down here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def at(cls, path: Path) -> OtherRelease:
        return cls(*await asyncio.open_unix_connection(path))

    def say(self, message: Any) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.writer.write(struct.pack("!I", len(data)) + data)

    async def hear(self) -> Any:
        """The next message. Descriptors that come with it are lost: here nobody wants them."""
        async with asyncio.timeout(TIMEOUT):
            (length,) = struct.unpack("!I", await self.reader.readexactly(4))
            return json.loads(await self.reader.readexactly(length))

    async def hear_descriptors(self, count: int) -> None:
        """The bytes that stand for them."""
        async with asyncio.timeout(TIMEOUT):
            await self.reader.readexactly(-(-count // 64))

    async def gone(self) -> bool:
        async with asyncio.timeout(TIMEOUT):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    kill_left()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with brief_session() as session:
        yield session


@pytest.fixture
async def servers() -> AsyncIterator[Fleet]:
    async with running_fleet() as fleet:
        yield fleet


@pytest.fixture
async def house(servers: Fleet, session: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path, ", ".join(servers.entries), session)
    yield house
    await house.close()
