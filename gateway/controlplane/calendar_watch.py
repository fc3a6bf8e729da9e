"""Logs each dated moment of the configuration once, when it comes (`core.fleet.calendar`).

If the moment has come before the start, or before the reload that brings it, nothing is logged: `check` warns
of what has passed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Final, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.calendar import Entry, calendar
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.telemetry.process_log import about

INTERVAL: Final = 60.0
"""Maximum number of seconds between two looks at the clock, which may be set meanwhile."""

_log = logging.getLogger("skewgate.offer")


@final
class CalendarWatch:
    """Compares the calendars of all services with the clock, from `start` to `close`, on the running loop.

    `clock`: seconds since the epoch.
    """

    def __init__(self, holder: SnapshotHolder, clock: Callable[[], float] = time.time) -> None:
        self._holder = holder
        self._clock = clock
        self._seen = holder.current
        """The snapshot of the last look at the clock, and its time: what comes later was ahead then."""
        self._seen_at = clock()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._unsubscribe = self._holder.subscribe(self._on_change)
        self.look()

    def close(self) -> None:
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        news = after.news_since(before)
        if any(old is None or old.service is not new.service for old, new in news):
            self.look()

    def look(self) -> None:
        """Log what has come since the last look and was ahead then. Look again at the next moment."""
        since, now, before, snapshot = self._seen_at, self._clock(), self._seen, self._holder.current
        self._seen_at, self._seen = now, snapshot
        pause = INTERVAL
        for name, view in snapshot.views.items():
            earlier = before.views.get(name)
            if earlier is not None:
                was_ahead = _between(earlier.service, since, now)
                for entry in _between(view.service, since, now):
                    if entry in was_ahead:
                        level = logging.getLevelNamesMapping()[entry.level.upper()]
                        _log.log(level, "%s: %s", name, entry.sentence, extra=about(name))
            if (following := next(calendar(view.service, now), None)) is not None:
                pause = min(pause, following.at - now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(pause, self.look)


def _between(service: Service, since: float, to: float) -> list[Entry]:
    """Entries of a service later than `since` and not later than `to`."""
    return list(takewhile(lambda entry: entry.at <= to, calendar(service, since)))
