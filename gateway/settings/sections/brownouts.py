"""`lifecycle.brownouts` of a service: windows of time in which its deprecated versions are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final, final

from gateway.core.days import DAY, midnight
from gateway.core.fleet.brownouts import WEEK, Schedule, moment, overlapping
from gateway.core.fleet.lifecycle import Line
from gateway.keys import texts
from gateway.keys.kinds import Either, ListOf, Text, matching, reject
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child

_OPERATOR: Final = "Only the operator knows when clients may fail."
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKLY: Final = f"({'|'.join(_DAYS)}) ([01][0-9]|2[0-3]):([0-5][0-9])"
_MOMENT: Final = f"{texts.DAY_PATTERN}T[0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})"
_FIRST_MONDAY: Final = 4 * DAY
"""Beginning of the first Monday in seconds since the epoch."""


def read_moment(text: str) -> int:
    """Read a time with its zone, `2026-02-03T10:00Z`, as seconds since the epoch."""
    with suppress(ValueError, OverflowError):
        if re.fullmatch(_MOMENT, text, re.ASCII):
            return int(datetime.fromisoformat(text).timestamp())
    return reject("not a date with a time and a zone", "write YYYY-MM-DDTHH:MMZ; Z is UTC")


def read_weekly(text: str) -> int:
    """Read a day of the week and a time in UTC, `tue 10:00`, as seconds since Monday, 00:00."""
    found = re.fullmatch(_WEEKLY, text, re.ASCII)
    if found is None:
        reject("not a day of the week with a time", f"write `tue 10:00`; the days are {', '.join(_DAYS)}")
    return _DAYS.index(found[1]) * DAY + int(found[2]) * 3_600 + int(found[3]) * 60


@final
@dataclass(frozen=True, slots=True)
class WrittenBrownout:
    """A window of time, with `at`, or one each week, with `weekly` and `from`. Windows do not overlap."""

    for_: float | tuple[float, ...] = field(
        metadata=Either(texts.DURATION, ListOf(texts.DURATION, least=1)).required(
            "How long a window is open. With `weekly` also a list: one for each week; the last repeats.",
            reason=_OPERATOR,
            example="5m",
        )
    )
    at: int | None = Text(read_moment, matching(_MOMENT)).key(
        None, "The beginning of the window, with its zone.", reason=_OPERATOR, example="2099-02-03T10:00Z"
    )
    weekly: int | None = Text(read_weekly, matching(_WEEKLY)).key(
        None, "When windows begin: a day of the week and a time (UTC).", reason=_OPERATOR, example="tue 10:00"
    )
    from_: date | None = texts.DAY.key(
        None, "The first day that may have a weekly window.", reason=_OPERATOR, example="2099-02-01"
    )


def read_brownouts(
    written: Sequence[WrittenBrownout], line: Line | None, node: Node | None, findings: Findings
) -> tuple[Schedule, ...]:
    """The brown-outs of the versions below `line`. `node`: the key `lifecycle`."""
    now, places = datetime.now(UTC).timestamp(), [child(node, "brownouts", at) for at in range(len(written))]
    if written and line is None and child(node, "deprecated") is None:
        message = "no version is deprecated, so nothing would be refused"
        findings.contradiction(child(node, "brownouts"), message, "add `deprecated`")
    found = [_schedule(each, place, findings) for each, place in zip(written, places, strict=True)]
    schedules = tuple(each for each in found if each is not None)
    if line is None or len(schedules) < len(found):
        return ()
    for place, schedule in zip(places, schedules, strict=True):
        at, window = child(place, "from") or child(place, "at"), schedule.window_at(now)
        if schedule.begin < line.timestamp + DAY:
            message = f"the first window begins less than 24 h after the deprecation, {line.day}"
            findings.contradiction(at, message, f"the earliest time is {moment(line.timestamp + DAY)}")
        elif window is None:
            message = "the window has passed: nothing is refused"
            findings.warn(at, "passed", message, "write a later time, or remove the entry")
        elif window.begin <= now:
            message = f"deprecated versions are refused until {moment(window.end)}"
            findings.warn(at, "brownout", message, "to end this now, remove the entry")
    if overlap := overlapping(schedules):
        one, other = (child(places[at], "for") for at in overlap)
        if one is not None and other is not None:
            message = f"its windows meet those of the entry in {findings.line_of(one, other)}"
            findings.contradiction(other, message, "write one window, or leave time between them")
    return schedules


def _schedule(written: WrittenBrownout, place: Node | None, findings: Findings) -> Schedule | None:
    """The windows of one entry; None: it has a problem, which is reported."""
    durations = written.for_ if isinstance(written.for_, tuple) else (written.for_,)
    if written.at is not None and len(durations) == 1 and (written.weekly, written.from_) == (None, None):
        return Schedule(written.at, durations)
    if written.at is None and written.weekly is not None and written.from_ is not None:
        day = midnight(written.from_)
        return Schedule(day + (written.weekly + _FIRST_MONDAY - day) % WEEK, durations, weekly=True)
    if not findings.is_any_dropped("lifecycle", "brownouts"):
        hint = "write {at: DATETIME, for: 5m}, or {weekly: tue 10:00, from: DATE, for: 5m}"
        findings.contradiction(place, "not one window, and not one each week", hint)
    return None
