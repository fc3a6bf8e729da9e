"""The facts about replicas, workers and an engine, and what each of them holds. Pure: a status in, values
of `model` out.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.admin.ui.facts_offer import cut
from gateway.admin.ui.model import ReplicaFacts
from gateway.telemetry.neighbours import AgreementReport, EngineReport, ReplicaReport
from gateway.telemetry.status import GatewayStatus, WorkerState


def replica_facts(status: GatewayStatus, service: str | None = None) -> tuple[ReplicaFacts, ...]:
    """All of them; none where one worker serves alone. `service`: the one of which they hold what is shown;
    None: nothing is shown."""
    agreement, workers, engine = status.agreement, status.workers, status.engine
    found: list[ReplicaFacts] = []
    if agreement is not None:
        found += [_replica(each, agreement, service) for each in agreement.replicas]
    if len(workers) > 1:
        found += [_worker(each, service) for each in workers]
    if engine is not None:
        found.append(_engine(engine, service))
    return tuple(found)


def _replica(replica: ReplicaReport, report: AgreementReport, service: str | None) -> ReplicaFacts:
    own = " (this one)" if replica.id == report.id else ""
    return ReplicaFacts(
        kind="replica",
        name=cut(f"{report.name_of(replica.id)}{own}"),
        state="attached" if replica.attached else "detached",
        level=_level(replica, report, service),
        note=cut("; ".join(_notes(replica, service))),
    )


def _level(replica: ReplicaReport, report: AgreementReport, service: str | None) -> str:
    """The document that it holds. Of another replica this one knows whether it has acknowledged its own, and
    nothing while either of them is detached."""
    about = report.services.get(service) if service is not None else None
    if about is None:
        return ""
    if replica.id != report.id and not (about.attached and replica.attached):
        return ""
    if replica.id in about.awaited:
        return f"not yet {_document(about.seq)}"
    return _document(about.seq)


def _notes(replica: ReplicaReport, service: str | None) -> Iterator[str]:
    holds = [each for each in replica.holds if service in {None, each}]
    differs = [each for each in replica.differs if service in {None, each}]
    if holds:
        yield "the next step waits for it" if service else f"the next step of {', '.join(holds)} waits for it"
    if differs:
        where = "" if service else f" for {', '.join(differs)}"
        yield f"its configuration differs{where} in what clients can notice"
    if replica.host or replica.release:
        yield " ".join(each for each in (replica.host, replica.release) if each)


def _worker(worker: WorkerState, service: str | None) -> ReplicaFacts:
    notes = [
        *([f"process {worker.pid}"] if worker.pid else []),
        "1 connection" if worker.connections == 1 else f"{worker.connections} connections",
        *([f"replaced {_times(worker.restarts)}"] if worker.restarts else []),
    ]
    view = None if worker.holds is None or service is None else worker.holds.views.get(service)
    level = ""
    if view is not None and view.agreed is not None:
        level = _document(0 if view.agreed.document is None else view.agreed.document.seq)
    return ReplicaFacts(
        kind="worker",
        name=f"worker {worker.slot}",
        state=worker.state,
        level=level,
        note=", ".join(notes),
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _engine(report: EngineReport, service: str | None) -> ReplicaFacts:
    held = report.held.get(service) if service is not None else None
    notes = [
        report.problem,
        "" if service is None else report.inexpressible.get(service, ""),
        f"{sum(report.rows.values())} ways of asking go past the gateway",
    ]
    return ReplicaFacts(
        kind="engine",
        name=cut(" ".join(each for each in (report.name, report.release) if each)),
        state="does not follow" if report.problem else "follows",
        level="" if held is None else _document(held),
        note=cut("; ".join(note for note in notes if note)),
    )


def _document(seq: int) -> str:
    return f"document {seq}" if seq else "no document"
