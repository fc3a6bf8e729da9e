"""Report of a worker: all gauges that workers have, as one value, and the sum of two reports.

    dataplane.worker  ->  WorkerReport  ->  plus  ->  WorkerReport of all  ->  /metrics, /status, explain

A new gauge is one field here, filled where the worker makes its report. Adding it, sending it to another
process and dropping it when a worker ends follow from the field. Counts are not part of a report: a worker
sends only new ones (`telemetry.counters`), but all gauges each time. Values only: nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, final


@final
class WorkerUse(NamedTuple):
    """Use of one worker's limits, and the limits themselves."""

    clients: int
    """Number of the worker's client connections, including those that do not speak HTTP yet."""
    max_clients: int
    handshakes: int
    max_handshakes: int
    held_body_bytes: int
    max_held_body_bytes: int
    shedding_level: int = 0
    """Level of load shedding because the event loop is late (`dataplane.limits.shedding`)."""


@final
class WorkerStats(NamedTuple):
    """Statistics of a worker, whose process may be replaced. The main process adds what it cannot know."""

    up: int = 0
    restarts: int = 0
    """Number of times that a process of this worker ended and was replaced."""
    cpu_seconds: float = 0.0
    """Seconds of user and system CPU time of the worker, including that of its predecessors."""
    resident_bytes: int | None = None
    open_fds: int | None = None
    cut_requests: int = 0
    """Number of requests in flight when the worker's predecessors died, by their last reports."""
    cut_tunnels: int = 0
    """Number of open tunnels when the worker's predecessors died, by their last reports."""


@final
@dataclass(frozen=True, slots=True)
class Ejected:
    """Ejection of a backend. It has no sum over workers: one of them, or their main process, decides."""

    reason: str
    seconds: float


@final
class WorkerReport(NamedTuple):
    """Immutable gauges of one worker, or of several together, at one moment."""

    in_flight_by_member: Mapping[str, int] = {}
    in_flight_by_service: Mapping[str, int] = {}
    waiting_by_member: Mapping[str, int] = {}
    """Number of requests in queues, by backend (member key)."""
    connections: Mapping[tuple[str, str], tuple[int, int]] = {}
    """Connections to backends as (idle, active), by service and backend."""
    tunnels_open: Mapping[str, int] = {}
    """Number of open tunnels by service; services without tunnels have no entry."""
    ejected: Mapping[str, Ejected] = {}
    """Ejections of backends by member key. Empty in a worker process: its main process decides."""
    use: Mapping[str, WorkerUse] = {}
    """Use of limits by worker. Reports that are added name different workers: limits have no sum."""
    processes: Mapping[str, WorkerStats] = {}
    """Statistics of worker processes; empty if the only worker is in the process of the gateway."""
    access_log_dropped: int = 0
    """Number of access log lines that could not be written."""
    process_log_dropped: int = 0
    """Number of process log lines that could not be written."""

    def lasting(self) -> WorkerReport:
        """Returns the part of the report that outlives the worker: values that only rise."""
        return WorkerReport(
            processes={
                name: WorkerStats(cpu_seconds=each.cpu_seconds) for name, each in self.processes.items()
            },
            access_log_dropped=self.access_log_dropped,
            process_log_dropped=self.process_log_dropped,
        )


_Value = TypeVar("_Value")


def plus(one: _Value, other: _Value) -> _Value:
    """Adds two reports or values of them: numbers, tuples by position, mappings by key; None adds nothing."""
    return _plus(one, other)  # type: ignore[no-any-return]


def _plus(one: Any, other: Any) -> Any:  # noqa: ANN401 - two of whatever a report has inside
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one + other
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, tuple):
        return getattr(one, "_make", tuple)(map(_plus, one, other))
    if isinstance(one, Mapping):
        more = {key: _plus(one[key], value) if key in one else value for key, value in other.items()}
        return {**one, **more}
    raise TypeError(f"two values of {type(one).__name__} have no sum")
