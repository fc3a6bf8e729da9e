"""The report of a worker: all gauges that workers have, as one value, and the rule that adds any two.

    dataplane.worker  ->  WorkerReport  ->  plus  ->  WorkerReport of all  ->  /metrics, /status, explain

A new gauge is one field here, filled where the worker makes its report. Adding, carrying it from one process
to another and forgetting it when a worker ends follow from the field. Counts are no part of it: they are told
once (`telemetry.counters`), a report is told anew each time. Values only: nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, final


@final
class WorkerUse(NamedTuple):
    """Resources that one worker uses, beside its limits."""

    clients: int
    """Client connections, those before HTTP included."""
    max_clients: int
    handshakes: int
    """TLS handshakes that are under way."""
    max_handshakes: int
    held_body_bytes: int
    """Bytes of request bodies that are held in memory."""
    max_held_body_bytes: int
    shedding_level: int = 0
    """Level of load shedding because the event loop is late (`dataplane.limits.shedding`)."""


@final
class WorkerStats(NamedTuple):
    """A worker that is a process of its own, under its number: if one ends, the next one has it. The process
    fills in its statistics, its main process the rest."""

    up: int = 0
    """1: it serves clients."""
    restarts: int = 0
    """How often another process took its place, because it had ended."""
    cpu_seconds: float = 0.0
    """User and system time, including that of its predecessors."""
    resident_bytes: int | None = None
    open_fds: int | None = None
    cut_requests: int = 0
    """Requests under way in predecessors that ended without being told to, by their last reports."""
    cut_tunnels: int = 0
    """Tunnels open in such predecessors, likewise."""


@final
@dataclass(frozen=True, slots=True)
class Ejected:
    """The ejection of a member, for people. It cannot be added: one worker alone, or the main process of
    several, decides about a member."""

    reason: str
    """One sentence."""
    seconds: float
    """Seconds that are left."""


@final
class WorkerReport(NamedTuple):
    """Gauges of one worker, or of several together, at one moment. Nothing of it changes any more."""

    in_flight_by_member: Mapping[str, int] = {}
    """Requests in flight by member key."""
    in_flight_by_service: Mapping[str, int] = {}
    waiting_by_member: Mapping[str, int] = {}
    """Requests in queues, by member key."""
    connections: Mapping[tuple[str, str], tuple[int, int]] = {}
    """(idle, active) connections to backends, by service and backend."""
    tunnels_open: Mapping[str, int] = {}
    """Open tunnels by service, of services that have some."""
    ejected: Mapping[str, Ejected] = {}
    """Ejections by member key. Empty in a worker process: its main process decides."""
    use: Mapping[str, WorkerUse] = {}
    """Use of limits by worker. No two reports that are added name the same worker: limits have no sum."""
    processes: Mapping[str, WorkerStats] = {}
    """Processes by worker; none where the only worker is in the process of the gateway."""
    access_log_dropped: int = 0
    """Lines of access logs that could not be written."""
    process_log_dropped: int = 0
    """Lines of process logs that could not be written."""

    def lasting(self) -> WorkerReport:
        """The part that outlives the worker: whatever only rises."""
        return WorkerReport(
            processes={
                name: WorkerStats(cpu_seconds=each.cpu_seconds) for name, each in self.processes.items()
            },
            access_log_dropped=self.access_log_dropped,
            process_log_dropped=self.process_log_dropped,
        )


_Value = TypeVar("_Value")


def plus(one: _Value, other: _Value) -> _Value:
    """Adds two reports, or two values of one of their fields: numbers, tuples by place, mappings by key. None
    is an unknown number, and adds nothing. Raises `TypeError` for values that have no sum."""
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
