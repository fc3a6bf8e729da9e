"""The composition root: a whole running gateway, put together from its parts.

`run`, `demo` and the tests start it here, so that what is shown and tested is what runs. Builds, starts and
stops the parts in the right order. Decides nothing about requests and knows no command-line verb.

    Prober, Reloader                 ->  SnapshotHolder         what is known and configured
    Resolver                         ->  Worker, Prober         the addresses of names
    Worker  ->  PassiveObserver      ->  SnapshotHolder         what requests bring
    Worker  ->  RequestRecord        ->  Metrics, AccessLog, listeners
    SnapshotHolder, Worker, Prober   ->  AdminSite              what people see
    SnapshotHolder                  <->  StateKeeper            what survives a restart
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeAlias, cast, final

from gateway.admin import AdminContext, AdminSite, create_app
from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stabilization_timer import StabilizationTimer
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.state.keeper import StateKeeper, load_state, report_no_state_file
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.worker import Worker
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.settings import Loaded, Settings, read_file
from gateway.telemetry.access_log import AccessLog, Format
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.recent import RecentRequests
from gateway.telemetry.request_record import RequestRecord

Listener: TypeAlias = Callable[[RequestRecord], None]


@final
class Gateway:
    """One gateway in this process and event loop. It serves inside `async with`; leaving that drains it.

    The constructor reads the state file. `source` is the file that a reload reads; without one, a reload
    finds the same settings again. `listeners` are called with every request record, after metrics and access
    log; they must neither block nor raise. `process_log`: the one that this process has installed, for the
    metrics. `resolver`: closed here; by default one that goes by the files of the system.
    """

    def __init__(
        self,
        configured: Settings,
        *,
        source: Path | None = None,
        listeners: Sequence[Listener] = (),
        process_log: ProcessLog | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self.settings = configured
        self._state_file = StateFile(configured.state) if configured.state is not None else None
        saved = None if self._state_file is None else load_state(self._state_file, configured.services)
        self.snapshot_holder = SnapshotHolder(
            Snapshot.configured(
                configured.services,
                now=monotonic(),
                saved=saved,
                untrusted_headers=configured.untrusted_headers,
            ),
            monotonic,
        )
        self.metrics = Metrics(CLIENT_ERROR_REASONS)
        self._source = source
        self._listeners = tuple(listeners)
        self._process_log = process_log
        self._resolver = resolver or Resolver()
        self._keeper: StateKeeper | None = None
        self._stack = AsyncExitStack()
        self._reloads: set[asyncio.Task[object]] = set()
        self._running = False

    # --- start and stop -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start everything. Raises `StartupError`, and then nothing runs."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        self._running = True
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        """The listeners first, so that a taken port is found before any backend is asked; the probes last."""
        configured = self.settings
        log_format = cast(Format, configured.access_log.format)  # its values were checked with the file
        self._log = AccessLog(log_format, configured.access_log.path)
        stack.callback(self._log.close)
        stack.push_async_callback(self._resolver.close)
        self._resolver.retarget(configured.services)
        passive_observer = PassiveObserver(self.snapshot_holder, self.metrics)
        stack.callback(passive_observer.close)
        self._worker = Worker(
            limits=configured.limits,
            timeouts=configured.timeouts,
            trusted=configured.trusted_proxies,
            snapshots=self.snapshot_holder,
            resolve=self._resolver.resolve,
            observe=passive_observer.observe,
            metrics=self.metrics,
            record=self._recorder(),
        )
        self._make_prober_and_reloader()
        self.metrics.watch(self.snapshot_holder, self._worker.in_flight_by_service, self._worker.connections)
        self.metrics.watch_logs(
            lambda: self._log.dropped, lambda: self._process_log.dropped if self._process_log else 0
        )
        stack.callback(self.snapshot_holder.subscribe(self.metrics.snapshot_changed))
        if self._state_file is not None:
            # Closed after everything that changes the snapshot, so that it writes the last state.
            self._keeper = StateKeeper(self._state_file, self.snapshot_holder)
            stack.push_async_callback(self._keeper.close)
        self._admin = AdminSite(
            create_app(self._admin_context()),
            configured.admin.host,
            configured.admin.port,
            self.metrics.admin_error,
        )
        await self._admin.start()
        stack.push_async_callback(self._admin.stop)
        await self._worker.start(configured.listen)
        stack.push_async_callback(self._worker.abort)
        self._write_change_log(stack)
        if self._keeper is None:
            report_no_state_file()
        else:
            await self._keeper.start()
        stabilization_timer = StabilizationTimer(self.snapshot_holder, monotonic)
        stabilization_timer.start()
        stack.callback(stabilization_timer.close)
        await self._prober.start()
        stack.push_async_callback(self._prober.close)

    def _make_prober_and_reloader(self) -> None:
        # The clock by which the data plane dates passive observations: facts are compared by age.
        self._prober = Prober(
            self.snapshot_holder,
            self.metrics,
            self.settings.services,
            resolve=self._resolver.resolve,
            max_document=self.settings.limits.document,
            clock=monotonic,
        )
        self._reloader = Reloader(
            self._read,
            self.settings,
            snapshot_holder=self.snapshot_holder,
            resolver=self._resolver,
            prober=self._prober,
            metrics=self.metrics,
        )

    def _write_change_log(self, stack: AsyncExitStack) -> None:
        """Log what is in force, and from here on what changes."""
        recent = RecentRequests(self.metrics.served, monotonic)
        recent.start()
        stack.callback(recent.close)
        change_log = ChangeLog(monotonic, recent.last_hour)
        change_log.start(self.snapshot_holder.current)
        stack.callback(change_log.close)
        stack.callback(self.snapshot_holder.subscribe(change_log.log_changes))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the requests under way (not after an error), then close everything."""
        async with self._stack:
            if error is None:
                await self._worker.drain(self.settings.timeouts.drain)

    # --- addresses ------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bound host and port of each listener for clients."""
        return self._worker.addresses

    @property
    def admin_url(self) -> str:
        """The bound address of the admin listener, as a URL."""
        host, port = self._admin.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _admin_context(self) -> AdminContext:
        """What the admin listener may read and change."""
        return AdminContext(
            snapshots=self.snapshot_holder,
            metrics=self.metrics,
            config=lambda: self._reloader.config,
            reload=self._reloader.reload,
            apply=self.snapshot_holder.apply,
            state_saved=self._state_saved,
            last_probe_at=lambda: self._prober.last_probe_at,
            in_flight_by_member=lambda: self._worker.in_flight_by_member,
            known_documents=lambda: self._worker.context.known_documents,
            draining=lambda: self._worker.draining,
            limits=lambda: self._worker.context.limits,
            token=self.settings.admin.token,
            hosts=(self.settings.admin.host,),
        )

    async def _state_saved(self) -> bool:
        """Whether the present state is in the state file; waits until that is known."""
        return self._keeper is not None and await self._keeper.written()

    # --- requests -------------------------------------------------------------------------------------------

    def _recorder(self) -> Listener:
        """What gets the request records. It is on the hot path, so a single listener is called directly."""
        listeners: list[Listener] = [self.metrics.record]
        if self.settings.access_log.format != "off":
            listeners.append(self._log.record)
        listeners.extend(self._listeners)
        if len(listeners) == 1:
            return listeners[0]

        def record(request: RequestRecord) -> None:
            for listener in listeners:
                listener(request)

        return record

    # --- reload ---------------------------------------------------------------------------------------------

    def on_sighup(self) -> None:
        """For SIGHUP: reopen the access log and reload in the background. The log reports the outcome.

        Does nothing while the gateway starts, since the file has just been read.
        """
        if not self._running:
            return
        self._log.reopen()
        # Owned by `_reloads` until it is done.
        task = asyncio.get_running_loop().create_task(self._reloader.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def on_sigusr1(self) -> None:
        """For SIGUSR1: reopen the access log. Does nothing while the gateway starts."""
        if self._running:
            self._log.reopen()

    def _read(self) -> Loaded:
        if self._source is None:
            return Loaded("", self.settings, ())
        return read_file(self._source, environ=os.environ)
