"""Makes what serves the requests: one worker in this process, or several in processes of their own.

Nobody but this file asks which it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import final

from gateway.controlplane.certificate_watch import names_of
from gateway.controlplane.ejection_log import EjectionLog
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.fleet import Fact
from gateway.cpus import usable_cpus
from gateway.dataplane.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.settings import Settings
from gateway.settings.model.document import MAX_WORKERS
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.otel import start_tracing
from gateway.telemetry.tracing import Tracing
from gateway.tls.client import ClientContexts
from gateway.tls.server import ServerCertificates
from gateway.workers.data_plane import DataPlane
from gateway.workers.own_worker import OwnWorker
from gateway.workers.recording import Listener, open_access_log, reads_ids, recorder


def number_of_workers(settings: Settings) -> int:
    """Processes that serve requests; 1: this one."""
    return settings.workers or min(usable_cpus(), MAX_WORKERS)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneParts:
    """What a data plane is made of."""

    settings: Settings
    snapshot_holder: SnapshotHolder
    metrics: Metrics
    resolver: Resolver
    client_contexts: ClientContexts
    sockets: ListeningSockets
    certificates: Mapping[str, ServerCertificates]
    """By the name of the listener."""
    observe: Callable[[str, str, Fact], None]
    """Called with what requests show."""
    acknowledged: Callable[[], None]
    """Called when a worker process has acknowledged, joined or ended."""
    listeners: Sequence[Listener]
    """Called with each request record, where requests are served in this process."""


def make_data_plane(parts: DataPlaneParts, stack: AsyncExitStack) -> DataPlane:
    """Make as many workers as are configured. `stack` closes what they need."""
    ejection_log = EjectionLog(monotonic)
    stack.callback(ejection_log.close)
    stack.callback(parts.snapshot_holder.subscribe(ejection_log.on_change))
    number = number_of_workers(parts.settings)
    if number == 1:
        log = open_access_log(parts.settings.access_log)
        stack.callback(log.close)
        return _own_worker(parts, log, _start_tracing(stack), ejection_log)
    return _worker_processes(parts, number, ejection_log)


def _worker_processes(parts: DataPlaneParts, number: int, ejection_log: EjectionLog) -> DataPlane:
    """Worker processes behind one `DataPlane`. Their supervisor is imported here, where it is needed."""
    from gateway.workers.share_keeper import ShareKeeper  # noqa: PLC0415
    from gateway.workers.supervisor import WorkerProcesses  # noqa: PLC0415

    shared = ShareKeeper(parts.snapshot_holder, parts.metrics, monotonic, ejection_log.changed, number)
    return WorkerProcesses(
        parts.settings,
        number,
        parts.snapshot_holder,
        parts.sockets,
        shared,
        parts.metrics.add,
        acknowledged=parts.acknowledged,
    )


def _own_worker(
    parts: DataPlaneParts, log: AccessLog, tracing: Tracing | None, ejection_log: EjectionLog
) -> OwnWorker:
    settings, listen = parts.settings, parts.settings.listen
    worker = Worker(
        limits=settings.limits,
        timeouts=settings.timeouts,
        trusted=settings.trusted_proxies,
        snapshots=parts.snapshot_holder,
        resolve=parts.resolver.resolve,
        observe=parts.observe,
        metrics=parts.metrics,
        record=recorder(parts.metrics, tracing, log, settings.access_log, parts.listeners),
        on_ejection=ejection_log.changed,
        client_contexts=parts.client_contexts,
        tracing=tracing,
        reads_ids=reads_ids(tracing, settings.access_log),
    )
    named = zip(names_of(listen), listen, strict=True)
    found = {each: parts.certificates[name] for name, each in named if each.tls is not None}
    return OwnWorker(worker, listen, parts.sockets, found, log)


def _start_tracing(stack: AsyncExitStack) -> Tracing | None:
    """As the environment says. The last spans are sent after the last request."""
    started = start_tracing(os.environ)
    if started is None:
        return None
    stack.push_async_callback(started.close)
    return started.tracing
