"""The parts that change the snapshot without a request: timer, probes, discovery, reloads.

`learning` begins when every port is bound and the agreement has begun. The first probes are sent before the
start waits for the disk or for worker processes, which take longer than the responses. Reloads, after
signals and changes of files, begin when the workers have started. The admin listener can start one, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Final, final

from gateway.assembly.parts import Parts
from gateway.assembly.plan import Plan
from gateway.controlplane.calendar_watch import CalendarWatch
from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.controlplane.config_watch import ConfigWatch
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.controlplane.snapshot_holder import StabilizationTimer
from gateway.runtime.process import end_tasks
from gateway.settings import Loaded, Settings, read_file
from gateway.settings.own_addresses import own_addresses
from gateway.tls.client import ClientContexts
from gateway.workers.data_plane import DataPlane

READ_AGAIN: Final = 3
"""Maximum number of further attempts to read the configuration, if a file has changed meanwhile."""


@asynccontextmanager
async def learning(plan: Plan, client_contexts: ClientContexts) -> AsyncIterator[Prober]:
    """Runs stabilization timer, prober and discovery, also in a drain: requests under way need them."""
    holder, services = plan.known.snapshot_holder, plan.known.services
    timer = StabilizationTimer(holder, monotonic)
    prober = Prober(
        holder,
        plan.metrics,
        services,
        resolve=plan.resolver.resolve,
        # The data plane dates passive observations by the same clock: facts are compared by age.
        clock=monotonic,
        client_contexts=client_contexts,
    )
    async with AsyncExitStack() as stack:
        timer.start()
        stack.callback(timer.close)
        stack.push_async_callback(prober.close)
        await prober.start()
        # Closed before the prober, which it tells of backends that come.
        stack.push_async_callback(plan.discovery.close)
        plan.discovery.connect(
            holder,
            resolver=plan.resolver,
            prober=prober,
            own=own_addresses(plan.settings.listen, plan.settings.admin),
        )
        plan.discovery.retarget(services)
        yield prober


def make_reloader(
    plan: Plan,
    *,
    prober: Prober,
    plane: DataPlane,
    certificates: CertificateWatch,
    client_contexts: ClientContexts,
) -> Reloader:
    """Make the reloader, which puts a changed configuration in force in these parts."""

    def applied(settings: Settings) -> None:
        """Put the rest of a new configuration in force: in the workers and in the process log."""
        plane.configured(settings)
        if plan.process_log is not None:
            plan.process_log.configure(settings.log)

    return Reloader(
        lambda: read_again(plan),
        plan.settings,
        snapshot_holder=plan.known.snapshot_holder,
        resolver=plan.resolver,
        prober=prober,
        metrics=plan.metrics,
        certificates=certificates,
        client_contexts=client_contexts,
        discovery=plan.discovery,
        announce=plan.service_manager.reloading,
        applied=applied,
        seen=plan.seen,
    )


def read_again(plan: Plan) -> Loaded:
    """Read all files of the configuration as of one moment, also if some are replaced meanwhile."""
    if plan.source is None:
        return Loaded("", plan.settings, ())
    loaded = read_file(plan.source, environ=os.environ, again=True)
    for _ in range(READ_AGAIN):
        if loaded.seen == loaded.seen.again():
            break
        loaded = read_file(plan.source, environ=os.environ, again=True)
    return loaded


@final
class Signals:
    """Actions for signals to this process, until `close`: reload, or reopen the access log."""

    def __init__(self, plane: DataPlane, reloader: Reloader) -> None:
        self._plane = plane
        self._reloader = reloader
        self._reloads: set[asyncio.Task[object]] = set()
        self._closed = False

    def reload(self) -> None:
        """Reopen the access log, and reload the configuration in the background. The result is logged."""
        if self._closed:
            return
        self._plane.reopen_logs()
        # Owned by `_reloads` until it is done.
        task = asyncio.get_running_loop().create_task(self._reloader.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def reopen_logs(self) -> None:
        if not self._closed:
            self._plane.reopen_logs()

    async def close(self) -> None:
        """Cancel a reload that is under way, because the parts are being closed."""
        self._closed = True
        await end_tasks(*self._reloads)


@asynccontextmanager
async def watching(parts: Parts) -> AsyncIterator[Signals]:
    """Watches certificates and configuration files, and acts on signals, also during the drain."""
    plan, signals = parts.plan, Signals(parts.plane, parts.reloader)
    async with AsyncExitStack() as stack:
        calendar_watch = CalendarWatch(plan.known.snapshot_holder, alone=plan.settings.agreement is None)
        calendar_watch.look()
        stack.callback(calendar_watch.close)
        parts.certificate_watch.start()
        stack.push_async_callback(parts.certificate_watch.close)
        stack.push_async_callback(signals.close)
        if plan.seen.files and plan.settings.watch:
            config_watch = ConfigWatch(parts.reloader)
            config_watch.start()
            stack.push_async_callback(config_watch.close)
        yield signals
