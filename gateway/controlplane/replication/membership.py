"""How this replica stands to one service: what it holds, what it is about to hold, and until when it answers.

    out        it has not joined, or was away too long: it answers 503
    detached   its deadline has passed: it serves by the record that it holds, and refuses no version
    attached   its `live` stands, and a beat was sent less than 0.9 TTL ago

Only a `Membership` writes its fields. `Replication` reports to it what was read and written, and everybody
else asks. It writes nothing to a store, and logs what operators must know of it.
"""

from __future__ import annotations

import logging
from typing import Final, final

from gateway.controlplane.replication.clocks import Clocks
from gateway.controlplane.replication.reading import Reading
from gateway.core.agreement.attachment import (
    NOT_JOINED,
    Agreed,
    Attachment,
    LastAttached,
    adopts,
    attachment_at,
    deadline,
    has_lost,
    joined_record,
    may_resume,
    seconds_to_forget,
)
from gateway.core.agreement.ladder import all_transparent, legacy_only
from gateway.core.agreement.record import AgreedRecord, seq_of
from gateway.core.fleet.offer_state import SavedState
from gateway.settings import AgreementSettings

NEVER: Final = float("-inf")

_log = logging.getLogger("skewgate.agreement")


@final
class Membership:
    """This replica (`replica` is its id) and `service`. `saved`: what the state file says about the service.
    After a restart it goes on, detached, by the record of that file, unless that is too old."""

    def __init__(
        self,
        service: str,
        replica: str,
        settings: AgreementSettings,
        clocks: Clocks,
        saved: SavedState | None,
    ) -> None:
        self.service = service
        self.replica = replica
        self._ttl = settings.ttl
        self._forget = settings.forget
        self._clocks = clocks
        self.held: AgreedRecord | None = None
        """The record by which it answers."""
        self.joined = False
        """It may answer by that record."""
        self.sent_at = NEVER
        """When its last good beat was sent, by the clock of deadlines."""
        self.attached_at = NEVER
        """When the first good beat was sent since it was not attached."""
        self.refuses_until = NEVER
        """Its deadline. It ends early when the store has lost what this replica holds."""
        self.live_revision = 0
        """Revision of its `live` as it stood last; 0: it does not stand."""
        self.joining: AgreedRecord | None = None
        """The record with which it is about to join, and which has to be in the state file before."""
        self.filed = None if saved is None else saved.record
        """The record that the state file of an earlier process has, or that was held before everything
        ended here: it stays in the file until this replica has joined, whatever comes between."""
        self.transparent = False
        self.legacy_only = False
        self.problem = ""
        """Why it cannot join, a sentence."""
        self.predecessors: tuple[str, ...] = ()
        """Ids of processes before this one whose registrations are to be ended."""
        self.last_before: LastAttached | None = None
        """When the process before was attached last, at the latest."""
        self.since = clocks.wall()
        """Wall-clock seconds since it is attached, or not."""
        self.was_attached = False
        self.beats = False
        """A beat of this process was good."""
        self.warned = False
        self.not_live_since: dict[str, float] = {}
        """Since when registered replicas are seen without `live`."""
        if saved is not None and saved.registered is not None:
            self.predecessors, self.last_before = saved.registered.ids, saved.registered.last
        now, wall, last = clocks.boot_time(), clocks.wall(), self.last_before
        if last is not None and may_resume(last, clocks.boot, now, wall, self._forget):
            age = now - last.boot_time if last.boot == clocks.boot else wall - last.wall_time
            self.held, self.joined, self.sent_at = self.filed, True, now - age

    @property
    def to_save(self) -> AgreedRecord | None:
        """The record that has to be in the state file before it is acknowledged, or joined with."""
        if self.joined:
            return self.held
        return self.filed if self.joining is None else self.joining

    @property
    def seq(self) -> int:
        """Number of the record that it holds; 0: none."""
        return seq_of(self.held)

    def attachment(self, now: float) -> Attachment:
        """Where it stands now."""
        if not self.joined:
            return Attachment.FORGOTTEN
        if now < self.refuses_until:
            return Attachment.ATTACHED
        at = attachment_at(now, self.sent_at, self._ttl, self._forget)
        return Attachment.DETACHED if at is Attachment.ATTACHED else at

    def is_attached(self, now: float) -> bool:
        """Whether it may refuse a version now."""
        return self.attachment(now) is Attachment.ATTACHED

    def answers_for(self, now: float) -> float | None:
        """Seconds for which it goes on answering while detached; None: it is attached, or has no such end."""
        match self.attachment(now):
            case Attachment.FORGOTTEN:
                return 0.0
            case Attachment.DETACHED if self._forget is not None and self.sent_at > NEVER:
                return max(0.0, self.sent_at + self._forget - now)
            case _:
                return None

    def agreed(self, now: float) -> Agreed:
        """What its view is decided by."""
        at = self.attachment(now)
        if at is Attachment.FORGOTTEN:
            return NOT_JOINED
        return Agreed(
            self.held,
            attached=at is Attachment.ATTACHED,
            transparent=self.transparent,
            voting=True,
            legacy_only=self.legacy_only,
        )

    def joins_with(self, reading: Reading) -> AgreedRecord | None:
        """The record with which it joins now."""
        return joined_record(self.held if self.joined else None, reading.record)

    def read(self, reading: Reading, now: float) -> None:
        """The store was read: whether this replica can go on, and which others are not live."""
        if self.joined and self.attachment(now) is Attachment.FORGOTTEN:
            _log.error("%s: detached for too long: nothing is answered any more", self.service)
            self._leave()
        if reading.problem != self.problem:
            self.problem = reading.problem
            if self.problem:
                _log.error("%s: nothing is answered: %s", self.service, self.problem)
        if self.problem:
            self._leave()
        elif self.joined and (
            has_lost(self.held, reading.record) or (self.live_revision and self.replica not in reading.live)
        ):
            if self.live_revision:
                _log.warning("%s: the store has lost what this replica holds; it joins again", self.service)
            self._detach()
        elif self.live_revision:
            self.live_revision = reading.revision_of(reading.live_key(self.replica))
        self.not_live_since = {
            each: self.not_live_since.get(each, now) for each in reading.known if each not in reading.live
        }
        if self.live_revision:
            registered = {*reading.live, *reading.unreadable, *reading.known}
            self.predecessors = tuple(each for each in self.predecessors if each in registered)

    def follow(self, reading: Reading, now: float) -> None:
        """Go over to a newer record, or begin to join where `live` does not stand."""
        if not self.live_revision:
            self.joining = self.joins_with(reading)
            return
        if not self.is_attached(now):
            return
        if reading.record is not None and adopts(self.held, reading.record):
            self.held = reading.record
        if reading.live and self.held == reading.record:
            replicas = [word.replica for word in reading.live.values()]
            self.transparent = not reading.unreadable and all_transparent(self.held, replicas)
            self.legacy_only = legacy_only(self.held, replicas)

    def beaten(self, sent_at: float) -> None:
        """A beat that was sent then was good."""
        self.beats = True
        if sent_at >= self.sent_at:
            if sent_at >= self.refuses_until:
                self.attached_at = sent_at
            self.sent_at, self.refuses_until = sent_at, deadline(sent_at, self._ttl)
            self.warned = False

    def registered(self, record: AgreedRecord | None, revision: int, sent_at: float) -> None:
        """It has joined, and may answer by `record`."""
        self.held, self.joined, self.joining, self.filed = record, True, None, None
        self.live_revision = revision
        self.beaten(sent_at)

    def rewritten(self, revision: int) -> None:
        """Its `live` was written anew."""
        self.live_revision = revision

    def reconfigured(self, record: AgreedRecord | None, *, in_same_scheme: bool) -> None:
        """The service has another configuration, under which `record` is agreed on."""
        if self.joined and record is None and self.held is not None:
            self._leave()  # another dialect or scheme: nothing that was agreed on means anything
            self.filed = None
        elif self.joined:
            self.held = record
        elif not in_same_scheme:
            self.filed = self.joining = None

    def notice(self, now: float) -> bool:
        """Time has passed, or a beat was good. Returns whether it is attached or detached since."""
        attached = self.is_attached(now)
        changed = attached is not self.was_attached
        if changed:
            self.was_attached, self.since = attached, self._clocks.wall()
            words = "attached" if attached else "detached: it keeps its offer and refuses no version"
            _log.log(logging.INFO if attached else logging.WARNING, "%s: %s", self.service, words)
        if not attached and self.joined and not self.warned:
            left = seconds_to_forget(now, self.sent_at, self._forget)
            if left:
                self.warned = True
                _log.warning("%s: detached; nothing is answered any more in %.0f s", self.service, left)
        return changed

    def _detach(self) -> None:
        """Refuse nothing from now on."""
        self.refuses_until = NEVER
        self.live_revision = 0

    def _leave(self) -> None:
        """Answer nothing from now on."""
        self._detach()
        self.filed = self.held if self.joined else self.filed
        self.joined, self.held, self.joining = False, None, None
