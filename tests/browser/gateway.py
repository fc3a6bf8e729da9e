"""A gateway as a process with an operations page, that a test stops, freezes and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

import aiohttp

from tests.kit import gateways
from tests.kit.processes import TIMEOUT, ready

TOKEN: Final = "the-token-of-an-operator"


@final
class GatewayProcess(gateways.GatewayProcess):
    """`token` None: its page shows, and takes no commands."""

    def __init__(self, folder: Path, *, token: str | None = TOKEN, workers: int = 1) -> None:
        super().__init__(folder)
        self._token, self._workers = token, workers
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    def configure_services(self, services: str) -> None:
        """Write the configuration. `services`: the lines below that key."""
        token = f", token: {self._token}" if self._token else ""
        self.configure(f"workers: {self._workers}\nservices:\n{services}", token)

    async def start_ready(self) -> None:
        """Start it, also again, and wait until it is ready."""
        await self.start()
        await ready(self.session, self.admin)

    async def close(self) -> None:
        await self.kill()
        await self.session.close()

    async def status(self) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async with self.session.get(f"{self.admin}/status", headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def until(self, holds: Callable[[Any], bool]) -> None:
        """Wait until the document of `/status` is so."""
        found = None
        try:
            async with asyncio.timeout(TIMEOUT):
                while not holds(found := await self.status()):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"never so: {found}") from None

    async def offers(self, service: str, text: str) -> None:
        """Wait until this range is on offer, by the gateway's own word."""

        def holds(status: Any) -> bool:
            offer = status["services"][service]["offer"]
            return f"{offer['min']}-{offer['max']}" == text

        await self.until(holds)
