"""Events of a page as rows of a list and as marks on a timeline. Pure: events of `telemetry.history` in,
values of `model` out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from math import ceil
from time import gmtime, strftime
from typing import Final, NamedTuple

from gateway.admin.ui.model import EventRow
from gateway.admin.ui.offer import without_address
from gateway.core.days import DAY
from gateway.telemetry.history import Event
from gateway.telemetry.process_log import named

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
"""Kinds of events by the name of their logger."""

MINUTE: Final = 60
HOUR: Final = 3600

UNITS: Final = (
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    7 * DAY,
    28 * DAY,
)
"""Possible seconds between two ticks of the timeline."""

SHORTEST: Final = 2 * MINUTE
"""Minimum length of the timeline in seconds."""

DIGITS: Final = 3
"""Decimal digits of a position on the timeline: closer marks cannot be distinguished."""

MAX_TICKS: Final = 4
"""Maximum parts of the timeline between ticks: their labels have room on a telephone."""

ROOM: Final = 0.24
"""Minimum distance of two ticks, as a share of the timeline's length."""

LANES: Final = ("offer", "backend", "operator", "config", "agreement", "other")
"""Kinds of events from top to bottom of the timeline, each with a lane of its own."""

LEVELS: Final = ("info", "warning", "error")
"""Levels of events in the order in which their marks are drawn."""


def event_rows(events: Iterable[Event]) -> tuple[EventRow, ...]:
    """Makes rows for the list of events in the order of `events`, the newest first. Consecutive warnings or
    errors that differ only in the backend become one. The name of the service is not repeated in the text."""
    found: list[EventRow] = []
    group: list[Event] = []
    for event in events:
        if group and _is_like(group[-1], event):
            group.append(event)
            found[-1] = _grouped(group)
        else:
            group = [event]
            found.append(_event(event))
    return tuple(found)


def _event(event: Event) -> EventRow:
    kind = OPERATOR if event.by_operator else KINDS.get(event.logger, OTHER)
    text = event.text
    if event.service:
        text = text.removeprefix(f"{event.service}/" if event.backend else f"{event.service}: ")
    return EventRow(
        event.number, event.at, kind, _level(event.level), event.service, text, outage=event.outage
    )


def _grouped(group: Sequence[Event]) -> EventRow:
    """Makes one row of several events: time of the newest, number of the oldest, which stays the same."""
    newest, oldest = group[0], group[-1]
    backends = list(dict.fromkeys(event.backend for event in group))
    return _event(newest)._replace(
        number=oldest.number, times=len(group), text=f"{named(backends)}: {_statement(newest)}"
    )


def _is_like(one: Event, other: Event) -> bool:
    return bool(
        one.backend
        and other.backend
        and one.level == other.level >= logging.WARNING
        and (one.service, one.logger) == (other.service, other.logger)
        and not (one.by_operator or other.by_operator)
        and _statement(one) == _statement(other)
    )


def _statement(event: Event) -> str:
    """Text of an event without the name and the address of its backend."""
    return without_address(event.text.removeprefix(f"{event.service}/{event.backend}: "))


def _level(level: int) -> str:
    if level >= logging.ERROR:
        return "error"
    return "warning" if level >= logging.WARNING else "info"


class EventMark(NamedTuple):
    """Mark of an event on the timeline."""

    at: float
    """Position of the mark on the timeline, from 0 to 1."""
    level: str


class Lane(NamedTuple):
    """Lane of the timeline for events of one kind."""

    kind: str
    marks: tuple[EventMark, ...]


class TimeTick(NamedTuple):
    """Time label of the timeline."""

    at: float
    text: str
    """Text of the label: a time as `14:05` or `23 Nov`, in UTC."""


class Span(NamedTuple):
    """Interval: a part of the timeline (0 to 1), or of time (wall-clock seconds)."""

    begin: float
    end: float


class Timeline(NamedTuple):
    """Timeline of the events on a page."""

    lanes: tuple[Lane, ...]
    ticks: tuple[TimeTick, ...]
    outages: tuple[Span, ...]
    """Parts of the timeline in which some version on offer had no backend."""
    summary: str
    """Sentence about the timeline for screen readers."""


def timeline(events: Sequence[EventRow], now: float) -> Timeline:
    """Draws the timeline from the first event to the newest, or to `now` during an outage."""
    if not events:
        return Timeline((), (), (), "")
    oldest, newest = events[-1].at, events[0].at
    for each in events:
        oldest, newest = min(oldest, each.at), max(newest, each.at)
    spans = _outages(events, oldest, max(newest, now))
    end = max(oldest + SHORTEST, newest, *(span.end for span in spans))
    length = end - oldest
    lanes = []
    for kind in LANES:
        marks = {
            EventMark(round((each.at - oldest) / length, DIGITS), each.level)
            for each in events
            if each.kind == kind
        }
        if marks:
            lanes.append(
                Lane(kind, tuple(sorted(marks, key=lambda mark: (LEVELS.index(mark.level), mark.at))))
            )
    outages = tuple(
        Span(round((span.begin - oldest) / length, DIGITS), round((span.end - oldest) / length, DIGITS))
        for span in spans
    )
    return Timeline(tuple(lanes), _ticks(oldest, end), outages, _summary(events, oldest, newest, len(spans)))


def _outages(events: Sequence[EventRow], oldest: float, now: float) -> list[Span]:
    """Finds the outages in wall-clock seconds, within `oldest` and `now` where an end is not known."""
    began: dict[str, float] = {}
    spans = []
    for each in sorted(events, key=lambda event: event.number):
        if each.outage is True:
            began.setdefault(each.service, each.at)
        elif each.outage is False:
            spans.append(Span(began.pop(each.service, oldest), each.at))
    return [*spans, *(Span(begin, now) for begin in began.values())]


def _ticks(begin: float, end: float) -> tuple[TimeTick, ...]:
    """Makes ticks at the beginning of the timeline and at whole units of time after it."""
    units = (*UNITS, ceil((end - begin) / MAX_TICKS / DAY) * DAY)
    unit = next(each for each in units if (end - begin) / each <= MAX_TICKS)
    form = "%H:%M" if unit < DAY else "%d %b"
    times = [begin]
    whole = ceil(begin / unit) * unit
    while whole <= end:
        if (whole - times[-1]) / (end - begin) >= ROOM:
            times.append(whole)
        whole += unit
    return tuple(
        TimeTick(round((time - begin) / (end - begin), DIGITS), strftime(form, gmtime(time)).lstrip())
        for time in times
    )


def _summary(events: Sequence[EventRow], oldest: float, newest: float, outages: int) -> str:
    count = sum(each.times for each in events)
    number = "1 event" if count == 1 else f"{count} events"
    begin, end = (strftime("%d %b %H:%M", gmtime(seconds)) for seconds in (oldest, newest))
    counts = (
        *((word, sum(each.times for each in events if each.level == word)) for word in ("error", "warning")),
        ("outage", outages),
    )
    found = [f"{amount} {word}{'' if amount == 1 else 's'}" for word, amount in counts if amount]
    among = f", among them {' and '.join(found)}" if found else ""
    return f"{number} from {begin} to {end} UTC{among}; they are listed below"
