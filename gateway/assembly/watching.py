"""Files that change and signals, by which a gateway is configured anew.

That begins when the workers have started: nothing is configured anew before somebody can serve it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import final

from gateway.assembly.parts import Parts
from gateway.controlplane.config_watch import ConfigWatch
from gateway.controlplane.reload import Reloader
from gateway.workers.data_plane import DataPlane


@final
class Signals:
    """Signals that this process gets, until `close`."""

    def __init__(self, plane: DataPlane, reloader: Reloader) -> None:
        self._plane = plane
        self._reloader = reloader
        self._reloads: set[asyncio.Task[object]] = set()
        self._closed = False

    def reload(self) -> None:
        """Reopen the access log, and reload in the background. The log reports the outcome."""
        if self._closed:
            return
        self._plane.reopen_logs()
        # Owned by `_reloads` until it is done.
        task = asyncio.get_running_loop().create_task(self._reloader.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def reopen_logs(self) -> None:
        """Reopen the access log."""
        if not self._closed:
            self._plane.reopen_logs()

    async def close(self) -> None:
        """Give up a reload that is under way: what it would put in force is being closed."""
        self._closed = True
        reloads = tuple(self._reloads)
        for task in reloads:
            task.cancel()
        await asyncio.gather(*reloads, return_exceptions=True)


@asynccontextmanager
async def watching(parts: Parts) -> AsyncIterator[Signals]:
    """Watches until the drain is over: logs are rotated and certificates renewed meanwhile, too."""
    plan, signals = parts.plan, Signals(parts.plane, parts.reloader)
    async with AsyncExitStack() as stack:
        parts.certificate_watch.start()
        stack.push_async_callback(parts.certificate_watch.close)
        stack.push_async_callback(signals.close)
        if plan.seen.files and plan.settings.watch:
            config_watch = ConfigWatch(parts.reloader)
            config_watch.start()
            stack.push_async_callback(config_watch.close)
        yield signals
