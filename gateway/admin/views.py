"""What the admin listener shows, as plain JSON values and texts made from one snapshot.

The shape of `/status` is a public contract: scripts of other people read it. Pure: no request, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gateway.compiled import BuildInfo
from gateway.core.decision.explanation import ends
from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.agreement import AgreementReport, ReplicaReport, ServiceReport
from gateway.telemetry.discovery import SourceReport
from gateway.telemetry.engine import EngineReport
from gateway.workers.data_plane import WorkerState


def status(
    snapshot: Snapshot,
    build: BuildInfo,
    config: Mapping[str, Any],
    last_probe_at: Mapping[tuple[str, str], float],
    in_flight_by_member: Mapping[str, int],
    *,
    ejected: Mapping[str, Ejected],
    waiting_by_member: Mapping[str, int],
    workers: Iterable[WorkerState] = (),
    sources: Iterable[SourceReport] = (),
    wall_offset: float = 0.0,
    agreement: AgreementReport | None = None,
    engine: EngineReport | None = None,
) -> dict[str, Any]:
    """The document of `GET /status`. `last_probe_at`: wall-clock seconds by (service, backend). By member
    key: requests in flight, who is ejected, and requests in queues. `workers` serve the requests.
    `wall_offset`: seconds since 1970, less those of the clock that dates facts. `agreement`: of one of
    several replicas. `engine`: of the one beside this gateway."""
    reports: dict[str, dict[str, Any]] = {}
    for each in sources:
        reports.setdefault(each.service, {})[each.source] = _source(each)

    def backend(member: Member, scheme: Scheme) -> dict[str, Any]:
        key = member.key
        return {
            **_backend(member, scheme, last_probe_at.get((member.service, member.backend.name))),
            "in_flight": in_flight_by_member.get(key, 0),
            **({"ejected": ejected[key]._asdict()} if key in ejected else {}),
            **({"unhealthy": member.unhealthy} if member.unhealthy is not None else {}),
            **({"backup": True} if member.backend.backup else {}),
            **({"source": member.backend.source} if member.backend.source else {}),
            **(
                {"leaving": {"until": member.backend.leaves_at + wall_offset}}
                if member.backend.leaves_at is not None
                else {}
            ),
            **({"queued": waiting_by_member.get(key, 0)} if member.bound else {}),
        }

    return {
        "generation": snapshot.generation,
        "build": build._asdict(),
        "config": dict(config),
        "workers": [_worker(each) for each in workers],
        "agreement": None if agreement is None else _agreement(agreement),
        "engine": None if engine is None else _engine(engine),
        "services": {
            name: {
                **_service(view, () if agreement is None else agreement.holding(name)),
                **_agreement_about(name, agreement),
                "backends": {
                    member.backend.name: backend(member, view.service.dialect.scheme)
                    for member in view.pool.members
                },
                **({"sources": reports[name]} if name in reports else {}),
            }
            for name, view in snapshot.views.items()
        },
    }


def _worker(state: WorkerState) -> dict[str, Any]:
    """Without a process while another one is about to be started."""
    return {
        "slot": state.slot,
        "pid": state.pid or None,
        "state": state.state,
        "connections": state.connections,
        "restarts": state.restarts,
    }


def _agreement(report: AgreementReport) -> dict[str, Any]:
    return {
        "id": report.id,
        "attached": report.attached,
        "since": report.since,
        "answers_for": report.answers_for,
        "error": report.store_error or None,
        "replicas": [_replica(each) for each in report.replicas],
    }


def _engine(report: EngineReport) -> dict[str, Any]:
    """`services`: what goes past the gateway, or why nothing does."""
    return {
        "name": report.name,
        "release": report.release or None,
        "pid": report.pid,
        "problem": report.problem or None,
        "draining": report.draining,
        "missing_pools": list(report.missing),
        "services": {
            **{name: {"rows": rows} for name, rows in report.rows.items()},
            **{name: {"rows": 0, "reason": reason} for name, reason in report.inexpressible.items()},
        },
    }


def _replica(replica: ReplicaReport) -> dict[str, Any]:
    return {**replica._asdict(), "holds": list(replica.holds), "differs": list(replica.differs)}


def _agreement_about(service: str, report: AgreementReport | None) -> dict[str, Any]:
    """What this replica knows about the others of one service; nothing where it stands alone."""
    about = None if report is None else report.services.get(service)
    if report is None or about is None:
        return {}

    def names(ids: Iterable[str]) -> list[str]:
        return [report.name_of(each) for each in ids]

    found = {
        "attached": about.attached,
        "since": about.since,
        "seq": about.seq,
        "answers_for": about.answers_for,
        "awaited": names(about.awaited),
        "away": names(about.away),
        "problem": about.problem or None,
        "drains": {name: {"idle": not busy, "busy": names(busy)} for name, busy in _drains(about).items()},
    }
    return {"agreement": found}


def _drains(about: ServiceReport) -> dict[str, tuple[str, ...]]:
    """By drained backend who still has requests in flight to it. A detached replica knows nothing of that."""
    if not about.attached:
        return {}
    return dict(sorted({**dict.fromkeys(about.idle, ()), **about.not_idle}.items()))


def _service(view: ServiceView, held_by_replicas: Iterable[str]) -> dict[str, Any]:
    offer, scheme = view.offer, view.service.dialect.scheme
    return {
        "dialect": view.service.dialect.name,
        "phase": offer.phase.value,
        "pin": scheme.format(view.pool.pin) if view.pool.pin is not None else None,
        "offer": {
            **_range(offer.versions, scheme),
            "policy": offer.policy.value,
            "ceiling": scheme.format(offer.ceiling) if offer.ceiling is not None else None,
            "held_by": list(offer.held_by),
            "held_rule": offer.held_rule.value if offer.held_rule is not None else None,
            "held_by_replicas": list(held_by_replicas),
        },
        "guaranteed": _range(offer.guaranteed, scheme),
        "reachable": _range(offer.reachable, scheme),
    }


def _backend(member: Member, scheme: Scheme, last_probe_at: float | None) -> dict[str, Any]:
    return {
        "url": member.backend.url,
        "freshness": member.freshness.value,
        "drained": member.drained,
        "legacy": member.legacy,
        **_range(member.advertisement.versions if member.advertisement is not None else NO_VERSIONS, scheme),
        "last_probe_at": last_probe_at,
        "error": member.error,
    }


def _source(report: SourceReport) -> dict[str, Any]:
    return {
        "listed": report.listed,
        "unlisted": report.unlisted,
        "leaving": report.leaving,
        "answered_at": report.answered_at,
        "error": report.error,
    }


def _range(versions: VersionSet, scheme: Scheme) -> dict[str, str | None]:
    lowest, highest = ends(versions, scheme)
    return {"min": lowest, "max": highest}


class Ejected(NamedTuple):
    """That a backend is ejected."""

    until: float
    """Wall-clock seconds."""
    reason: str
    """One sentence."""


class Condition(NamedTuple):
    """One condition of readiness."""

    name: str
    holds: bool
    reason: str
    """Why it does not hold, for people."""
    is_needed: bool = True
    """Else a gateway of which it does not hold is ready nevertheless."""


def conditions(
    snapshot: Snapshot, *, not_serving: str, agreement: AgreementReport | None = None
) -> tuple[Condition, ...]:
    """All conditions of `/readyz`. One service that can be served is enough: requests for the others get
    their own errors. `not_serving`, `agreement`: as in `AdminContext`."""
    serving = any(_serves(view) for view in snapshot.views.values())
    return (
        Condition("configuration", bool(snapshot.views), "no service is configured"),
        Condition("lifecycle", not not_serving, not_serving),
        Condition("offer", serving, _why_nothing_is_served(snapshot)),
        *(() if agreement is None else (_joined(agreement), _attached(agreement))),
    )


def _joined(report: AgreementReport) -> Condition:
    """Whether this replica has joined: until then the others may serve by an offer that it does not know."""
    return Condition("joined", not report.joining, "this replica has not joined the others since its start")


def _attached(report: AgreementReport) -> Condition:
    """A replica that is cut off from the others serves what it held, and refuses no version."""
    detached = [name for name, each in report.services.items() if not each.attached]
    reason = f"this replica is detached for {', '.join(detached)}"
    if report.store_error:
        reason += f", since the store does not answer: {report.store_error}"
    reason += "".join(f"; {each.problem}" for each in report.services.values() if each.problem)
    if report.answers_for is not None:
        reason += f"; it answers for {report.answers_for:.0f} s more"
    return Condition("agreement", report.attached, reason, is_needed=False)


def _why_nothing_is_served(snapshot: Snapshot) -> str:
    """Why no service can be served."""
    unknown = ", ".join(name for name, view in snapshot.views.items() if not _known(view))
    empty = ", ".join(name for name, view in snapshot.views.items() if _known(view) and not _serves(view))
    reasons = [
        *([f"no backend of {unknown} has reported its versions yet"] if unknown else ()),
        *([f"no version can be offered for {empty}"] if empty else ()),
    ]
    return ", ".join(reasons) or "no service is configured"


def _known(view: ServiceView) -> bool:
    return any(member.advertisement is not None for member in view.pool.members)


def _serves(view: ServiceView) -> bool:
    return _known(view) and (bool(view.offer.versions) or view.offer.transparent)
