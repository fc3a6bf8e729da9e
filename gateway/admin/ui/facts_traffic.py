"""The facts about requests: which versions clients asked for and got, and why requests were refused. Pure:
counts in, values of `model` out.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Final

from gateway.admin.ui.facts_offer import cut, rate
from gateway.admin.ui.model import Demand, Refusal
from gateway.core.decision.decision import NegotiationResult
from gateway.telemetry.recent import SPAN, LastHour, RequestCounts, ServiceRates
from gateway.telemetry.series.declaring import OTHER

MAX_VERSIONS: Final = 20
"""Versions that are shown; the rest is counted together."""

RESULTS: Final = {
    NegotiationResult.BELOW_MIN: "below the offer",
    NegotiationResult.ABOVE_MAX: "above the offer",
    NegotiationResult.MALFORMED: "not a version",
    NegotiationResult.UNAVAILABLE: "on offer, and no backend could serve it",
}
"""In words, by what negotiation led to. The others are no refusals."""

ADMISSION: Final = {
    "access": "from an address without access",
    "client_concurrency": "too many of one client at a time",
    "client_rate": "too many of one client in a second",
    "overload": "shed, because the event loop was late",
}
"""In words, by `service.ADMISSION_REASONS`."""


def demand(hour: LastHour) -> tuple[Demand, ...]:
    """The most frequent versions, and `other` for the rest, which is always last."""
    counts = Counter({version: count for version, count in hour.served.items() if count > 0})
    total, other = counts.total(), counts.pop(OTHER, 0)
    shown = counts.most_common(MAX_VERSIONS)
    other += counts.total() - sum(count for _, count in shown)
    rows = [*shown, *([(OTHER, other)] if other else [])]
    return tuple(Demand(cut(version), count, count / total) for version, count in rows)


def demand_seconds(hour: LastHour) -> float:
    """How far back the demand goes, an hour at most: rounded to minutes, and before the first one up to ten
    seconds."""
    seconds = min(hour.seconds, SPAN)
    return round(seconds / 60.0) * 60.0 if seconds > 60.0 else ceil(seconds / 10.0) * 10.0


def refusals(counts: RequestCounts | None, rates: ServiceRates) -> tuple[Refusal, ...]:
    """The reasons for which any request was refused since the start, the most frequent first. `counts`: None,
    nothing was counted."""
    if counts is None:
        return ()
    results: Counter[NegotiationResult] = Counter()
    for (_, result), count in counts.results.items():
        results[result] += count
    found = [
        *(
            Refusal(text, results[result], rate(rates.results.get(result, 0.0)))
            for result, text in RESULTS.items()
        ),
        *(
            Refusal(ADMISSION.get(reason, reason), count, rate(rates.refused.get(reason, 0.0)))
            for reason, count in counts.refused.items()
        ),
    ]
    return tuple(sorted((each for each in found if each.count), key=lambda each: -each.count))
