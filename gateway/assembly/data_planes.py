"""The data plane: one worker in this process or several worker processes; and the engine beside them, if a
command asks for one (`skewgate engine haproxy`).

No other module depends on which data plane it is. The engine is made with the data plane, because its report
counts in the agreement from the first step on. It starts only when clients are accepted here, because it
sends the gateway all requests that none of its rows matches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

from gateway.assembly.agreements import GatewayAgreement, LateParts
from gateway.assembly.listeners import Certificates
from gateway.assembly.plan import Plan
from gateway.assembly.telemetry import Logs
from gateway.assembly.usage import usage
from gateway.controlplane.certificate_watch import names_of
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.dataplane.context import Context
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.telemetry.access_log import AccessLog
from gateway.workers.data_plane import DataPlane, OwnWorker
from gateway.workers.request_recorder import reads_ids, recorder, usage_counter

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import HaproxyDriver


@asynccontextmanager
async def data_plane(
    plan: Plan,
    late_parts: LateParts,
    *,
    agreed: GatewayAgreement,
    certificates: Certificates,
    sockets: ListeningSockets,
    logs: Logs,
    observer: PassiveObserver,
) -> AsyncIterator[DataPlane]:
    """Makes the configured number of workers, without starting them. Aborts them on the way out: after a
    drain nothing is left, and an error waits for nothing."""
    async with usage(plan, agreed, late_parts):
        plane: DataPlane
        if logs.access_log is None:
            plane = _worker_processes(plan, agreed, sockets, logs, late_parts.usage)
        else:
            worker = _own_worker(plan, certificates, logs, logs.access_log, observer)
            if late_parts.usage is not None and worker.context.usage is not None:
                late_parts.usage.report = worker.context.usage.report
            named = zip(names_of(plan.settings.listen), plan.settings.listen, strict=True)
            found = {each: certificates.of_listeners[name] for name, each in named if each.tls is not None}
            plane = OwnWorker(worker, plan.settings.listen, sockets, found, logs.access_log)
        late_parts.plane = plane
        try:
            yield plane
        finally:
            await plane.abort()


def _worker_processes(
    plan: Plan,
    agreed: GatewayAgreement,
    sockets: ListeningSockets,
    logs: Logs,
    usage_keeper: UsageKeeper | None,
) -> DataPlane:
    # A gateway with one worker never imports these.
    from gateway.workers.shares import TokenBroker  # noqa: PLC0415
    from gateway.workers.supervisor import WorkerProcesses  # noqa: PLC0415

    holder = plan.known.snapshot_holder
    return WorkerProcesses(
        plan.settings,
        plan.workers,
        holder,
        sockets,
        TokenBroker(holder, plan.metrics, monotonic, logs.ejections.changed, plan.workers),
        plan.metrics.add,
        acknowledged=agreed.agreement.acknowledged,
        usage=usage_keeper,
    )


def _own_worker(
    plan: Plan, certificates: Certificates, logs: Logs, access_log: AccessLog, observer: PassiveObserver
) -> Worker:
    settings, metrics, tracing = plan.settings, plan.metrics, logs.tracing
    context = Context(
        limits=settings.limits,
        timeouts=settings.timeouts,
        trusted=settings.trusted_proxies,
        snapshots=plan.known.snapshot_holder,
        observe=observer.observe,
        metrics=metrics,
        record=recorder(metrics, tracing, access_log, settings.access_log),
        on_ejection=logs.ejections.changed,
        client_contexts=certificates.for_backends,
        tracing=tracing,
        reads_ids=reads_ids(tracing, settings.access_log),
        usage=usage_counter(settings.usage),
    )
    return Worker(context, plan.resolver.resolve)


def make_engine(
    plan: Plan, agreed: GatewayAgreement, plane: DataPlane, late_parts: LateParts
) -> HaproxyDriver | None:
    """Make the engine beside the gateway, without starting it. It asks `plane` for the ejected members."""

    def ejected() -> Collection[str]:
        return plane.report().ejected.keys()

    if plan.make_engine is not None:
        late_parts.engine = plan.make_engine(
            plan.known.snapshot_holder, agreed.agreement.acknowledged, ejected
        )
    return late_parts.engine


@asynccontextmanager
async def driving(engine: HaproxyDriver | None) -> AsyncIterator[None]:
    """Starts the engine beside the gateway, if there is one, and closes it after the drain."""
    try:
        if engine is not None:
            await engine.start()
        yield
    finally:
        if engine is not None:
            await engine.close()
