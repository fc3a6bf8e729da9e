"""A gateway as a process with an operations page, that a test stops, freezes and starts again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

import aiohttp

from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT, ready, start

TOKEN: Final = "the-token-of-an-operator"


@final
class GatewayProcess:
    """`token` None: its page shows, and takes no commands. Both ports stay the same when it starts again."""

    def __init__(self, folder: Path, *, token: str | None = TOKEN, workers: int = 1) -> None:
        self._file, self._state, self._log = (folder / name for name in ("gateway.yaml", "state.json", "log"))
        self._token, self._workers = token, workers
        self._port, self._admin_port = free_port(), free_port()
        self._process: asyncio.subprocess.Process | None = None
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    @property
    def url(self) -> str:
        """Where clients are served."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self._admin_port}"

    @property
    def log(self) -> str:
        """What it has said on standard error."""
        return self._log.read_text(encoding="utf-8")

    def configure(self, services: str) -> None:
        """Write the configuration; a running gateway reads it. `services`: the lines below that key."""
        token = f", token: {self._token}" if self._token else ""
        text = (
            f"listen: 127.0.0.1:{self._port}\n"
            f"admin: {{listen: '127.0.0.1:{self._admin_port}'{token}}}\n"
            f"state: {self._state}\n"
            f"workers: {self._workers}\n"
            "access_log: {format: off}\n"
            f"services:\n{services}"
        )
        written = self._file.with_suffix(".new")
        written.write_text(text, encoding="utf-8")
        written.replace(self._file)

    async def start(self) -> None:
        """Start it, also again, and wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = await start("run", "-c", str(self._file), stderr=log)
        await ready(self.session, self.admin)

    def freeze(self) -> None:
        """From now on it does nothing, and its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()
            self._process = None

    async def close(self) -> None:
        await self.kill()
        await self.session.close()

    async def status(self) -> Any:
        """The document of `/status`."""
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
