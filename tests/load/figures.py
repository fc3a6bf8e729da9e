"""The figures of one run, as a table that is printed whether the test passed or failed.

Rules: it counts the findings of the judge, and judges nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.kit.metrics import Scrape
from tests.load.clients import KINDS
from tests.load.ledger import Breach, End, Judgement
from tests.load.records import Request
from tests.load.testbed import Step

HEADINGS: Final = (
    "client",
    "requests",
    *(end.value for end in End),
    *("duplicated", "desynced", "p50 ms", "p99 ms"),
)
TOTAL: Final = "all"


class Row(NamedTuple):
    """What became of some requests."""

    ends: Counter[End]
    breaches: Counter[Breach]
    durations: list[float]
    """Of those that were served, in order."""

    @classmethod
    def of(cls, requests: Sequence[Request], judgement: Judgement, *, slow: bool | None = None) -> Row:
        """`slow`: the durations are those of requests that are slow on purpose, or of the others alone."""
        idents = {request.ident for request in requests}
        return cls(
            Counter(judgement.ends[ident] for ident in idents),
            Counter(breach for breach, ident, _ in judgement.breaches if ident in idents),
            sorted(
                request.ended - request.began
                for request in requests
                if judgement.ends[request.ident] is End.SERVED and slow in (None, request.slow)
            ),
        )

    def milliseconds(self, part: int, digits: int = 1) -> str:
        """The duration that so many of a hundred do not exceed."""
        if not self.durations:
            return "-"
        place = min(len(self.durations) * part // 100, len(self.durations) - 1)
        return f"{self.durations[place] * 1000:.{digits}f}"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, with its first column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])


def table(requests: Sequence[Request], judgement: Judgement) -> Iterator[str]:
    """One row for each kind of client, and one for all. The durations are those of served requests."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for kind in [*(kind.name for kind in KINDS), TOTAL]:
        selected = [request for request in requests if kind in (request.kind, TOTAL)]
        row = Row.of(selected, judgement)
        rows.append(
            (
                kind,
                str(len(selected)),
                *(str(row.ends[end]) for end in End),
                *(str(row.breaches[breach]) for breach in (Breach.DUPLICATED, Breach.DESYNCED)),
                *(row.milliseconds(part) for part in (50, 99)),
            )
        )
    return aligned(rows)


def summary(
    requests: Sequence[Request], judgement: Judgement, metrics: Scrape, refused_by_backends: int
) -> Iterator[str]:
    """The rate of requests, and how often the gateway sent one again."""
    seconds = max(request.ended for request in requests) - min(request.began for request in requests)
    yield f"load: {len(requests)} requests in {seconds:.1f} s, {rate(requests):.0f} a second"
    retries = {
        labels["reason"]: metrics.total("skewgate_retries_total", **labels)
        for labels in metrics.labels("skewgate_retries_total")
    }
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
    """Requests per second over the whole run."""
    began = min(request.began for request in requests)
    ended = max(request.ended for request in requests)
    return len(requests) / (ended - began)
