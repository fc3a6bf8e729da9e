"""JSON of `/status`, made from the status of the gateway, and the conditions of `/readyz`.

The shape of `/status` is a public contract: scripts read it. Pure: no request, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from gateway.core.decision.explanation import ends, offer_limits
from gateway.core.fleet.bridge import Bridge
from gateway.core.fleet.drains import served_alone
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.version import Scheme
from gateway.telemetry.neighbours import (
    AgreementReport,
    EngineReport,
    ReplicaReport,
    ServiceReport,
    SourceReport,
)
from gateway.telemetry.status import BackendStatus, GatewayStatus, ServiceStatus, WorkerState


def status(gateway: GatewayStatus, services: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the JSON values of `GET /status`. `services`: what `service` makes, by name."""
    return {
        "generation": gateway.snapshot.generation,
        "build": gateway.build._asdict(),
        "config": asdict(gateway.config),
        "workers": [_worker(each) for each in gateway.workers],
        "agreement": None if gateway.agreement is None else _agreement(gateway.agreement),
        "engine": None if gateway.engine is None else _engine(gateway.engine),
        "services": services,
    }


def _worker(state: WorkerState) -> dict[str, Any]:
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
    """Writes the state of an engine; `services` has rows that bypass the gateway, or the reason for none."""
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


def service(service: ServiceStatus) -> dict[str, Any]:
    """Makes the JSON values of one service in `GET /status`."""
    view, scheme = service.view, service.scheme
    offer, pin, raised = view.offer, view.members.pin, view.members.raised.floor
    shown: dict[str, Any] = {
        "dialect": view.service.dialect.name,
        "phase": offer.phase.value,
        "pin": None if pin is None else scheme.format(pin),
        "raised": None if raised is None else scheme.format(raised),
        "offer": {
            **offer_limits(offer, scheme),
            "floor_suspended": offer.suspended,
            "held_by": list(offer.held.by),
            "held_rule": None if offer.held.rule is None else offer.held.rule.value,
            "held_by_replicas": list(service.held_by_replicas),
        },
        "guaranteed": ends(offer.guaranteed, scheme),
        "reachable": ends(offer.reachable, scheme),
        "served_alone": {
            name: only.format(scheme) for name, only in served_alone(view, view.members.drained).items()
        },
        "oldest_first": service.oldest_first(),
    }
    if own := view.service.paces:
        shown["offer"]["for"] = [
            _named(each, each.sentence(scheme), ceiling=scheme.format(each.ceiling)) for each in own
        ]
    if (lifecycle := view.service.lifecycle) is not None:
        shown["lifecycle"] = {"announced": lifecycle.sentence(scheme, service.gateway.now)} | {
            name: {"below": scheme.format(line.below), "date": line.day.isoformat(), "link": line.link}
            for name, line in lifecycle.lines.items()
        }
    if (skew := view.skew) is not None:
        shown["skew"] = skew._asdict()
    if view.service.bridges:
        shown["bridge"] = [_named(each, each.sentence(), match=each.match) for each in view.service.bridges]
    if service.gateway.agreement is not None and service.agreement is not None:
        shown["agreement"] = _agreement_about(service.agreement, service.gateway.agreement)
    shown["backends"] = {each.member.backend.name: _backend(each, scheme) for each in service.backends()}
    if service.sources:
        shown["sources"] = {each.source: _source(each) for each in service.sources}
    return shown


def _named(each: Pace | Bridge, sentence: str, **own: str) -> dict[str, Any]:
    """What named clients have until a day."""
    return {"clients": each.clients, **own, "until": each.until and str(each.until), "sentence": sentence}


def _agreement_about(about: ServiceReport, report: AgreementReport) -> dict[str, Any]:
    """Writes the agreement of replicas about one service, as this replica sees it."""

    def names(ids: Iterable[str]) -> list[str]:
        return [report.name_of(each) for each in ids]

    return {
        "attached": about.attached,
        "since": about.since,
        "seq": about.seq,
        "answers_for": about.answers_for,
        "awaited": names(about.awaited),
        "away": names(about.away),
        "problem": about.problem or None,
        # Only an attached replica knows them.
        "drains": {
            name: {"idle": not busy, "busy": names(busy)}
            for name, busy in about.busy.items()
            if about.attached
        },
    }


def _backend(backend: BackendStatus, scheme: Scheme) -> dict[str, Any]:
    """Writes the JSON values of one backend, without rare fields that do not apply to it."""
    member, leaves_at = backend.member, backend.leaves_at
    rare = {
        "drained_by": member.drained_by or None,
        "ejected": None if backend.ejection is None else backend.ejection._asdict(),
        "unhealthy": member.unhealthy,
        "backup": member.backend.backup or None,
        "source": member.backend.source or None,
        "leaving": None if leaves_at is None else {"until": leaves_at},
        "queued": backend.queued,
    }
    return {
        "url": member.backend.url,
        "freshness": member.freshness.value,
        "drained": member.drained,
        "legacy": member.legacy,
        **ends(backend.versions, scheme),
        "last_probe_at": backend.last_probe_at,
        "error": member.error,
        "in_flight": backend.in_flight,
        **{name: value for name, value in rare.items() if value is not None},
    }


def _source(report: SourceReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in ("listed", "unlisted", "leaving", "answered_at", "error")}


class Condition(NamedTuple):
    """Condition of the gateway's readiness (`/readyz`), and whether it holds."""

    name: str
    holds: bool
    reason: str
    """Sentence that says why the condition does not hold."""
    is_needed: bool = True
    """Whether the gateway is not ready unless the condition holds."""


def conditions(
    snapshot: Snapshot, *, not_serving: str, agreement: AgreementReport | None = None
) -> tuple[Condition, ...]:
    """Returns all conditions of `/readyz`. One service that can be served is enough: requests for the others
    get their own errors. `not_serving` and `agreement` are those of `AdminContext`."""
    serving = any(_serves(view) for view in snapshot.views.values())
    return (
        Condition("configuration", bool(snapshot.views), "no service is configured"),
        Condition("lifecycle", not not_serving, not_serving),
        Condition("offer", serving, _why_nothing_is_served(snapshot)),
        *(() if agreement is None else (_joined(agreement), _attached(agreement))),
    )


def _joined(report: AgreementReport) -> Condition:
    """Condition of readiness that this replica has joined: the others may serve an offer unknown to it."""
    return Condition("joined", not report.joining, "this replica has not joined the others since its start")


def _attached(report: AgreementReport) -> Condition:
    """Condition of `/readyz?attached` alone: this replica is attached. A detached one refuses no version."""
    detached = [name for name, each in report.services.items() if not each.attached]
    reason = f"this replica is detached for {', '.join(detached)}"
    if report.store_error:
        reason += f" because the store does not respond: {report.store_error}"
    reason += "".join(f"; {each.problem}" for each in report.services.values() if each.problem)
    if report.answers_for is not None:
        reason += f"; it stops responding in {report.answers_for:.0f} s"
    return Condition("agreement", report.attached, reason, is_needed=False)


def _why_nothing_is_served(snapshot: Snapshot) -> str:
    unknown = ", ".join(name for name, view in snapshot.views.items() if not _known(view))
    empty = ", ".join(name for name, view in snapshot.views.items() if _known(view) and not _serves(view))
    reasons = [
        *([f"no backend of {unknown} has reported its versions yet"] if unknown else ()),
        *([f"no version can be offered for {empty}"] if empty else ()),
    ]
    return ", ".join(reasons) or "no service is configured"


def _known(view: ServiceView) -> bool:
    return any(member.advertisement is not None for member in view.members.all)


def _serves(view: ServiceView) -> bool:
    return _known(view) and view.offer.is_made
