"""The admin listener's socket: started once, stopped once. What it serves is in `api` and `commands`."""

from __future__ import annotations

import os
from typing import Final, final

from aiohttp import web

from gateway.errors import StartupError

SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that responses under way may take when the listener stops; they are made from memory."""


@final
class AdminSite:
    """Serves `app` on `host:port` (port 0: any free one)."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The bound address; only between `start` and `stop`."""
        assert self._runner is not None
        address = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def start(self) -> None:
        """Raises `StartupError` if the address cannot be bound."""
        runner = web.AppRunner(
            self._app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            auto_decompress=False,  # commands are short: an encoded body is refused as malformed
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            where = f"[{self._host}]" if ":" in self._host else self._host
            raise StartupError(
                f"the admin listener cannot listen on {where}:{self._port}: {reason.lower()}; "
                "is another gateway running? set admin.listen to another address"
            ) from error
        self._runner = runner

    async def stop(self) -> None:
        """Close it; responses under way have `SHUTDOWN_TIMEOUT` seconds."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
