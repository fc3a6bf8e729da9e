"""What one replica sees of a service: the answer to an operator's question for fresh probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, final

from gateway.core.versions.ranges import VersionSet

ANSWERED_FOR: Final = 3600.0
"""Seconds for which a replica answers the last question about a service, with each of its beats."""


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


class Sights(Protocol):
    """What probes the backends for other replicas: `FreshFacts`."""

    def probe(self, service: str) -> float:
        """Probe a service for another replica. Returns the time for `sight`."""

    def sight(self, service: str, since: float) -> Sight:
        """What this replica sees of a service by probes that were sent at `since` or later."""

    def idle(self, service: str) -> frozenset[str]:
        """Names of drained backends to which this replica has no request in flight, and sends none."""
