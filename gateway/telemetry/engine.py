"""What is told about an engine beside the gateway: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final


@final
class EngineReport(NamedTuple):
    """How an engine stands to the gateway at this moment."""

    name: str
    """`haproxy`."""
    release: str
    """Its own version; empty: it has not answered yet."""
    pid: int | None
    """Of the process that answered last; None: none has."""
    problem: str
    """Why it does not follow, one sentence; empty: it does."""
    rows: Mapping[str, int]
    """By service: ways of asking that go past the gateway."""
    held: Mapping[str, int]
    """By service: the lowest seq of its document by which a process of the engine may serve."""
    draining: int
    """Earlier processes that may still serve."""
    missing: tuple[str, ...]
    """Pools that the engine's configuration lacks."""
    inexpressible: Mapping[str, str]
    """By service: why all of its requests go through the gateway."""
    updates: int
    """Tables that were put in force."""
    failures: int
    """Attempts that failed."""
    in_flight: Mapping[str, int] = {}
    """By key of each drained member: requests that processes of the engine may have there; one at least
    where that is not known."""


def with_engine(in_flight: Mapping[str, int], report: EngineReport | None) -> Mapping[str, int]:
    """Requests in flight by member key: those of the gateway, and what the engine beside it may have."""
    if report is None or not report.in_flight:
        return in_flight
    return {**in_flight, **{key: in_flight.get(key, 0) + more for key, more in report.in_flight.items()}}
