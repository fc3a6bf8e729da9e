"""The events of a page: as lines of a list, and along a line of hours, which names some times. Pure: events
of `telemetry.history` in, values of `model` out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from math import ceil, floor
from time import gmtime, strftime
from typing import Final, NamedTuple

from gateway.admin.ui.model import EventFacts
from gateway.telemetry.history import Event

OPERATOR: Final = "operator"
OTHER: Final = "other"

KINDS: Final = {
    "skewgate.offer": "offer",
    "skewgate.prober": "backend",
    "skewgate.ejection": "backend",
    "skewgate.discovery": "backend",
    "skewgate.resolver": "backend",
    "skewgate.reload": "config",
    "skewgate.tls": "config",
    "skewgate.agreement": "agreement",
}
"""What an event is about, by its logger."""

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400

UNITS: Final = (15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 28 * DAY)
"""Seconds between two times that the line names."""

SHORTEST: Final = HOUR
"""Seconds that the line has at least."""

DIGITS: Final = 3
"""Of a mark's position: what lies closer together cannot be told apart."""

MAX_TICKS: Final = 5
"""Parts into which the line is divided at most: their labels have room on a telephone."""

LANES: Final = ("offer", "backend", "operator", "config", "agreement", "other")
"""Kinds of events, each with a line of its own, from above."""

LEVELS: Final = ("info", "warning", "error")
"""What is drawn later lies above."""


def event_facts(events: Iterable[Event]) -> tuple[EventFacts, ...]:
    """In the same order. The text goes without the service's name in front, which stands beside it."""
    return tuple(_event(each) for each in events)


def _event(event: Event) -> EventFacts:
    kind = OPERATOR if event.by_operator else KINDS.get(event.logger, OTHER)
    text = event.text
    if event.service:
        text = text.removeprefix(f"{event.service}/" if event.backend else f"{event.service}: ")
    return EventFacts(event.number, event.at, kind, _level(event.level), event.service, text)


def _level(level: int) -> str:
    if level >= logging.ERROR:
        return "error"
    return "warning" if level >= logging.WARNING else "info"


class Mark(NamedTuple):
    """One event on the line."""

    at: float
    """0 to 1, from its beginning."""
    level: str


class Lane(NamedTuple):
    """A kind of events of which there is one."""

    kind: str
    marks: tuple[Mark, ...]


class Tick(NamedTuple):
    """A time that the line names."""

    at: float
    text: str
    """In UTC: `14:05`, or `23 Nov`."""


class Timeline(NamedTuple):
    """All of it."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    summary: str
    """For those who do not see it."""


def timeline(events: Sequence[EventFacts]) -> Timeline:
    """From the oldest event to the newest, with room to whole units on both sides: it changes only with an
    event."""
    if not events:
        return Timeline((), (), "")
    oldest, newest = min(each.at for each in events), max(each.at for each in events)
    begin, end, unit = _line(oldest, newest)
    lanes = []
    for kind in LANES:
        marks = {
            Mark(round((each.at - begin) / (end - begin), DIGITS), each.level)
            for each in events
            if each.kind == kind
        }
        if marks:
            lanes.append(
                Lane(kind, tuple(sorted(marks, key=lambda mark: (LEVELS.index(mark.level), mark.at))))
            )
    form = "%H:%M" if unit < DAY else "%d %b"
    ticks = (
        Tick(step * unit / (end - begin), strftime(form, gmtime(begin + step * unit)).lstrip())
        for step in range(round((end - begin) / unit) + 1)
    )
    return Timeline(tuple(lanes), tuple(ticks), _summary(events, oldest, newest))


def _line(oldest: float, newest: float) -> tuple[float, float, int]:
    """Where the line begins and ends, and the seconds between its ticks."""
    for unit in UNITS:
        begin, end = _whole(oldest, newest, unit)
        if end - begin <= MAX_TICKS * unit:
            return begin, end, unit
    unit = ceil((newest - oldest) / (MAX_TICKS - 1) / DAY) * DAY
    return *_whole(oldest, newest, unit), unit


def _whole(oldest: float, newest: float, unit: int) -> tuple[float, float]:
    end = max(ceil(newest / unit) * unit, (floor(oldest / unit) + 1) * unit)
    return min(floor(oldest / unit) * unit, end - SHORTEST), end


def _summary(events: Sequence[EventFacts], oldest: float, newest: float) -> str:
    number = "1 event" if len(events) == 1 else f"{len(events)} events"
    begin, end = (strftime("%d %b %H:%M", gmtime(seconds)) for seconds in (oldest, newest))
    levels = [
        f"{found} {word}{'' if found == 1 else 's'}"
        for word in ("error", "warning")
        if (found := sum(each.level == word for each in events))
    ]
    among = f", among them {' and '.join(levels)}" if levels else ""
    return f"{number} from {begin} to {end} UTC{among}; they are listed below"
