"""The gate of a rolling upgrade: what finished requests say about a member that was upgraded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, final

Counts: TypeAlias = Mapping[tuple[str, str], float]
"""Finished requests of a service by (backend, status), since the start of the gateway."""

NOBODY: Final = "none"
"""Backend of a response that the gateway made itself."""
_SAMPLE: Final = re.compile(r"^skewgate_requests_total\{(.*)\} ([0-9.e+]+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@final
class Limits(NamedTuple):
    """Numbers of the gate."""

    seconds: float = 60.0
    """Time after enabling: most faults of a new release show in its first minute under load."""
    requests: int = 100
    """Fewer requests say nothing about a share of one in a hundred."""
    points: float = 1.0
    """Percentage points above the other members: below that, members of one release differ, too."""


@final
class GateResult(NamedTuple):
    """Result of the gate. It also passes if the requests are too few to say anything."""

    text: str
    passes: bool = False


def read_counts(metrics: str, service: str) -> Counts:
    """Read the finished requests of a service from the text of `/metrics`."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, value in _SAMPLE.findall(metrics):
        label = dict(_LABEL.findall(labels))
        if label.get("service") == service:
            found[label["backend"], label["code"]] += float(value)  # type: ignore[assignment]
    return found


def since(before: Counts, after: Counts) -> Counts:
    """Requests between two readings. A gateway that was replaced meanwhile counts from 0."""
    reset = any(after.get(key, 0) < number for key, number in before.items())
    return {key: number - (0 if reset else before.get(key, 0)) for key, number in after.items()}


def lost(counts: Counts) -> int:
    """Number of requests that the gateway answered with an error of its own."""
    return round(sum(number for (who, code), number in counts.items() if who == NOBODY and code[:1] == "5"))


def peers(service: Mapping[str, Any], member: str) -> frozenset[str]:
    """Other members in service that get requests at the same versions as `member`: by the policy
    `guaranteed` all, else those with the same range."""
    backends: Mapping[str, Any] = service["backends"]
    offer, guaranteed = service["offer"], service["guaranteed"]
    same = [offer[end] == guaranteed[end] for end in ("min", "max")]
    own = backends[member]
    return frozenset(
        name
        for name, each in backends.items()
        if name != member
        and not each["drained"]
        and (all(same) or (each["min"], each["max"]) == (own["min"], own["max"]))
    )


def judge(counts: Counts, member: str, others: Collection[str], limits: Limits) -> GateResult:
    """Judge a member by the requests since it was enabled."""
    if number := lost(counts):
        return GateResult(f"{number} request{'s' * (number > 1)} lost")
    (own, errors), (all_others, their_errors) = (_share(counts, each) for each in ({member}, set(others)))
    seen = f"{own:.0f} requests, {errors:.1f} % 5xx"
    if own < limits.requests or all_others < limits.requests:
        why = f"fewer than {limits.requests} requests{' of the others' * (own >= limits.requests)}"
        return GateResult(f"unknown, {why} ({seen})", passes=True)
    passes = errors <= their_errors + limits.points
    return GateResult(f"{seen}, others {their_errors:.1f} %", passes=passes)


def _share(counts: Counts, whose: Collection[str]) -> tuple[float, float]:
    """Number of requests of some members, and the percentage of them with 5xx."""
    own = [(code, number) for (who, code), number in counts.items() if who in whose]
    total = sum(number for _, number in own)
    return total, 100 * sum(number for code, number in own if code[:1] == "5") / (total or 1)
