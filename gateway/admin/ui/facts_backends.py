"""The facts about backends: one row for each, made in slices. Pure: values in, values out.

What is the same for all backends of one grade (what they serve, where it lies on the axis) is made once.
"""

from __future__ import annotations

from hashlib import blake2s
from time import gmtime, strftime
from typing import Final, final

from gateway.admin.ui.facts_offer import NOTHING, Drawing, cut, ranges, rate
from gateway.admin.ui.model import BackendFacts, Bar
from gateway.core.fleet.backend import Grade
from gateway.core.versions.ranges import NO_VERSIONS
from gateway.telemetry.status import BackendStatus, ServiceStatus

NOTHING_KNOWN: Final = "nothing known"


def key_of(*parts: str) -> str:
    """The key of a row: the same for the same texts, of letters, digits and `-`."""
    text = "\n".join(parts)
    return f"r-{blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


@final
class Rows:
    """The rows of one service."""

    def __init__(self, service: ServiceStatus, drawing: Drawing) -> None:
        self._service = service
        self._drawing = drawing
        self._by_grade: dict[int, tuple[str, tuple[Bar, ...]]] = {}
        """What backends of a grade serve, and where it lies. A grade of one view stays the same object."""

    @property
    def number(self) -> int:
        """Number of all rows."""
        return len(self._service.view.pool.members)

    def slice(self, begin: int, end: int) -> list[BackendFacts]:
        """Rows from `begin` up to `end`, in the configuration's order."""
        return [self._row(each) for each in self._service.backends(begin, end)]

    def _row(self, status: BackendStatus) -> BackendFacts:
        member, grade = status.member, status.grade
        found = self._by_grade.get(id(grade))
        if found is None:
            found = self._by_grade[id(grade)] = self._served(grade)
        serves, bars = found
        return BackendFacts(
            key=key_of(member.key, member.backend.url),
            name=member.backend.name,
            url=member.backend.url,
            serves=serves,
            bars=bars,
            freshness=member.freshness.value,
            state=_state(status),
            drained=member.drained,
            note=_note(status),
            in_flight=status.in_flight,
            queued=status.queued,
            rate=rate(status.rate),
            last_probe_at=status.last_probe_at,
        )

    def _served(self, grade: Grade) -> tuple[str, tuple[Bar, ...]]:
        if grade.advertised is None:
            return NOTHING_KNOWN, ()
        text = ranges(grade.advertised, self._drawing.scheme)
        if grade.legacy:
            text = "legacy" if text == NOTHING else f"{text} (legacy)"
        return text, self._drawing.bars(grade.advertised or NO_VERSIONS)


def _state(status: BackendStatus) -> str:
    """The first that holds."""
    member = status.member
    states = (
        ("drained", member.drained),
        ("leaving", member.backend.leaving),
        ("ejected", status.ejection is not None),
        ("unhealthy", member.unhealthy is not None),
        ("backup", member.backend.backup),
    )
    return next((word for word, holds in states if holds), "in service")


def _note(status: BackendStatus) -> str:
    """Everything that keeps requests from it. Times are those of a clock, since what is left of them would
    change all the time."""
    member, leaves_at, ejection = status.member, status.leaves_at, status.ejection
    notes = (
        "" if leaves_at is None else f"leaves at {_clock(leaves_at)}",
        "" if ejection is None else f"ejected until {_clock(ejection.until)}: {ejection.reason}",
        member.unhealthy or "",
        member.error or "",
    )
    return cut("; ".join(note for note in notes if note))


def _clock(seconds: float) -> str:
    return strftime("%H:%M:%S UTC", gmtime(round(seconds)))
