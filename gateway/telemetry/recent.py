"""What was served in the last hour, from what was counted since the start.

Once a minute the cumulative counts are copied into a bounded ring; a request costs nothing here. Asked by the
log, when an offer falls; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, final

EVERY: Final = 60.0
"""Seconds between two samples: what is told is rounded to whole minutes."""

SPAN: Final = 3600.0
"""Seconds that are looked back."""

Counts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Requests served since the start, by service and version as written: `Metrics.served`."""


class LastHour(NamedTuple):
    """What one service has served lately."""

    served: Mapping[str, int]
    """Requests by version as written."""
    seconds: float
    """How far back that goes: an hour, or less after a start."""


@final
class Recent:
    """Samples `counts` from `start` to `close`, on the running loop. `clock`: seconds, monotonic."""

    def __init__(self, counts: Callable[[], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=round(SPAN / EVERY) + 1)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(EVERY, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        """Copy what is counted now. What has not changed since the last sample is held once."""
        last = self._samples[-1][1] if self._samples else {}
        copied = {}
        for service, served in self._counts().items():
            before = last.get(service)
            copied[service] = before if before == served else dict(served)
        self._samples.append((self._clock(), copied))

    def last_hour(self, service: str) -> LastHour:
        """What `service` has served since the sample that is an hour old, or since the first one."""
        now = self._clock()
        since, then = next(
            (each for each in reversed(self._samples) if each[0] <= now - SPAN),
            self._samples[0] if self._samples else (now, {}),
        )
        before = then.get(service, {})
        served = {
            version: count - before.get(version, 0)
            for version, count in self._counts().get(service, {}).items()
        }
        return LastHour(served, now - since)
