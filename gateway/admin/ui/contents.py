"""Contents of the operations page, made from one status of the gateway.

    GatewayStatus, events, last hour  ->  PageContents  ->  Overview, ServicePage (`model`)
    health, offer, backend_rows, timeline: the larger parts, pure

The rows of backends are made here, in slices, between which others run. Changes nothing and renders nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2s
from math import ceil
from time import gmtime, monotonic, strftime
from typing import Any, Final, final

from gateway.admin.commands import releases_of
from gateway.admin.context import AdminContext
from gateway.admin.ui.backend_rows import groups, worst_first
from gateway.admin.ui.health import (
    GOOD,
    UPGRADING,
    Problem,
    gateway_problems,
    health,
    service_problems,
    together,
)
from gateway.admin.ui.model import (
    BackendRow,
    Bar,
    DemandRow,
    HealthCard,
    Overview,
    RefusalRow,
    ReplicaRow,
    ServicePage,
    ServiceRow,
    UsageCard,
)
from gateway.admin.ui.offer import (
    NOTHING,
    Drawing,
    cut,
    held,
    offer_card,
    offered,
    progress,
    ranges,
    rate,
)
from gateway.admin.ui.timeline import MINUTE, event_rows
from gateway.admin.ui.traffic import Traffic, traffic
from gateway.controlplane.change_log import unserved
from gateway.controlplane.usage.reading import UsageError
from gateway.core.decision.decision import NegotiationResult
from gateway.core.fleet.backend import Freshness, MemberSummary
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer import Phase
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.usage.summary import Question, answer
from gateway.core.versions.ranges import VersionSet
from gateway.telemetry.neighbours import AgreementReport, EngineReport, ReplicaReport
from gateway.telemetry.recent import SPAN, LastHour, RequestCounts, ServiceRates
from gateway.telemetry.series.declaring import OTHER
from gateway.telemetry.status import BackendStatus, GatewayStatus, ServiceStatus, WorkerState

NOTHING_KNOWN: Final = "nothing known"

ROWS: Final = 50
"""Number of backends' rows made in one event-loop iteration: about half a millisecond."""

SERVICES: Final = 20
"""Number of services' rows made in one event-loop iteration, in about a millisecond."""

MAX_PROBLEMS_OF_A_SERVICE: Final = 3
"""Maximum problems of one service shown on the overview."""

USAGE_SECONDS: Final = 30.0
USAGE_REST: Final = 20.0
"""Minimum seconds for which an answer about usage is shown; the same as a multiple of the time it took."""

MAX_CLIENTS: Final = 100
"""Maximum rows of clients shown; the others are counted."""

MAX_VERSIONS: Final = 20
"""Maximum versions shown of those that clients got; the rest is counted together."""

RESULTS: Final = {
    NegotiationResult.BELOW_MIN: "below the offer",
    NegotiationResult.ABOVE_MAX: "above the offer",
    NegotiationResult.MALFORMED: "not a version",
    NegotiationResult.BROWNOUT: "deprecated, in a brown-out",
    NegotiationResult.UNAVAILABLE: "on offer, but no backend could serve it",
}
"""Texts for refused requests by the result of their negotiation."""

ADMISSION: Final = {
    "access": "client address not allowed",
    "client_concurrency": "too many requests of one client at a time",
    "client_rate": "too many requests of one client per second",
    "overload": "shed because the event loop was late",
}
"""Texts for requests that were not admitted, by `service.ADMISSION_REASONS`."""


@final
class PageContents:
    """Makes the contents of the operations page, anew at each call."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._answers: dict[str, tuple[float, Mapping[str, Any]]] = {}
        """Last answer about usage by service, with the monotonic time until which it is shown."""

    async def overview(self) -> Overview:
        """Makes the contents of the page of all services."""
        status, events = self._context.status(), self._context.history.latest()
        problems = list(gateway_problems(status))
        rows, of_services = [], list[tuple[str, Problem]]()
        for at, service in enumerate(status.services()):
            if at % SERVICES == SERVICES - 1:
                await asyncio.sleep(0)
            found = list(service_problems(service))
            rows.append(_row(service, found, traffic(self._context.traffic(service.name))))
            of_services += [(service.name, each) for each in found[:MAX_PROBLEMS_OF_A_SERVICE]]
        problems += together(of_services)
        return Overview(
            health=health(problems, _all_good(rows)),
            services=tuple(rows),
            replicas=replica_rows(status, rows[0].name if len(rows) == 1 else None),
            events=event_rows(events),
            minute=_minute(status.now),
        )

    async def service_page(self, name: str) -> ServicePage | None:
        """Makes the contents of the page of one service; None: it is not configured."""
        context, status = self._context, self._context.status()
        service = status.service(name)
        if service is None:
            return None
        view, scheme, hour = service.view, service.scheme, context.last_hour(name)
        problems = [*gateway_problems(status), *service_problems(service)]
        counts, events = context.metrics.request_counts().get(name), context.history.about(name)
        in_flight = service.requests
        await asyncio.sleep(0)  # a thousand different sets of versions take their time, too
        drawing = Drawing.of(view)
        await asyncio.sleep(0)
        labels = drawing.labels(view.offer.versions)
        return ServicePage(
            name=name,
            health=health(problems, _good(view)),
            offer=offer_card(service, drawing),
            releases=tuple(releases_of(view.service)),
            guaranteed=ranges(view.offer.guaranteed, scheme),
            reachable=ranges(view.offer.reachable, scheme),
            labels=labels,
            rate=rate(service.rates.requests),
            in_flight=in_flight,
            traffic=traffic(context.traffic(name)),
            demand=demand(hour),
            demand_seconds=demand_seconds(hour),
            refusals=refusals(counts, service.rates),
            usage=await self._usage(name, drawing),
            replicas=replica_rows(status, name),
            events=event_rows(events),
            minute=_minute(status.now),
            backends=worst_first(await _backend_rows(service, drawing)),
            groups=groups(view, drawing),
            commanding=context.access.identifies,
        )

    async def _usage(self, name: str, drawing: Drawing) -> UsageCard | None:
        """Makes the card of who uses which version of a service. Reads the record anew now and then."""
        if self._context.usage is None:
            return None
        until, found = self._answers.get(name, (0.0, {}))
        if until < (begun := monotonic()):
            try:
                record = await self._context.usage.read(name, None)
                found = await asyncio.to_thread(answer, record, Question(name))
            except UsageError as error:
                found = {"rows": (), "incomplete": (str(error),)}
            now = monotonic()
            self._answers[name] = (now + max(USAGE_SECONDS, USAGE_REST * (now - begun)), found)
        drawn = (map(drawing.scheme.parse, row["versions"]) for row in found["rows"][:MAX_CLIENTS])
        bars = (drawing.bars(VersionSet.only(*filter(None, versions))) for versions in drawn)
        return UsageCard(found, tuple(bars))


def _row(service: ServiceStatus, problems: list[Problem], drawn: Traffic) -> ServiceRow:
    view, offer, members = service.view, service.view.offer, service.view.members
    return ServiceRow(
        key=key_of(service.name),
        name=service.name,
        dialect=service.view.service.dialect.name,
        health=health(problems, _good(view)),
        offer=offered(offer, service.scheme),
        is_served=offer.transparent or bool(offer.versions - unserved(view)),
        phase=offer.phase.value,
        progress=progress(view),
        held=held(service),
        backends=f"{_number_fresh(members)} of {len(members.all)} fresh",
        rate=rate(service.rates.requests),
        traffic=drawn,
    )


def _minute(now: float) -> float:
    return ceil(now / MINUTE) * float(MINUTE)


def _all_good(rows: Sequence[ServiceRow]) -> HealthCard:
    """Health of all services if none has a problem."""
    number, upgrading = len(rows), sum(row.health.level == UPGRADING for row in rows)
    if upgrading:
        text = f"{upgrading} of {number} services are upgrading; all services are served"
        return HealthCard(UPGRADING, text, ())
    services = "the service is" if number == 1 else f"all {number} services are"
    return HealthCard(GOOD, f"healthy: {services} served", ())


def key_of(*parts: str) -> str:
    """Makes the id of a table row from texts that identify it: letters, digits and `-`."""
    text = "\n".join(parts)
    return f"r-{blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


async def _backend_rows(service: ServiceStatus, drawing: Drawing) -> tuple[BackendRow, ...]:
    """Makes all backends' rows in the configuration's order. Other tasks run before each slice."""
    found: list[BackendRow] = []
    served: dict[int, tuple[str, tuple[Bar, ...]]] = {}  # by the `id` of a summary, which many share
    for begin in range(0, len(service.view.members.all), ROWS):
        await asyncio.sleep(0)
        for status in service.backends(begin, begin + ROWS):
            summary = id(status.summary)
            if summary not in served:
                served[summary] = _served(status.summary, drawing)
            found.append(_backend_row(status, *served[summary]))
    return tuple(found)


def _backend_row(status: BackendStatus, serves: str, bars: tuple[Bar, ...]) -> BackendRow:
    member = status.member
    return BackendRow(
        key=key_of(member.key, member.backend.url),
        name=member.backend.name,
        url=member.backend.url,
        serves=serves,
        bars=bars,
        freshness=member.freshness.value,
        state=_state(status),
        drained=member.drained,
        note=_note(status),
        in_flight=status.in_flight,
        queued=status.queued,
        rate=rate(status.rate),
        last_probe_at=status.last_probe_at,
    )


def _served(summary: MemberSummary, drawing: Drawing) -> tuple[str, tuple[Bar, ...]]:
    if summary.advertised is None:
        return NOTHING_KNOWN, ()
    text = ranges(summary.advertised, drawing.scheme)
    if summary.legacy:
        text = "legacy" if text == NOTHING else f"{text} (legacy)"
    return text, drawing.bars(summary.advertised)


def _state(status: BackendStatus) -> str:
    """Returns the most important state of a backend."""
    member = status.member
    states = (
        ("drained", member.drained),
        ("leaving", member.backend.leaving),
        ("ejected", status.ejection is not None),
        ("unhealthy", member.unhealthy is not None),
        ("backup", member.backend.backup),
    )
    return next((word for word, holds in states if holds), "in service")


def _note(status: BackendStatus) -> str:
    """Describes what keeps requests from a backend, without seconds, which would change all the time."""
    member, leaves_at, ejection = status.member, status.leaves_at, status.ejection
    notes = (
        f"drained by {member.drained_by}" if member.drained_by else "",
        "" if leaves_at is None else f"leaves at {_clock(leaves_at)}",
        "" if ejection is None else f"ejected until {_clock(ejection.until)}: {ejection.reason}",
        member.unhealthy or "",
        member.error or "",
    )
    return cut("; ".join(note for note in notes if note))


def _clock(seconds: float) -> str:
    return strftime("%H:%M:%S UTC", gmtime(round(seconds)))


def _number_fresh(members: MemberSet) -> int:
    return sum(group.number for group in members.groups if group.summary.freshness is Freshness.FRESH)


def _good(view: ServiceView) -> HealthCard:
    """Health of a service without a problem."""
    if view.offer.phase in {Phase.MIXED, Phase.STABILIZING}:
        return HealthCard(UPGRADING, f"upgrading: {progress(view) or view.offer.phase.value}", ())
    number, fresh = len(view.members.all), _number_fresh(view.members)
    if fresh < number:
        text = f"{fresh} of {number} backends are fresh; the last probe of the others failed or has not ended"
    else:
        text = "the backend is fresh" if number == 1 else f"all {number} backends are fresh"
    return HealthCard(GOOD, f"healthy: {text}", ())


def demand(hour: LastHour) -> tuple[DemandRow, ...]:
    """Makes rows of the versions that clients got most, and a last one, `other`, for the rest."""
    counts = Counter({version: count for version, count in hour.served.items() if count > 0})
    total, other = counts.total(), counts.pop(OTHER, 0)
    shown = counts.most_common(MAX_VERSIONS)
    other += counts.total() - sum(count for _, count in shown)
    rows = [*shown, *([(OTHER, other)] if other else [])]
    return tuple(DemandRow(cut(version), count, count / total) for version, count in rows)


def demand_seconds(hour: LastHour) -> float:
    """Rounds the seconds that counts of versions cover: to minutes; below one minute up to ten seconds."""
    seconds = min(hour.seconds, SPAN)
    return round(seconds / 60.0) * 60.0 if seconds > 60.0 else ceil(seconds / 10.0) * 10.0


def refusals(counts: RequestCounts | None, rates: ServiceRates) -> tuple[RefusalRow, ...]:
    """Makes rows of the reasons for refused requests since the start, the most frequent first."""
    if counts is None:
        return ()
    results: Counter[NegotiationResult] = Counter()
    for (_, result), count in counts.results.items():
        results[result] += count
    found = [
        *(
            RefusalRow(text, results[result], rate(rates.results.get(result, 0.0)))
            for result, text in RESULTS.items()
        ),
        *(
            RefusalRow(ADMISSION.get(reason, reason), count, rate(rates.refused.get(reason, 0.0)))
            for reason, count in counts.refused.items()
        ),
    ]
    return tuple(sorted((each for each in found if each.count), key=lambda each: -each.count))


def replica_rows(status: GatewayStatus, service: str | None) -> tuple[ReplicaRow, ...]:
    """Makes rows of replicas, workers and an engine, with the record of `service` if one is given."""
    agreement, workers, engine = status.agreement, status.workers, status.engine
    found: list[ReplicaRow] = []
    if agreement is not None:
        found += [_replica(each, agreement, service) for each in agreement.replicas]
    if len(workers) > 1:
        found += [_worker(each, service) for each in workers]
    if engine is not None:
        found.append(_engine(engine, service))
    return tuple(found)


def _replica(replica: ReplicaReport, report: AgreementReport, service: str | None) -> ReplicaRow:
    own = " (this one)" if replica.id == report.id else ""
    return ReplicaRow(
        kind="replica",
        name=cut(f"{report.name_of(replica.id)}{own}"),
        state="attached" if replica.attached else "detached",
        level=_level(replica, report, service),
        note=cut("; ".join(_notes(replica, service))),
    )


def _level(replica: ReplicaReport, report: AgreementReport, service: str | None) -> str:
    """Text about the record that a replica holds; empty: it is unknown, as while either side is detached."""
    about = report.services.get(service) if service is not None else None
    if about is None:
        return ""
    if replica.id != report.id and not (about.attached and replica.attached):
        return ""
    if replica.id in about.awaited:
        return f"not yet {_record(about.seq)}"
    return _record(about.seq)


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


def _worker(worker: WorkerState, service: str | None) -> ReplicaRow:
    times = "once" if worker.restarts == 1 else f"{worker.restarts} times"
    notes = [
        *([f"process {worker.pid}"] if worker.pid else []),
        "1 connection" if worker.connections == 1 else f"{worker.connections} connections",
        *([f"replaced {times}"] if worker.restarts else []),
    ]
    view = None if worker.holds is None or service is None else worker.holds.views.get(service)
    level = ""
    if view is not None and view.agreed is not None:
        level = _record(0 if view.agreed.record is None else view.agreed.record.seq)
    return ReplicaRow(
        kind="worker",
        name=f"worker {worker.slot}",
        state=worker.state,
        level=level,
        note=", ".join(notes),
    )


def _engine(report: EngineReport, service: str | None) -> ReplicaRow:
    held = report.held.get(service) if service is not None else None
    notes = [
        report.problem,
        "" if service is None else report.inexpressible.get(service, ""),
        f"{sum(report.rows.values())} table rows bypass the gateway",
    ]
    return ReplicaRow(
        kind="engine",
        name=cut(" ".join(each for each in (report.name, report.release) if each)),
        state="not in sync" if report.problem else "in sync",
        level="" if held is None else _record(held),
        note=cut("; ".join(note for note in notes if note)),
    )


def _record(seq: int) -> str:
    return f"record {seq}" if seq else "no record"
