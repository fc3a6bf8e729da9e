"""How what one process has counted comes into the counters of another one: as differences, each counted once.

    worker   Counters -> take -> Counted -> channel -> add -> Counters   parent -> /metrics

A worker gives away what it has counted since the last time, and begins at zero. So the parent holds the sums
of all workers, those that have ended included, and none of its series falls because a worker ends, is
replaced, or has missed that a service was removed and came back. What a killed worker has counted since its
last report is lost with it. Only what has happened is carried: what is zero is not there.

Gauges are no part of it (a report has those), and neither is what only the parent counts: reloads, errors of
the admin listener, moves of offers. Which series there are is the parent's to say: it knows each service and
each backend before any worker does. What comes of one that is not configured any more counts as a request
does that was under way when it was removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, TypeVar, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.ejection import EjectionReason
from gateway.telemetry.counters import (
    MAX_CLIENT_ERROR_REASONS,
    MAX_VERSIONS,
    OTHER,
    BackendCounters,
    Counters,
    Histogram,
    ServiceCounters,
    TunnelCounters,
    TunnelEnding,
)

Durations: TypeAlias = tuple[tuple[int, ...], float]
"""Counts by bucket, and the sum of the values; both empty if nothing was counted."""

NOTHING: Durations = ((), 0.0)


@final
class BackendCounted(NamedTuple):
    """What was counted for one backend. The fields are those of `BackendCounters`."""

    durations: Durations
    probes: Durations
    probe_failures: Mapping[str, int]
    version_mismatches: int
    deferred: int
    ejections: Mapping[EjectionReason, int]
    queue_refused: Mapping[str, int]
    out_of_step: Mapping[str, int]


@final
class TunnelsCounted(NamedTuple):
    """What was counted of upgrades. The fields are those of `TunnelCounters`."""

    forwarded: int
    removed: int
    ended: Mapping[TunnelEnding, int]
    bytes_in: int
    bytes_out: int


@final
class ServiceCounted(NamedTuple):
    """What was counted for one service. The fields are those of `ServiceCounters`."""

    requests: Mapping[tuple[str, int], int]
    durations: Durations
    bytes_in: int
    bytes_out: int
    negotiations: Mapping[tuple[RequestedKind, NegotiationResult], int]
    served: Mapping[str, int]
    backends: Mapping[str, BackendCounted]
    retries: Mapping[str, int]
    retries_given_up: int
    refused: Mapping[str, int]
    tunnels: TunnelsCounted | None


@final
class Counted(NamedTuple):
    """What one process has counted since it was asked last."""

    services: Mapping[str, ServiceCounted]
    unrouted: ServiceCounted | None
    unconfigured: ServiceCounted | None
    client_errors: Mapping[str, int]
    handshakes: Mapping[str, int]
    certificate_reloads: Mapping[str, int]
    lags: Mapping[str, Durations]


# --- in the worker -----------------------------------------------------------------------------------------


def take(counters: Counters) -> Counted:
    """What was counted since the last call. From here on that is not in `counters` any more. Costs 1 µs for
    each backend that there is, and a few more for each that was asked."""
    services = ((name, _take_service(each)) for name, each in counters.services.items())
    return Counted(
        {name: counted for name, counted in services if counted is not None},
        _take_service(counters.unrouted),
        _take_service(counters.unconfigured),
        _take(counters.client_errors),
        _take(counters.handshakes),
        _take(counters.certificate_reloads),
        {name: durations for name, each in counters.lags.items() if (durations := _take_durations(each))[0]},
    )


def _take_service(counters: ServiceCounters) -> ServiceCounted | None:
    """None: nothing was counted."""
    backends = ((name, _take_backend(each)) for name, each in counters.backends.items())
    counted = ServiceCounted(
        requests=_take(counters.requests),
        durations=_take_durations(counters.durations),
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
        negotiations=_take(counters.negotiations),
        served=_take(counters.served),
        backends={name: counted for name, counted in backends if counted is not None},
        retries=_take(counters.retries),
        retries_given_up=counters.retries_given_up,
        refused=_take(counters.refused),
        tunnels=_take_tunnels(counters.tunnels),
    )
    counters.bytes_in = counters.bytes_out = counters.retries_given_up = 0
    return counted if counted != _NO_SERVICE else None


def _take_backend(counters: BackendCounters) -> BackendCounted | None:
    """None: nothing was counted, which is so for most of them most of the time."""
    if not (
        any(counters.durations.counts)
        or any(counters.probes.counts)
        or counters.version_mismatches
        or counters.deferred
        or any(counters.queue_refused.values())
        or any(counters.out_of_step.values())
        or any(counters.ejections.values())
        or any(counters.probe_failures.values())
    ):
        return None
    counted = BackendCounted(
        durations=_take_durations(counters.durations),
        probes=_take_durations(counters.probes),
        probe_failures=_take(counters.probe_failures),
        version_mismatches=counters.version_mismatches,
        deferred=counters.deferred,
        ejections=_take(counters.ejections),
        queue_refused=_take(counters.queue_refused),
        out_of_step=_take(counters.out_of_step),
    )
    counters.version_mismatches = counters.deferred = 0
    return counted


def _take_tunnels(counters: TunnelCounters) -> TunnelsCounted | None:
    """`open` stays: it is a gauge."""
    counted = TunnelsCounted(
        counters.forwarded, counters.removed, _take(counters.ended), counters.bytes_in, counters.bytes_out
    )
    counters.forwarded = counters.removed = counters.bytes_in = counters.bytes_out = 0
    return counted if any(counted) else None


_Key = TypeVar("_Key")


def _take(counts: dict[_Key, int]) -> dict[_Key, int]:
    taken = {key: count for key, count in counts.items() if count}
    for key in taken:
        counts[key] = 0
    return taken


def _take_durations(histogram: Histogram) -> Durations:
    if not any(histogram.counts):
        return NOTHING
    taken = (tuple(histogram.counts), histogram.total)
    histogram.counts[:] = [0] * len(histogram.counts)
    histogram.total = 0.0
    return taken


_NO_SERVICE = ServiceCounted({}, NOTHING, 0, 0, {}, {}, {}, {}, 0, {}, None)


# --- in the parent -----------------------------------------------------------------------------------------


def add(counters: Counters, counted: Counted) -> None:
    """Count what another process has counted. Costs what that is."""
    for name, service in counted.services.items():
        _add_service(counters.services.get(name, counters.unconfigured), service)
    if counted.unrouted is not None:
        _add_service(counters.unrouted, counted.unrouted)
    if counted.unconfigured is not None:
        _add_service(counters.unconfigured, counted.unconfigured)
    _add(counters.client_errors, counted.client_errors, MAX_CLIENT_ERROR_REASONS)
    _add(counters.handshakes, counted.handshakes, 0)
    _add(counters.certificate_reloads, counted.certificate_reloads, 0)
    for name, durations in counted.lags.items():
        _add_durations(counters.lags.setdefault(name, Histogram()), durations)


def _add_service(counters: ServiceCounters, counted: ServiceCounted) -> None:
    for (backend, status), count in counted.requests.items():
        counters.count_request(backend, status, count)
    _add_durations(counters.durations, counted.durations)
    counters.bytes_in += counted.bytes_in
    counters.bytes_out += counted.bytes_out
    for result, count in counted.negotiations.items():
        counters.negotiations[result] += count
    _add(counters.served, counted.served, MAX_VERSIONS)
    for name, backend_counted in counted.backends.items():
        if (backend_counters := counters.backends.get(name)) is not None:
            _add_backend(backend_counters, backend_counted)
    _add(counters.retries, counted.retries, 0)
    counters.retries_given_up += counted.retries_given_up
    for reason, count in counted.refused.items():
        counters.refused[reason] += count
    if counted.tunnels is not None:
        _add_tunnels(counters.tunnels, counted.tunnels)


def _add_backend(counters: BackendCounters, counted: BackendCounted) -> None:
    _add_durations(counters.durations, counted.durations)
    _add_durations(counters.probes, counted.probes)
    _add(counters.probe_failures, counted.probe_failures, 0)
    counters.version_mismatches += counted.version_mismatches
    counters.deferred += counted.deferred
    for reason, count in counted.ejections.items():
        counters.ejections[reason] += count
    for refusal, count in counted.queue_refused.items():
        counters.queue_refused[refusal] += count
    for how, count in counted.out_of_step.items():
        counters.out_of_step[how] += count


def _add_tunnels(counters: TunnelCounters, counted: TunnelsCounted) -> None:
    counters.forwarded += counted.forwarded
    counters.removed += counted.removed
    for ending, count in counted.ended.items():
        counters.ended[ending] += count
    counters.bytes_in += counted.bytes_in
    counters.bytes_out += counted.bytes_out


def _add(counts: dict[str, int], more: Mapping[str, int], bound: int) -> None:
    """Keys that are new get a place while there are fewer than `bound`; else they are `OTHER`."""
    for key, count in more.items():
        label = key if key in counts or len(counts) < bound else OTHER
        counts[label] = counts.get(label, 0) + count


def _add_durations(histogram: Histogram, durations: Durations) -> None:
    counts, total = durations
    for index, count in enumerate(counts):
        histogram.counts[index] += count
    histogram.total += total
