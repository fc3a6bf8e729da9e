"""How many requests were served in the last hour, by version, from the counts since the start.

Once a minute the cumulative counts are copied into a bounded ring; a request costs nothing here. The change
log reads it when an offer falls. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.versions.version import Scheme, Version

EVERY: Final = 60.0
"""Seconds between two samples: the span is exact to a minute."""

SPAN: Final = 3600.0
"""Seconds that are looked back."""

_WHOLE_HOUR: Final = 0.98 * SPAN
"""Seconds from which on counts are called those of the last hour: samples are taken once a minute."""

ServedCounts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Requests served since the start, by service and version as written: `Metrics.served`."""


class LastHour(NamedTuple):
    """What one service has served lately."""

    served: Mapping[str, int]
    """Requests by version as written."""
    seconds: float
    """How far back that goes: an hour, or less after a start."""

    @property
    def total(self) -> int:
        """Requests at any version."""
        return sum(self.served.values())

    @property
    def is_whole(self) -> bool:
        """Whether it is an hour; else it goes back to the start."""
        return self.seconds >= _WHOLE_HOUR

    def requests(self, scheme: Scheme, wanted: Callable[[Version], bool]) -> int:
        """Requests at the versions that are `wanted`. What was counted without its version is left out."""
        return sum(
            count
            for text, count in self.served.items()
            if (version := scheme.parse(text)) is not None and wanted(version)
        )


@final
class RecentRequests:
    """Samples `counts` from `start` to `close`, on the running loop. `clock`: monotonic seconds."""

    def __init__(self, counts: Callable[[], ServedCounts], clock: Callable[[], float] = monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._samples: deque[tuple[float, ServedCounts]] = deque(maxlen=round(SPAN / EVERY) + 1)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(EVERY, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        """Copy the present counts. Those of a service that are the same as in the last sample are shared."""
        last = self._samples[-1][1] if self._samples else {}
        copied = {}
        for service, served in self._counts().items():
            before = last.get(service)
            copied[service] = before if before == served else dict(served)
        self._samples.append((self._clock(), copied))

    def last_hour(self, service: str) -> LastHour:
        """What `service` has served since the sample that is an hour old, or since the first one."""
        now = self._clock()
        since, counts = next(
            (sample for sample in reversed(self._samples) if sample[0] <= now - SPAN),
            self._samples[0] if self._samples else (now, {}),
        )
        before = counts.get(service, {})
        served = {}
        for version, count in self._counts().get(service, {}).items():
            earlier = before.get(version, 0)
            # Fewer than before: the service was removed and came back, and its counts began at zero again.
            served[version] = count - earlier if count >= earlier else count
        return LastHour(served, now - since)
