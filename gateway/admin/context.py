"""What the admin listener reads and may change, as one value. `gateway.assembly` makes it.

Knows no request and no endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, final

from gateway.admin import views
from gateway.compiled import build_info
from gateway.controlplane.reload import ConfigInForce, ReloadResult
from gateway.core.decision.document_key import DocumentKey
from gateway.core.decision.explanation import Load
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.snapshot import SnapshotSource
from gateway.dataplane.http1.request_head import HeadLimits
from gateway.keys.secrets import Secret
from gateway.telemetry.agreement import AgreementReport
from gateway.telemetry.discovery import SourceReport
from gateway.telemetry.engine import EngineReport, with_engine
from gateway.telemetry.history import History
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_families import StateWrites
from gateway.telemetry.rates import NO_RATES, ServiceRates
from gateway.telemetry.recent import LastHour
from gateway.telemetry.worker_report import WorkerReport
from gateway.workers.data_plane import WorkerState


async def _no_other_process(counters: bool) -> None:  # noqa: FBT001 - one of two questions
    """Where one worker serves in this process, what is read is always of this moment."""


async def _at_once(service: str | None) -> Sequence[str]:
    """Where one worker serves in this process, everything is in force when it is commanded."""
    return ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """Everything that the admin listener reads and may change. Callables are called on every request."""

    snapshots: SnapshotSource
    metrics: Metrics
    config: Callable[[], ConfigInForce]
    reload: Callable[[], Awaitable[ReloadResult]]
    apply: Callable[[str, OperatorCommand], None]
    """Apply an operator's command about a service: `SnapshotHolder.apply`."""
    state_saved: Callable[[], Awaitable[bool]]
    """Wait until the present state is in the state file. False: it cannot be written, or there is no file."""
    command: Callable[[str, OperatorCommand], Awaitable[None]] | None = None
    """Say an operator's command to all replicas, and apply it here: `Replication.command`. Raises
    `StoreError`. None: this gateway stands alone, and `apply` is all."""
    forget: Callable[[str], Awaitable[bool]] | None = None
    """End the registration of a replica: `Replication.forget`. False: it is live, or not registered. Raises
    `StoreError`. None: this gateway stands alone."""
    agreement: Callable[[], AgreementReport | None] = lambda: None
    """How this replica stands to the others: `Replication.report`. None: this gateway stands alone."""
    engine: Callable[[], EngineReport | None] = lambda: None
    """How the engine beside this gateway stands: `Engine.report`. None: there is none."""
    in_force: Callable[[str | None], Awaitable[Sequence[str]]] = _at_once
    """Wait until what was commanded about a service (None: about any) is in force in every worker. Returns
    for whom it still waits after some seconds."""
    look: Callable[[bool], Awaitable[None]] = _no_other_process
    """Ask all workers how they are, so that what follows is of this moment; True: what they have counted,
    too. Takes a second at most."""
    frozen: Callable[[], str] = str
    """Why commands and reloads are refused at this moment, a sentence; empty: they are not."""
    last_probe_at: Callable[[], Mapping[tuple[str, str], float]]
    """Wall-clock seconds by (service, backend): `Prober.last_probe_at`."""
    report: Callable[[], WorkerReport]
    """Returns the gauges of all workers of this gateway: `DataPlane.report`."""
    known_documents: Callable[[], Container[DocumentKey]]
    """Discovery documents that can be answered without a backend: `Context.known_documents`."""
    not_serving: Callable[[], str]
    """Why no client is accepted at this moment; empty: they are. `Worker.not_serving`."""
    limits: Callable[[], HeadLimits]
    """Those of request heads, in force."""
    held_back: Callable[[], Mapping[str, int]] = dict
    """As for `selection.select`: `Context.held_back`."""
    workers: Callable[[], Iterable[WorkerState]] = tuple
    """Who serves the requests: `DataPlane.workers`."""
    sources: Callable[[], Iterable[SourceReport]] = tuple
    """Where backends come from: `Discovery.report`."""
    history: History = field(default_factory=History)
    """The last events."""
    last_hour: Callable[[str], LastHour] = lambda _: LastHour({}, 0.0)
    """What a service has served lately: `RecentRequests.last_hour`."""
    rates: Callable[[str], ServiceRates] = lambda _: NO_RATES
    """Requests per second of a service lately: `Rates.of`."""
    certificate_expiry: Callable[[], Mapping[str, float]] = dict
    """When each certificate in force expires: wall-clock seconds, by path."""
    state_writes: Callable[[], StateWrites | None] = lambda: None
    """Whether the state file can be written. None: there is none."""
    token: Callable[[], Secret | None] = lambda: None
    """The one in force."""
    by_certificate: Callable[[], bool] = lambda: False
    """Whether the listener verifies certificates of clients: then one stands for the token."""
    hosts: tuple[str, ...] = ()
    """Names that `Host` may hold besides loopback and the bound address: the configured listen host."""

    def status(self) -> dict[str, Any]:
        """The document of `/status` at this moment."""
        config, now, report, engine = self.config(), time(), self.report(), self.engine()
        return views.status(
            self.snapshots.current,
            build_info(),
            {"hash": config.hash, "loaded_at": config.loaded_at, "error": config.error},
            self.last_probe_at(),
            with_engine(report.in_flight_by_member, engine),
            ejected={
                key: views.Ejected(now + each.seconds, each.reason) for key, each in report.ejected.items()
            },
            waiting_by_member=report.waiting_by_member,
            workers=self.workers(),
            sources=self.sources(),
            wall_offset=now - monotonic(),
            agreement=self.agreement(),
            engine=engine,
        )

    async def pending(self, service: str | None) -> list[str]:
        """For whom what was commanded still waits: `in_force`, with replicas by name."""
        waits_for = await self.in_force(service)
        report = self.agreement()
        if report is None:
            return list(waits_for)
        found = (each for whom in waits_for for each in whom.split(", "))
        return sorted({report.name_of(each) for each in found})

    def load(self) -> Load:
        """What keeps requests from members at this moment, for `explain`."""
        report = self.report()
        ejected = {key: each.reason for key, each in report.ejected.items()}
        return Load(report.in_flight_by_member, self.held_back(), ejected)
