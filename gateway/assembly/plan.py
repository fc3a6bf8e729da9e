"""The plan of a gateway: all that its parts are made of, as one value that is complete before any part runs.

    settings, state file, arguments of `Gateway`  ->  Plan  ->  every part

The state file is read here. Nothing has to be closed if the start ends here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, final

from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.state.keeper import load_state
from gateway.core.agreement.attachment import NOT_JOINED, NOTHING_AGREED
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.handover.handover import Handover
from gateway.runtime.cpus import usable_cpus
from gateway.runtime.service_manager import ServiceManager
from gateway.settings import Settings
from gateway.settings.files import Seen
from gateway.settings.sections.workers import MAX_WORKERS
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.process_log import ProcessLog

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import MakeEngine


@final
class Known(NamedTuple):
    """The knowledge with which a gateway starts: its services, their saved state, the first snapshot."""

    state_file: StateFile | None
    saved: Mapping[str, SavedState]
    """The state that the state file had saved, by service."""
    services: tuple[Service, ...]
    """The services, with the backends that discovery had found before."""
    snapshot_holder: SnapshotHolder


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that the parts of a gateway are made of. `Gateway` explains the arguments."""

    settings: Settings
    source: Path | None
    seen: Seen
    service_manager: ServiceManager
    process_log: ProcessLog | None
    resolver: Resolver
    discovery: Discovery
    handover: Handover
    make_engine: MakeEngine | None
    metrics: Metrics
    known: Known

    workers: int
    """Number of processes that serve requests; 1: this one."""
    alone: bool
    """Whether this process alone serves, without worker processes and engine."""


def number_of_workers(settings: Settings) -> int:
    """Number of processes that serve requests; 1: this one."""
    return settings.workers or min(usable_cpus(), MAX_WORKERS)


def known_at_start(settings: Settings, handover: Handover, discovery: Discovery, *, alone: bool) -> Known:
    """Read the state file, and restore the snapshot. Blocks. Raises `ForeignFileError`."""
    state_file = handover.state_file()
    saved = {} if state_file is None else load_state(state_file, settings.services)
    discovery.restore(settings.services, saved)
    services = discovery.completed(settings.services)
    # The agreement about a new service.
    begins = NOT_JOINED if settings.agreement is not None else None if alone else NOTHING_AGREED
    snapshot = Snapshot.configured(
        services,
        now=monotonic(),
        saved=saved,
        untrusted_headers=settings.untrusted_headers,
        clients=settings.clients,
        agreed=begins,
    )
    return Known(state_file, saved, services, SnapshotHolder(snapshot, monotonic, begins))
