"""What people see and command of a gateway: its status, made from the parts, and the commands that they take.

Knows no endpoint: `admin` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, time

from gateway.admin import Access, AdminContext, Commands, Explaining
from gateway.assembly.counting import gauges
from gateway.assembly.parts import Parts
from gateway.controlplane.documents import WORKERS
from gateway.core.fleet.fleet import OperatorCommand
from gateway.runtime.compiled import build_info
from gateway.telemetry.status import GatewayStatus


def status(parts: Parts) -> GatewayStatus:
    """Makes the status of this moment."""
    plan, plane = parts.plan, parts.plane
    return GatewayStatus(
        snapshot=plan.known.snapshot_holder.current,
        build=build_info(),
        config=parts.reloader.config,
        report=gauges(plan, plane),
        rates=parts.samples.rates.of,
        now=time(),
        monotonic=monotonic(),
        not_serving=plane.not_serving,
        workers=tuple(plane.workers()),
        agreement=parts.agreed.report(),
        engine=parts.followers.engine_report(),
        sources=tuple(plan.discovery.report()),
        last_probe_at=dict(parts.prober.last_probe_at),
        certificate_expiry=parts.certificate_watch.expiry(),
        state_writes=parts.state_writes(),
    )


def admin_context(parts: Parts) -> AdminContext:
    """What the admin listener shows and may change."""
    plan, plane = parts.plan, parts.plane
    return AdminContext(
        snapshots=plan.known.snapshot_holder,
        not_serving=lambda: plane.not_serving,
        agreement=parts.agreed.report,
        refresh=plane.look,
        status=lambda: status(parts),
        metrics=plan.metrics,
        history=parts.history,
        last_hour=parts.samples.recent.last_hour,
        explaining=lambda: Explaining(plan.settings.limits, plane.known_documents, plane.held_back),
        commands=_commands(parts),
        access=_access(parts),
    )


def _commands(parts: Parts) -> Commands:
    holder, replication = parts.plan.known.snapshot_holder, parts.agreed.replication
    agreement, plane, keeper = parts.agreed.agreement, parts.plane, parts.keeper

    async def apply(service: str, command: OperatorCommand) -> None:
        if replication is None:
            holder.apply(service, command)
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


def _access(parts: Parts) -> Access:
    configured, certificates = parts.plan.settings.admin, parts.certificates.of_admin
    return Access(
        hosts=(configured.listen.host, *configured.hosts),
        token=lambda: parts.reloader.settings.admin.token,
        by_certificate=lambda: certificates is not None and certificates.settings.client_ca is not None,
    )
