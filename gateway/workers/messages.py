"""What main process and worker say to each other. Values only; `channel` carries them.

A main process and its workers are one release and one program: the main process starts them. So a message is
pickled, and its form may change with every release. Nobody else can write to a channel: it is an unnamed pair
of sockets.
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

# --- from the main process -------------------------------------------------------------------------------


@final
class Start(NamedTuple):
    """The first message. The worker takes everything in, acknowledges 1, and listens after `Serve`."""

    settings: Settings
    """`Settings.for_workers`. Their `services` are those of the file; those in force are in `publication`."""
    publication: Publication
    """Everything, for a worker that knows nothing."""
    slot: int
    """0 and up. A worker that replaces another one has its slot."""
    workers: int
    """How many there are, which divides limits."""
    listeners: tuple[tuple[int, int], ...]
    """(position in `settings.listen`, file descriptor of a listening socket of this slot)."""
    balance: Descriptors
    """With which it spreads connections evenly over the workers."""


@final
class Update(NamedTuple):
    """What has changed since the message that the worker has acknowledged last."""

    number: int
    """To be acknowledged. 1 is `Start`."""
    publication: Publication
    facts_seen: int
    """The number of the last `Facts` of this worker that are in it."""
    settings: Settings | None = None
    """A configuration that is put in force with it."""


@final
class Serve(NamedTuple):
    """Listen from now on: what the worker holds is what everybody holds."""


@final
class ReportRequest(NamedTuple):
    """The worker answers with a `Report` of this number. `counters`: with what it has counted since
    the last such report. What it has not told yet is lost if it is killed."""

    number: int
    counters: bool


@final
class Do(NamedTuple):
    """Something that is done at once: `reopen_logs` or `read_certificates`."""

    what: str


@final
class Pause(NamedTuple):
    """Accept nobody (answered by `Stopped`) until `Serve` comes again, or `Shutdown`: another gateway is
    about to accept from the same sockets."""


@final
class Shutdown(NamedTuple):
    """Accept no more (answered by `Stopped`), finish the requests under way within `seconds`, and end."""

    seconds: float


@final
class HeldBack(NamedTuple):
    """What the main process has decided about members that fail, for all workers (`backends.ejection`)."""

    held_back: Mapping[str, int]
    """As for `selection.select`: by member key. All of them."""
    failing: frozenset[str]
    """Keys of members that have failed in some worker since the last such message. Their next complete
    response is to be told."""


@final
class Deadlines(NamedTuple):
    """Until when this replica is attached (`DataPlane.deadlines`)."""

    deadlines: Mapping[str, float]
    """By service. All of them."""


@final
class Leases(NamedTuple):
    """Leases for this worker (`dataplane.limits.sharing`). It answers with `LeaseUse`."""

    number: int
    """1 and up."""
    granted: Mapping[str, int]
    """By key, in addition to those that it has."""
    recalled: Mapping[str, int]
    """As `SharedLimits.recalled`. All of them."""
    exhausted: frozenset[str]
    """As `SharedLimits.exhausted`. All of them."""


@final
class ClientUse(NamedTuple):
    """What clients have used of what all workers share, since the last such message: from a worker what they
    used there, to a worker what they used in the others."""

    tokens: Mapping[str, Mapping[int, int]]
    """By service and key of the client: tokens that were taken."""
    in_flight: Mapping[str, Mapping[int, int]]
    """By service and key of the client, where it has changed: requests in flight."""


AtOnce: TypeAlias = HeldBack | Deadlines | Leases | ClientUse
"""Put in force at once, whatever else is under way."""
FromMainProcess: TypeAlias = Start | Update | Serve | ReportRequest | Do | Pause | Shutdown | AtOnce

# --- from a worker -----------------------------------------------------------------------------------------


@final
class Ack(NamedTuple):
    """What came with this number is in force here."""

    number: int


@final
class Serving(NamedTuple):
    """It listens."""


@final
class LearnedFacts(NamedTuple):
    """What requests have shown."""

    number: int
    """1 and up, each one more than the one before."""
    facts: tuple[ObservedFact, ...]


@final
class AttemptFailed(NamedTuple):
    """An attempt at a member has failed in a way that may count for its ejection, or (`reason` None) one that
    has failed before has answered."""

    key: str
    url: str
    """Of its backend; empty: not known."""
    reason: EjectionReason | None


@final
class LeaseUse(NamedTuple):
    """What this worker does with its leases."""

    heard: int
    """The number of the last `Leases` that is in force here: of what these want back nothing is idle."""
    released: Mapping[str, int]
    """By key: those that it gives back with this message."""
    wanted: Mapping[str, int]
    """By key, where it has changed: requests that wait for one."""


@final
class Report(NamedTuple):
    """How a worker is, at a beat. One more, with what it has counted, is the last message of a worker that
    ends in order."""

    number: int
    """That of the beat; 0: nobody has asked."""
    worker: WorkerReport
    """The gauges of this worker."""
    counted: Counted | None = None
    """`Metrics.take()`, if the beat asks for it: each count is told once."""


@final
class Stopped(NamedTuple):
    """It accepts no more."""
