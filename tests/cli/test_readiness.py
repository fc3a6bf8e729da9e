"""`/readyz` is a word to load balancers: whoever hears 200 sends requests, so they must be accepted then."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.cli.conftest import Write
from tests.cli.test_run import declared
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT

LISTENERS = 100
"""So many that the admin listener answers while they are opened, one after the other."""


async def test_it_is_not_ready_before_every_listener_is_open(
    write: Write, session: aiohttp.ClientSession, fleet: Fleet, tmp_path: Path
) -> None:
    """The backend is declared, so that nothing else keeps the gateway from being ready."""
    port, admin_port = free_port(), free_port()
    file = declared(write(port, admin_port), fleet.old.port)
    sockets = "".join(f"{{address: 'unix:{tmp_path}/{number}'}}, " for number in range(LISTENERS))
    text = file.read_text()
    file.write_text(
        text.replace(f"listen: 127.0.0.1:{port}", f"listen: [{sockets}{{address: '127.0.0.1:{port}'}}]", 1)
    )
    gateway = Gateway(read_file(file, environ=os.environ).require(), source=file)
    found: list[tuple[int, str]] = []

    async def ask() -> bool:
        """Ask until it is ready; whether a client was accepted then."""
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{admin_port}/readyz") as response:
                    if response.status != 200:
                        found.append((response.status, await response.text()))
                        continue
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0)
                continue
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return False
            writer.close()
            await writer.wait_closed()
            return True

    async with asyncio.timeout(TIMEOUT):
        accepted = asyncio.ensure_future(ask())
        async with gateway:
            assert await accepted
    assert all(each == (503, "not ready\n") for each in found)
