"""The telemetry parts of a gateway: logs and traces, the series of /metrics, samples, the change log.

`open_logs` comes before the data plane and is closed after it: cut requests are logged, too, and the last
spans are sent after the last request. `follow_snapshot` comes before the first probe and the first change of
an offer, so that both are counted. The change log begins with what is offered once the agreement has given
views their records. Worker processes have their own access log and traces (`workers.worker_parts`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from time import monotonic
from typing import NamedTuple, final

from gateway.assembly.agreements import GatewayAgreement
from gateway.assembly.plan import Plan
from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.ejection_log import EjectionLog
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.otel import start_tracing
from gateway.telemetry.recent import HourlyTraffic, Rates, RecentRequests
from gateway.telemetry.tracing import Tracing
from gateway.workers.request_recorder import open_access_log


@final
class Logs(NamedTuple):
    """The ejection log, the access log and the traces that this process writes."""

    ejections: EjectionLog
    access_log: AccessLog | None
    """The access log; None: worker processes serve, and each writes its own."""
    tracing: Tracing | None
    """Tracing of requests; None: the environment does not ask for it, or worker processes serve."""


@asynccontextmanager
async def open_logs(plan: Plan) -> AsyncIterator[Logs]:
    """Opens the logs of this process. Raises `StartupError` if the access log's file cannot be opened."""
    ejections = EjectionLog(monotonic)
    async with AsyncExitStack() as stack:
        stack.callback(ejections.close)
        stack.callback(plan.known.snapshot_holder.subscribe(ejections.on_change))
        if plan.workers > 1:
            yield Logs(ejections, None, None)
            return
        access_log = open_access_log(plan.settings.access_log)
        stack.callback(access_log.close)
        traces = start_tracing(os.environ)
        if traces is not None:
            stack.push_async_callback(traces.close)
        yield Logs(ejections, access_log, None if traces is None else traces.tracing)


@asynccontextmanager
async def follow_snapshot(plan: Plan) -> AsyncIterator[None]:
    """Keeps the metrics series (`Plan.metrics`) up to date with the snapshot."""
    holder, metrics = plan.known.snapshot_holder, plan.metrics
    metrics.watch(holder)
    unsubscribe = holder.subscribe(metrics.snapshot_changed)
    try:
        yield
    finally:
        unsubscribe()


@final
class Samplers(NamedTuple):
    """The samplers of the request counters: recent requests, rates, traffic by hour."""

    recent: RecentRequests
    rates: Rates
    traffic: HourlyTraffic


@asynccontextmanager
async def sampling(plan: Plan, agreed: GatewayAgreement) -> AsyncIterator[Samplers]:
    """Samples the request counters, and logs backends and offers in force and then their changes."""
    holder, metrics, replication = plan.known.snapshot_holder, plan.metrics, agreed.replication
    recent = RecentRequests(metrics.served, monotonic)
    rates = Rates(metrics.request_counts, monotonic)
    traffic = HourlyTraffic(metrics.traffic, monotonic)
    change_log = ChangeLog(
        monotonic,
        recent.last_hour,
        None if replication is None else lambda service: replication.report().why_held(service),
    )
    with ExitStack() as stack:
        for sampler in (recent, rates, traffic):
            sampler.start()
            stack.callback(sampler.close)
        change_log.start(holder.current)
        stack.callback(change_log.close)
        stack.callback(holder.subscribe(change_log.log_changes))
        yield Samplers(recent, rates, traffic)
