"""The admin listener's application in front of a snapshot that a test sets, and how to send it requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Final, TypeAlias, cast

from aiohttp import ClientResponse, ClientSession, web

from gateway.admin import (
    AdminAccess,
    AdminContext,
    AdminSite,
    Commands,
    Explaining,
    bind_site,
    create_app,
    create_metrics_app,
)
from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.prober import Prober
from gateway.controlplane.reload import ReloadResult
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.core.days import DAY
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.limits import Limits
from gateway.core.usage.record import Count, Gap, RowKey, UsageReport
from gateway.keys.secrets import Secret
from gateway.runtime.compiled import build_info
from gateway.settings.sections.usage import UsageSettings
from gateway.telemetry.history import History
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.neighbours import AgreementReport, EngineReport
from gateway.telemetry.recent import NO_RATES, LastHour, ServiceRates, TrafficCounts
from gateway.telemetry.series.process import OfProcess
from gateway.telemetry.status import ConfigInForce, GatewayStatus, WorkerState
from gateway.telemetry.worker_report import WorkerReport
from tests.kit.ironic import holder_of, learn, service, upto


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _nobody_else(*, counters: bool) -> None:
    """Nothing to refresh: a testbed has no workers."""


@dataclass
class AdminTestbed:
    """What the admin listener reads and changes, and how a test sends requests to it."""

    snapshot_holder: SnapshotHolder
    metrics: Metrics = field(default_factory=Metrics)
    reload_result: ReloadResult = field(default_factory=ReloadResult)
    reloads: int = 0
    state_saved: bool = True
    pending: tuple[str, ...] = ()
    not_serving: str = ""
    report: WorkerReport = field(default_factory=WorkerReport)
    held_back: Mapping[str, int] = field(default_factory=dict)
    last_probe_at: Mapping[tuple[str, str], float] = field(default_factory=dict)
    config_error: str | None = None
    agreement: AgreementReport | None = None
    engine: EngineReport | None = None
    workers: Sequence[WorkerState] = (WorkerState(slot=0, pid=7, connections=3, state="serving", restarts=0),)
    history: History = field(default_factory=History)
    last_hour: Mapping[str, LastHour] = field(default_factory=dict)
    rates: Mapping[str, ServiceRates] = field(default_factory=dict)
    traffic: Mapping[str, Sequence[TrafficCounts]] = field(default_factory=dict)
    certificate_expiry: Mapping[str, float] = field(default_factory=dict)
    command: Callable[[str, OperatorCommand], Awaitable[None]] | None = None
    forget: Callable[[str], Awaitable[bool]] | None = None
    usage: Any = None
    facts: Any = None
    port: int = 0
    session: ClientSession | None = None

    def count_admin_error(self, reason: str) -> None:
        """As the gateway counts what goes wrong on its admin listener."""
        self.metrics.count(OfProcess.admin_errors, reason)

    def app(self, token: str | None = None, hosts: tuple[str, ...] = ()) -> web.Application:
        """The application as the gateway makes it, on what this testbed holds."""
        return create_app(self.context(token, hosts))

    def context(self, token: str | None = None, hosts: tuple[str, ...] = ()) -> AdminContext:
        """What the admin listener reads and may change, on what this testbed holds."""
        self.metrics.watch(self.snapshot_holder)
        return AdminContext(
            snapshots=self.snapshot_holder,
            not_serving=lambda: self.not_serving,
            agreement=lambda: self.agreement,
            refresh=_nobody_else,
            status=self.status,
            metrics=self.metrics,
            history=self.history,
            last_hour=lambda service: self.last_hour.get(service, LastHour({}, 0.0)),
            traffic=lambda service: self.traffic.get(service, ()),
            explaining=lambda: Explaining(Limits(), held_back=self.held_back),
            commands=Commands(
                apply=self.command or self._apply,
                reload=self._reload,
                in_force=self._in_force,
                saved=self._state_saved,
                forget=self.forget,
            ),
            access=AdminAccess(hosts=hosts, token=lambda: Secret(token) if token is not None else None),
            facts=self.facts or FreshFacts(self.snapshot_holder, cast(Prober, None), dict),
            usage=self.usage,
        )

    def status(self) -> GatewayStatus:
        """Makes the status of what this testbed holds."""
        return GatewayStatus(
            snapshot=self.snapshot_holder.current,
            build=build_info(),
            config=ConfigInForce("0123456789ab", 1790000000.0, self.config_error),
            report=self.report,
            rates=lambda service: self.rates.get(service, NO_RATES),
            now=time(),
            monotonic=monotonic(),
            not_serving=self.not_serving,
            workers=tuple(self.workers),
            agreement=self.agreement,
            engine=self.engine,
            last_probe_at=self.last_probe_at,
            certificate_expiry=self.certificate_expiry,
        )

    async def _apply(self, service: str, command: OperatorCommand) -> None:
        self.snapshot_holder.command(service, command)

    async def _reload(self) -> ReloadResult:
        self.reloads += 1
        return self.reload_result

    async def _in_force(self, service: str | None) -> tuple[str, ...]:
        return self.pending

    async def _state_saved(self) -> bool:
        return self.state_saved

    async def send(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> ClientResponse:
        assert self.session is not None
        url = f"http://127.0.0.1:{self.port}{target}"
        return await self.session.request(method, url, headers=headers, **more)

    async def json(self, target: str, **more: Any) -> Any:
        response = await self.send("GET", target, **more)
        assert response.status == 200, await response.text()
        return await response.json()

    async def raw(self, *lines: str) -> int:
        """Send these lines and a blank one; the status of the response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode("latin-1"))
        status = int((await reader.readline()).split()[1])
        writer.close()
        await writer.wait_closed()
        return status


StartAdmin: TypeAlias = Callable[..., Awaitable[AdminTestbed]]
"""(snapshot holder, token, hosts): the type of the fixture `admin`."""


@asynccontextmanager
async def on_site(
    snapshot_holder: SnapshotHolder,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    *,
    metrics_only: bool = False,
    **replicas: Any,
) -> AsyncIterator[AdminTestbed]:
    """The same on the real `AdminSite`, closed at the end. `metrics_only`: that of `metrics_listen`."""
    testbed = AdminTestbed(snapshot_holder, **replicas)
    create = create_metrics_app if metrics_only else create_app
    app = create(testbed.context(token, hosts))
    site = AdminSite(app, await bind_site("127.0.0.1", 0), testbed.count_admin_error)
    await site.start()
    try:
        async with ClientSession() as session:
            testbed.port, testbed.session = site.address[1], session
            yield testbed
    finally:
        await site.stop()


@asynccontextmanager
async def usage_of(
    holder: SnapshotHolder, *keys: RowKey, gaps: tuple[Gap, ...] = ()
) -> AsyncIterator[UsageKeeper]:
    """The record of usage in memory, with one request of each row a second ago."""
    now = time()
    rows = {(int(now // DAY), key): Count(1, now - 1, now - 1) for key in keys}

    def state(now: float) -> Batch:
        return Batch(now=now, gaps=gaps, snapshot=holder.current, records={}, config="0123456789ab")

    async def collect() -> None:
        """Nothing to collect: a testbed has no workers."""

    keeper = UsageKeeper(Database(None, UsageSettings()), state, collect)
    keeper.start()
    keeper.received(UsageReport("worker", 1, rows))
    try:
        yield keeper
    finally:
        await keeper.close()


BACKENDS: Final = (Backend("api-1", "10.0.0.1", 6385), Backend("api-2", "10.0.0.2", 6385))


def unknown_fleet(**options: Any) -> SnapshotHolder:
    """A service with two backends of which nothing is known yet."""
    return holder_of(service(*BACKENDS, **options))


def mixed_fleet(**options: Any) -> SnapshotHolder:
    """The same in the middle of an upgrade: 1.1-1.58 and 1.1-1.90."""
    holder = unknown_fleet(**options)
    learn(holder, "api-1", upto(58))
    learn(holder, "api-2", upto(90))
    return holder
