"""The metric series of what the gateway depends on or shares with others: names and sources of backends,
replicas, an engine beside it.

Label values come from the configuration: services, sources as they are written, and host names. Of the names
that a source lists only those of backends become labels, which `core.fleet.source` bounds. No label names a
replica: ids come and go without bound.
"""

from __future__ import annotations

from math import inf

from gateway.telemetry.series.declaring import OPEN, PROCESS, Group, counter, gauge


def _or_ever(seconds: float | None) -> float:
    return inf if seconds is None else seconds


class OfNames(Group, level=PROCESS, of=lambda now: list(now.names) or None):
    """Metric series of the host names of backends; left out if no backend has one."""

    resolver_failures = counter(
        "Lookups of the name of a backend that found no address; the last addresses stay.",
        {"host": OPEN},
        read=lambda it, now: {each.host: each.failures for each in it},
    )
    resolver_last_success_timestamp_seconds = gauge(
        "Time of the last lookup that found addresses for the name of a backend; 0: never.",
        {"host": OPEN},
        read=lambda it, now: {each.host: each.found_at or 0.0 for each in it},
    )


class OfSources(Group, level=PROCESS, of=lambda now: list(now.sources) or None):
    """Metric series of sources of backends; left out if there is no source."""

    discovery_backends = gauge(
        "Backends of a source (`dns`, `srv`, `file`) by state; `unlisted`: no longer listed, and kept for "
        "now because at most half may leave at once.",
        {"service": OPEN, "source": OPEN, "state": ("listed", "unlisted", "leaving")},
        read=lambda it, now: {
            (each.service, each.source, state): getattr(each, state)
            for each in it
            for state in ("listed", "unlisted", "leaving")
        },
    )
    discovery_looks = counter(
        "Queries to a source by result.",
        {"service": OPEN, "source": OPEN, "result": ("success", "failure")},
        read=lambda it, now: {
            (each.service, each.source, result): number
            for each in it
            for result, number in (("success", each.answers), ("failure", each.failures))
        },
    )
    discovery_last_success_timestamp_seconds = gauge(
        "Time of the last list that a source gave; 0: never.",
        {"service": OPEN, "source": OPEN},
        read=lambda it, now: {(each.service, each.source): each.answered_at or 0.0 for each in it},
    )


class OfReplicas(Group, level=PROCESS, of=lambda now: now.agreement):
    """Metric series of replicas; left out unless `agreement` is configured."""

    agreement_store_up = gauge(
        "1 if the store answers. Series of the agreement exist only where `agreement` is configured.",
        read=lambda it, now: not it.store_error,
    )
    agreement_replicas = gauge(
        "Registered replicas by state, as this one sees them.",
        {"state": ("attached", "detached")},
        read=lambda it, now: {
            "attached": sum(each.attached for each in it.replicas),
            "detached": sum(not each.attached for each in it.replicas),
        },
    )
    agreement_attached = gauge(
        "1 if this replica is attached; 0: it answers 503 where it would refuse a version.",
        {"service": OPEN},
        read=lambda it, now: {name: each.attached for name, each in it.services.items()},
    )
    agreement_answers_for_seconds = gauge(
        "Seconds for which this detached replica still answers (`agreement.forget`); +Inf: it is attached, "
        "or has no such end.",
        {"service": OPEN},
        read=lambda it, now: {name: _or_ever(each.answers_for) for name, each in it.services.items()},
    )
    agreement_forget_seconds = gauge(
        "Value of `agreement.forget`; +Inf: `never`.",
        read=lambda it, now: _or_ever(it.forget),
    )
    agreement_document_seq = gauge(
        "Number of the agreed record that this replica holds; 0: none.",
        {"service": OPEN},
        read=lambda it, now: {name: each.seq for name, each in it.services.items()},
    )
    agreement_unreadable = gauge(
        "1 if this replica cannot attach because of what the store holds.",
        {"service": OPEN},
        read=lambda it, now: {name: bool(each.problem) for name, each in it.services.items()},
    )
    agreement_holding_replicas = gauge(
        "Replicas that hold the next step back; `skewgate status` names them.",
        {"service": OPEN},
        read=lambda it, now: {name: sum(name in each.holds for each in it.replicas) for name in it.services},
    )
    agreement_differing_replicas = gauge(
        "Replicas whose configuration differs from that of this one in what clients can notice.",
        {"service": OPEN},
        read=lambda it, now: {
            name: sum(name in each.differs for each in it.replicas) for name in it.services
        },
    )


class OfEngine(Group, level=PROCESS, of=lambda now: now.engine):
    """Metric series of an engine; left out except under `skewgate engine`."""

    engine_up = gauge(
        "1 if the engine has the present tables. Series of an engine exist only under `skewgate engine`.",
        {"engine": OPEN},
        read=lambda it, now: {it.name: not it.problem},
    )
    engine_rows = gauge(
        "Rows of the engine's table; each is one kind of request that bypasses the gateway.",
        {"engine": OPEN, "service": OPEN},
        read=lambda it, now: {(it.name, service): number for service, number in it.rows.items()},
    )
    engine_draining = gauge(
        "Earlier processes of the engine that may still serve.",
        {"engine": OPEN},
        read=lambda it, now: {it.name: it.draining},
    )
    engine_missing_pools = gauge(
        "Pools missing from the engine's configuration: write it again and reload the engine.",
        {"engine": OPEN},
        read=lambda it, now: {it.name: len(it.missing)},
    )
    engine_updates = counter(
        "Tables sent to the engine by result.",
        {"engine": OPEN, "result": ("failure", "success")},
        read=lambda it, now: {(it.name, "failure"): it.failures, (it.name, "success"): it.updates},
    )
