"""Reloads when the content of the configuration's files has changed, and has stayed so for a moment.

    every second, in a thread: read all files that were read last -> another content than then?
    -> the same at the next look -> Reloader.reload

A file that somebody is still writing changes from one look to the next, so it is not read before it rests.
What is broken and rests is refused once, and stays so until a file changes again: no timer tries it anew.
What a signal or an operator has reloaded meanwhile is not reloaded again. This module reads no configuration.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final, final

from gateway.controlplane.reload import Reloader
from gateway.settings.files import Seen

INTERVAL: Final = 1.0
"""Seconds between two looks. One costs some 0.1 ms for a file."""
SHARE: Final = 100
"""A look may take one part in so many of the time: thousands of files are looked at less often."""
RESTLESS: Final = 60
"""Looks in a row that find another content each, after which a warning says so."""

_log = logging.getLogger("skewgate.reload")


@final
class ConfigWatch:
    """Watches the files that `reloader` has read, from `start` to `close`."""

    def __init__(self, reloader: Reloader, *, interval: float = INTERVAL) -> None:
        self._reloader = reloader
        self._interval = interval
        self._waiting: Seen | None = None
        """A content that is another one than was read, and has not yet rested."""
        self._restless = 0
        self._took = 0.0
        """Seconds, of the last look."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="configuration")

    async def close(self) -> None:
        """Look no more. A reload that it has begun is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def check_for_changes(self) -> None:
        """Look once, and reload if there is a reason to. What changes during a take-over is found after
        it."""
        if self._reloader.held:
            return
        known, began = self._reloader.seen, monotonic()
        found = await asyncio.to_thread(known.again)
        self._took = monotonic() - began
        if known is not self._reloader.seen:  # a reload came in between
            self._waiting = None
        elif found in (known, self._waiting):
            self._waiting, self._restless = None, 0
            if found != known:
                _log.info("a file of the configuration has changed: reloading")
                await self._reloader.reload()
        else:
            self._waiting = found
            self._restless += 1
            if self._restless == RESTLESS:
                _log.warning("a file of the configuration changes all the time: it is read once it rests")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(self._interval, self._took * SHARE))
            try:
                await self.check_for_changes()
            except Exception:  # noqa: BLE001 - our bug, and no reason never to look again
                _log.exception("looking at the files of the configuration failed")
