"""The figures of a fault run: what was lost in every fault, who noticed it, and how the slow ones fared.

Rules: it counts the findings of the judge, and judges nothing itself. A request belongs to every fault during
which it was in progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.load.fault_testbed import FaultRecord
from tests.load.figures import Row, aligned
from tests.load.ledger import Breach, End, Judgement
from tests.load.records import Request, Span
from tests.load.schedule import Fault
from tests.load.slow_peers import KINDS

BREACHES: Final = (Breach.DUPLICATED, Breach.DESYNCED, Breach.MISDIRECTED, Breach.EVICTED, Breach.LATE)
IN_DOUBT: Final = (End.IN_DOUBT, End.TIMED_OUT, End.CUT)
HEADINGS: Final = (
    "fault",
    "seconds",
    "requests",
    "answered",
    "refused",
    "in doubt",
    "turned away",
    "lost",
    *(breach.value for breach in BREACHES),
    "p50 ms",
    "p99 ms",
    "max ms",
)
"""In doubt: not sent again because a backend may have executed it, or cut with its backend."""
AT_REST: Final = "between faults"
ALL: Final = "all"


def report(requests: Sequence[Request], record: FaultRecord, judgement: Judgement) -> Iterator[str]:
    """All lines."""
    rows = [HEADINGS]
    for number, (name, span) in enumerate(record.faults):
        selected = [request for request in requests if _during(request, span)]
        overlaps = any(other.overlaps(*span) for at, (_, other) in enumerate(record.faults) if at != number)
        title = Fault[name].value.title + (" +" if overlaps else "")
        rows.append(_row(title, span.until - span.since, selected, judgement))
    rest = [r for r in requests if not any(_during(r, span) for _, span in record.faults)]
    whole = max(r.ended for r in requests) - min(r.began for r in requests) if requests else 0.0
    busy = sum(span.until - span.since for span in _merged([span for _, span in record.faults]))
    rows.append(_row(AT_REST, max(0.0, whole - busy), rest, judgement))
    rows += [
        _row(kind, None, [r for r in requests if r.kind == kind], judgement, slow=True) for kind in KINDS
    ]
    rows.append(_row(ALL, whole, requests, judgement))
    yield from aligned(rows)
    yield "+: together with other faults. Durations: of the bystanders; in the rows of slow peers, their own."
    yield "What could be served, and is lost otherwise:"
    yield from (f"  {fault.value.title}: {fault.value.served}" for fault in Fault)
    queries = ", ".join(f"{count} ({name.lower()})" for name, count in record.queries.items())
    yield f"queries that met a fault of the name server: {queries or 'none'}"
    yield ", ".join(
        f"{what}: {number:.3g}" if number < 100 else f"{what}: {number:.0f}"
        for what, number in record.facts.items()
    )


def _row(
    title: str,
    seconds: float | None,
    requests: Sequence[Request],
    judgement: Judgement,
    *,
    slow: bool = False,
) -> tuple[str, ...]:
    row = Row.of(requests, judgement, slow=slow)
    return (
        title,
        "" if seconds is None else f"{seconds:.1f}",
        str(len(requests)),
        str(row.ends[End.SERVED]),
        str(row.ends[End.REFUSED] + row.ends[End.UNAVAILABLE]),
        str(sum(row.ends[end] for end in IN_DOUBT)),
        str(row.ends[End.TURNED_AWAY]),
        str(row.ends[End.LOST]),
        *(str(row.breaches[breach]) for breach in BREACHES),
        *(row.milliseconds(part, 0) for part in (50, 99, 100)),
    )


def _during(request: Request, span: Span) -> bool:
    return span.overlaps(request.began, request.ended)


def _merged(spans: Sequence[Span]) -> list[Span]:
    """The same time without overlaps."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.since <= merged[-1].until:
            merged[-1] = Span(merged[-1].since, max(merged[-1].until, span.until))
        else:
            merged.append(span)
    return merged
