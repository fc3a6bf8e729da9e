"""Contents of the operations page as values: one overview, and one page for each service.

All values are texts or numbers as they are shown; `contents` makes them. Texts come from outside (names,
errors of backends) and are escaped during rendering, never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from gateway.admin.ui.traffic import Traffic
from gateway.core.versions.axis import Tick


class Bar(NamedTuple):
    """A range of versions on the axis of its service, in shares of its length."""

    begin: float
    end: float
    text: str
    """Versions that the bar stands for: `1.1-1.58`."""


class HealthCard(NamedTuple):
    """Health of the gateway or of a service."""

    level: str
    """Severity of the state of health: `good`, `upgrading`, `attention` or `bad`."""
    sentence: str
    problems: tuple[str, ...]


class OfferCard(NamedTuple):
    """Offer of a service, what holds it, and what comes next."""

    range: str
    """Versions on offer: `1.1-1.58` or `nothing`."""
    phase: str
    progress: str
    """Progress of the upgrade: `1 of 4 serve 1.90`; empty: there is nothing to compare."""
    why: str
    """Sentence about the policy and what holds the offer."""
    who: tuple[str, ...]
    """Names of the backends or replicas that hold the offer."""
    then: str
    """Versions on offer once nothing holds the offer: `1.1-1.90`; empty: the same."""
    pin: str
    """Version to which an operator has pinned the service; empty: there is none."""
    ceiling: str
    notes: tuple[tuple[str, str], ...]
    """Titles and sentences of what holds for some versions or clients: `below 1.20 sunset on 2026-12-01`."""
    floor: str
    """Floor in force, and that it is suspended if it is; empty: there is none."""
    bars: tuple[Bar, ...]
    """Bars of the versions on offer that some backend serves now."""
    unserved: tuple[Bar, ...]
    """Bars of the versions on offer that no backend can serve now."""

    @property
    def all_bars(self) -> tuple[Bar, ...]:
        return (*self.bars, *self.unserved)


class BackendGroup(NamedTuple):
    """Backends that serve the same versions."""

    number: int
    text: str
    """Text about the group of backends: `serve 1.1-1.58`, `are unknown`."""
    bars: tuple[Bar, ...]


class BackendRow(NamedTuple):
    """Row of the table of backends."""

    key: str
    """Id of the backend's row, the same while the backend exists: letters, digits and `-`."""
    name: str
    url: str
    serves: str
    """Versions that the backend serves: `1.1-1.58`, `legacy`, `nothing known`."""
    bars: tuple[Bar, ...]
    freshness: str
    """Freshness of what is known about the backend: `fresh`, `stale`, `down`, `unknown`."""
    state: str
    """State of the backend: `in service`, `drained`, `leaving`, `ejected`, `unhealthy`, `backup`."""
    drained: bool
    note: str
    """Note about the backend's error, ejection or time of leaving."""
    in_flight: int
    queued: int | None
    """Requests in the backend's queue; None: it has no queue."""
    rate: float
    """Recent requests per second to the backend."""
    last_probe_at: float | None
    """Wall-clock seconds of the backend's last probe that ended; None: none has."""


@final
@dataclass(frozen=True, slots=True)
class DemandRow:
    """Row of a version that clients got in the last hour."""

    version: str
    count: int
    share: float
    """Share of the version in all requests, 0 to 1."""


@final
@dataclass(frozen=True, slots=True)
class RefusalRow:
    """Row of a reason for which requests were refused since the start."""

    reason: str
    count: int
    rate: float


class UsageCard(NamedTuple):
    """Answer about who uses which version of a service, with its first rows drawn on the axis."""

    answer: Mapping[str, Any]
    """Answer as `core.usage.summary.answer` makes it, by client."""
    bars: tuple[tuple[Bar, ...], ...]
    """Bars of the versions of each row, for as many rows as are shown."""


class EventRow(NamedTuple):
    """Row of the list of events."""

    number: int
    at: float
    """Wall-clock seconds at which the event was logged."""
    kind: str
    """Kind of event: `offer`, `backend`, `operator`, `config`, `agreement`, `other`."""
    level: str
    """Severity of the event: `info`, `warning`, `error`."""
    service: str
    """Name of the service that the event is about; empty: none."""
    text: str
    times: int = 1
    """Number of equal consecutive events, which are shown as one."""
    outage: bool | None = None
    """Whether an outage begins (True) or ends (False) with the event; None: neither."""


class ReplicaRow(NamedTuple):
    """Row of a replica, worker or engine."""

    kind: str
    """Kind of the row: `replica`, `worker` or `engine`."""
    name: str
    state: str
    """State of the replica, worker or engine: `attached`, `detached`, `serving` and the like."""
    level: str
    """Agreed record that the replica, worker or engine holds; empty: not known."""
    note: str


class ServicePage(NamedTuple):
    """Contents of the page of one service."""

    name: str
    health: HealthCard
    offer: OfferCard
    releases: tuple[str, ...]
    guaranteed: str
    reachable: str
    labels: tuple[Tick, ...]
    """Labels of the axis of versions, the most important first."""
    backends: tuple[BackendRow, ...]
    groups: tuple[BackendGroup, ...]
    """Groups of backends with the same versions; empty: there are too few backends."""
    rate: float
    """Recent requests per second of the service."""
    in_flight: int
    traffic: Traffic
    demand: tuple[DemandRow, ...]
    """Versions that clients got, the most frequent first."""
    demand_seconds: float
    """Seconds that the counts of versions in `demand` cover, at most an hour."""
    refusals: tuple[RefusalRow, ...]
    usage: UsageCard | None
    """Clients and their versions; None: `usage` is off."""
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    """Last events about this service or about no service, the newest first."""
    minute: float
    """Time of the page as wall-clock seconds, rounded up to a minute."""
    commanding: bool
    """Whether those who see the page may give commands."""


class ServiceRow(NamedTuple):
    """Row of one service on the overview."""

    key: str
    name: str
    dialect: str
    health: HealthCard
    offer: str
    is_served: bool
    """Whether some backend can serve a version on offer."""
    phase: str
    progress: str
    held: str
    """Sentence about what holds the service's offer; empty: nothing."""
    backends: str
    """Number of the service's fresh backends: `4 of 4 fresh`."""
    rate: float
    traffic: Traffic


class Overview(NamedTuple):
    """Contents of the page of all services."""

    health: HealthCard
    services: tuple[ServiceRow, ...]
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    minute: float
