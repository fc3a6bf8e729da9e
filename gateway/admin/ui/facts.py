"""All that the operations page shows, made from one status of the gateway.

    GatewayStatus, events, last hour  ->  Facts  ->  Overview, ServicePage (`model`)
    facts_health, facts_offer, facts_backends, facts_traffic, facts_replicas, facts_events: the parts, pure

With a thousand backends others run in between. Changes nothing and renders
nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from gateway.admin.context import AdminContext
from gateway.admin.ui.facts_backends import Rows, key_of
from gateway.admin.ui.facts_events import event_facts
from gateway.admin.ui.facts_health import Problem, gateway_problems, health, service_problems
from gateway.admin.ui.facts_offer import Drawing, offer_facts, offered, ranges, rate, why
from gateway.admin.ui.facts_replicas import replica_facts
from gateway.admin.ui.facts_traffic import demand, demand_seconds, refusals
from gateway.admin.ui.model import BackendFacts, Overview, ServicePage, ServiceRow
from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.pool import Pool
from gateway.telemetry.status import ServiceStatus

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
        status, events = self._context.status(), self._context.history.latest()
        problems = list(gateway_problems(status))
        rows = []
        for at, service in enumerate(status.services()):
            if at % SERVICES == SERVICES - 1:
                await asyncio.sleep(0)
            found = list(service_problems(service))
            rows.append(_row(service, found))
            problems += [
                Problem(each.level, f"{service.name}: {each.sentence}")
                for each in found[:MAX_PROBLEMS_OF_A_SERVICE]
            ]
        number = len(rows)
        good = f"healthy: {'the service is' if number == 1 else f'all {number} services are'} served"
        return Overview(
            version=status.build.version,
            health=health(problems, good),
            services=tuple(rows),
            replicas=replica_facts(status, rows[0].name if number == 1 else None),
            events=event_facts(events),
        )

    async def service_page(self, name: str) -> ServicePage | None:
        """Everything about one service; None: it is not configured."""
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
            dialect=view.service.dialect.name,
            health=health(problems, f"healthy: {_good(view.pool)}"),
            offer=offer_facts(service, drawing),
            guaranteed=ranges(view.offer.guaranteed, scheme),
            reachable=ranges(view.offer.reachable, scheme),
            labels=labels,
            rate=rate(service.rates.requests),
            in_flight=in_flight,
            demand=demand(hour),
            demand_seconds=demand_seconds(hour),
            refusals=refusals(counts, service.rates),
            replicas=replica_facts(status, name),
            events=event_facts(events),
            backends=await _in_slices(Rows(service, drawing)),
        )


def _row(service: ServiceStatus, problems: list[Problem]) -> ServiceRow:
    offer, pool = service.view.offer, service.view.pool
    return ServiceRow(
        key=key_of(service.name),
        name=service.name,
        dialect=service.view.service.dialect.name,
        health=health(problems, f"healthy: {_good(pool)}"),
        offer=offered(offer, service.scheme),
        phase=offer.phase.value,
        why=why(service),
        backends=_fresh(pool),
        rate=rate(service.rates.requests),
    )


async def _in_slices(rows: Rows) -> tuple[BackendFacts, ...]:
    """All rows. After each slice others run."""
    found: list[BackendFacts] = []
    for begin in range(0, rows.number, ROWS):
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
