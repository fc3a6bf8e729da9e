"""The requests of a service in the last hour, as a row of bars: one a minute, with its 5xx in another colour.

Pure: counts of `telemetry.recent` in, values of a drawing out. A row changes once a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.telemetry.recent import TrafficCounts

MINUTES: Final = 60
"""Minutes for which there is room; the newest is at the right end."""

DIGITS: Final = 3
"""Digits of a position: a pixel is a thousandth of the width at most."""

FAINTEST: Final = 0.04
"""Least height of a bar that is not empty, so that one error among many requests is seen."""


class Minute(NamedTuple):
    """One bar. All numbers are shares of the drawing's width or height, 0 to 1."""

    at: float
    requests: float
    server_errors: float
    """Height of the part for responses of 500 and above."""


class Traffic(NamedTuple):
    """The row of bars of one service."""

    minutes: tuple[Minute, ...]
    """Minutes with requests."""
    total: int
    server_errors: int
    length: int
    """Minutes that are counted so far, at most an hour."""
    busiest: int
    """Requests of the busiest minute."""


def traffic(counts: Sequence[TrafficCounts]) -> Traffic:
    """Draws the minutes of one service, of which `counts` has the oldest first."""
    counts = counts[-MINUTES:]
    busiest = max((each.requests for each in counts), default=0)
    first = MINUTES - len(counts)
    minutes = tuple(
        Minute(
            round((first + place) / MINUTES, DIGITS),
            _height(each.requests, busiest),
            _height(each.server_errors, busiest),
        )
        for place, each in enumerate(counts)
        if each.requests
    )
    return Traffic(
        minutes,
        sum(each.requests for each in counts),
        sum(each.server_errors for each in counts),
        len(counts),
        busiest,
    )


def _height(number: int, busiest: int) -> float:
    return max(FAINTEST, round(number / busiest, DIGITS)) if number else 0.0
