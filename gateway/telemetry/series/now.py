"""What gauges are read from: one moment of the gateway, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, final

from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import ServiceView
from gateway.telemetry.neighbours import AgreementReport, EngineReport, NameReport, SourceReport
from gateway.telemetry.process_stats import ProcessStats
from gateway.telemetry.status import StateWrites
from gateway.telemetry.worker_report import WorkerReport


@final
class Now(NamedTuple):
    """The gateway at the moment of a scrape."""

    report: WorkerReport = WorkerReport()
    """Gauges of all workers."""
    admin_connections: Mapping[str, tuple[int, int]] = {}
    """Open connections and their limit, by `admin` and `metrics`."""
    certificate_expiry: Mapping[str, float] = {}
    """Seconds since the epoch at which certificates in force expire, by path."""
    names: Iterable[NameReport] = ()
    sources: Iterable[SourceReport] = ()
    agreement: AgreementReport | None = None
    """None: this gateway stands alone."""
    engine: EngineReport | None = None
    """None: there is none."""
    config_hash: str = ""
    """Checksum of the configuration in force; empty: not known."""
    state: StateWrites | None = None
    """None: there is no state file."""
    # The rest is filled in by `Metrics.exposition`.
    stats: ProcessStats | None = None
    """A look at the process."""
    views: Mapping[str, ServiceView] = {}
    """Services in force, in the order of the file."""
    wall_offset: float = 0.0
    """Seconds from the clock that dates facts to the epoch."""


@final
class OneBackend(NamedTuple):
    """A backend of a service that is in force."""

    view: ServiceView
    member: Member
