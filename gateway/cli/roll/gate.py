"""The gate of a rolling upgrade: what finished requests say about a member that was upgraded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

from gateway.runtime.terminal import counted

Evidence: TypeAlias = Mapping[str, Mapping[str, Any] | None]
"""What the process of each replica has counted since its start (`evidence` in an answer to `wait`); None: it
has not told yet."""


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


@final
class Counts(NamedTuple):
    """Requests of all replicas in some time."""

    lost: int
    by_version: Mapping[str, Sequence[int]]
    """Requests and 5xx of the member, then of the other members, by served version."""


def since(before: Evidence, after: Evidence) -> Counts:
    """Requests between two readings. A process that has started meanwhile has counted from 0; one that was
    away has counted before, too, so what it tells is left out."""
    lost, by_version = 0, dict[str, list[int]]()
    for process, found in after.items():
        earlier = before.get(process, {"member": found and found["member"], "lost": 0, "by_version": {}})
        if earlier is None or found is None:
            continue
        lost += found["lost"] - earlier["lost"]
        if earlier["member"] != found["member"]:
            continue  # its replica was away, and has told only of another member before
        for version, numbers in found["by_version"].items():
            less = earlier["by_version"].get(version, [0] * 4)
            total = by_version.get(version, [0] * 4)
            # The counts of a backend that was removed meanwhile are gone, and may not be taken off.
            by_version[version] = [a + max(0, b - c) for a, b, c in zip(total, numbers, less, strict=True)]
    return Counts(lost, by_version)


def judge(counts: Counts, limits: Limits) -> GateResult:
    """Judge a member by the requests since it was enabled."""
    if lost := counts.lost:
        return GateResult(f"{counted(lost, 'request')} lost")
    rows = counts.by_version.values()
    compared = [row for row in rows if row[0] > 0 and row[2] > 0]
    requests, failed = (sum(row[place] for row in rows) for place in (0, 1))
    if min(sum(row[place] for row in compared) for place in (0, 2)) < limits.requests:
        whose = " of the others at the same versions" * (requests >= limits.requests)
        seen = f"{counted(requests, 'request')}, {100 * failed / (requests or 1):.1f} % 5xx"
        return GateResult(f"unknown, fewer than {limits.requests} requests{whose} ({seen})", passes=True)
    own, others = (_percentage(compared, place) for place in (0, 2))
    text = f"{requests} requests, {own:.1f} % 5xx, others {others:.1f} %"
    return GateResult(text, passes=own <= others + limits.points)


def _percentage(rows: Collection[Sequence[int]], place: int) -> float:
    """Percentage of 5xx of one side. A version weighs little if one side has hardly served it, as in the
    test of Mantel and Haenszel; otherwise the member would be judged by what its clients ask for."""
    weights = [row[0] * row[2] / (row[0] + row[2]) for row in rows]
    shares = (weight * row[place + 1] / row[place] for weight, row in zip(weights, rows, strict=True))
    return 100 * sum(shares) / sum(weights)
