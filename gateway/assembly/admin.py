"""The admin listener of a gateway and, if it is configured, the one for metrics. They share a connection
limit.

They are made when all parts that they show and command are there, and closed before them: so a command under
way ends while these still run. The endpoints are in `admin`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic, time
from typing import final

from gateway.admin import (
    AdminAccess,
    AdminContext,
    AdminSite,
    Commands,
    Explaining,
    create_app,
    create_metrics_app,
)
from gateway.assembly.parts import Parts
from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.worker_agreement import WORKERS
from gateway.core.fleet.fleet import OperatorCommand
from gateway.runtime.compiled import build_info
from gateway.runtime.process import admin_connections
from gateway.telemetry.series.now import Now
from gateway.telemetry.series.process import OfProcess
from gateway.telemetry.status import GatewayStatus
from gateway.telemetry.worker_report import WorkerReport, plus


def _gauges(parts: Parts) -> WorkerReport:
    """The gauges of all workers, plus the lines that this process's log has dropped, as one report."""
    process_log = parts.plan.process_log
    dropped = 0 if process_log is None else process_log.dropped
    return plus(parts.plane.report(), WorkerReport(process_log_dropped=dropped))


def now(parts: Parts, admin_connections: Mapping[str, tuple[int, int]]) -> Now:
    """The values of all gauges at this moment, for a scrape of the metrics."""
    plan, usage = parts.plan, parts.late_parts.usage
    return Now(
        report=_gauges(parts),
        admin_connections=admin_connections,
        certificate_expiry=parts.certificate_watch.expiry(),
        names=plan.resolver.report(),
        sources=plan.discovery.report(),
        agreement=parts.agreed.report(),
        engine=parts.late_parts.engine_report(),
        config_hash=parts.reloader.config.hash,
        state=parts.state_writes(),
        usage_incomplete=usage and usage.incomplete,
    )


def status(parts: Parts) -> GatewayStatus:
    """The status of the gateway at this moment, for operators."""
    plan, plane = parts.plan, parts.plane
    return GatewayStatus(
        snapshot=plan.known.snapshot_holder.current,
        build=build_info(),
        config=parts.reloader.config,
        report=_gauges(parts),
        rates=parts.samplers.rates.of,
        now=time(),
        monotonic=monotonic(),
        not_serving=plane.not_serving,
        workers=tuple(plane.workers()),
        agreement=parts.agreed.report(),
        engine=parts.late_parts.engine_report(),
        sources=tuple(plan.discovery.report()),
        last_probe_at=dict(parts.prober.last_probe_at),
        certificate_expiry=parts.certificate_watch.expiry(),
        state_writes=parts.state_writes(),
    )


def admin_context(parts: Parts) -> AdminContext:
    """The context of the admin listener: all that it shows and may change."""
    plan, plane = parts.plan, parts.plane

    async def counted() -> None:
        await plan.handover.alone()  # the others' requests are not counted here
        await plane.in_force()
        await plane.collect(counters=False)

    return AdminContext(
        snapshots=plan.known.snapshot_holder,
        not_serving=lambda: plane.not_serving,
        agreement=parts.agreed.report,
        refresh=plane.collect,
        status=lambda: status(parts),
        metrics=plan.metrics,
        history=parts.history,
        last_hour=parts.samplers.recent.last_hour,
        traffic=parts.samplers.traffic.minutes,
        explaining=lambda: Explaining(plan.settings.limits, plane.cached_documents, plane.held_back),
        commands=_commands(parts),
        access=_access(parts),
        usage=parts.late_parts.usage,
        facts=FreshFacts(
            plan.known.snapshot_holder,
            parts.prober,
            parts.late_parts.in_flight,
            parts.agreed.replication,
            counted,
            evidence=plan.metrics.evidence,
            ejected=lambda: plane.report().ejected,
        ),
    )


def _commands(parts: Parts) -> Commands:
    holder, replication = parts.plan.known.snapshot_holder, parts.agreed.replication
    agreement, plane, keeper = parts.agreed.agreement, parts.plane, parts.late_parts.keeper

    async def apply(service: str, command: OperatorCommand) -> None:
        if replication is None:
            holder.command(service, command)
        else:
            await replication.command(service, command)

    async def in_force(service: str | None) -> Sequence[str]:
        agreed = await agreement.in_force(service)
        if await plane.in_force() and agreed:
            return ()
        awaited = agreement.awaited()
        return sorted({whom for name, whom in awaited.items() if service in {None, name}}) or [WORKERS]

    async def saved() -> bool:
        return keeper is not None and await keeper.written()

    return Commands(
        apply=apply,
        reload=parts.reloader.reload,
        in_force=in_force,
        saved=saved,
        forget=None if replication is None else replication.forget,
        frozen=parts.plan.handover.frozen,
    )


def _access(parts: Parts) -> AdminAccess:
    configured, certificates = parts.plan.settings.admin, parts.certificates.of_admin
    return AdminAccess(
        hosts=(configured.listen.host, *configured.hosts),
        token=lambda: parts.reloader.settings.admin.token,
        by_certificate=lambda: certificates is not None and certificates.settings.client_ca is not None,
    )


@final
class AdminListeners:
    """The listener for operators and, if configured, the one for metrics, on sockets that are bound."""

    def __init__(self, parts: Parts) -> None:
        limit, context, metrics = admin_connections(), admin_context(parts), parts.plan.metrics

        def count_error(reason: str) -> None:
            metrics.count(OfProcess.admin_errors, reason)

        self.sites: dict[str, AdminSite] = {}
        """Listeners for operators and metrics, by name, in the order in which they start."""
        if parts.sockets.metrics is not None:
            limit //= 2
            self.sites["metrics"] = AdminSite(
                create_metrics_app(context), parts.sockets.metrics, count_error, limit=limit
            )
        self.sites["admin"] = AdminSite(
            create_app(context),
            parts.sockets.admin,
            count_error,
            certificates=parts.certificates.of_admin,
            limit=limit,
        )

    async def start(self) -> None:
        """Accept connections of operators and scrapes from now on."""
        for site in self.sites.values():
            await site.start()

    async def stop(self) -> None:
        """Stop accepting operators and scrapes, and close all their connections."""
        for site in self.sites.values():
            await site.stop()

    def connections(self) -> dict[str, tuple[int, int]]:
        """Number of open connections and their limit, by listener."""
        return {name: site.connections for name, site in self.sites.items()}


@asynccontextmanager
async def admin_listeners(parts: Parts) -> AsyncIterator[AdminListeners]:
    """Lets the metrics read the parts, and accepts operators and scrapes. In a take-over the other gateway
    does so first, and `accept_clients` starts these listeners when it has stopped."""
    listeners = AdminListeners(parts)
    parts.plan.metrics.watch(parts.plan.known.snapshot_holder, lambda: now(parts, listeners.connections()))
    async with AsyncExitStack() as stack:
        for site in listeners.sites.values():
            stack.push_async_callback(site.stop)
        if parts.plan.handover.taken is None:
            await listeners.start()
        yield listeners
