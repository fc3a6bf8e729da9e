"""The messages between the main process and a worker. Values only; `channel` carries them.

The main process starts its workers, so all of them run one release. A message is pickled, and its form may
change with every release. Nobody else can write to a channel: it is an unnamed pair of sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, final

from gateway.core.fleet.failures import EjectionReason
from gateway.core.fleet.fleet import ObservedFact
from gateway.core.fleet.publication import Publication
from gateway.core.usage.record import UsageReport
from gateway.dataplane.edge.balance import Descriptors
from gateway.settings import Settings
from gateway.telemetry.counters import Counted
from gateway.telemetry.worker_report import WorkerReport

# --- from the main process ---------------------------------------------------------------------------------


@final
class Start(NamedTuple):
    """The first message to a worker: all that it needs. It acknowledges 1, and listens after `Serve`."""

    settings: Settings
    """Settings of the file (`Settings.for_workers`). The services in force are in `publication`."""
    publication: Publication
    slot: int
    """The worker's slot, from 0. A worker that replaces another one gets the slot of that one."""
    workers: int
    """Number of worker processes, by which limits are divided."""
    listeners: tuple[tuple[int, int], ...]
    """Listening sockets of this slot: (position in `settings.listen`, file descriptor)."""
    balance: Descriptors


@final
class Update(NamedTuple):
    """Changes of snapshot and configuration since the message that the worker has acknowledged last."""

    number: int
    """Number of this update, by which the worker acknowledges it. `Start` has 1."""
    publication: Publication
    facts_seen: int
    """Number of this worker's last `LearnedFacts` that are contained in the publication."""
    settings: Settings | None = None
    """The configuration to put in force with the publication; None: it has not changed."""


@final
class Serve(NamedTuple):
    """Command to a worker to accept clients from now on: it holds what every other one holds."""


@final
class ReportRequest(NamedTuple):
    """A request for a `Report` with this number; `counters`: with the counts since the last such report."""

    number: int
    counters: bool


@final
class Do(NamedTuple):
    """A command that a worker carries out at once: `reopen_logs` or `read_certificates`."""

    what: str


@final
class Pause(NamedTuple):
    """Command to a worker to accept no connections (it answers `Stopped`) until `Serve` or `Shutdown` comes:
    another gateway is about to accept from the same sockets."""


@final
class Shutdown(NamedTuple):
    """Command to a worker to accept no more (answer: `Stopped`), finish requests in `seconds`, and end."""

    seconds: float


@final
class HeldBack(NamedTuple):
    """Message to a worker: the members that get fewer requests or none because they fail (`ejection`)."""

    held_back: Mapping[str, int]
    """Share of its requests that each failing member gets, by key, as for `selection.select`."""
    failing: frozenset[str]
    """Keys of members that have failed in some worker lately. Their next complete response is reported."""


@final
class Deadlines(NamedTuple):
    """Message to a worker: the times until which this replica may refuse versions (`DataPlane.deadlines`)."""

    deadlines: Mapping[str, float]


@final
class Leases(NamedTuple):
    """New and recalled leases of a worker (`dataplane.limits.sharing`), which answers with `LeaseUse`.
    `recalled` and `exhausted` replace those that it has."""

    number: int
    """Number of this message of leases to the worker, from 1."""
    granted: Mapping[str, int]
    """Number of new leases by key, in addition to those that the worker has."""
    recalled: Mapping[str, int]
    exhausted: frozenset[str]


@final
class ClientUse(NamedTuple):
    """The clients' use of limits that all workers share, since the last such message: from a worker the use
    at it, to a worker that at all others."""

    tokens: Mapping[str, Mapping[int, int]]
    """Number of rate-limit tokens that were taken, by service and client key."""
    in_flight: Mapping[str, Mapping[int, int]]
    """Number of requests in flight by service and client key, where it has changed."""


AtOnce: TypeAlias = HeldBack | Deadlines | Leases | ClientUse
"""A message that a worker puts in force at once, whatever else is under way."""
FromMainProcess: TypeAlias = Start | Update | Serve | ReportRequest | Do | Pause | Shutdown | AtOnce

# --- from a worker -----------------------------------------------------------------------------------------


@final
class Ack(NamedTuple):
    """Acknowledgement: the `Start` or `Update` with this number is in force in the worker."""

    number: int


@final
class Serving(NamedTuple):
    """Answer to `Serve`: the worker accepts clients."""


@final
class LearnedFacts(NamedTuple):
    """Facts about backends that requests of this worker have shown. The messages are numbered from 1."""

    number: int
    facts: tuple[ObservedFact, ...]


@final
class AttemptFailed(NamedTuple):
    """Notice that an attempt at a member has failed in a way that may count for its ejection; or, if `reason`
    is None, that a member that has failed before has answered."""

    key: str
    url: str
    """The URL of the member's backend; empty: not known."""
    reason: EjectionReason | None


@final
class LeaseUse(NamedTuple):
    """A worker's report of the leases that it returns, and of those that it wants."""

    heard: int
    """Number of the last `Leases` in force: the worker has no idle lease of the keys which that recalls."""
    released: Mapping[str, int]
    """Number of leases that the worker returns with this message, by key."""
    wanted: Mapping[str, int]
    """Number of requests that wait for a lease, by key, where it has changed."""


@final
class Report(NamedTuple):
    """The gauges of a worker, with its counts if they were asked for. A worker that ends in order sends one
    unasked, as its last message."""

    number: int
    """Number of the `ReportRequest` that this report answers; 0: nobody has asked."""
    worker: WorkerReport
    counted: Counted | None = None
    """What the worker has counted since its last report (`Metrics.take()`), if asked for: each count once."""
    usage: UsageReport | None = None
    """Usage that the worker has counted since its last report; None: nothing, or it is not recorded."""


@final
class Stopped(NamedTuple):
    """Answer to `Pause` or `Shutdown`: the worker accepts no more connections."""
