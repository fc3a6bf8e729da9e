"""Whether the other end of a connection still takes what was written to it.

A time-out for a slow reader must count from the moment at which it last took something. The transport does
not show that: the kernel reports a socket writable only when a third of its send buffer is empty, which may
take a slow reader a minute. So the socket's own queue is checked as well (`tcp.untaken`).
"""

from __future__ import annotations

from typing import Final, final

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks; a quarter of a time-out that is shorter than four of them. One check costs
about a microsecond, and only connections that are being waited for are checked."""


@final
class WriteProgress:
    """The last check of one connection."""

    __slots__ = ("_stalled_at", "_taken")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Let the time begin anew with the next check."""
        self._taken: int | None = None
        self._stalled_at = 0.0

    def next_check(self, taken: int, now: float, idle: float) -> float:
        """When to check again: `now` or earlier if nothing was taken for `idle` seconds. `taken`: any number
        that changes whenever the peer takes something, and only then."""
        if taken != self._taken:
            self._taken, self._stalled_at = taken, now + idle
        return min(self._stalled_at, now + min(CHECK_INTERVAL, idle / 4))
