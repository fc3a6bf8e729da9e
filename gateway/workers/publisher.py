"""The publisher: it sends every worker the changes of snapshot and configuration.

    SnapshotHolder  ->  Publisher  ->  Start, Update  ->  a worker  ->  Ack  ->  Publisher

A worker gets the difference between what it has acknowledged and what is current. One Update at a time is
under way to it, with a pause between two, and changes meanwhile come together in the next one. So a slow
worker gets fewer and larger updates, and never a queue of them. This module knows no process: `supervisor`
passes on what a worker sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final, TypeAlias, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.publication import Publication, publication
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.runtime.timer import Timer
from gateway.settings import Settings
from gateway.workers.messages import LearnedFacts, Start, Update

PAUSE: Final = 0.01
"""Minimum seconds between two Updates to a worker."""
FACTS_PAUSE: Final = 0.1
"""Minimum seconds before an Update that only says which facts of the worker are taken in."""

MakeStart: TypeAlias = Callable[[Settings, Publication], Start]


@final
@dataclass(slots=True, eq=False)
class Recipient:
    """A worker as the publisher sees it: what it was sent, and what of that is in force there."""

    send: Callable[[object], None]
    make_start: MakeStart
    number: int = 0
    """Number of the last `Start` or `Update` message to the worker."""
    held: Snapshot | None = None
    """The snapshot that the worker has acknowledged; None: none yet."""
    changes: int = 0
    """Number of changes up to the acknowledged snapshot, as `Publisher.changes` counts them."""
    sent: Snapshot | None = None
    """The snapshot that is under way to the worker, not yet acknowledged; None: there is none."""
    sent_changes: int = 0
    sent_at: float = -inf
    settings: Settings | None = None
    """The settings that the worker was sent last."""
    facts_seen: int = 0
    """Number of the worker's last `LearnedFacts` that the publisher has taken in."""
    facts_seen_there: int = 0
    """Number of the last `LearnedFacts` that the worker knows to be taken in, by the last message to it."""


@final
class Publisher:
    """Keeps workers up to date with the snapshot holder and the settings."""

    def __init__(self, snapshot_holder: SnapshotHolder, settings: Settings) -> None:
        self._snapshot_holder = snapshot_holder
        self._settings = settings.for_workers
        self._recipients: list[Recipient] = []
        self.changes = 1
        """Number of changes of snapshot or settings so far. The first is the snapshot at the beginning."""
        self._made: tuple[Snapshot | None, Snapshot, Publication] | None = None
        """The last publication that was made: (snapshot before, snapshot after, their difference)."""
        self._timer = Timer()
        self._due = 0.0
        self._unsubscribe = snapshot_holder.subscribe(lambda before, after: self._changed())

    def close(self) -> None:
        self._unsubscribe()
        self._recipients.clear()
        self._timer.cancel()

    def add(self, send: Callable[[object], None], make_start: MakeStart) -> Recipient:
        """Add a worker, and send it snapshot and settings. `make_start` completes the first message."""
        recipient = Recipient(send, make_start)
        self._snapshot_holder.apply_batch()
        self._recipients.append(recipient)
        self._send(recipient, monotonic())
        return recipient

    def remove(self, recipient: Recipient) -> None:
        """Remove a worker that has ended: nothing is sent to it any more."""
        if recipient in self._recipients:
            self._recipients.remove(recipient)

    def configured(self, settings: Settings) -> None:
        """Send new settings to all workers, together with the current snapshot."""
        self._settings = settings.for_workers
        self._changed()

    def acknowledged(self, recipient: Recipient, number: int) -> bool:
        """Take in a worker's acknowledgement. False: no message with this number is under way."""
        if recipient.sent is None or number != recipient.number:
            return False
        recipient.held, recipient.sent = recipient.sent, None
        recipient.changes = recipient.sent_changes
        self._schedule(recipient)
        return True

    def facts(self, recipient: Recipient, facts: LearnedFacts) -> bool:
        """Take in facts from a worker. False: the number does not follow the last one."""
        if facts.number != recipient.facts_seen + 1:
            return False
        for service, backend, fact in facts.facts:
            self._snapshot_holder.batch(service, backend, fact)
        recipient.facts_seen = facts.number
        self._schedule(recipient)
        return True

    def _changed(self) -> None:
        self.changes += 1
        for recipient in self._recipients:
            self._schedule(recipient)

    def _when_due(self, recipient: Recipient) -> float | None:
        """The time at which the next Update to a worker is due; None: nothing is new, or one is under way."""
        if recipient.sent is not None:
            return None
        if recipient.changes < self.changes:
            return recipient.sent_at + PAUSE
        return recipient.sent_at + FACTS_PAUSE if recipient.facts_seen > recipient.facts_seen_there else None

    def _schedule(self, recipient: Recipient) -> None:
        """Set the timer for the next Update to a worker: at the earliest, after this event-loop iteration."""
        due = self._when_due(recipient)
        if due is None or (self._timer.is_set and self._due <= due):
            return
        self._due = due
        self._timer.set(due - monotonic(), self._send_due)

    def _send_due(self) -> None:
        """Send the Updates that are due. Batched facts are applied before, so that `facts_seen` is true."""
        self._snapshot_holder.apply_batch()
        now = monotonic()
        for recipient in self._recipients:
            due = self._when_due(recipient)
            if due is not None and due <= now:
                self._send(recipient, now)
            self._schedule(recipient)

    def _send(self, recipient: Recipient, now: float) -> None:
        current, settings = self._snapshot_holder.current, self._settings
        recipient.number += 1
        recipient.sent, recipient.sent_changes, recipient.sent_at = current, self.changes, now
        difference = self._difference(recipient.held, current)
        new_settings, recipient.settings = settings is not recipient.settings, settings
        recipient.facts_seen_there = recipient.facts_seen
        if recipient.number == 1:
            recipient.send(recipient.make_start(settings, difference))
        else:
            changed = settings if new_settings else None
            recipient.send(Update(recipient.number, difference, recipient.facts_seen, changed))

    def _difference(self, before: Snapshot | None, after: Snapshot) -> Publication:
        """The difference between two snapshots, made once for all workers that hold the same one."""
        made = self._made
        if made is None or made[0] is not before or made[1] is not after:
            made = self._made = (before, after, publication(before, after))
        return made[2]


def lowest_held(service: str, current: Snapshot, held: Iterable[Snapshot]) -> int | None:
    """The lowest `seq` (number) of a service's agreed record in workers, 0: one has none; None: no worker."""
    present = _record(current.views.get(service))
    lowest: int | None = None
    for each in held:
        record = _record(each.views.get(service))
        if record is None:
            return 0
        seq = record.seq
        if present is not None and record != present:  # another one with this number is not it
            seq = min(seq, present.seq - 1)
        lowest = seq if lowest is None else min(lowest, seq)
    return lowest


def offers(snapshot: Snapshot | None) -> bool:
    """Whether a snapshot has an offer for some service, as in a gateway that is ready."""
    return snapshot is not None and any(view.offer.is_made for view in snapshot.views.values())


def holds_records(held: Snapshot, current: Snapshot) -> bool:
    """Whether a worker that holds the snapshot `held` decides by the current agreed records."""
    for name, view in current.views.items():
        other = held.views.get(name)
        if other is not view and (other is None or other.agreed != view.agreed):
            return False
    return True


def _record(view: ServiceView | None) -> AgreedRecord | None:
    return None if view is None or view.agreed is None else view.agreed.record
