"""Values of one moment of the gateway, from which gauges are read."""

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
    """State of the gateway at the moment of a scrape."""

    report: WorkerReport = WorkerReport()
    admin_connections: Mapping[str, tuple[int, int]] = {}
    """Open connections and their limit, by listener for operators or scrapers (`admin`, `metrics`)."""
    certificate_expiry: Mapping[str, float] = {}
    """Seconds since the epoch at which certificates in force expire, by path."""
    names: Iterable[NameReport] = ()
    sources: Iterable[SourceReport] = ()
    agreement: AgreementReport | None = None
    """State of the agreement of replicas; None: there are no replicas."""
    engine: EngineReport | None = None
    """State of the engine beside the gateway; None: there is none."""
    config_hash: str = ""
    """Checksum of the configuration in force; empty: not known."""
    state: StateWrites | None = None
    """Writes of the state file so far; None: there is no such file."""
    usage_incomplete: bool | None = None
    """Whether today's record of usage is incomplete; None: usage is off."""
    # The rest is filled in by `Metrics.exposition`.
    stats: ProcessStats | None = None
    views: Mapping[str, ServiceView] = {}
    """Services in force by name, in the order of the file."""
    wall_offset: float = 0.0
    """Wall-clock time minus monotonic time, by which facts are dated, in seconds."""


@final
class OneBackend(NamedTuple):
    """A backend of a service that is in force."""

    view: ServiceView
    member: Member
