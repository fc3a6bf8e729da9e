"""Attachment of a replica: the deadline until which it may answer by the record that it holds.

A replica is attached while its deadline has not passed. It counts the deadline by its own clock, from when it
sent its last good beat; the others take its registration as live away later, by theirs. So whoever goes on
without a replica knows that this one refuses no version any more. Times are seconds of a clock that also
counts while the machine sleeps; the caller reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, final

from gateway.core.agreement.record import AgreedRecord, Level, level, record_anew
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme, Version

DEADLINE_SHARE: Final = 0.9
"""Share of the TTL of a replica's last beat after which it is detached, by its own clock."""

REMOVAL_SHARE: Final = 1.1
"""Share of the TTL without a beat after which others remove a replica's `live` entry: after its deadline."""

BEATS_IN_TTL: Final = 4

FORGET_SHARE: Final = 1.1
"""Share of the time `forget` after which others end a silent replica's registration."""

WARNING_SHARE: Final = 0.5
"""Share of the time `forget` after which a detached replica warns that it will answer nothing any more."""


class Answer(Enum):
    """Kind of answer that a replica gives to a request for exactly one version."""

    SERVE = "serve"
    UNAVAILABLE = "unavailable"
    """Answer 503: the same request may get another answer later, or from another replica."""
    REFUSE = "refuse"


def answer(level: Level, *, attached: bool) -> Answer:
    """Kind of answer for a version at this level. A detached replica refuses none: others may offer it."""
    if level >= Level.ACCEPTED:
        return Answer.SERVE
    return Answer.REFUSE if attached and level is Level.REFUSED else Answer.UNAVAILABLE


class Attachment(Enum):
    """State of a replica: how far it may still answer by the agreed record that it holds."""

    ATTACHED = "attached"
    DETACHED = "detached"
    """State of a replica past its deadline: it answers by its record, and refuses no version."""
    FORGOTTEN = "forgotten"
    """State of a replica past `forget`: it answers nothing, since others may have ended its registration."""


def beat_interval(ttl: float) -> float:
    """Seconds from one beat of a replica to its next; beats keep it attached."""
    return ttl / BEATS_IN_TTL


def deadline(sent_at: float, ttl: float) -> float:
    """End of the time for which a beat sent at `sent_at` keeps a replica attached."""
    return sent_at + DEADLINE_SHARE * ttl


def attachment_at(now: float, sent_at: float, ttl: float, forget: float | None) -> Attachment:
    """Attachment of a replica whose last good beat was sent at `sent_at`. `forget` None: never forgotten."""
    if now < deadline(sent_at, ttl):
        return Attachment.ATTACHED
    return Attachment.DETACHED if forget is None or now < sent_at + forget else Attachment.FORGOTTEN


def may_remove(now: float, beat_seen_at: float, ttl: float) -> bool:
    """Whether another replica's `live` entry may be removed. `beat_seen_at`: when its last beat was seen."""
    return now >= beat_seen_at + REMOVAL_SHARE * ttl


def may_end_registration(now: float, live_seen_at: float, forget: float | None) -> bool:
    """Whether another replica's registration may be ended. `live_seen_at`: when its `live` was last seen."""
    return forget is not None and now >= live_seen_at + FORGET_SHARE * forget


def seconds_to_forget(now: float, sent_at: float, forget: float | None) -> float | None:
    """Seconds for which a detached replica still answers, once that is worth a warning; None: it is not."""
    if forget is None or now < sent_at + WARNING_SHARE * forget:
        return None
    return max(0.0, sent_at + forget - now)


@final
class LastAttached(NamedTuple):
    """Time, by two clocks, at which the replica that wrote a state file was last attached."""

    boot: str
    """Boot id of the machine, from whose start `boot_time` counts."""
    boot_time: float
    wall_time: float


@final
class Registered(NamedTuple):
    """Registration, in the shared store, of the replica that wrote a state file."""

    ids: tuple[str, ...]
    """Replica ids: the process's own, then those of earlier processes, which are still to be ended."""
    last: LastAttached | None = None
    """Time at which the replica was last attached; None: it never was."""


def may_resume(
    last: LastAttached, boot: str, boot_time: float, wall_time: float, forget: float | None
) -> bool:
    """Whether a restarted replica may answer as a detached one by the record of its state file. An age
    below zero is too old: the clock was set back, so nobody knows."""
    age = boot_time - last.boot_time if boot == last.boot else wall_time - last.wall_time
    return age >= 0.0 and (forget is None or age < forget)


# --- which record ----------------------------------------------------------------------------------------


def adopts(held: AgreedRecord | None, stored: AgreedRecord) -> bool:
    """Whether an attached replica with the record `held` adopts the record `stored`. It never goes back."""
    return held is None or stored.seq > held.seq


def has_lost(held: AgreedRecord | None, stored: AgreedRecord | None) -> bool:
    """Whether the store was emptied or restored: a replica that holds `held` detaches, and joins again."""
    return held is not None and (stored is None or stored.seq < held.seq)


def joined_record(held: AgreedRecord | None, stored: AgreedRecord | None) -> AgreedRecord | None:
    """The agreed record that a replica has once it has joined, in a transaction on the revision of `stored`.
    It is `stored`, or if the store has lost the replica's own one, that one with the next number."""
    if held is None or not has_lost(held, stored):
        return stored
    return replace(held, seq=held.seq + 1)


@final
@dataclass(frozen=True, slots=True)
class Agreed:
    """Agreed state of a service: the record that a replica or worker holds, and what else others told it."""

    record: AgreedRecord | None
    attached: bool = True
    """Whether a replica's deadline is ahead. A request about to refuse a version checks the clock, too."""
    transparent: bool = False
    """Whether nothing is negotiated, because every live replica sees legacy backends only."""
    voting: bool = False
    """Whether this is one of several replicas. Then the view's offer state is what it remembers for its vote
    (`votes.remember`), and it refuses a version only before its deadline. If not, nobody votes, because the
    workers of one gateway hold the record."""
    legacy_only: bool = False
    """Whether nothing is on offer, and a live replica sees legacy backends only. Until all see others,
    requests pass without negotiation, and only to legacy backends."""

    @property
    def offered(self) -> VersionSet:
        """Versions of the agreed record that are shown to clients."""
        return NO_VERSIONS if self.record is None else self.record.offered

    def level(self, version: Version) -> Level:
        return level(self.record, version)

    def read_anew(self, before: Scheme, scheme: Scheme) -> Agreed:
        """The agreed state with its versions in a scheme that has only gained names since `before`."""
        if self.record is None or before.key == scheme.key:
            return self
        return replace(self, record=record_anew(self.record, before, scheme))


NOTHING_AGREED: Final = Agreed(None)
"""Agreed state of a new service: nothing is on offer before all replicas or workers have agreed."""

NOT_JOINED: Final = Agreed(None, attached=False, voting=True)
"""Agreed state at a replica that has not joined the others, or was away too long: it answers 503."""
