"""Contents of the operations page as values: one overview, and one page for each service.

All values are texts or numbers as they are shown; `contents` makes them. Texts come from outside (names,
errors of backends) and are escaped during rendering, never here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

from gateway.admin.ui.traffic import Traffic
from gateway.core.versions.axis import Tick


class Bar(NamedTuple):
    """A range of versions on the axis of its service, in shares of its length."""

    begin: float
    end: float
    text: str
    """Versions as text: `1.1-1.58`."""


class HealthCard(NamedTuple):
    """Health of the gateway or of a service."""

    level: str
    """Severity: `good`, `upgrading`, `attention` or `bad`."""
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
    """Versions on offer once nothing holds it: `1.1-1.90`; empty: the same."""
    pin: str
    """Version of the pin; empty: there is none."""
    ceiling: str
    bars: tuple[Bar, ...]
    """Versions on offer that some backend serves now."""
    unserved: tuple[Bar, ...]
    """Versions on offer that no backend can serve now."""

    @property
    def all_bars(self) -> tuple[Bar, ...]:
        return (*self.bars, *self.unserved)


class BackendGroup(NamedTuple):
    """Backends that serve the same versions."""

    number: int
    text: str
    """Text about the group: `serve 1.1-1.58`, `are unknown`."""
    bars: tuple[Bar, ...]


class BackendRow(NamedTuple):
    """Row of the table of backends."""

    key: str
    """Id of the row, the same while the backend exists: letters, digits and `-`."""
    name: str
    url: str
    serves: str
    """Versions that it serves: `1.1-1.58`, `legacy`, `nothing known`."""
    bars: tuple[Bar, ...]
    freshness: str
    """Freshness: `fresh`, `stale`, `down`, `unknown`."""
    state: str
    """State: `in service`, `drained`, `leaving`, `ejected`, `unhealthy`, `backup`."""
    drained: bool
    note: str
    """Note about an error, an ejection or the time of leaving."""
    in_flight: int
    queued: int | None
    """Requests in its queue; None: it has no queue."""
    rate: float
    """Recent requests per second."""
    last_probe_at: float | None
    """Wall-clock seconds."""


@final
@dataclass(frozen=True, slots=True)
class DemandRow:
    """Row of a version that clients got in the last hour."""

    version: str
    count: int
    share: float
    """Share of all requests, 0 to 1."""


@final
@dataclass(frozen=True, slots=True)
class RefusalRow:
    """Row of a reason for refusals since the start."""

    reason: str
    count: int
    rate: float


class EventRow(NamedTuple):
    """Row of the list of events."""

    number: int
    at: float
    """Wall-clock seconds."""
    kind: str
    """Kind of event: `offer`, `backend`, `operator`, `config`, `agreement`, `other`."""
    level: str
    """Severity: `info`, `warning`, `error`."""
    service: str
    """Name of the service; empty: it is about none."""
    text: str
    times: int = 1
    """Number of equal consecutive events, which are shown as one."""
    outage: bool | None = None
    """True: an outage begins; False: it ends; None: the event is about something else."""


class ReplicaRow(NamedTuple):
    """Row of a replica, worker or engine."""

    kind: str
    """Kind: `replica`, `worker` or `engine`."""
    name: str
    state: str
    """State: `attached`, `detached`, `serving` and the like."""
    level: str
    """Agreed record that it holds; empty: not known."""
    note: str


class ServicePage(NamedTuple):
    """Page of one service."""

    name: str
    health: HealthCard
    offer: OfferCard
    releases: tuple[str, ...]
    guaranteed: str
    reachable: str
    labels: tuple[Tick, ...]
    backends: tuple[BackendRow, ...]
    groups: tuple[BackendGroup, ...]
    """Groups of many backends; empty: there are few."""
    rate: float
    """Recent requests per second."""
    in_flight: int
    traffic: Traffic
    demand: tuple[DemandRow, ...]
    """Versions that clients got, the most frequent first."""
    demand_seconds: float
    """Seconds that `demand` covers, at most an hour."""
    refusals: tuple[RefusalRow, ...]
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    """Last events about this service or about none, the newest first."""
    minute: float
    """Wall-clock seconds, rounded up to a minute."""


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
    """Sentence about what holds the offer; empty: nothing."""
    backends: str
    """Number of fresh backends: `4 of 4 fresh`."""
    rate: float
    traffic: Traffic


class Overview(NamedTuple):
    """Page of all services."""

    health: HealthCard
    services: tuple[ServiceRow, ...]
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    minute: float
