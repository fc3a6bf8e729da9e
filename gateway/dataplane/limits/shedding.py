"""Load shedding: new requests are refused while the event loop cannot keep up (`limits.shed_lag`).

    lag of the loop ----> Shedder ----> level ----> connections whose requests are refused
    (each tick)                     0 none          none
                                    1 new           those made since the loop is late
                                    2 young         and those that were less than 10 s old then
                                    3 all           every one of clients

The lag is how late a timer fires. A loop handles everything that is ready in one iteration, so the lag is how
long whatever becomes ready waits. A request waits a few times, until its head and until its response is read,
so its latency is bounded by a few times the lag.

One late tick proves nothing (a reload, a stopped process, a page of swap). The lag must stay over the limit,
as in CoDel, which reacts to a standing queue and not to a long one (RFC 8289). If the loop has too many
requests each iteration is longer than the one before, so the second late tick shows how much is too much, and
may lead to the second level at once. The third refuses established clients: only if refusing all others has
not helped, and if they are most of what is left.

A level ends when the lag has stayed below half of the limit for a second, or for up to half a minute if
shedding began again soon after its end. Pure: reads no clock, refuses nothing itself.
"""

from __future__ import annotations

from typing import Final, final

NEW: Final = 1
YOUNG: Final = 2
ALL: Final = 3

YOUNG_AGE: Final = 10.0
"""Age in seconds of an established connection: its client has had time to show that it works."""
CONFIRMED: Final = 2
"""Late ticks in a row that raise the load shedding level: one late by half a second is 0.75 s long."""
FAR: Final = 2.0
"""Multiple of the event loop's lag limit from which the second level of shedding begins at once."""
FALLS: Final = 0.9
"""Share of the loop's previous lag: a lag that falls below it while something is shed raises no level."""
CALM: Final = 1.0
"""Seconds with a lag below half of the limit until a level of load shedding ends."""
MAX_CALM: Final = 32.0
AGAIN: Final = 60.0
"""Seconds after the end of load shedding in which a new beginning doubles the calm time to its end."""
SERVED_COST: Final = 4
"""Cost of serving a request, as a multiple of refusing one."""
NOTHING: Final = float("inf")


@final
class Shedder:
    """Level of load shedding by the measured lag. `limit`: seconds; infinite: nothing is ever shed."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.lag = 0.0
        self.level = 0
        self.sheds_from = NOTHING
        """Time at or after which the connections were made whose requests are refused."""
        self.since = NOTHING
        """Time since which the event loop was late when shedding began. Later connections are new."""
        self._late_ticks = 0
        self._late_since = 0.0
        self._calm = CALM
        self._calm_since = NOTHING
        self._ended = -NOTHING
        self._established = 0
        """Requests of established clients since the level of shedding was last considered."""
        self._others = 0
        """Requests of all other clients, and connections closed at once, since the level was considered."""

    def sheds(self, opened: float) -> bool:
        """Whether a request on a connection made at `opened` is refused; counts it: call it once for each."""
        if opened >= self.since - YOUNG_AGE:
            self._others += 1
        else:
            self._established += 1
        return opened >= self.sheds_from

    def connection_refused(self) -> None:
        """Count a new client connection that load shedding has closed at once."""
        self._others += 1

    def observe(self, lag: float, now: float) -> bool:
        """Take the event loop's lag at a tick; whether the level of shedding has changed."""
        before, falls = self.level, lag < FALLS * self.lag
        self.lag = lag
        if lag > self._limit:
            self._calm_since = NOTHING
            if falls and before:  # it helps already: what was admitted before is still to be served
                self._late_ticks = 0
            else:
                self._be_late(lag, now)
        else:
            self._late_ticks = 0
            if lag > self._limit / 2:
                self._calm_since = NOTHING
            elif before:
                self._be_calm(now)
        return self.level != before

    def _be_late(self, lag: float, now: float) -> None:
        if not self._late_ticks:
            self._late_since = now - lag
        self._late_ticks += 1
        if self._late_ticks < CONFIRMED:
            return
        self._late_ticks = 0
        by_lag = YOUNG if lag > FAR * self._limit else NEW
        if not self.level:
            self.since = self._late_since
            again = now - self._ended < AGAIN
            self._calm = min(2 * self._calm, MAX_CALM) if again else CALM
        level = max(by_lag, min(self.level + 1, ALL))
        if level == ALL and self._others > SERVED_COST * self._established:
            level = YOUNG
        self._others = self._established = 0
        self._set_level(level)

    def _be_calm(self, now: float) -> None:
        if self._calm_since > now:
            self._calm_since = now
        elif now - self._calm_since >= self._calm:
            self._calm_since = now
            self._set_level(self.level - 1)
            if not self.level:
                self._ended = now

    def _set_level(self, level: int) -> None:
        self.level = level
        self.sheds_from = (NOTHING, self.since, self.since - YOUNG_AGE, -NOTHING)[level]
