"""How this replica stands to one service: what it holds, what it is about to hold, and until when it answers.

    out        it has not joined, or was away too long: it answers 503
    detached   its deadline has passed: it serves by the document that it holds, and refuses no version
    attached   its `live` stands, and a beat was sent less than 0.9 TTL ago

Mutable, and `Replication`'s alone. No store, no connection: what follows from a moment is said, not done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, final

from gateway.controlplane.replication.clocks import Clocks
from gateway.core.agreement.agreed import NOT_JOINED, Agreed
from gateway.core.agreement.attachment import (
    Attachment,
    LastAttached,
    Registered,
    attachment_at,
    deadline,
    may_resume,
)
from gateway.core.agreement.document import Document

NEVER: Final = float("-inf")


@final
@dataclass(slots=True)
class Membership:
    """Of one service."""

    held: Document | None = None
    """By which it answers."""
    joined: bool = False
    """It may answer by it."""
    sent_at: float = NEVER
    """When its last good beat was sent, by the clock of deadlines."""
    attached_at: float = NEVER
    """When the first good beat was sent since it was not attached."""
    recorded_at: float = NEVER
    """The `sent_at` of this process that the state file has, or is being given."""
    refuses_until: float = NEVER
    """Its deadline. It ends early when the store has lost what this replica holds."""
    live_revision: int = 0
    """Of its `live` as it stood last; 0: it does not stand."""
    joining: Document | None = None
    """With which it is about to join, and which has to be in the state file before."""
    filed: Document | None = None
    """What the state file of an earlier process has, or what was held before everything ended here: it stays
    in the file until this replica has joined, whatever comes between."""
    saved: tuple[object, ...] = ()
    """What the state file has of it; empty: nothing of this run."""
    transparent: bool = False
    legacy_only: bool = False
    problem: str = ""
    """Why it cannot join, a sentence."""
    predecessors: tuple[str, ...] = ()
    """Ids of processes before this one whose registrations are to be ended."""
    last: LastAttached | None = None
    """What the state file says of when it was attached: a moment not later than that."""
    since: float = 0.0
    """Wall-clock seconds since it is attached, or not."""
    was_attached: bool = False
    beats: bool = False
    """A beat of this process was good."""
    warned: bool = False
    not_live_since: dict[str, float] = field(default_factory=dict)
    """Since when registered replicas are seen without `live`."""

    @property
    def to_save(self) -> Document | None:
        """What has to be in the state file before it is acknowledged, or joined with."""
        if self.joined:
            return self.held
        return self.filed if self.joining is None else self.joining

    @property
    def seq(self) -> int:
        """Of what it holds; 0: nothing."""
        return 0 if self.held is None else self.held.seq

    def attachment(self, now: float, ttl: float, forget: float | None) -> Attachment:
        """Where it stands now."""
        if not self.joined:
            return Attachment.FORGOTTEN
        if now < self.refuses_until:
            return Attachment.ATTACHED
        at = attachment_at(now, self.sent_at, ttl, forget)
        return Attachment.DETACHED if at is Attachment.ATTACHED else at

    def beaten(self, sent_at: float, ttl: float) -> None:
        """A beat that was sent then was good."""
        self.beats = True
        if sent_at >= self.sent_at:
            if sent_at >= self.refuses_until:
                self.attached_at = sent_at
            self.sent_at, self.refuses_until = sent_at, deadline(sent_at, ttl)
            self.warned = False

    def resume(
        self, document: Document | None, registered: Registered, clocks: Clocks, forget: float | None
    ) -> None:
        """After a restart: go on, detached, by the document of the state file, unless that is too old."""
        self.predecessors, self.last = registered.ids, registered.last
        now, wall, last = clocks.boot_time(), clocks.wall(), registered.last
        if last is not None and may_resume(last, clocks.boot, now, wall, forget):
            age = now - last.boot_time if last.boot == clocks.boot else wall - last.wall_time
            self.held, self.joined, self.sent_at = document, True, now - age

    def detach(self) -> None:
        """Refuse nothing from now on."""
        self.refuses_until = NEVER
        self.live_revision = 0

    def joins(self, document: Document | None) -> None:
        """It is registered, and may answer by `document`."""
        self.held, self.joined, self.joining, self.filed = document, True, None, None

    def leave(self) -> None:
        """Answer nothing from now on."""
        self.detach()
        self.filed = self.held if self.joined else self.filed
        self.joined, self.held, self.joining = False, None, None

    def prune(self, registered: Collection[str]) -> None:
        """Only these predecessors have left anything behind."""
        self.predecessors = tuple(each for each in self.predecessors if each in registered)

    def agreed(self, attachment: Attachment) -> Agreed:
        """What its view is decided by."""
        if attachment is Attachment.FORGOTTEN:
            return NOT_JOINED
        return Agreed(
            self.held,
            attached=attachment is Attachment.ATTACHED,
            transparent=self.transparent,
            voting=True,
            legacy_only=self.legacy_only,
        )
