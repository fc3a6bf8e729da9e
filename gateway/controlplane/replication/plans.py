"""Decides what a replica writes next about one service: the rules of the protocol, in this order.

    leave      it cannot read what the store holds: it answers nothing, and ends its registration
    join       it has no `live` entry: with the record that is in the state file and held by all workers
    vote       its acknowledgement and its vote
    remove     others without beats, and registrations to which nobody comes back
    raise      the floor, when an enforced sunset has come for all
    step       the next record of the ladder

At most one transaction for a service in each round, guarded by what was read. The commands of operators
(pin, floor, names of drained backends) are in the store, too: a replica that joins a store without any writes
its own there. Nothing here waits, and nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, final

from gateway.controlplane.replication.entries import DRAINED, DRAINED_BY, raised_text, write_drains
from gateway.controlplane.replication.membership import Membership
from gateway.controlplane.replication.reading import DOC, GONE, PIN, RAISED, Beat, Reading
from gateway.controlplane.stores.store import NothingNewer, Transaction, Unchanged
from gateway.core.agreement.attachment import may_end_registration, may_remove
from gateway.core.agreement.ladder import awaited
from gateway.core.agreement.raised import NOT_RAISED, Raised
from gateway.core.agreement.record import FLOOR_FORM, FORM, AgreedRecord
from gateway.core.fleet.fleet import OperatorCommand, Pin, Raise
from gateway.core.fleet.member_set import MemberSet
from gateway.core.versions.version import Scheme

FIRST_BEAT: Final = "0"
"""Text of the beat with which a replica joins."""


class Purpose(Enum):
    """Purpose of a transaction that a replica writes to the store."""

    LEAVE = "leave"
    JOIN = "join"
    VOTE = "vote"
    REMOVE = "remove"
    RAISE = "raise"
    STEP = "step"


class PlannedWrite(NamedTuple):
    """Transaction about one service that a replica will write to the store."""

    purpose: Purpose
    transaction: Transaction
    record: AgreedRecord | None = None
    """Agreed record that the replica has once it has joined; None: it does not join by this write."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Input of the rules for a replica's next write about one service, at one moment."""

    me: Membership
    reading: Reading
    beats: Mapping[str, Beat]
    """Last beats of all replicas, by their ids."""
    registration: str
    """Text of this replica's registration."""
    own_text: str
    """Text for this replica's `live` entry. It acknowledges the held record if `in_force_here`."""
    joining_text: str
    """Text for the `live` entry with the acknowledgement of the record with which this replica joins."""
    own_commands: Mapping[str, str]
    """Texts of the operator's commands that are in force here, by key."""
    in_force_here: bool
    """Whether the state file and all workers have the record that this replica holds, or joins with."""
    ends_predecessors: bool
    """Whether all workers of earlier processes have ended, so that their registrations can end."""
    ttl: float
    forget: float | None
    now: float
    """Present time by the clock of deadlines."""


def next_write(at: Situation) -> PlannedWrite | None:
    """Decide what this replica writes next; None: nothing."""
    me, reading = at.me, at.reading
    if reading.problem:
        return _leave(at) if at.in_force_here else None
    own = reading.live.get(me.replica)
    if not me.live_revision or own is None:
        return _join(at)
    if own.text != at.own_text:
        guard = Unchanged(reading.live_key(me.replica), me.live_revision)
        return PlannedWrite(Purpose.VOTE, Transaction((guard,), {guard.key: at.own_text}))
    return _removal(at) or _step(at)


def _leave(at: Situation) -> PlannedWrite | None:
    reading, own = at.reading, at.me.replica
    keys = [key for key in (reading.live_key(own), reading.known_key(own)) if key in reading]
    if not keys:
        return None
    guards = tuple(Unchanged(key, reading.revision_of(key)) for key in keys)
    return PlannedWrite(Purpose.LEAVE, Transaction(guards, {reading.key(GONE): own}, tuple(keys)))


def _join(at: Situation) -> PlannedWrite | None:
    me, reading = at.me, at.reading
    record = me.joins_with(reading)
    if not at.in_force_here or me.joining != record:
        return None
    live = reading.live_key(me.replica)
    puts = {
        live: at.joining_text,
        reading.known_key(me.replica): at.registration,
        reading.beats + me.replica: FIRST_BEAT,
    }
    guards = [
        Unchanged(reading.key(DOC), reading.revision_of(reading.key(DOC))),
        Unchanged(live, reading.revision_of(live)),
    ]
    if record is not None and record != reading.record:
        floor = RAISED in at.own_commands or reading.raised.floor is not None
        puts[reading.key(DOC)] = reading.written(record, FLOOR_FORM if floor else FORM)
    if reading.record is None or record != reading.record:
        # The store is new, or has lost what was there: what operators have said is written back.
        for name, text in at.own_commands.items():
            if (key := reading.key(name)) not in reading:
                guards.append(Unchanged(key, 0))
                puts[key] = text
    gone = []
    for each in me.predecessors:
        # The lock of its state file says that the process is no more. Workers of it may still serve.
        gone += [reading.live_key(each)] + ([reading.known_key(each)] if at.ends_predecessors else [])
    gone = [key for key in gone if key in reading]
    if gone:
        puts[reading.key(GONE)] = me.replica
    return PlannedWrite(Purpose.JOIN, Transaction(tuple(guards), puts, tuple(gone)), record)


def _removal(at: Situation) -> PlannedWrite | None:
    """Plan to remove one replica that is gone. The next round removes the next one."""
    me, reading = at.me, at.reading
    for each in (*reading.live, *reading.unreadable):
        beat = at.beats.get(each)
        if each == me.replica or beat is None or not may_remove(at.now, beat.seen_at, at.ttl):
            continue
        key = reading.live_key(each)
        guards = Unchanged(reading.beats + each, beat.revision), Unchanged(key, reading.revision_of(key))
        return PlannedWrite(Purpose.REMOVE, Transaction(guards, {reading.key(GONE): me.replica}, (key,)))
    for each in reading.known:
        since = me.not_live_since.get(each)
        own = at.ends_predecessors and each in me.predecessors
        over = since is not None and may_end_registration(at.now, since, at.forget)
        if each not in reading.live and (own or over):
            return PlannedWrite(Purpose.REMOVE, ending(reading, each, me.replica))
    return None


def _step(at: Situation) -> PlannedWrite | None:
    reading = at.reading
    if not at.me.is_attached(at.now) or at.me.held != reading.record:
        return None
    if reading.unreadable:
        return None  # a replica wrote what this release cannot read: it may be a vote against all
    if reading.unclear:
        return None  # the pin may be below what would be offered next
    raised = reading.raised.by_votes(each.vote for each in reading.replicas.values())
    if raised is not reading.raised:
        return PlannedWrite(Purpose.RAISE, _raised(reading, raised))
    record, form = reading.next_record(reading.replicas, reading.known), reading.form
    if record is None or form is None:
        return None
    guard = NothingNewer(reading.prefix, reading.revision)
    return PlannedWrite(
        Purpose.STEP, Transaction((guard,), {reading.key(DOC): reading.written(record, form)})
    )


def ending(reading: Reading, gone: str, replica: str) -> Transaction:
    """Make the transaction that ends the registration of replica `gone`, not live. `replica`: the writer."""
    key = reading.known_key(gone)
    guards = Unchanged(key, reading.revision_of(key)), Unchanged(reading.live_key(gone), 0)
    return Transaction(guards, {reading.key(GONE): replica}, (key,))


def leaving(reading: Reading, replica: str, *, registered: bool) -> Transaction:
    """Make the transaction of a replica's clean stop. `registered`: it stays registered, for a successor."""
    keys = [reading.live_key(replica)] + ([] if registered else [reading.known_key(replica)])
    return Transaction((), {reading.key(GONE): replica}, tuple(key for key in keys if key in reading))


def awaits(me: Membership, reading: Reading, *, dirty: bool) -> list[str]:
    """Ids of the replicas for which the next step waits; this one's own while it has something to do."""
    record, live = reading.record, reading.replicas
    if found := [*awaited(record, live), *reading.unreadable]:
        return found
    if dirty or me.held != record:
        return [me.replica]
    if reading.unclear:
        return [reading.key(name) for name in reading.unclear]
    if reading.next_record(live, live) is None:
        return []
    return [each for each in reading.known if each not in live] or [me.replica]


def written_command(
    reading: Reading, command: OperatorCommand, drained: Mapping[str, str], replica: str
) -> Transaction | None:
    """Make the transaction that gives a command to all replicas; None: it is there already. `drained`: the
    backends that are drained before it, as in `MemberSet.drained`."""
    scheme, texts = reading.service.dialect.scheme, dict[str, str | None]()
    if isinstance(command, Pin):
        texts[PIN] = None if command.ceiling is None else scheme.format(command.ceiling)
    elif isinstance(command, Raise):
        raised = reading.raised.commanded(command.floor)
        if command.floor is not None:
            return _raised(reading, raised)
        texts[RAISED] = None if raised == NOT_RAISED else raised_text(raised, scheme)
    else:
        after = {name: by for name, by in drained.items() if name != command.backend}
        if command.drained:
            after[command.backend] = command.by
        texts = {DRAINED: None, DRAINED_BY: None, **write_drains(after)}
    guards = tuple(Unchanged(key, reading.revision_of(key)) for key in map(reading.key, texts))
    puts = {reading.key(name): text for name, text in texts.items() if text is not None}
    deletes = tuple(key for key in map(reading.key, texts) if key in reading and key not in puts)
    if deletes:
        puts[reading.key(GONE)] = replica
    return Transaction(guards, puts, deletes) if puts else None


def _raised(reading: Reading, raised: Raised) -> Transaction:
    """Make the transaction that raises a floor. From then on nobody attaches who would not know of it: the
    record is in the form of floors, and no replica has joined since all were read."""
    puts = {reading.key(RAISED): raised_text(raised, reading.service.dialect.scheme)}
    if reading.record is not None:
        puts[reading.key(DOC)] = reading.written(reading.record, FLOOR_FORM)
    return Transaction((NothingNewer(reading.prefix, reading.revision),), puts)


def own_commands(members: MemberSet, scheme: Scheme) -> Mapping[str, str]:
    """Texts of the operator's commands that are in force here, by key."""
    words = {} if members.pin is None else {PIN: scheme.format(members.pin)}
    if members.raised != NOT_RAISED:
        words[RAISED] = raised_text(members.raised, scheme)
    return {**words, **write_drains(members.drained)}
