"""The facts about backends: one row for each, made in slices. Pure: values in, values out.

What is the same for all backends of one grade (what they serve, where it lies on the axis) is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2s
from time import gmtime, strftime
from typing import Final, NamedTuple, final

from gateway.admin.ui.facts_offer import NOTHING, Drawing, cut, ranges, rate
from gateway.admin.ui.model import BackendFacts, Bar
from gateway.core.fleet.backend import Grade, Member
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS
from gateway.telemetry.rates import ServiceRates
from gateway.telemetry.worker_report import Ejected

NOTHING_KNOWN: Final = "nothing known"


class Moment(NamedTuple):
    """What is known of members beside the snapshot, at one moment. By member key, but for `last_probe_at`."""

    in_flight: Mapping[str, int]
    waiting: Mapping[str, int]
    ejected: Mapping[str, Ejected]
    last_probe_at: Mapping[tuple[str, str], float]
    """Wall-clock seconds by (service, backend)."""
    rates: ServiceRates
    now: float
    """Wall-clock seconds."""
    wall_offset: float
    """Seconds since 1970, less those of the clock that dates facts."""


def key_of(*parts: str) -> str:
    """The key of a row: the same for the same texts, of letters, digits and `-`."""
    text = "\n".join(parts)
    return f"r-{blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


@final
class Rows:
    """The rows of one view at one moment."""

    def __init__(self, view: ServiceView, drawing: Drawing, moment: Moment) -> None:
        self._view = view
        self._drawing = drawing
        self._moment = moment
        self._by_grade: dict[int, tuple[str, tuple[Bar, ...]]] = {}
        """What backends of a grade serve, and where it lies. A grade of one view stays the same object."""

    def slice(self, begin: int, end: int) -> list[BackendFacts]:
        """Those from `begin` up to `end`, in the configuration's order."""
        pool = self._view.pool
        members = zip(pool.members[begin:end], pool.grades[begin:end], strict=True)
        return [self._row(member, grade) for member, grade in members]

    def _row(self, member: Member, grade: Grade) -> BackendFacts:
        backend, key, moment = member.backend, member.key, self._moment
        found = self._by_grade.get(id(grade))
        if found is None:
            found = self._by_grade[id(grade)] = self._served(grade)
        serves, bars = found
        return BackendFacts(
            key=key_of(key, backend.url),
            name=backend.name,
            url=backend.url,
            serves=serves,
            bars=bars,
            freshness=member.freshness.value,
            state=_state(member, moment.ejected),
            drained=member.drained,
            note=_note(member, moment),
            in_flight=moment.in_flight.get(key, 0),
            queued=moment.waiting.get(key, 0) if member.bound else None,
            rate=rate(moment.rates.by_backend.get(backend.name, 0.0)),
            last_probe_at=moment.last_probe_at.get((member.service, backend.name)),
        )

    def _served(self, grade: Grade) -> tuple[str, tuple[Bar, ...]]:
        if grade.advertised is None:
            return NOTHING_KNOWN, ()
        text = ranges(grade.advertised, self._drawing.scheme)
        if grade.legacy:
            text = "legacy" if text == NOTHING else f"{text} (legacy)"
        return text, self._drawing.bars(grade.advertised or NO_VERSIONS)


def _state(member: Member, ejected: Mapping[str, Ejected]) -> str:
    """The first that holds."""
    states = (
        ("drained", member.drained),
        ("leaving", member.backend.leaving),
        ("ejected", member.key in ejected),
        ("unhealthy", member.unhealthy is not None),
        ("backup", member.backend.backup),
    )
    return next((word for word, holds in states if holds), "in service")


def _note(member: Member, moment: Moment) -> str:
    """Everything that keeps requests from it. Times are those of a clock, since what is left of them would
    change all the time."""
    leaves_at, ejected = member.backend.leaves_at, moment.ejected.get(member.key)
    if leaves_at is None and ejected is None and member.unhealthy is None and member.error is None:
        return ""
    notes = (
        "" if leaves_at is None else f"leaves at {_clock(leaves_at + moment.wall_offset)}",
        "" if ejected is None else f"ejected until {_clock(moment.now + ejected.seconds)}: {ejected.reason}",
        member.unhealthy or "",
        member.error or "",
    )
    return cut("; ".join(note for note in notes if note))


def _clock(seconds: float) -> str:
    return strftime("%H:%M:%S UTC", gmtime(round(seconds)))
