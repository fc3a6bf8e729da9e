"""The figures of a fault run: what was lost in every fault, who noticed it, and how the slow ones fared.

Rules: it counts the findings of the judge, and judges nothing itself. A request belongs to every fault during
which it was in progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.load.fault_testbed import FaultRecord
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
    yield from _aligned(rows)
    yield "+: together with other faults. Durations: of the bystanders; in the rows of slow peers, their own."
    yield "What could be served, and is lost otherwise:"
    yield from (f"  {fault.value.title}: {fault.value.served}" for fault in Fault)
    queries = ", ".join(f"{count} ({name.lower()})" for name, count in record.queries.items())
    yield f"queries that met a fault of the name server: {queries or 'none'}"
    yield ", ".join(f"{what}: {number:.3g}" if number < 100 else f"{what}: {number:.0f}"
                    for what, number in record.facts.items())  # fmt: skip


def _row(
    title: str,
    seconds: float | None,
    requests: Sequence[Request],
    judgement: Judgement,
    *,
    slow: bool = False,
) -> tuple[str, ...]:
    ends = Counter(judgement.ends[request.ident] for request in requests)
    idents = {request.ident for request in requests}
    breaches = Counter(breach for breach, ident, _ in judgement.breaches if ident in idents)
    durations = sorted(
        request.ended - request.began
        for request in requests
        if request.slow is slow and judgement.ends[request.ident] is End.SERVED
    )
    return (
        title,
        "" if seconds is None else f"{seconds:.1f}",
        str(len(requests)),
        str(ends[End.SERVED]),
        str(ends[End.REFUSED] + ends[End.UNAVAILABLE]),
        str(sum(ends[end] for end in IN_DOUBT)),
        str(ends[End.TURNED_AWAY]),
        str(ends[End.LOST]),
        *(str(breaches[breach]) for breach in BREACHES),
        *(_milliseconds(durations, part) for part in (50, 99, 100)),
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


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])


def _milliseconds(ordered: Sequence[float], part: int) -> str:
    return f"{ordered[min(len(ordered) * part // 100, len(ordered) - 1)] * 1000:.0f}" if ordered else "-"
