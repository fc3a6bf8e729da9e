"""The figures of one run, as the table that is printed whether it passed or not.

Rules: counts what the judgement found; judges nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tests.load.clients import KINDS
from tests.load.ledger import Breach, End, Judgement
from tests.load.records import Request
from tests.load.stand import Chapter
from tests.real.gateway_process import Metrics

HEADINGS: Final = (
    "client",
    "requests",
    *(end.value for end in End),
    *("duplicated", "desynced", "p50 ms", "p99 ms"),
)
TOTAL: Final = "all"


def table(requests: Sequence[Request], judgement: Judgement) -> Iterator[str]:
    """One row for each kind of client, and their sum; durations are those of what was served."""
    rows = [HEADINGS]
    for kind in [*(kind.kind for kind in KINDS), TOTAL]:
        those = [each for each in requests if kind in (each.kind, TOTAL)]
        ends = Counter(judgement.ends[each.ident] for each in those)
        idents = {each.ident for each in those}
        breaches = Counter(breach for breach, ident, _ in judgement.breaches if ident in idents)
        took = sorted(each.ended - each.began for each in those if judgement.ends[each.ident] is End.SERVED)
        rows.append(
            (
                *(kind, str(len(those)), *(str(ends[end]) for end in End)),
                *(str(breaches[each]) for each in (Breach.DUPLICATED, Breach.DESYNCED)),
                *(_milliseconds(took, part) for part in (50, 99)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *others])


def summary(
    requests: Sequence[Request], judgement: Judgement, metrics: Metrics, refused_by_backends: int
) -> Iterator[str]:
    """The load, and what the gateway did for it."""
    seconds = max(each.ended for each in requests) - min(each.began for each in requests)
    yield f"load: {len(requests)} requests in {seconds:.1f} s, {rate(requests):.0f} a second"
    retries = {
        each["reason"]: metrics.total("skewgate_retries_total", **each)
        for each in metrics.labels("skewgate_retries_total")
    }
    told = ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(retries.items()) if count)
    yield f"retries by reason: {told or 'none'}"
    doubts = ", ".join(f"{count} by {how.value}" for how, count in judgement.doubts.items())
    yield f"in doubt, not sent again because they may have been executed: {doubts or 'none'}"
    yield f"requests that a backend refused for its version, and the gateway sent on: {refused_by_backends}"


def story(chapters: Sequence[Chapter], requests: Sequence[Request]) -> Iterator[str]:
    """What happened when, and how the offer went."""
    for each in chapters:
        count = sum(each.span.since <= request.ended <= each.span.until for request in requests)
        seconds = each.span.until - each.span.since
        yield f"{each.name}: {seconds:.1f} s, {count} requests, {', '.join(each.phases)}"


def rate(requests: Sequence[Request]) -> float:
    """Requests a second over all of the run."""
    return len(requests) / (max(each.ended for each in requests) - min(each.began for each in requests))


def _milliseconds(ordered: Sequence[float], part: int) -> str:
    return f"{ordered[min(len(ordered) * part // 100, len(ordered) - 1)] * 1000:.1f}" if ordered else "-"
