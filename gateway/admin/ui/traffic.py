"""Requests of a service in the last hour as a sparkline: one bar a minute, with its 5xx in another colour.

Pure: counts of `telemetry.recent` in, values of a drawing out. It changes once a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.telemetry.recent import TrafficCounts

MINUTES: Final = 60
"""Number of bars of the sparkline; the newest is at the right end."""

DIGITS: Final = 3
"""Decimal digits of a share of the drawing: a pixel is at least a thousandth of the width."""

FAINTEST: Final = 0.04
"""Minimum height of a bar that is not empty: one error among many requests is visible."""


class Minute(NamedTuple):
    """Bar of one minute's requests. Numbers are shares of the drawing's width or height, 0 to 1."""

    at: float
    requests: float
    server_errors: float
    """Height of the bar's part for responses of 500 and above."""


class Traffic(NamedTuple):
    """Sparkline of the requests of one service."""

    minutes: tuple[Minute, ...]
    """Bars of the minutes that had requests."""
    total: int
    server_errors: int
    length: int
    """Minutes counted so far, at most 60."""
    busiest: int
    """Number of requests in the busiest minute."""


def traffic(counts: Sequence[TrafficCounts]) -> Traffic:
    """Draws the sparkline of one service; `counts` has the requests of each minute, the oldest first."""
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
