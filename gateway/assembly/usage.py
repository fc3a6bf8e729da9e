"""The record of usage: made before the data plane, whose reports it gets, and closed after it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway.assembly.agreements import GatewayAgreement, LateParts
from gateway.assembly.plan import Plan
from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.core.days import DAY
from gateway.core.usage.record import Gap, Scope
from gateway.runtime.file_trust import real_path, require_all_own, trusted_users

BY_ENGINE = "requests that the engine carries are not seen by the gateway"
"""Reason of the gap of a service with rows in the tables of the engine."""


@asynccontextmanager
async def usage(plan: Plan, agreed: GatewayAgreement, late_parts: LateParts) -> AsyncIterator[None]:
    """Keeps the record of usage (`LateParts.usage`), unless it is off. Raises `ForeignFileError`."""
    settings, taken = plan.settings.usage, plan.handover.taken
    if settings is None:
        with suppress(OSError):  # by the time of the file, the next run knows of this one (`is_unwritten`)
            os.utime(f"{plan.settings.state}.usage", (0, 0), follow_symlinks=False)
        yield
        return
    path = settings.path or (None if plan.settings.state is None else f"{plan.settings.state}.usage")
    file = None if path is None else _own(path, () if taken is None else (taken.user,))

    def state(now: float) -> Batch:
        engine, agreement, reloader = late_parts.engine_report(), agreed.report(), late_parts.reloader
        # Without an answer of the engine it is not known which rows it goes on with.
        carried = (
            [] if engine is None else [each for each in engine.rows if engine.rows[each] or engine.problem]
        )
        return Batch(
            now=now,
            gaps=[Gap(int(now // DAY), each, Scope.ALL, BY_ENGINE) for each in carried],
            snapshot=plan.known.snapshot_holder.current,
            records=agreed.agreement.to_save(),
            config=plan.settings.hash if reloader is None else reloader.config.hash,
            replicas=() if agreement is None else {agreement.id, *(each.id for each in agreement.replicas)},
            own="" if agreement is None else agreement.id,
        )

    async def collect() -> None:
        if late_parts.plane is not None:
            await late_parts.plane.collect(counters=False)

    database = Database(file, settings, None if taken is None else taken.pid)
    late_parts.usage = keeper = UsageKeeper(database, state, collect)
    keeper.start()
    try:
        yield
    finally:
        await keeper.close()


def _own(path: str, users: tuple[int, ...]) -> Path:
    """The path without links. Raises `ForeignFileError`."""
    trusted = trusted_users(*users)
    real = real_path(path, trusted)
    require_all_own([Path(f"{real}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")], trusted)
    return real
