"""The composition root: a whole running gateway, put together from its parts.

`run`, `demo` and the tests start it here, so that what is shown and tested is what runs. Builds, starts and
stops the parts in the right order. Decides nothing about requests and knows no command-line verb.

    Prober, Reloader                   ->  SnapshotHolder       what is known and configured
    Resolver                           ->  DataPlane, Prober    the addresses of names
    DataPlane  ->  PassiveObserver     ->  SnapshotHolder       what requests bring
    DataPlane  ->  RequestRecord       ->  Metrics, AccessLog, listeners
    SnapshotHolder, DataPlane, Prober  ->  AdminSite            what people see
    SnapshotHolder                    <->  StateKeeper          what survives a restart
    SnapshotHolder, DataPlane         <->  Agreement            what several workers, or replicas, agree on
    ConfigWatch  ->  Reloader          ->  ServiceManager       what systemd is told
    Discovery    ->  SnapshotHolder, Resolver, Prober           backends that come and go

The data plane is one worker in this process, or several processes (`data_planes`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, final

from gateway.admin import Access, AdminContext, Commands, Explaining
from gateway.assembly.admin_listeners import AdminListeners
from gateway.assembly.agreements import AgreementParts, begins_with, make_agreement
from gateway.assembly.data_planes import (
    DataPlaneParts,
    make_data_plane,
    number_of_workers,
)
from gateway.assembly.first_facts import first_facts, has_offer
from gateway.compiled import build_info
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.certificate_watch import ADMIN, CertificateWatch, tls_of
from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.config_watch import ConfigWatch
from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.documents import WORKERS
from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import Reloader
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stabilization_timer import StabilizationTimer
from gateway.controlplane.state.keeper import StateKeeper, load_state, report_no_state_file
from gateway.core.agreement.attachment import Registered
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.engine import Engine, MakeEngine
from gateway.errors import CLIENT_ERROR_REASONS, CertificateError, StartupError
from gateway.handover.handover import Handover
from gateway.handover.predecessor import Predecessor
from gateway.service_manager import ServiceManager
from gateway.settings import Loaded, Settings, read_file
from gateway.settings.own_addresses import own_addresses
from gateway.settings.sources import Seen
from gateway.telemetry.agreement import AgreementReport
from gateway.telemetry.engine import EngineReport, with_engine
from gateway.telemetry.history import History
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_families import StateWrites
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.rates import Rates
from gateway.telemetry.recent import RecentRequests
from gateway.telemetry.status import GatewayStatus
from gateway.telemetry.worker_report import WorkerReport, plus
from gateway.tls.client import ClientContexts, backends_tls, read_contexts
from gateway.tls.server import ServerCertificates
from gateway.workers.recording import Listener

if TYPE_CHECKING:
    from gateway.controlplane.replication.replication import Replication

READ_AGAIN: Final = 3
"""Times that the configuration is read anew because a file has changed meanwhile."""


@final
class Gateway:
    """One gateway in this process and event loop. It serves inside `async with`; leaving that drains it.

    The constructor reads the state file. `source` is the file that a reload reads; without one, a reload
    finds the same settings again. `seen`: the files that `configured` is from, which are watched (unless it
    says otherwise). `service_manager` is told how the gateway is. `listeners` are called with every request
    record, after metrics and access log; they must neither block nor raise. `process_log`: the one that this
    process has installed, for the metrics. `resolver`: closed here; by default one that goes by the files of
    the system. `handover`: the gateway before this one, and after. `engine`: makes the one beside this
    gateway.
    """

    def __init__(
        self,
        configured: Settings,
        *,
        source: Path | None = None,
        seen: Seen | None = None,
        service_manager: ServiceManager | None = None,
        listeners: Sequence[Listener] = (),
        process_log: ProcessLog | None = None,
        resolver: Resolver | None = None,
        discovery: Discovery | None = None,
        handover: Handover | None = None,
        engine: MakeEngine | None = None,
    ) -> None:
        self.settings = configured
        self._handover = handover or Handover(configured.state)
        self._state_file = self._handover.state_file()
        saved = None if self._state_file is None else load_state(self._state_file, configured.services)
        self._discovery = discovery or Discovery()
        self._discovery.restore(configured.services, saved or {})
        self._services = self._discovery.completed(configured.services)
        """With what the state file remembers of backends that were discovered: those of the start."""
        self._number = number_of_workers(configured)
        """Of workers."""
        alone = self._number == 1 and engine is None
        begins = begins_with(configured, alone=alone)
        self.snapshot_holder = SnapshotHolder(
            Snapshot.configured(
                self._services,
                now=monotonic(),
                saved=saved,
                untrusted_headers=configured.untrusted_headers,
                agreed=begins,
            ),
            monotonic,
            begins,
        )
        self._agreement, self._replication = self._make_agreement(saved or {}, alone=alone)
        self._engine = self._make_engine(engine)
        self._handover.orphans_changed = self._agreement.acknowledged
        self.metrics = Metrics(CLIENT_ERROR_REASONS, per_backend=configured.metrics.per_backend)
        self._source = source
        self._seen = seen or Seen()
        self._service_manager = service_manager or ServiceManager({})
        self._listeners = tuple(listeners)
        self._process_log = process_log
        self._resolver = resolver or Resolver()
        self._keeper: StateKeeper | None = None
        self._client_contexts = ClientContexts()
        self._stack = AsyncExitStack()
        self._reloads: set[asyncio.Task[object]] = set()
        self._history = History()
        self._recent = RecentRequests(self.metrics.served, monotonic)
        self._rates = Rates(self.metrics.request_counts, monotonic)
        self._running = False
        self._kill_workers: Callable[[], None] = lambda: None

    def _make_agreement(
        self, saved: Mapping[str, SavedState], *, alone: bool
    ) -> tuple[Agreement, Replication | None]:
        """Without the second one this gateway stands alone."""
        return make_agreement(
            AgreementParts(
                settings=self.settings,
                snapshot_holder=self.snapshot_holder,
                saved=saved,
                alone=alone,
                held=self._held,
                in_flight=self._in_flight,
                deadlines=self._tell_deadlines,
                orphans=self._handover.orphans_left,
                save=None if self._state_file is None else self._save,
            )
        )

    def _make_engine(self, engine: MakeEngine | None) -> Engine | None:
        def ejected() -> Collection[str]:
            return self._data_plane.report().ejected.keys()

        return None if engine is None else engine(self.snapshot_holder, self._agreement.acknowledged, ejected)

    # --- start and stop -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start everything. Raises `StartupError`, and then nothing runs."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        self._running = True
        return self

    async def _start(self, stack: AsyncExitStack) -> None:
        """The listeners first, so that a taken port is found before any backend is asked; then the probes."""
        configured = self.settings
        self._history.start()
        stack.callback(self._history.close)
        stack.push_async_callback(self._handover.close)  # the last thing that is closed but for the history
        stack.callback(self._service_manager.close)
        stack.push_async_callback(self._resolver.close)
        self._resolver.retarget(self._services)
        passive_observer = PassiveObserver(self.snapshot_holder, self.metrics)
        certificates = await self._read_certificates()
        self._sockets = await self._handover.bind(configured.listen, self._number)
        stack.callback(self._sockets.close)
        parts = DataPlaneParts(
            settings=configured,
            snapshot_holder=self.snapshot_holder,
            metrics=self.metrics,
            resolver=self._resolver,
            client_contexts=self._client_contexts,
            sockets=self._sockets,
            certificates=certificates,
            observe=passive_observer.observe,
            acknowledged=self._agreement.acknowledged,
            listeners=self._listeners,
        )
        self._data_plane = make_data_plane(parts, stack)
        self._kill_workers = self._data_plane.kill
        self._make_prober_and_reloader()
        self._connect_metrics()
        stack.callback(self.snapshot_holder.subscribe(self.metrics.snapshot_changed))
        if self._state_file is not None:
            # Closed after everything that changes the snapshot, so that it writes the last state.
            self._keeper = StateKeeper(
                self._state_file,
                self.snapshot_holder,
                documents=self._agreement.to_save,
                registrations=self._registrations,
                paused=self._handover.taken is not None,
            )
            stack.push_async_callback(self._keeper.close)
        stack.callback(passive_observer.close)  # before the keeper: what waits is a part of the last state
        own = certificates.get(ADMIN)
        self._admin = AdminListeners(configured.admin, self._admin_context(own), self.metrics, own)
        await self._admin.bind(stack, {"admin": self._handover.admin, "metrics": self._handover.metrics})
        stack.push_async_callback(self._agreement.close)
        stack.push_async_callback(self._data_plane.abort)
        if self._handover.taken is not None:
            self._agreement.hold(everything=False)
        self._agreement.start()
        await self._learn(stack)
        if self._handover.taken is None:
            await self._admin.start()
        await self._data_plane.start()
        self._watch(stack)
        await self._serve()
        if self._engine is not None:
            stack.push_async_callback(self._engine.close)
            await self._engine.start()
        self._service_manager.ready(self._status_line)
        self._offer_hand_over()

    async def _serve(self) -> None:
        """Accept clients from now on. If this gateway takes over, the other one serves by the documents that
        are held here as well, until there is nothing left to wait for; then it stops, and this one goes on.
        """
        taken = self._handover.taken
        await first_facts(
            self.snapshot_holder, self._prober, self._data_plane, self._handover, self._replication
        )
        if taken is not None:
            await taken.ready()
            if self._keeper is not None:
                self._keeper.resume()
            await self._admin.start()
        await self._data_plane.listen()
        await self._handover.serving(self._agreement.release)

    def _offer_hand_over(self) -> None:
        """The next gateway may take over from now on."""
        if self._state_file is None or self._keeper is None:
            return
        self._handover.offer(
            Predecessor(
                agreement=self._agreement,
                snapshot_holder=self.snapshot_holder,
                reloader=self._reloader,
                state_file=self._state_file,
                keeper=self._keeper,
                sockets=self._sockets,
                data_plane=self._data_plane,
                sites=self._admin.sites(),
                service_manager=self._service_manager,
                end=self._handover.handed_over,
            )
        )

    def _held(self, service: str) -> int | None:
        """What the agreement asks about the workers and the engine."""
        held = [self._data_plane.held(service)]
        if self._engine is not None:
            held.append(self._engine.held(service))
        return min((each for each in held if each is not None), default=None)

    def _registrations(self) -> Mapping[str, Registered]:
        return {} if self._replication is None else self._replication.registrations()

    def _tell_deadlines(self, deadlines: Mapping[str, float]) -> None:
        self._data_plane.deadlines(deadlines)

    async def _save(self) -> bool:
        """Write what workers hold, or are about to, to the state file."""
        return self._keeper is not None and await self._keeper.write()

    def _connect_metrics(self) -> None:
        """What the metrics ask of others when they are scraped."""
        self.metrics.watch(self.snapshot_holder, self._report)
        self.metrics.watch_admin(self._admin_connections)
        self.metrics.watch_certificates(self._certificates.expiry)
        self.metrics.watch_names(self._resolver.report, self._discovery.report)
        self.metrics.watch_agreement(self._agreement_report)
        self.metrics.watch_engine(self._engine_report)
        self.metrics.watch_config(lambda: self._reloader.config.hash)
        self.metrics.watch_state(self._state_writes)

    def _report(self) -> WorkerReport:
        """Returns the gauges of all workers, with the process log of this process."""
        dropped = 0 if self._process_log is None else self._process_log.dropped
        return plus(self._data_plane.report(), WorkerReport(process_log_dropped=dropped))

    async def _learn(self, stack: AsyncExitStack) -> None:
        """Start what changes what is known. The first probes are sent before anything that waits: for the
        disk, or for worker processes, which take longer than the backends' responses."""
        self._write_change_log(stack)
        stabilization_timer = StabilizationTimer(self.snapshot_holder, monotonic)
        stabilization_timer.start()
        stack.callback(stabilization_timer.close)
        await self._prober.start()
        stack.push_async_callback(self._prober.close)
        self._discovery.connect(
            self.snapshot_holder,
            resolver=self._resolver,
            prober=self._prober,
            own=own_addresses(self.settings.listen, self.settings.admin),
        )
        self._discovery.retarget(self._services)
        stack.push_async_callback(self._discovery.close)
        if self._keeper is None:
            report_no_state_file()
        else:
            await self._keeper.start()  # before a response of a backend is read: documents need it

    def _watch(self, stack: AsyncExitStack) -> None:
        """Start what changes what is configured: nothing does before anybody can be served."""
        self._certificates.start()
        stack.push_async_callback(self._certificates.close)
        stack.push_async_callback(self._end_reloads)
        if self._seen.files and self.settings.watch:
            config_watch = ConfigWatch(self._reloader)
            config_watch.start()
            stack.push_async_callback(config_watch.close)

    def _on_certificates(self) -> None:
        self._data_plane.read_certificates()

    async def _end_reloads(self) -> None:
        """A reload under way is given up: what it would put in force is being closed."""
        self._running = False
        reloads = tuple(self._reloads)
        for task in reloads:
            task.cancel()
        await asyncio.gather(*reloads, return_exceptions=True)

    async def _read_certificates(self) -> dict[str, ServerCertificates]:
        """The certificates of the listeners with TLS, and the contexts of backends. Raises `StartupError`:
        files may have changed since they were checked."""
        services = self.settings.services
        try:
            self._client_contexts.put_in_force(await asyncio.to_thread(read_contexts, backends_tls(services)))
            certificates = {
                # Operators' sessions are not resumed: each handshake verifies their certificate.
                name: await asyncio.to_thread(ServerCertificates, tls, resumption=name != ADMIN)
                for name, tls in tls_of(self.settings).items()
            }
        except CertificateError as error:
            raise StartupError(f"{error.path or error.part}: {error}") from error
        self._certificates = CertificateWatch(
            certificates,
            self.metrics,
            self._client_contexts.expiry,
            on_read=self._on_certificates,
        )
        return certificates

    def _admin_connections(self) -> dict[str, tuple[int, int]]:
        return self._admin.connections()

    def _make_prober_and_reloader(self) -> None:
        # The clock by which the data plane dates passive observations: facts are compared by age.
        self._prober = Prober(
            self.snapshot_holder,
            self.metrics,
            self._services,
            resolve=self._resolver.resolve,
            clock=monotonic,
            client_contexts=self._client_contexts,
        )
        self._reloader = Reloader(
            self._read,
            self.settings,
            snapshot_holder=self.snapshot_holder,
            resolver=self._resolver,
            prober=self._prober,
            metrics=self.metrics,
            certificates=self._certificates,
            client_contexts=self._client_contexts,
            discovery=self._discovery,
            announce=self._service_manager.reloading,
            applied=self._applied,
            seen=self._seen,
        )

    def _applied(self, settings: Settings) -> None:
        """The part of a reload that no other part of the gateway asks for."""
        self._data_plane.configured(settings)
        if self._process_log is not None:
            self._process_log.configure(settings.log)

    def _status_line(self) -> str:
        """For the service manager: what is served, and whether the file is in force."""
        views, config = self.snapshot_holder.current.views.values(), self._reloader.config
        serving = sum(map(has_offer, views))
        line = f"{serving} of {len(views)} services have an offer, configuration {config.hash}"
        return f"the last reload was refused: {config.error}; {line}" if config.error else line

    def _write_change_log(self, stack: AsyncExitStack) -> None:
        """Log what is in force, and from here on what changes. Count what the log and the admin listener tell
        of the last hour, and of this moment."""
        for sampler in (self._recent, self._rates):
            sampler.start()
            stack.callback(sampler.close)
        replication = self._replication
        change_log = ChangeLog(
            monotonic,
            self._recent.last_hour,
            None if replication is None else lambda service: replication.report().why_held(service),
        )
        change_log.start(self.snapshot_holder.current)
        stack.callback(change_log.close)
        stack.callback(self.snapshot_holder.subscribe(change_log.log_changes))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the requests under way (not after an error), then close everything."""
        async with self._stack:
            self._service_manager.stopping(self.settings.timeouts.drain if error is None else 0.0)
            await self._handover.give_up()
            if self._handover.is_handed_over:
                await self._admin.stop()  # who has a connection here finds the new gateway so
            if error is None:
                await self._data_plane.stop_accepting()
                self._sockets.close()  # who connects now is refused, unless somebody else has them
                await self._data_plane.drain(self.settings.timeouts.drain)

    @property
    def frozen(self) -> str:
        """Why commands and reloads are refused at this moment, a sentence; empty: they are not."""
        return self._handover.frozen()

    # --- addresses ------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bound host and port of each listener for clients."""
        return self._sockets.addresses

    @property
    def urls(self) -> tuple[str, ...]:
        """The same as URLs; a Unix socket as it is written in the configuration."""
        return self._sockets.urls

    @property
    def admin_url(self) -> str:
        """The bound address of the admin listener, as a URL."""
        return self._admin.url

    @property
    def metrics_url(self) -> str | None:
        """That of the listener for metrics, if there is one."""
        return self._admin.metrics_url

    def status(self) -> GatewayStatus:
        """Makes the status of this moment."""
        plane = self._data_plane
        return GatewayStatus(
            snapshot=self.snapshot_holder.current,
            build=build_info(),
            config=self._reloader.config,
            report=self._report(),
            rates=self._rates.of,
            now=time(),
            monotonic=monotonic(),
            not_serving=plane.not_serving,
            workers=tuple(plane.workers()),
            agreement=self._agreement_report(),
            engine=self._engine_report(),
            sources=tuple(self._discovery.report()),
            last_probe_at=dict(self._prober.last_probe_at),
            certificate_expiry=self._certificates.expiry(),
            state_writes=self._state_writes(),
        )

    def _admin_context(self, certificates: ServerCertificates | None) -> AdminContext:
        """What the admin listener shows and may change."""
        plane, replication, admin = self._data_plane, self._replication, self.settings.admin
        return AdminContext(
            snapshots=self.snapshot_holder,
            not_serving=lambda: plane.not_serving,
            agreement=self._agreement_report,
            refresh=plane.look,
            status=self.status,
            metrics=self.metrics,
            history=self._history,
            last_hour=self._recent.last_hour,
            explaining=lambda: Explaining(self.settings.limits, plane.known_documents, plane.held_back),
            commands=Commands(
                apply=self._apply,
                reload=self._reloader.reload,
                in_force=self._in_force,
                saved=self._state_saved,
                forget=None if replication is None else replication.forget,
                frozen=self._handover.frozen,
            ),
            access=Access(
                hosts=(admin.host, *admin.hosts),
                token=lambda: self._reloader.settings.admin.token,
                by_certificate=lambda: (
                    certificates is not None and certificates.settings.client_ca is not None
                ),
            ),
        )

    async def _apply(self, service: str, command: OperatorCommand) -> None:
        """Give an operator's command: where there are replicas, to all of them. Raises `StoreError`."""
        if self._replication is None:
            self.snapshot_holder.apply(service, command)
        else:
            await self._replication.command(service, command)

    def _state_writes(self) -> StateWrites | None:
        return None if self._keeper is None else self._keeper.writes()

    def _agreement_report(self) -> AgreementReport | None:
        return None if self._replication is None else self._replication.report()

    def _in_flight(self) -> Mapping[str, int]:
        """For others, who wait until a drained backend is idle: of the engine, too."""
        return with_engine(self._data_plane.in_flight_by_member, self._engine_report())

    def _engine_report(self) -> EngineReport | None:
        return None if self._engine is None else self._engine.report()

    async def _in_force(self, service: str | None) -> Sequence[str]:
        """Wait until every worker holds what is in force. For whom it still waits after some seconds."""
        agreed = await self._agreement.in_force(service)
        if await self._data_plane.in_force() and agreed:
            return ()
        awaited = self._agreement.awaited()
        return sorted({whom for name, whom in awaited.items() if service in {None, name}}) or [WORKERS]

    async def _state_saved(self) -> bool:
        """Whether the present state is in the state file; waits until that is known."""
        return self._keeper is not None and await self._keeper.written()

    # --- reload ---------------------------------------------------------------------------------------------

    def on_sighup(self) -> None:
        """For SIGHUP: reopen the access log and reload in the background. The log reports the outcome.

        Does nothing while the gateway starts, since the file has just been read.
        """
        if not self._running:
            return
        self._data_plane.reopen_logs()
        # Owned by `_reloads` until it is done.
        task = asyncio.get_running_loop().create_task(self._reloader.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def on_second_stop(self) -> None:
        """For a second SIGTERM or SIGINT: this process ends now, and leaves no other one behind."""
        self._kill_workers()

    def on_sigusr1(self) -> None:
        """For SIGUSR1: reopen the access log. Does nothing while the gateway starts."""
        if self._running:
            self._data_plane.reopen_logs()

    def _read(self) -> Loaded:
        """The files as they are together: of one moment, also when somebody swaps them meanwhile."""
        if self._source is None:
            return Loaded("", self.settings, ())
        loaded = read_file(self._source, environ=os.environ, again=True)
        for _ in range(READ_AGAIN):
            if loaded.seen == loaded.seen.again():
                break
            loaded = read_file(self._source, environ=os.environ, again=True)
        return loaded
