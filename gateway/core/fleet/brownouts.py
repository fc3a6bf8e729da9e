"""Brown-outs: short windows of time in which deprecated versions are refused, so that their users notice.

    at: 2026-02-03T10:00Z   for: 5m                 one window
    weekly: tue 10:00       for: [5m, 15m, 1h]      5m in the first week, then 15m, then 1h each week

Pure: the time is a parameter, in seconds since the epoch. `core.decision.decision` refuses requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple, final

from gateway.core.days import DAY

WEEK: Final = 7 * DAY
_LAST: Final = 253_402_300_799  # the last second of the year 9999, after which no date can be written


@final
class Window(NamedTuple):
    """Window of time in which deprecated versions are refused, without its end."""

    begin: float
    end: float


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows of one entry of the configuration: a single one, or one a week."""

    begin: int
    """Beginning of the first window."""
    durations: tuple[float, ...]
    """Seconds for which the windows are open, in order, each less than a week. The last one repeats."""
    weekly: bool = False

    def window(self, number: int) -> Window:
        """The window with this number, from 0."""
        begin = self.begin + number * WEEK
        return Window(begin, begin + self.durations[min(number, len(self.durations) - 1)])

    def window_at(self, time: float) -> Window | None:
        """The window that is open at a time, or else the next one; None: there is none any more."""
        number = max(0, int((time - self.begin) // WEEK)) if self.weekly else 0
        window = self.window(number)
        if time < window.end:
            return window
        return self.window(number + 1) if self.weekly else None


def moment(time: float) -> str:
    """A time as RFC 3339 writes it, in UTC: `2026-02-03T10:00:00Z`."""
    return f"{datetime.fromtimestamp(min(time, _LAST), UTC):%Y-%m-%dT%H:%M:%SZ}"


def overlapping(schedules: Sequence[Schedule]) -> tuple[int, int] | None:
    """Numbers of two entries with windows that overlap or touch, the later window last; None: there are none.
    Once all have begun and have their last durations, every week is like the one before."""
    until = max((each.begin + len(each.durations) * WEEK for each in schedules), default=0) + WEEK
    windows = sorted(
        (each.window(number), index)
        for index, each in enumerate(schedules)
        for number in range((until - each.begin) // WEEK + 1 if each.weekly else 1)
    )
    return next(((a, b) for (one, a), (other, b) in pairwise(windows) if other.begin <= one.end), None)
