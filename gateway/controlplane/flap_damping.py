"""Limits log lines about things that change again and again, such as a backend that flaps.

The first changes are logged at once. Further ones are only counted, and summarized at a falling rate. When
nothing has changed for a while the rest is summarized, so that the last line is true. Pure: times are
parameters, seconds of one clock. `controlplane.change_log` writes the lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

BURST: Final = 6
"""Number of changes of one thing that are logged at once. A restart of a backend takes three or four."""
REFILL: Final = 30.0
"""Seconds after which one more change may be logged at once: at most 120 an hour in the long run."""
QUIET: Final = 30.0
"""Seconds without a change after which something counts as settled."""
FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 600.0
"""Seconds until changes are summarized: the first pause, doubled each time up to the longest."""


class Damped(NamedTuple):
    """A summary of changes that were not logged one by one."""

    key: str
    changes: int
    seconds: float
    """Number of seconds that the summary covers."""

    def __str__(self) -> str:
        """Describe the summary: `changed 14 times in the last 60 s`."""
        number = "once" if self.changes == 1 else f"{self.changes} times"
        return f"changed {number} in the last {self.seconds:.0f} s"


@final
@dataclass(eq=False, slots=True)
class _Changes:
    """State of the damping for one key: its changes, logged and only counted."""

    allowance: float
    """Number of changes that may still be logged at once."""
    refilled: float
    last_change: float
    since: float
    pause: float = 0.0
    """Seconds from `since` until the next summary of changes; 0: changes are logged at once."""
    unlogged: int = 0

    @property
    def due(self) -> float:
        return min(self.since + self.pause, self.last_change + QUIET)


@final
class FlapDamping:
    """Damping of log lines about things that change again and again. Each thing has a key."""

    def __init__(self) -> None:
        self._by_key: dict[str, _Changes] = {}

    def change(self, key: str, now: float, burst: int = BURST) -> bool:
        """Count a change of a thing. True: log it now. False: `take_due` will return it in a summary."""
        changes = self._by_key.get(key)
        if changes is None:
            changes = self._by_key[key] = _Changes(burst, now, now, now)
        if not changes.unlogged and now - changes.last_change >= QUIET:
            changes.pause = 0.0
        changes.allowance = min(burst, changes.allowance + (now - changes.refilled) / REFILL)
        changes.refilled = changes.last_change = now
        if not changes.pause:
            if changes.allowance >= 1:
                changes.allowance -= 1
                return True
            changes.pause, changes.since = FIRST_PAUSE, now
        changes.unlogged += 1
        return False

    def clear(self, key: str, now: float) -> None:
        """Reset the number of unlogged changes of a key: its present state was logged for another reason."""
        if (changes := self._by_key.get(key)) is not None:
            changes.unlogged, changes.since = 0, now

    def forget(self, key: str) -> None:
        """Forget the changes of a key whose subject is gone."""
        self._by_key.pop(key, None)

    @property
    def next_due(self) -> float | None:
        """The time of the next summary of changes, if nothing changes until then."""
        return min((changes.due for changes in self._by_key.values() if changes.unlogged), default=None)

    def take_due(self, now: float, *, everything: bool = False) -> Iterator[Damped]:
        """Take the summaries of changes that are due. `everything`: also those that are not."""
        for key, changes in self._by_key.items():
            if changes.unlogged and (everything or changes.due <= now):
                damped = Damped(key, changes.unlogged, now - changes.since)
                changes.unlogged, changes.since = 0, now
                if now - changes.last_change < QUIET:
                    changes.pause = min(2 * changes.pause, LONGEST_PAUSE)
                yield damped
