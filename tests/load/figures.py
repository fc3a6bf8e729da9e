"""The figures of a run, as tables that are printed whether the test passed or failed.

Rules: it counts the findings of the judge, and judges nothing itself. A request belongs to every fault during
which it was in progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from tests.kit.metrics import Scrape
from tests.load import clients, slow_peers
from tests.load.fault_testbed import FaultRecord
from tests.load.ledger import Breach, End, Judgement
from tests.load.records import Request
from tests.load.schedule import Fault
from tests.load.testbed import Step

AT_REST: Final = "between faults"
ALL: Final = "all"

Row: TypeAlias = dict[str, str]


def row(title: str, requests: Sequence[Request], judgement: Judgement, *, slow: bool | None = None) -> Row:
    """What became of some requests, and how long those took that were served. `slow`: the durations are those
    of requests that are slow on purpose, or of the others alone."""
    idents = {request.ident for request in requests}
    ends = Counter(judgement.ends[ident] for ident in idents)
    breaches = Counter(breach for breach, ident, _ in judgement.breaches if ident in idents)
    durations = sorted(
        request.ended - request.began
        for request in requests
        if judgement.ends[request.ident] is End.SERVED and slow in (None, request.slow)
    )
    return {
        "": title,
        "requests": str(len(requests)),
        **{end.value: str(ends[end]) for end in End},
        **{breach.value: str(breaches[breach]) for breach in Breach},
        **{f"p{part} ms": _milliseconds(durations, part) for part in (50, 99, 100)},
    }


def _milliseconds(durations: Sequence[float], part: int) -> str:
    """The duration that so many of a hundred do not exceed."""
    if not durations:
        return ""
    return f"{durations[min(len(durations) * part // 100, len(durations) - 1)] * 1000:.0f}"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Their lines, without what is zero everywhere."""
    names = [name for name in rows[0] if any(row[name] not in ("", "0") for row in rows)]
    cells = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        yield "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])


def by_kind(requests: Sequence[Request], judgement: Judgement) -> list[Row]:
    """One row for each kind of client, and one for all."""
    return [
        row(kind, [request for request in requests if kind in (request.kind, ALL)], judgement)
        for kind in (*(kind.name for kind in clients.KINDS), ALL)
    ]


def by_fault(requests: Sequence[Request], record: FaultRecord, judgement: Judgement) -> list[Row]:
    """One row for each fault, with the durations of bystanders; one for the time without any; one for each
    kind of slow peer; and one for all."""
    spans = [span for _, span in record.faults]
    during = [[r for r in requests if span.overlaps(r.began, r.ended)] for span in spans]
    rest = [r for r in requests if not any(span.overlaps(r.began, r.ended) for span in spans)]
    rows = []
    for at, (name, span) in enumerate(record.faults):
        overlaps = any(other.overlaps(*span) for other in (*spans[:at], *spans[at + 1 :]))
        title = Fault[name].value.title + (" +" if overlaps else "")
        rows.append(row(title, during[at], judgement, slow=False))
    rows.append(row(AT_REST, rest, judgement, slow=False))
    rows += [row(kind, [r for r in requests if r.kind == kind], judgement) for kind in slow_peers.KINDS]
    return [*rows, row(ALL, requests, judgement, slow=False)]


def report(requests: Sequence[Request], record: FaultRecord, judgement: Judgement) -> Iterator[str]:
    yield from table(by_fault(requests, record, judgement))
    yield "+: together with other faults. What could be served, and is lost otherwise:"
    yield from (f"  {fault.value.title}: {fault.value.served}" for fault in Fault)
    queries = ", ".join(f"{count} ({name.lower()})" for name, count in record.queries.items())
    yield f"queries that met a fault of the name server: {queries or 'none'}"
    yield ", ".join(f"{what}: {number:.4g}" for what, number in record.facts.items())


def summary(
    requests: Sequence[Request], judgement: Judgement, metrics: Scrape, refused_by_backends: int
) -> Iterator[str]:
    """The rate of requests, and how often the gateway sent one again."""
    yield f"load: {len(requests)} requests, {rate(requests):.0f} a second"
    retries = metrics.by("reason", "skewgate_retries_total")
    texts = ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(retries.items()) if count)
    yield f"retries by reason: {texts or 'none'}"
    doubts = ", ".join(f"{count} by {how.value}" for how, count in judgement.doubts.items())
    yield f"in doubt, not sent again because they may have been executed: {doubts or 'none'}"
    yield f"requests that a backend refused for their version, sent to another one: {refused_by_backends}"


def scenario(steps: Sequence[Step], requests: Sequence[Request]) -> Iterator[str]:
    """The duration of every step, and the phases and offers in it."""
    for step in steps:
        count = sum(step.span.since <= request.ended <= step.span.until for request in requests)
        seconds = step.span.until - step.span.since
        yield f"{step.name}: {seconds:.1f} s, {count} requests, {', '.join(step.phases)}"


def rate(requests: Sequence[Request]) -> float:
    began = min(request.began for request in requests)
    ended = max(request.ended for request in requests)
    return len(requests) / (ended - began)
