"""What serves the requests: one worker in this process, or several in processes of their own; and the engine
beside them, if a command asks for one (`skewgate engine haproxy`).

Nobody but this file asks which it is. An engine is made with the data plane, because its word counts in the
agreement from the first step on; it follows only while clients are accepted here, because it sends the
gateway what is in none of its rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, final

from gateway.assembly.agreements import Agreed
from gateway.assembly.certificates import Certificates
from gateway.assembly.late_parts import LateParts
from gateway.assembly.plan import Plan
from gateway.assembly.telemetry import Logs, RequestLogs
from gateway.controlplane.certificate_watch import names_of
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.dataplane.context import Context
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.workers.data_plane import DataPlane, OwnWorker
from gateway.workers.request_recorder import reads_ids, recorder


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneNeeds:
    """Parts with which a data plane is made."""

    agreed: Agreed
    certificates: Certificates
    sockets: ListeningSockets
    logs: Logs
    observer: PassiveObserver


@asynccontextmanager
async def data_plane(plan: Plan, late_parts: LateParts, needs: DataPlaneNeeds) -> AsyncIterator[DataPlane]:
    """Makes as many workers as are configured; `DataPlane.start` and `listen` come when it is time. Aborts on
    the way out: after a drain nothing is left, and after an error nothing is waited for."""
    plane: DataPlane
    if needs.logs.requests is None:
        plane = _worker_processes(plan, needs)
    else:
        plane = _own_worker(plan, needs, needs.logs.requests)
    late_parts.plane = plane
    try:
        yield plane
    finally:
        await plane.abort()


def _worker_processes(plan: Plan, needs: DataPlaneNeeds) -> DataPlane:
    """Worker processes behind one `DataPlane`. Their supervisor is imported here, where it is needed."""
    from gateway.workers.shares import TokenBroker  # noqa: PLC0415
    from gateway.workers.supervisor import WorkerProcesses  # noqa: PLC0415

    holder, ejections = plan.known.snapshot_holder, needs.logs.ejections
    shared = TokenBroker(holder, plan.metrics, monotonic, ejections.changed, plan.workers)
    return WorkerProcesses(
        plan.settings,
        plan.workers,
        holder,
        needs.sockets,
        shared,
        plan.metrics.add,
        acknowledged=needs.agreed.agreement.acknowledged,
    )


def _own_worker(plan: Plan, needs: DataPlaneNeeds, logs: RequestLogs) -> DataPlane:
    settings, metrics = plan.settings, plan.metrics
    access_log, tracing = logs
    context = Context(
        limits=settings.limits,
        timeouts=settings.timeouts,
        trusted=settings.trusted_proxies,
        snapshots=plan.known.snapshot_holder,
        observe=needs.observer.observe,
        metrics=metrics,
        record=recorder(metrics, tracing, access_log, settings.access_log, plan.listeners),
        on_ejection=needs.logs.ejections.changed,
        client_contexts=needs.certificates.for_backends,
        tracing=tracing,
        reads_ids=reads_ids(tracing, settings.access_log),
    )
    worker = Worker(context, plan.resolver.resolve)
    of_listeners = needs.certificates.of_listeners
    named = zip(names_of(settings.listen), settings.listen, strict=True)
    found = {each: of_listeners[name] for name, each in named if each.tls is not None}
    return OwnWorker(worker, settings.listen, needs.sockets, found, access_log)


if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import HaproxyDriver


def make_engine(plan: Plan, agreed: Agreed, plane: DataPlane, late_parts: LateParts) -> HaproxyDriver | None:
    """The engine, not started. It knows the ejections of `plane`, and the agreement knows it."""

    def ejected() -> Collection[str]:
        return plane.report().ejected.keys()

    if plan.make_engine is not None:
        late_parts.engine = plan.make_engine(
            plan.known.snapshot_holder, agreed.agreement.acknowledged, ejected
        )
    return late_parts.engine


@asynccontextmanager
async def driving(engine: HaproxyDriver | None) -> AsyncIterator[None]:
    """Starts the engine, and lets go of it after the drain."""
    try:
        if engine is not None:
            await engine.start()
        yield
    finally:
        if engine is not None:
            await engine.close()
