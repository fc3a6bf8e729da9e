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
from gateway.settings import read_file
from tests.kit.fleets import Fleet, brief_session, running_fleet
from tests.kit.processes import Ended, kill_left, ready


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
    async with running_fleet() as fleet:
        yield fleet


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
            *(f"      - {entry}" for entry in fleet.entries),
        ]
        file = tmp_path / "gateway.yaml"
        file.write_text("\n".join(lines) + "\n")
        return file

    return write


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with brief_session() as session:
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
