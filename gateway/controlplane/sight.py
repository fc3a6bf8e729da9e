"""What one replica sees of a service: the answer to an operator's question for fresh probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, final

from gateway.core.versions.ranges import VersionSet

ANSWERED_FOR: Final = 3600.0
"""Seconds for which a replica answers the last question about a service, with each of its beats."""


@final
class Evidence(NamedTuple):
    """What one replica has counted of the requests of a service since its start, to judge one member."""

    member: str
    trouble: str
    """Why this replica sends the member nothing, or only as a last resort; empty: it does not."""
    lost: int
    """Number of requests that the replica answered with an error of its own."""
    by_version: Mapping[str, Sequence[int]]
    """Requests and 5xx of the member, then of the other members, by served version."""


@final
class Sight(NamedTuple):
    """What one replica sees of a service by probes that were sent after a certain time."""

    phase: str
    serves: Mapping[str, VersionSet]
    """Usable versions of the backends that have answered such a probe."""
    unanswered: frozenset[str]
    """Names of the backends in service that have not answered such a probe."""
    unprobed: frozenset[str]
    """Names of the backends in service of which no such probe has ended."""
    idle: frozenset[str]
    """Names of drained backends to which this replica has no request in flight."""
    evidence: Evidence | None = None
    """Requests for the gate of a member; None: the question was about none that is configured."""


class Sights(Protocol):
    """What probes the backends for other replicas: `FreshFacts`."""

    def probe(self, service: str) -> float:
        """Probe a service for another replica. Returns the time for `sight`."""

    def sight(self, service: str, since: float, judged: str) -> Sight:
        """What this replica sees of a service by probes that were sent at `since` or later, and what it has
        counted to judge the member `judged`."""

    def idle(self, service: str) -> frozenset[str]:
        """Names of drained backends to which this replica has no request in flight, and sends none."""
