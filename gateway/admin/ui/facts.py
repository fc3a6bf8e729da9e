"""All that the operations page shows, made from what the admin listener may read.

    AdminContext  ->  Facts  ->  Overview, ServicePage (`model`)
    facts_health, facts_offer, facts_backends, facts_traffic, facts_replicas, facts_events: the parts, pure

A page is made from one snapshot. With a thousand backends others run in between. Changes nothing and renders
nothing.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import Final, final

from gateway.admin.context import AdminContext
from gateway.admin.ui.facts_backends import Moment, Rows, key_of
from gateway.admin.ui.facts_events import event_facts
from gateway.admin.ui.facts_health import (
    Problem,
    Surroundings,
    gateway_problems,
    health,
    service_problems,
)
from gateway.admin.ui.facts_offer import Drawing, offer_facts, offered, ranges, rate, why
from gateway.admin.ui.facts_replicas import replica_facts
from gateway.admin.ui.facts_traffic import demand, demand_seconds, refusals
from gateway.admin.ui.model import BackendFacts, Overview, ServicePage, ServiceRow
from gateway.compiled import build_info
from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.pool import Pool
from gateway.core.fleet.snapshot import ServiceView
from gateway.telemetry.engine import with_engine

ROWS: Final = 50
"""Rows that are made in one turn of the event loop: about half a millisecond."""

SERVICES: Final = 20
"""Services of which one turn makes the rows: less than a millisecond, unless each of them has a thousand
backends."""

MAX_PROBLEMS_OF_A_SERVICE: Final = 3
"""Problems of one service that the health of all of them tells."""


@final
class Facts:
    """Reads `context` anew for every page."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def overview(self) -> Overview:
        """All services, each in one row."""
        context, around = self._context, self._surroundings()
        snapshot, ejected = context.snapshots.current, context.report().ejected
        events = context.history.latest()
        problems = list(gateway_problems(snapshot, around))
        rows = []
        for at, (name, view) in enumerate(snapshot.views.items()):
            if at % SERVICES == SERVICES - 1:
                await asyncio.sleep(0)
            found = list(service_problems(view, around, ejected))
            rows.append(self._row(view, found, around))
            problems += [
                Problem(each.level, f"{name}: {each.sentence}") for each in found[:MAX_PROBLEMS_OF_A_SERVICE]
            ]
        number = len(rows)
        good = f"healthy: {'the service is' if number == 1 else f'all {number} services are'} served"
        return Overview(
            version=build_info().version,
            health=health(problems, good),
            services=tuple(rows),
            replicas=replica_facts(
                around.agreement, around.workers, around.engine, rows[0].name if number == 1 else None
            ),
            events=event_facts(events),
        )

    async def service_page(self, name: str) -> ServicePage | None:
        """Everything about one service; None: it is not configured."""
        context = self._context
        snapshot = context.snapshots.current
        view = snapshot.views.get(name)
        if view is None:
            return None
        around, moment = self._surroundings(), self._moment(name)
        problems = [
            *gateway_problems(snapshot, around),
            *service_problems(view, around, moment.ejected),
        ]
        scheme, hour = view.service.dialect.scheme, context.last_hour(name)
        counts, events = context.metrics.request_counts().get(name), context.history.about(name)
        keys = [member.key for member in view.pool.members]
        in_flight = sum(moment.in_flight.get(key, 0) + moment.waiting.get(key, 0) for key in keys)
        await asyncio.sleep(0)  # a thousand different sets of versions take their time, too
        drawing = Drawing.of(view)
        await asyncio.sleep(0)
        labels = drawing.labels(view.offer.versions)
        return ServicePage(
            name=name,
            dialect=view.service.dialect.name,
            health=health(problems, f"healthy: {_good(view.pool)}"),
            offer=offer_facts(view, drawing, around.agreement, around.monotonic),
            guaranteed=ranges(view.offer.guaranteed, scheme),
            reachable=ranges(view.offer.reachable, scheme),
            labels=labels,
            rate=rate(moment.rates.requests),
            in_flight=in_flight,
            demand=demand(hour),
            demand_seconds=demand_seconds(hour),
            refusals=refusals(counts, moment.rates),
            replicas=replica_facts(around.agreement, around.workers, around.engine, name),
            events=event_facts(events),
            backends=await _in_slices(Rows(view, drawing, moment), len(keys)),
        )

    def _row(self, view: ServiceView, problems: list[Problem], around: Surroundings) -> ServiceRow:
        name, dialect = view.service.name, view.service.dialect
        return ServiceRow(
            key=key_of(name),
            name=name,
            dialect=dialect.name,
            health=health(problems, f"healthy: {_good(view.pool)}"),
            offer=offered(view.offer, dialect.scheme),
            phase=view.offer.phase.value,
            why=why(view, around.agreement, around.monotonic),
            backends=_fresh(view.pool),
            rate=rate(self._context.rates(name).requests),
        )

    def _surroundings(self) -> Surroundings:
        context = self._context
        return Surroundings(
            context.config(),
            context.not_serving(),
            context.agreement(),
            context.engine(),
            tuple(context.workers()),
            tuple(context.sources()),
            context.certificate_expiry(),
            context.state_writes(),
            time(),
            monotonic(),
        )

    def _moment(self, service: str) -> Moment:
        """Nothing in it changes while rows are made."""
        context, now, report = self._context, time(), self._context.report()
        return Moment(
            with_engine(report.in_flight_by_member, context.engine()),
            report.waiting_by_member,
            report.ejected,
            dict(context.last_probe_at()),
            context.rates(service),
            now,
            now - monotonic(),
        )


async def _in_slices(rows: Rows, number: int) -> tuple[BackendFacts, ...]:
    """All rows. After each slice others run."""
    found: list[BackendFacts] = []
    for begin in range(0, number, ROWS):
        await asyncio.sleep(0)
        found += rows.slice(begin, begin + ROWS)
    return tuple(found)


def _fresh(pool: Pool) -> str:
    """`4 of 4 fresh`."""
    return f"{_number_fresh(pool)} of {len(pool.members)} fresh"


def _number_fresh(pool: Pool) -> int:
    return sum(group.number for group in pool.groups if group.grade.freshness is Freshness.FRESH)


def _good(pool: Pool) -> str:
    """What is well where nothing is wrong."""
    number, fresh = len(pool.members), _number_fresh(pool)
    if fresh < number:
        return f"{fresh} of {number} backends are fresh, the others have just failed or not been probed yet"
    return "the backend is fresh" if number == 1 else f"all {number} backends are fresh"
