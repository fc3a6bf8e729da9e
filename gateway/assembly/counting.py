"""What is counted follows what is configured, and what a scrape reads of the other parts.

Before the first probe is sent and the first offer changes, so that both are counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from gateway.assembly.parts import Parts
from gateway.assembly.plan import Plan
from gateway.telemetry.worker_report import WorkerReport, plus
from gateway.workers.data_plane import DataPlane


@asynccontextmanager
async def counting(plan: Plan, plane: DataPlane) -> AsyncIterator[None]:
    """Keeps the series of `Plan.metrics` up to date with the snapshot."""
    holder, metrics = plan.known.snapshot_holder, plan.metrics
    metrics.watch(holder, lambda: gauges(plan, plane))
    unsubscribe = holder.subscribe(metrics.snapshot_changed)
    try:
        yield
    finally:
        unsubscribe()


def gauges(plan: Plan, plane: DataPlane) -> WorkerReport:
    """The gauges of all workers, with the process log of this process."""
    dropped = 0 if plan.process_log is None else plan.process_log.dropped
    return plus(plane.report(), WorkerReport(process_log_dropped=dropped))


def connect_metrics(parts: Parts, admin_connections: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
    """Set what the metrics ask of the parts when somebody scrapes."""
    plan, metrics, followers = parts.plan, parts.plan.metrics, parts.followers
    metrics.watch_admin(admin_connections)
    metrics.watch_certificates(parts.certificate_watch.expiry)
    metrics.watch_names(plan.resolver.report, plan.discovery.report)
    metrics.watch_agreement(parts.agreed.report)
    metrics.watch_engine(followers.engine_report)
    metrics.watch_config(lambda: parts.reloader.config.hash)
    metrics.watch_state(parts.state_writes)
