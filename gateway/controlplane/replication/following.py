"""What a replica does next about one service: the protocol's rules, asked in their order.

    leave      it cannot read what the store holds: it answers nothing, and ends its registration
    join       its `live` does not stand: with the document that is in the state file and held by all workers
    tell       its acknowledgement and its vote
    remove     others without beats, and registrations to which nobody comes back
    step       the next document of the ladder

One transaction for a service in each round at most, guarded by what was read. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, final

from gateway.controlplane.replication.membership import Membership
from gateway.controlplane.replication.reading import DOC, GONE, Reading
from gateway.controlplane.stores.store import NothingNewer, Transaction, Unchanged
from gateway.core.agreement.attachment import (
    has_lost,
    joined_document,
    may_end_registration,
    may_remove,
)
from gateway.core.agreement.document import Document, form_for_all
from gateway.core.agreement.ladder import awaited, next_document

FIRST_BEAT: Final = "0"
"""The beat with which a replica joins."""


class Kind(Enum):
    """What a transaction is for."""

    LEAVE = "leave"
    JOIN = "join"
    TELL = "tell"
    REMOVE = "remove"
    STEP = "step"


class Plan(NamedTuple):
    """One transaction about one service."""

    kind: Kind
    transaction: Transaction
    document: Document | None = None
    """With which it joins."""


class Beat(NamedTuple):
    """The last beat of a replica that was seen."""

    revision: int
    """0: none."""
    seen_at: float
    """By the clock of deadlines of the one that saw it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that the rules look at for one service, at one moment."""

    me: Membership
    reading: Reading
    own_text: str
    """What `live` is to say of this replica now. It acknowledges what it holds if `in_force_here`."""
    joining_text: str
    """The same with the acknowledgement of the document with which it joins."""
    own_words: Mapping[str, str]
    """Texts of the pin and of the drained backends that are in force here, by key."""
    in_force_here: bool
    """What it holds, or is about to join with, is in the state file, and all its workers hold it."""
    attached: bool
    now: float
    """By the clock of deadlines."""


@final
@dataclass(frozen=True, slots=True)
class Following:
    """The rules for one replica."""

    id: str
    beat_key: str
    registration: str
    """Its text."""
    ttl: float
    forget: float | None

    def plan(self, at: Situation, beats: Mapping[str, Beat], *, ends_predecessors: bool) -> Plan | None:
        """What is to be written next; None: nothing."""
        me, reading = at.me, at.reading
        if reading.problem:
            return self._leave(reading) if at.in_force_here else None
        own = reading.live.get(self.id)
        if not me.live_revision or own is None:
            return self._join(at, ends_predecessors=ends_predecessors)
        if own.text != at.own_text:
            guard = Unchanged(reading.live_key(self.id), me.live_revision)
            return Plan(Kind.TELL, Transaction((guard,), {guard.key: at.own_text}))
        return self._removal(at, beats, ends_predecessors=ends_predecessors) or self._step(at)

    def lost(self, me: Membership, reading: Reading) -> bool:
        """Whether the store has not what it had: this replica refuses nothing until it has joined again."""
        if reading.problem or not me.joined:
            return False
        return has_lost(me.held, reading.document) or (bool(me.live_revision) and self.id not in reading.live)

    def joins_with(self, me: Membership, reading: Reading) -> Document | None:
        """The document with which it joins now."""
        return joined_document(me.held if me.joined else None, reading.document)

    def awaits(self, me: Membership, reading: Reading, *, dirty: bool) -> list[str]:
        """Ids of those for whom the next step waits; this one's own while it has something to do."""
        document, scheme = reading.document, reading.service.dialect.scheme
        live = {each: word.replica for each, word in reading.live.items()}
        if found := [*awaited(document, live), *reading.unreadable]:
            return found
        if dirty or me.held != document:
            return [self.id]
        if reading.unclear:
            return [reading.key(name) for name in reading.unclear]
        wanted = next_document(document, live, live, reading.pin, scheme)
        if wanted is None:
            return []
        return [each for each in reading.known if each not in live] or [self.id]

    def _leave(self, reading: Reading) -> Plan | None:
        keys = [key for key in (reading.live_key(self.id), reading.known_key(self.id)) if key in reading]
        if not keys:
            return None
        guards = tuple(Unchanged(key, reading.revision_of(key)) for key in keys)
        return Plan(Kind.LEAVE, Transaction(guards, {reading.key(GONE): self.id}, tuple(keys)))

    def _join(self, at: Situation, *, ends_predecessors: bool) -> Plan | None:
        me, reading = at.me, at.reading
        document = self.joins_with(me, reading)
        if not at.in_force_here or me.joining != document:
            return None
        live, known = reading.live_key(self.id), reading.known_key(self.id)
        puts = {live: at.joining_text, known: self.registration, self.beat_key: FIRST_BEAT}
        guards = [
            Unchanged(reading.key(DOC), reading.revision_of(reading.key(DOC))),
            Unchanged(live, reading.revision_of(live)),
        ]
        if document is not None and document != reading.document:
            puts[reading.key(DOC)] = reading.written(document)
        if reading.document is None or document != reading.document:
            # The store is new, or has lost what was there: what operators have said is written back.
            for name, text in at.own_words.items():
                if (key := reading.key(name)) not in reading:
                    guards.append(Unchanged(key, 0))
                    puts[key] = text
        gone = []
        for each in me.predecessors:
            # The lock of its state file says that the process is no more. Workers of it may still serve.
            gone += [reading.live_key(each)] + ([reading.known_key(each)] if ends_predecessors else [])
        gone = [key for key in gone if key in reading]
        if gone:
            puts[reading.key(GONE)] = self.id
        return Plan(Kind.JOIN, Transaction(tuple(guards), puts, tuple(gone)), document)

    def _removal(self, at: Situation, beats: Mapping[str, Beat], *, ends_predecessors: bool) -> Plan | None:
        """Of one other replica: the next round looks at the next one."""
        reading = at.reading
        for each in (*reading.live, *reading.unreadable):
            beat = beats.get(each)
            if each == self.id or beat is None or not may_remove(at.now, beat.seen_at, self.ttl):
                continue
            key = reading.live_key(each)
            guards = (
                Unchanged(reading.beat_key(each), beat.revision),
                Unchanged(key, reading.revision_of(key)),
            )
            return Plan(Kind.REMOVE, Transaction(guards, {reading.key(GONE): self.id}, (key,)))
        for each in reading.known:
            since = at.me.not_live_since.get(each)
            own = ends_predecessors and each in at.me.predecessors
            over = since is not None and may_end_registration(at.now, since, self.forget)
            if each not in reading.live and (own or over):
                return self.ending(reading, each)
        return None

    def ending(self, reading: Reading, replica: str) -> Plan:
        """End the registration of one that is not live."""
        key = reading.known_key(replica)
        guards = Unchanged(key, reading.revision_of(key)), Unchanged(reading.live_key(replica), 0)
        return Plan(Kind.REMOVE, Transaction(guards, {reading.key(GONE): self.id}, (key,)))

    def leaving(self, reading: Reading, *, registered: bool) -> Transaction:
        """A clean stop. `registered`: the registration stays, for the process that has taken over."""
        keys = [reading.live_key(self.id)] + ([] if registered else [reading.known_key(self.id)])
        keys = [key for key in keys if key in reading]
        return Transaction((), {reading.key(GONE): self.id}, tuple(keys))

    def _step(self, at: Situation) -> Plan | None:
        reading = at.reading
        if not at.attached or at.me.held != reading.document:
            return None
        live = {each: word.replica for each, word in reading.live.items()}
        if reading.unreadable:
            return None  # somebody has said what this release cannot read: it may be a vote against all
        if reading.unclear:
            return None  # the pin may be below what would be offered next
        document = next_document(
            reading.document, live, reading.known, reading.pin, reading.service.dialect.scheme
        )
        form = form_for_all([word.forms for word in reading.live.values()])
        if document is None or form is None:
            return None
        guard = NothingNewer(reading.prefix, reading.revision)
        return Plan(Kind.STEP, Transaction((guard,), {reading.key(DOC): reading.written(document, form)}))
