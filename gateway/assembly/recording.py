"""Logs to which the data plane writes what it does: ejections, the access log, and traces.

Opened before it and closed after it: cut requests are recorded, too, and the last spans are sent after the
last request. Worker processes write their own access log and traces (`workers.parts`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import NamedTuple, final

from gateway.assembly.plan import Plan
from gateway.controlplane.ejection_log import EjectionLog
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.otel import start_tracing
from gateway.telemetry.tracing import Tracing
from gateway.workers.recording import open_access_log


@final
class OwnRecords(NamedTuple):
    """Records of the worker in this process."""

    access_log: AccessLog
    tracing: Tracing | None
    """None: the environment does not ask for it."""


@final
class Records(NamedTuple):
    """Logs that this process writes."""

    ejections: EjectionLog
    own: OwnRecords | None
    """None: worker processes serve."""


@asynccontextmanager
async def recording(plan: Plan) -> AsyncIterator[Records]:
    """Opens them. Raises `StartupError` if the file of the access log cannot be opened."""
    ejections = EjectionLog(monotonic)
    async with AsyncExitStack() as stack:
        stack.callback(ejections.close)
        stack.callback(plan.known.snapshot_holder.subscribe(ejections.on_change))
        if plan.workers > 1:
            yield Records(ejections, None)
            return
        access_log = open_access_log(plan.settings.access_log)
        stack.callback(access_log.close)
        traces = start_tracing(os.environ)
        if traces is not None:
            stack.push_async_callback(traces.close)
        yield Records(ejections, OwnRecords(access_log, None if traces is None else traces.tracing))
