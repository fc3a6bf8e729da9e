"""Days as the configuration has them: in UTC, from 00:00 to 24:00."""

from __future__ import annotations

from datetime import date
from typing import Final

DAY: Final = 86_400
"""Seconds in a day."""

_EPOCH: Final = date(1970, 1, 1).toordinal()


def midnight(day: date) -> int:
    """Beginning of a day in seconds since the epoch."""
    return (day.toordinal() - _EPOCH) * DAY


def end_of(day: date) -> float:
    """End of a day in seconds since the epoch."""
    return float(midnight(day) + DAY)


def text_of_day(number: int) -> str:
    """Write the day with this number, counted from 1970-01-01, as `2026-11-27`."""
    return date.fromordinal(_EPOCH + number).isoformat()
