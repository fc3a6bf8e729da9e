"""The series of what the gateway depends on or shares with others: names and sources of backends, replicas,
an engine beside it.

Label values come from the configuration: services, sources as they are written, and names of hosts. No name
that a source lists is one, but for those of backends, which are bounded by `core.fleet.source`. No label is a
replica's name either: ids come and go without bound.
"""

from __future__ import annotations

from math import inf

from gateway.telemetry.series.declaring import OPEN, PROCESS, Group, counter, gauge


def _or_ever(seconds: float | None) -> float:
    return inf if seconds is None else seconds


class OfNames(Group, level=PROCESS, of=lambda now: list(now.names) or None):
    """Series of host names; none without a name."""

    resolver_failures = counter(
        "Lookups of the name of a backend that found no address.",
        {"host": OPEN},
        page="lookups of the name of a backend that found no address; the last addresses stay",
        read=lambda it, now: {each.host: each.failures for each in it},
    )
    resolver_last_success_timestamp_seconds = gauge(
        "When the name of a backend was found for the last time; 0: never.",
        {"host": OPEN},
        page="when its addresses were found for the last time; 0: never",
        read=lambda it, now: {each.host: each.found_at or 0.0 for each in it},
    )


class OfSources(Group, level=PROCESS, of=lambda now: list(now.sources) or None):
    """Series of sources of backends; none without a source."""

    discovery_backends = gauge(
        "Backends of a source, by state; `unlisted`: no longer listed, and not leaving yet.",
        {"service": OPEN, "source": OPEN, "state": ("listed", "unlisted", "leaving")},
        page=(
            "backends of a source (`dns`, `srv`, `file`): those that it lists, those that it lists no "
            "more and that stay for the moment (at most half may leave at once), and those that are "
            "leaving"
        ),
        read=lambda it, now: {
            (each.service, each.source, state): getattr(each, state)
            for each in it
            for state in ("listed", "unlisted", "leaving")
        },
    )
    discovery_looks = counter(
        "Looks at a source, by result.",
        {"service": OPEN, "source": OPEN, "result": ("success", "failure")},
        page="how often it was looked at",
        read=lambda it, now: {
            (each.service, each.source, result): number
            for each in it
            for result, number in (("success", each.answers), ("failure", each.failures))
        },
    )
    discovery_last_success_timestamp_seconds = gauge(
        "When a source has given a list for the last time; 0: never.",
        {"service": OPEN, "source": OPEN},
        page="when it gave a list for the last time; 0: never",
        read=lambda it, now: {(each.service, each.source): each.answered_at or 0.0 for each in it},
    )


class OfReplicas(Group, level=PROCESS, of=lambda now: now.agreement):
    """Series of replicas; none where this gateway stands alone."""

    agreement_store_up = gauge(
        "1 if the store answers.",
        page="1 if the store answers. This and the next eight only where `agreement` is configured",
        read=lambda it, now: not it.store_error,
    )
    agreement_replicas = gauge(
        "Registered replicas, as this one sees them.",
        {"state": ("attached", "detached")},
        read=lambda it, now: {
            "attached": sum(each.attached for each in it.replicas),
            "detached": sum(not each.attached for each in it.replicas),
        },
    )
    agreement_attached = gauge(
        "1 if this replica is attached; 0: it refuses no version.",
        {"service": OPEN},
        page="1 if this replica is attached; 0: it answers 503 where it would refuse a version",
        read=lambda it, now: {name: each.attached for name, each in it.services.items()},
    )
    agreement_answers_for_seconds = gauge(
        "Seconds for which a detached replica goes on answering; +Inf: it is attached, or has no such end.",
        {"service": OPEN},
        page=(
            "for how long a detached replica goes on answering (`agreement.forget`); `+Inf`: it is "
            "attached, or there is no end"
        ),
        read=lambda it, now: {name: _or_ever(each.answers_for) for name, each in it.services.items()},
    )
    agreement_forget_seconds = gauge(
        "For how long a replica goes on answering when it is detached (agreement.forget); +Inf: for ever.",
        page="`agreement.forget` of this replica; `+Inf`: `never`",
        read=lambda it, now: _or_ever(it.forget),
    )
    agreement_document_seq = gauge(
        "The number of the document that this replica holds; 0: none.",
        {"service": OPEN},
        read=lambda it, now: {name: each.seq for name, each in it.services.items()},
    )
    agreement_unreadable = gauge(
        "1 if this replica cannot attach because of what the store holds.",
        {"service": OPEN},
        read=lambda it, now: {name: bool(each.problem) for name, each in it.services.items()},
    )
    agreement_holding_replicas = gauge(
        "Replicas that hold the next step back.",
        {"service": OPEN},
        page="replicas that hold the next step back; `skewgate status` names them",
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
    """Series of an engine; none where there is none."""

    engine_up = gauge(
        "Whether the engine follows.",
        {"engine": OPEN},
        page=(
            "1 if the engine beside the gateway follows it. This and the next four only under `skewgate "
            "engine`"
        ),
        read=lambda it, now: {it.name: not it.problem},
    )
    engine_rows = gauge(
        "Ways of asking that go past the gateway.",
        {"engine": OPEN, "service": OPEN},
        read=lambda it, now: {(it.name, service): number for service, number in it.rows.items()},
    )
    engine_draining = gauge(
        "Earlier processes that may still serve.",
        {"engine": OPEN},
        page="earlier processes of it that may still serve",
        read=lambda it, now: {it.name: it.draining},
    )
    engine_missing_pools = gauge(
        "Pools that its configuration lacks.",
        {"engine": OPEN},
        page="pools that its configuration lacks: write it anew and reload it",
        read=lambda it, now: {it.name: len(it.missing)},
    )
    engine_updates = counter(
        "Tables sent to the engine.",
        {"engine": OPEN, "result": ("failure", "success")},
        page="tables that were sent to it",
        read=lambda it, now: {(it.name, "failure"): it.failures, (it.name, "success"): it.updates},
    )
