"""The part that brings the series of /metrics in step with the snapshot.

`counting` is entered before the first probe is sent and before the first offer changes, so that both are
counted. `now` is made when every part runs. Nothing is counted here: `telemetry.metrics` does that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.assembly.parts import Parts
from gateway.assembly.plan import Plan
from gateway.telemetry.series.now import Now
from gateway.telemetry.worker_report import WorkerReport, plus
from gateway.workers.data_plane import DataPlane


@asynccontextmanager
async def counting(plan: Plan) -> AsyncIterator[None]:
    """Keeps the series of `Plan.metrics` up to date with the snapshot."""
    holder, metrics = plan.known.snapshot_holder, plan.metrics
    metrics.watch(holder)
    unsubscribe = holder.subscribe(metrics.snapshot_changed)
    try:
        yield
    finally:
        unsubscribe()


def gauges(plan: Plan, plane: DataPlane) -> WorkerReport:
    """The gauges of all workers, with the process log of this process."""
    dropped = 0 if plan.process_log is None else plan.process_log.dropped
    return plus(plane.report(), WorkerReport(process_log_dropped=dropped))


def now(parts: Parts, admin_connections: Mapping[str, tuple[int, int]]) -> Now:
    """What gauges show at this moment, when somebody scrapes."""
    plan, followers = parts.plan, parts.followers
    return Now(
        report=gauges(plan, parts.plane),
        admin_connections=admin_connections,
        certificate_expiry=parts.certificate_watch.expiry(),
        names=plan.resolver.report(),
        sources=plan.discovery.report(),
        agreement=parts.agreed.report(),
        engine=followers.engine_report(),
        config_hash=parts.reloader.config.hash,
        state=parts.state_writes(),
    )
