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
from gateway.dataplane.edge.balance import Descriptors
from gateway.settings import Settings
from gateway.telemetry.counters import Counted
from gateway.telemetry.worker_report import WorkerReport

# --- from the main process ---------------------------------------------------------------------------------


@final
class Start(NamedTuple):
    """The first message. The worker takes everything in, acknowledges 1, and listens after `Serve`."""

    settings: Settings
    """`Settings.for_workers`. Their `services` are those of the file; those in force are in `publication`."""
    publication: Publication
    slot: int
    """The slot, from 0. A worker that replaces another one has its slot."""
    workers: int
    """Number of workers, by which limits are divided."""
    listeners: tuple[tuple[int, int], ...]
    """(position in `settings.listen`, file descriptor of a listening socket of this slot)."""
    balance: Descriptors


@final
class Update(NamedTuple):
    """The changes since the message that the worker has acknowledged last."""

    number: int
    """The number to acknowledge. `Start` has 1."""
    publication: Publication
    facts_seen: int
    """The number of the last `LearnedFacts` of this worker that are in the publication."""
    settings: Settings | None = None
    """The configuration to put in force with it, if it is a new one."""


@final
class Serve(NamedTuple):
    """Listen from now on: the worker holds what every other one holds."""


@final
class ReportRequest(NamedTuple):
    """A request for a `Report` with this number; `counters`: with the counts since the last such report."""

    number: int
    counters: bool


@final
class Do(NamedTuple):
    """A command that is carried out at once: `reopen_logs` or `read_certificates`."""

    what: str


@final
class Pause(NamedTuple):
    """Accept no connections (answered by `Stopped`) until `Serve` comes again, or `Shutdown`: another gateway
    is about to accept from the same sockets."""


@final
class Shutdown(NamedTuple):
    """Accept no more (answered by `Stopped`), finish the requests under way within `seconds`, and end."""

    seconds: float


@final
class HeldBack(NamedTuple):
    """The members that the main process keeps from requests because they fail (`backends.ejection`)."""

    held_back: Mapping[str, int]
    """All of them by member key, as for `selection.select`."""
    failing: frozenset[str]
    """Keys of members that have failed in some worker since. Their next complete response is reported."""


@final
class Deadlines(NamedTuple):
    """The times until which this replica is attached, for all services (`DataPlane.deadlines`)."""

    deadlines: Mapping[str, float]


@final
class Leases(NamedTuple):
    """Leases for this worker (`dataplane.limits.sharing`), which answers with `LeaseUse`. `recalled` and
    `exhausted` replace those that it has."""

    number: int
    """The number of the message, from 1."""
    granted: Mapping[str, int]
    """New leases by key, in addition to those that the worker has."""
    recalled: Mapping[str, int]
    exhausted: frozenset[str]


@final
class ClientUse(NamedTuple):
    """The use of limits that all workers share, since the last such message: from a worker its own use, to a
    worker that of all others."""

    tokens: Mapping[str, Mapping[int, int]]
    """Tokens that were taken, by service and client key."""
    in_flight: Mapping[str, Mapping[int, int]]
    """Requests in flight by service and client key, where the number has changed."""


AtOnce: TypeAlias = HeldBack | Deadlines | Leases | ClientUse
"""A message that is put in force at once, whatever else is under way."""
FromMainProcess: TypeAlias = Start | Update | Serve | ReportRequest | Do | Pause | Shutdown | AtOnce

# --- from a worker -----------------------------------------------------------------------------------------


@final
class Ack(NamedTuple):
    """The `Start` or `Update` with this number is in force in the worker."""

    number: int


@final
class Serving(NamedTuple):
    """The worker listens."""


@final
class LearnedFacts(NamedTuple):
    """Facts that requests of this worker have shown. The messages are numbered from 1."""

    number: int
    facts: tuple[ObservedFact, ...]


@final
class AttemptFailed(NamedTuple):
    """An attempt at a member has failed in a way that may count for its ejection; or, if `reason` is None, a
    member that has failed before has answered."""

    key: str
    url: str
    """The URL of its backend; empty: not known."""
    reason: EjectionReason | None


@final
class LeaseUse(NamedTuple):
    """The worker's use of its leases."""

    heard: int
    """The number of the last `Leases` that is in force: the worker has nothing idle of what that recalls."""
    released: Mapping[str, int]
    """Leases that the worker returns with this message, by key."""
    wanted: Mapping[str, int]
    """Requests that wait for a lease, by key, where the number has changed."""


@final
class Report(NamedTuple):
    """The gauges of a worker, with its counts if they were asked for. A worker that ends in order sends one
    unasked, as its last message."""

    number: int
    """The number of the `ReportRequest`; 0: nobody has asked."""
    worker: WorkerReport
    counted: Counted | None = None
    """`Metrics.take()`, if the request asks for it. Each count is reported once."""


@final
class Stopped(NamedTuple):
    """The worker accepts no more connections."""
