"""Logs each dated moment of the configuration once, when it comes, and raises floors at enforced sunsets.

The moments are those of `core.fleet.calendar`. One that has come before the start, or before the reload that
brings it, is not logged: `check` warns of what has passed. Replicas raise floors together, not here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import takewhile
from typing import Final, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.days import DAY
from gateway.core.fleet.calendar import Entry, calendar
from gateway.core.fleet.fleet import Raise
from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.timer import Timer
from gateway.telemetry.process_log import about

INTERVAL: Final = 60.0
"""Maximum number of seconds between two looks at the clock, which may be set meanwhile."""

_log = logging.getLogger("skewgate.offer")


@final
class CalendarWatch:
    """Compares the calendars of all services with the clock, from the first `look` to `close`.
    `clock`: seconds since the epoch. `alone`: no other replica decides with this gateway."""

    def __init__(
        self, holder: SnapshotHolder, clock: Callable[[], float] = time.time, *, alone: bool = True
    ) -> None:
        self._holder = holder
        self._clock = clock
        self._alone = alone
        self._ahead: list[tuple[str, Entry]] = []
        """Entries of the next day, with the names of their services."""
        self._unsubscribe = holder.subscribe(self._on_change)
        self._timer = Timer()

    def close(self) -> None:
        self._unsubscribe()
        self._timer.cancel()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if any(old is None or old.service is not new.service for old, new in after.news_since(before)):
            self.look()

    def look(self) -> None:
        """Log what was ahead and has come. Look again at the next moment."""
        now = self._clock()
        for name, entry in self._ahead:
            if entry.at <= now:
                getattr(_log, entry.level)("%s: %s", name, entry.sentence, extra=about(name))
        self._ahead = [
            (name, entry)
            for name, view in self._holder.current.views.items()
            for entry in takewhile(lambda entry: entry.at <= now + DAY, calendar(view.service, now))
        ]
        if self._alone:
            enforce_sunsets(self._holder, now)
        pause = min((entry.at - now for _, entry in self._ahead), default=INTERVAL)
        self._timer.set(min(pause, INTERVAL), self.look)


def enforce_sunsets(holder: SnapshotHolder, now: float) -> None:
    """Raise the floors of services whose enforced sunset has come. Replicas do so together."""
    for name, view in holder.current.views.items():
        raised = view.members.raised
        after = raised.at_sunset(view.service.passed_sunset(now), view.service.floor)
        if after is not raised:
            holder.apply(name, Raise(after.floor, after))
