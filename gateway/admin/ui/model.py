"""What the operations page shows, as values: one overview, and one page for each service.

Everything is a text or a number as it is shown; `facts` makes it. Texts come from outside (names, errors of
backends) and are escaped where they are rendered, never here. Pure.
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
    """`1.1-1.58`"""


class HealthCard(NamedTuple):
    """Is it healthy. `level`: `good`, `upgrading`, `attention` or `bad`."""

    level: str
    sentence: str
    """What is wrong, or that nothing is."""
    problems: tuple[str, ...]
    """One sentence each: conditions of readiness that do not hold, an error of the configuration, a store
    that does not answer, backends that are down."""


class OfferCard(NamedTuple):
    """What is offered now, why, and who must move for it to rise."""

    range: str
    """`1.1-1.58`; `nothing`."""
    phase: str
    progress: str
    """`1 of 4 serve 1.90`; empty: there is nothing to compare."""
    why: str
    """One sentence: the policy and what holds it."""
    who: tuple[str, ...]
    """Backends or replicas that must be upgraded, revived or removed, or that are waited for."""
    then: str
    """What is offered once they have: `1.1-1.90`; empty: the same."""
    pin: str
    """The version of a pin; empty: there is none."""
    ceiling: str
    """The ceiling of the configuration; empty: there is none."""
    bars: tuple[Bar, ...]
    """Versions on offer that some backend serves now."""
    unserved: tuple[Bar, ...]
    """Versions on offer that no backend can serve now."""

    @property
    def all_bars(self) -> tuple[Bar, ...]:
        """All versions on offer."""
        return (*self.bars, *self.unserved)


class BackendGroup(NamedTuple):
    """Backends that serve the same versions."""

    number: int
    text: str
    """What they do: `serve 1.1-1.58`, `are unknown`."""
    bars: tuple[Bar, ...]


class BackendRow(NamedTuple):
    """One backend, a row of the table."""

    key: str
    """Of the row: the same while the backend exists, of letters, digits and `-`."""
    name: str
    url: str
    serves: str
    """`1.1-1.58`, `legacy`, `nothing known`."""
    bars: tuple[Bar, ...]
    freshness: str
    """`fresh`, `stale`, `down`, `unknown`."""
    state: str
    """`in service`, `drained`, `leaving`, `ejected`, `unhealthy`, `backup`."""
    drained: bool
    note: str
    """An error, why it is ejected, until when it leaves; empty: nothing."""
    in_flight: int
    queued: int | None
    """None: it has no queue."""
    rate: float
    """Requests per second lately."""
    last_probe_at: float | None
    """Wall-clock seconds."""


@final
@dataclass(frozen=True, slots=True)
class DemandRow:
    """One version that clients asked for in the last hour and got."""

    version: str
    count: int
    share: float
    """Of all of them, 0 to 1."""


@final
@dataclass(frozen=True, slots=True)
class RefusalRow:
    """One reason for which requests were refused, since the start."""

    reason: str
    """In words: `above the offer`."""
    count: int
    rate: float
    """Per second lately."""


class EventRow(NamedTuple):
    """One line of the timeline."""

    number: int
    """Counts up, never twice the same."""
    at: float
    """Wall-clock seconds."""
    kind: str
    """`offer`, `backend`, `operator`, `config`, `agreement`, `other`."""
    level: str
    """`info`, `warning`, `error`."""
    service: str
    """Empty: none."""
    text: str
    times: int = 1
    """Number of equal events in a row, which are shown as one."""
    outage: bool | None = None
    """True: an outage begins; False: it ends; None: the event is about something else."""


class ReplicaRow(NamedTuple):
    """One replica or worker."""

    kind: str
    """`replica`, `worker` or `engine`."""
    name: str
    state: str
    """`attached`, `detached`, `serving` and the like."""
    level: str
    """What it holds: the number of the record, or the version range; empty: not known."""
    note: str


class ServicePage(NamedTuple):
    """Everything about one service."""

    name: str
    health: HealthCard
    offer: OfferCard
    releases: tuple[str, ...]
    """Release names that a pin may have."""
    guaranteed: str
    reachable: str
    labels: tuple[Tick, ...]
    """Versions that the axis names. Those without room are left out already."""
    backends: tuple[BackendRow, ...]
    groups: tuple[BackendGroup, ...]
    """Only of many backends."""
    rate: float
    """Requests per second lately."""
    in_flight: int
    traffic: Traffic
    demand: tuple[DemandRow, ...]
    """The most frequent first."""
    demand_seconds: float
    """How far back `demand` goes, at most an hour."""
    refusals: tuple[RefusalRow, ...]
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    """The last hundred about this service, or about none; the newest first."""
    minute: float
    """The wall-clock time in seconds, up to the next whole minute."""


class ServiceRow(NamedTuple):
    """One service in the overview."""

    key: str
    """As `BackendRow.key`."""
    name: str
    dialect: str
    health: HealthCard
    offer: str
    is_served: bool
    """Whether some backend can serve what is on offer."""
    phase: str
    progress: str
    held: str
    """What holds the offer; empty: nothing."""
    backends: str
    """`4 of 4 fresh`."""
    rate: float
    traffic: Traffic


class Overview(NamedTuple):
    """All services."""

    health: HealthCard
    services: tuple[ServiceRow, ...]
    replicas: tuple[ReplicaRow, ...]
    events: tuple[EventRow, ...]
    minute: float
    """As `ServicePage.minute`."""
