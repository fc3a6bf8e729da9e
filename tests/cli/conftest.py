"""An old and a new server on loopback, and a whole gateway in front of them, in the loop of the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from gateway.assembly import Gateway
from gateway.cli import main
from gateway.demo.ironic import NEW, OLD, Server
from gateway.settings import read_file
from tests.kit.processes import Ended, kill_left, ready


class Fleet(NamedTuple):
    """api-1 serves 1.1-1.58, api-2 1.1-1.90."""

    old: Server
    new: Server


class Running(NamedTuple):
    gateway: Gateway
    file: Path
    url: str
    admin: str


Write = Callable[..., Path]
Call = Callable[..., Awaitable[Ended]]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    kill_left()


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    both = Fleet(Server("api-1"), Server("api-2"))
    await both.old.start(OLD)
    await both.new.start(NEW)
    yield both
    await both.old.close()
    await both.new.close()


@pytest.fixture
def write(tmp_path: Path, fleet: Fleet) -> Write:
    """Writes a configuration for the fleet. `more`: lines at the top; `offer`: an inline mapping."""

    def write(port: int = 0, admin_port: int = 0, more: str = "", offer: str = "{}", token: str = "") -> Path:
        lines = [
            f"listen: 127.0.0.1:{port}",
            f"admin: {{listen: 127.0.0.1:{admin_port}{f', token: {token}' if token else ''}}}",
            *([more] if more else []),
            "services:",
            "  baremetal:",
            "    dialect: ironic",
            "    probe: {interval: 100ms}",
            f"    offer: {offer}",
            "    backends:",
            f"      - {{name: api-1, url: 'http://127.0.0.1:{fleet.old.port.number}'}}",
            f"      - {{name: api-2, url: 'http://127.0.0.1:{fleet.new.port.number}'}}",
        ]
        file = tmp_path / "gateway.yaml"
        file.write_text("\n".join(lines) + "\n")
        return file

    return write


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Keeps no connection: a gateway that ends would wait for the next request (`worker.IDLE_GRACE`)."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


@pytest.fixture
async def running(write: Write, session: aiohttp.ClientSession) -> AsyncIterator[Running]:
    """A gateway that is ready."""
    file = write(more="access_log: {format: off}")
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        host, port = gateway.addresses[0]
        await ready(session, gateway.admin_url)
        yield Running(gateway, file, f"http://{host}:{port}", gateway.admin_url)


@pytest.fixture
def call_main(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`main(argv)` in a thread, so that a gateway in the loop of the test can respond."""
    for name in ("SKEWGATE_ADMIN_TOKEN", "SKEWGATE_LOOP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    async def call(*argv: str) -> Ended:
        code = await asyncio.to_thread(main, argv)
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return call
