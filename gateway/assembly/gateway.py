"""The gateway object for `run`, `demo` and the tests: made from settings, serving inside `async with`.

So the demonstration and the tests use what runs. `running` has its parts.

    Prober, Reloader                   ->  SnapshotHolder       what is known and configured
    Resolver                           ->  DataPlane, Prober    the addresses of names
    DataPlane  ->  PassiveObserver     ->  SnapshotHolder       what requests bring
    DataPlane  ->  RequestRecord       ->  Metrics, AccessLog
    SnapshotHolder, DataPlane, Prober  ->  AdminSite            what people see
    SnapshotHolder                    <->  StateKeeper          what survives a restart
    SnapshotHolder, DataPlane         <->  Agreement            what several workers, or replicas, agree on
    ConfigWatch  ->  Reloader          ->  ServiceManager       what systemd is told
    Discovery    ->  SnapshotHolder, Resolver, Prober           backends that come and go
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from gateway.assembly import admin
from gateway.assembly.agreements import LateParts
from gateway.assembly.parts import Parts
from gateway.assembly.plan import Plan, known_at_start, number_of_workers
from gateway.assembly.running import Running, running
from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.resolver import Resolver
from gateway.handover.handover import Handover
from gateway.runtime.service_manager import ServiceManager
from gateway.settings import Settings
from gateway.settings.files import Seen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.status import GatewayStatus

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import MakeEngine


@final
class Gateway:
    """A gateway in this process and event loop. It serves inside `async with`; leaving that drains it.

    The constructor reads the state file. `source`: the file that a reload reads; without one, a reload finds
    the same settings again. `seen`: the files that `configured` is from, which are watched if it says so.
    `process_log`: the one that this process has installed, for the metrics. `resolver`: closed here.
    `engine`: makes the engine beside this gateway.
    """

    def __init__(
        self,
        configured: Settings,
        *,
        source: Path | None = None,
        seen: Seen | None = None,
        service_manager: ServiceManager | None = None,
        process_log: ProcessLog | None = None,
        resolver: Resolver | None = None,
        discovery: Discovery | None = None,
        handover: Handover | None = None,
        engine: MakeEngine | None = None,
    ) -> None:
        handover, discovery = handover or Handover(configured.state), discovery or Discovery()
        workers = number_of_workers(configured)
        alone = workers == 1 and engine is None
        known = known_at_start(configured, handover, discovery, alone=alone)
        self.settings = configured
        self.snapshot_holder = known.snapshot_holder
        self.metrics = Metrics(per_backend=configured.metrics.per_backend)
        self._plan = Plan(
            settings=configured,
            source=source,
            seen=seen or Seen(),
            service_manager=service_manager or ServiceManager({}),
            process_log=process_log,
            resolver=resolver or Resolver(),
            discovery=discovery,
            handover=handover,
            make_engine=engine,
            metrics=self.metrics,
            known=known,
            workers=workers,
            alone=alone,
        )
        self._late_parts = LateParts()
        self._stack = AsyncExitStack()
        self._running: Running | None = None
        """The gateway's running parts and admin listeners; None: it has not started."""

    async def __aenter__(self) -> Self:
        """Start the whole gateway. Raises `StartupError`, and then nothing runs."""
        self._running = await self._stack.enter_async_context(running(self._plan, self._late_parts))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the requests under way (not after an error), then close the gateway."""
        await self._stack.__aexit__(kind, error, trace)

    @property
    def parts(self) -> Parts:
        """The parts of the gateway, after its start, for tests."""
        return self._served.parts

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bound host and port of each listener for clients."""
        return self.parts.sockets.clients.addresses

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of each listener for clients; a Unix socket as it is written in the configuration."""
        return self.parts.sockets.clients.urls

    @property
    def admin_url(self) -> str:
        return self._served.admin.sites["admin"].url

    @property
    def metrics_url(self) -> str | None:
        """The bound address of the listener for metrics, as a URL; None: there is no such listener."""
        sites = self._served.admin.sites
        return sites["metrics"].url if "metrics" in sites else None

    def status(self) -> GatewayStatus:
        return admin.status(self.parts)

    @property
    def _served(self) -> Running:
        assert self._running is not None, "the gateway has not started"
        return self._running

    def on_sighup(self) -> None:
        """Reopen the access log, and reload the file in the background. Does nothing during the start."""
        if self._running is not None:
            self._running.signals.reload()

    def on_sigusr1(self) -> None:
        """Reopen the access log. Does nothing while the gateway starts."""
        if self._running is not None:
            self._running.signals.reopen_logs()

    def on_second_stop(self) -> None:
        """Kill the worker processes, because this process ends at once."""
        self._late_parts.kill()
