"""Progress of a peer: whether it sends at the minimum rate, and whether it takes what was written to it.

A client that sends a byte now and then keeps within every idle time-out and holds a connection for days. So a
head or body must bring `limits.min_rate` on average, once its time of grace is over (threats R-B4).

A time-out for a slow reader must count from the moment at which it last took something. The transport does
not show that: the kernel reports a socket writable only when a third of its send buffer is empty, which may
take a slow reader a minute. So the socket's own queue is checked as well (`tcp.untaken`).
"""

from __future__ import annotations

from typing import Final, final

MIN_RATE_GRACE: Final = 10.0
"""Seconds before the minimum rate applies: a handshake, a lost packet and a slow start take no longer."""
CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of a slow reader; a quarter of a time-out that is shorter than four of them. One
check costs about a microsecond, and only connections that are being waited for are checked."""


@final
class ReceiveRate:
    """Rate of one head or body on its way in. Times are monotonic seconds; `grace`: without a minimum."""

    __slots__ = ("_began", "_grace", "_paused_at", "_received")

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._began = 0.0
        self._paused_at: float | None = None
        self._received = 0

    def begin(self, now: float) -> None:
        """Start measuring the rate of a head or body: its first byte may come now."""
        self._began, self._received, self._paused_at = now, 0, None

    def add(self, size: int) -> None:
        """Count bytes received of the head or body, framing included."""
        self._received += size

    def pause(self, now: float) -> None:
        """Stop the clock of the rate while the gateway does not read."""
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: float) -> None:
        """Let the clock of the rate run again, if it was stopped."""
        if self._paused_at is not None:
            self._began += now - self._paused_at
            self._paused_at = None

    def deadline(self, min_rate: int) -> float:
        """Time by which the next byte must have come; infinity without a minimum rate."""
        if not min_rate:
            return float("inf")
        return self._began + max(self._grace, self._received / min_rate)


@final
class WriteProgress:
    """Progress of the writes on one connection: what the peer had taken at the last check."""

    __slots__ = ("_stalled_at", "_taken")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Let the idle time of the peer begin anew with the next check."""
        self._taken: int | None = None
        self._stalled_at = 0.0

    def next_check(self, taken: int, now: float, idle: float) -> float:
        """Time of the peer's next check: `now` or earlier if nothing was taken for `idle` seconds. `taken`:
        any number that changes whenever the peer takes something, and only then."""
        if taken != self._taken:
            self._taken, self._stalled_at = taken, now + idle
        return min(self._stalled_at, now + min(CHECK_INTERVAL, idle / 4))
