"""Reloads when the files of the configuration have changed and then stayed the same for one second.

    every second, in a thread: read all files that were read last -> another content than then?
    -> the same at the next check -> Reloader.reload

A file that is still being written changes from one check to the next, so it is not read too early. A broken
file is refused once, and not read again before it changes. A file that a signal or an operator has already
reloaded is not reloaded again. This module does not parse the configuration.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final, final

from gateway.controlplane.reload import Reloader
from gateway.runtime.process import end_tasks
from gateway.settings.files import Seen

INTERVAL: Final = 1.0
"""Seconds between two checks of the configuration's files. One takes about 0.1 ms for a file."""
SHARE: Final = 100
"""Shortest pause between checks, in durations of a check: thousands of files are checked less often."""
MAX_UNSTABLE_CHECKS: Final = 60
"""Number of consecutive checks with ever new content after which a warning is logged."""

_log = logging.getLogger("skewgate.reload")


@final
class ConfigWatch:
    """A task that watches the files which `reloader` has read, from `start` to `close`."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader
        self._waiting: Seen | None = None
        """Changed content of the files, which a second check must find unchanged before it is loaded."""
        self._unstable_checks = 0
        self._took = 0.0
        """Duration of the last check of the files, in seconds."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the files of the configuration."""
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="configuration")

    async def close(self) -> None:
        """Stop watching the files. A reload that was started here is cancelled."""
        await end_tasks(self._task)

    async def check_for_changes(self) -> None:
        """Check the configuration's files, and reload if they have changed. A take-over postpones this."""
        if self._reloader.held:
            return
        known, began = self._reloader.seen, monotonic()
        found = await asyncio.to_thread(known.again)
        self._took = monotonic() - began
        if known is not self._reloader.seen:  # a reload came in between
            self._waiting = None
        elif found in (known, self._waiting):
            self._waiting, self._unstable_checks = None, 0
            if found != known:
                _log.info("a file of the configuration has changed: reloading")
                await self._reloader.reload()
        else:
            self._waiting = found
            self._unstable_checks += 1
            if self._unstable_checks == MAX_UNSTABLE_CHECKS:
                _log.warning(
                    "a file of the configuration keeps changing: reloading one second after its last change"
                )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(INTERVAL, self._took * SHARE))
            try:
                await self.check_for_changes()
            except Exception:  # noqa: BLE001 - our bug, and no reason to stop watching
                _log.exception("checking the files of the configuration failed")
