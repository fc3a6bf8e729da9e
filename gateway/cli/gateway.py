"""A whole running gateway, put together from its parts: the composition root.

`run`, `demo` and tests all start it here, so that what is shown and tested is what runs. Builds, starts and
stops the parts in the right order; decides nothing about requests and knows no verb.

    Prober, Reloader          ->  Cell      what is known and configured
    Worker  ->  Overhearing   ->  Cell      what requests bring
    Worker  ->  Outcome  ->  Metrics, AccessLog, listeners
    Cell, Worker, Prober      ->  AdminSite  what people see
    Cell                     <->  StateKeeper  what survives a restart
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
from gateway.controlplane.cell import Cell
from gateway.controlplane.journal import Journal
from gateway.controlplane.overhearing import Overhearing
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.controlplane.settling import Settling
from gateway.controlplane.state import StateKeeper, recalled, say_that_nothing_is_kept
from gateway.controlplane.state_file import StateFile
from gateway.core.snapshot import Snapshot
from gateway.dataplane.worker import Worker
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.settings import Loaded, Settings, read_file
from gateway.telemetry.access_log import AccessLog, Format
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.outcome import Outcome
from gateway.telemetry.recent import Recent

Listener: TypeAlias = Callable[[Outcome], None]


@final
class Gateway:
    """One gateway in this process and loop. Serves inside `async with`; leaving it drains.

    Making one reads the state file. `source` is the file that a reload reads; without one a reload finds the
    same settings again. `listeners` are called with every outcome after metrics and access log; they must
    neither block nor raise.
    """

    def __init__(
        self, configured: Settings, *, source: Path | None = None, listeners: Sequence[Listener] = ()
    ) -> None:
        self.settings = configured
        self._state = StateFile(configured.state) if configured.state is not None else None
        kept = None if self._state is None else recalled(self._state, configured.services)
        self.cell = Cell(Snapshot.configured(configured.services, now=monotonic(), kept=kept), monotonic)
        self.metrics = Metrics(CLIENT_ERROR_REASONS)
        self._source = source
        self._listeners = tuple(listeners)
        self._keeper: StateKeeper | None = None
        self._stack = AsyncExitStack()
        self._reloads: set[asyncio.Task[object]] = set()
        self._running = False

    # -- life

    async def __aenter__(self) -> Self:
        """Start everything. Raises `StartupError`; then nothing runs."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        self._running = True
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        """Listeners first, so that a taken port is found before any backend is asked; the probes last."""
        configured = self.settings
        form = cast(Format, configured.access_log.format)  # one of its words: the file was checked
        self._log = AccessLog(form, configured.access_log.path)
        stack.callback(self._log.close)
        overhearing = Overhearing(self.cell, self.metrics)
        stack.callback(overhearing.close)
        self._worker = Worker(
            limits=configured.limits,
            timeouts=configured.timeouts,
            trusted=configured.trusted_proxies,
            snapshots=self.cell,
            observe=overhearing.observe,
            metrics=self.metrics,
            record=self._recorder(),
        )
        # By the clock with which the data plane dates what it overhears: facts are compared by age.
        self._prober = Prober(self.cell, self.metrics, configured.services, clock=monotonic)
        self._reloader = Reloader(
            self._read, configured, cell=self.cell, prober=self._prober, metrics=self.metrics
        )
        self.metrics.watch(self.cell, self._worker.in_flight, self._worker.connections)
        self.metrics.watch_access_log(lambda: self._log.dropped)
        stack.callback(self.cell.subscribe(self.metrics.snapshot_changed))
        if self._state is not None:
            # Closed after all that changes the cell: what it writes then is the last word.
            self._keeper = StateKeeper(self._state, self.cell)
            stack.push_async_callback(self._keeper.close)
        self._admin = AdminSite(
            create_app(self._admin_context()), configured.admin.host, configured.admin.port
        )
        await self._admin.start()
        stack.push_async_callback(self._admin.stop)
        await self._worker.start(configured.listen)
        stack.push_async_callback(self._worker.abort)
        self._write_journal(stack)
        if self._keeper is None:
            say_that_nothing_is_kept()
        else:
            await self._keeper.start()
        settling = Settling(self.cell, monotonic)
        settling.start()
        stack.callback(settling.close)
        await self._prober.start()
        stack.push_async_callback(self._prober.close)

    def _write_journal(self, stack: AsyncExitStack) -> None:
        """From here on the log tells what changes; first what is in force."""
        recent = Recent(self.metrics.served, monotonic)
        recent.start()
        stack.callback(recent.close)
        journal = Journal(monotonic, recent.last_hour)
        journal.begin(self.cell.current)
        stack.callback(self.cell.subscribe(journal.note_changes))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the requests under way (unless something broke), then close everything."""
        async with self._stack:
            if error is None:
                await self._worker.drain(self.settings.timeouts.drain)

    # -- what is where

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port on which clients are really served."""
        return self._worker.addresses

    @property
    def admin_url(self) -> str:
        """Where the admin listener really is."""
        host, port = self._admin.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _admin_context(self) -> AdminContext:
        """All that people may look at."""
        return AdminContext(
            snapshots=self.cell,
            metrics=self.metrics,
            config=lambda: self._reloader.config,
            reload=self._reloader.reload,
            obey=self.cell.obey,
            kept=self._kept,
            last_probe_at=lambda: self._prober.last_probe_at,
            load=lambda: self._worker.load,
            draining=lambda: self._worker.draining,
            token=self.settings.admin.token,
            hosts=(self.settings.admin.host,),
        )

    async def _kept(self) -> bool:
        """Whether what is in force is in the state file, as soon as that is known."""
        return self._keeper is not None and await self._keeper.written()

    # -- requests

    def _recorder(self) -> Listener:
        """Whom an outcome is told: in one call when there is only one to tell, for it is on the hot path."""
        told: list[Listener] = [self.metrics.record]
        if self.settings.access_log.format != "off":
            told.append(self._log.record)
        told.extend(self._listeners)
        if len(told) == 1:
            return told[0]

        def record(outcome: Outcome) -> None:
            for tell in told:
                tell(outcome)

        return record

    # -- reloading

    def hang_up(self) -> None:
        """SIGHUP: open the access log anew and reload in the background; the log says what came of it.

        Nothing to do while the gateway starts: its file has only just been read.
        """
        if not self._running:
            return
        self._log.reopen()
        # Owned by `_reloads` until it is done.
        task = asyncio.get_running_loop().create_task(self._reloader.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _read(self) -> Loaded:
        if self._source is None:
            return Loaded("", self.settings, ())
        return read_file(self._source, environ=os.environ)
