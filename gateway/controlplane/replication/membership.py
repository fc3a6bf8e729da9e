"""State of this replica in one service: the record that it holds, the next one, and its deadline.

    out        it has not joined, or was away too long: it answers 503
    detached   its deadline has passed: it serves by the record that it holds, and refuses no version
    attached   its `live` entry exists, and a beat was sent less than 0.9 TTL ago

Only a `Membership` changes itself. `Replication` reports to it what was read and written. It writes nothing
to a store, and logs what operators must know of it.
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
    """Membership of the replica with the id `replica` in `service`. `saved`: the state file's part about the
    service. After a restart it continues, detached, with the record of that file, unless that is too old."""

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
        """Agreed record by which this replica answers."""
        self.joined = False
        """Whether this replica may answer by the record that it holds."""
        self.sent_at = NEVER
        """Time of this replica's last successful beat, by the clock of deadlines."""
        self.attached_at = NEVER
        """Time of the beat that last made this replica attached after it was not."""
        self.refuses_until = NEVER
        """Deadline for refusing versions. It ends early when the store has lost what this replica holds."""
        self.live_revision = 0
        """Last known revision of this replica's `live` entry; 0: there is none."""
        self.joining: AgreedRecord | None = None
        """Agreed record with which this replica will join once it is in the state file."""
        self.filed = None if saved is None else saved.record
        """Agreed record of an earlier process in the state file, or the one that was held before everything
        ended here. It stays in the file until this replica has joined."""
        self.transparent = False
        self.legacy_only = False
        self.problem = ""
        """Reason why this replica cannot join the agreement, a sentence."""
        self.predecessors: tuple[str, ...] = ()
        """Ids of earlier processes whose registrations are to be ended."""
        self.last_before: LastAttached | None = None
        """Latest time at which the earlier process was attached."""
        self.since = clocks.wall()
        """Unix time of this replica's last change between attached and not attached, or of its start."""
        self.was_attached = False
        self.beats = False
        """Whether a beat (sign of life) of this process was successful."""
        self.warned = False
        self.not_live_since: dict[str, float] = {}
        """Times since when other registered replicas have no `live` entry, by id."""
        if saved is not None and saved.registered is not None:
            self.predecessors, self.last_before = saved.registered.ids, saved.registered.last
        now, wall, last = clocks.boot_time(), clocks.wall(), self.last_before
        if last is not None and may_resume(last, clocks.boot, now, wall, self._forget):
            age = now - last.boot_time if last.boot == clocks.boot else wall - last.wall_time
            self.held, self.joined, self.sent_at = self.filed, True, now - age

    @property
    def to_save(self) -> AgreedRecord | None:
        """Agreed record that must be in the state file before it is acknowledged, or joined with."""
        if self.joined:
            return self.held
        return self.filed if self.joining is None else self.joining

    @property
    def seq(self) -> int:
        """Sequence number of the record that this replica holds; 0: none."""
        return seq_of(self.held)

    def attachment(self, now: float) -> Attachment:
        """State of this replica at the time `now`: attached, detached, or out."""
        if not self.joined:
            return Attachment.FORGOTTEN
        if now < self.refuses_until:
            return Attachment.ATTACHED
        at = attachment_at(now, self.sent_at, self._ttl, self._forget)
        return Attachment.DETACHED if at is Attachment.ATTACHED else at

    def is_attached(self, now: float) -> bool:
        """Whether this replica is attached, and may refuse a version."""
        return self.attachment(now) is Attachment.ATTACHED

    def answers_for(self, now: float) -> float | None:
        """Seconds for which a detached replica goes on answering; None: without end, or it is attached."""
        match self.attachment(now):
            case Attachment.FORGOTTEN:
                return 0.0
            case Attachment.DETACHED if self._forget is not None and self.sent_at > NEVER:
                return max(0.0, self.sent_at + self._forget - now)
            case _:
                return None

    def agreed(self, now: float) -> Agreed:
        """Agreement by which requests of the service are decided at the time `now`."""
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
        """Agreed record that this replica would have if it joined now."""
        return joined_record(self.held if self.joined else None, reading.record)

    def read(self, reading: Reading, now: float) -> None:
        """Note what was read from the store: whether this replica goes on, and which others are not live."""
        if self.joined and self.attachment(now) is Attachment.FORGOTTEN:
            _log.error("%s: detached for too long: all requests get 503", self.service)
            self._leave()
        if reading.problem != self.problem:
            self.problem = reading.problem
            if self.problem:
                _log.error("%s: all requests get 503: %s", self.service, self.problem)
        if self.problem:
            self._leave()
        elif self.joined and (
            has_lost(self.held, reading.record) or (self.live_revision and self.replica not in reading.live)
        ):
            if self.live_revision:
                _log.warning(
                    "%s: the store has lost entries of this replica, which joins again", self.service
                )
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
        """Adopt a newer agreed record, or begin to join if this replica has no `live` entry."""
        if not self.live_revision:
            self.joining = self.joins_with(reading)
            return
        if not self.is_attached(now):
            return
        if reading.record is not None and adopts(self.held, reading.record):
            self.held = reading.record
        if reading.live and self.held == reading.record:
            replicas = list(reading.replicas.values())
            self.transparent = not reading.unreadable and all_transparent(self.held, replicas)
            self.legacy_only = legacy_only(self.held, replicas)

    def beaten(self, sent_at: float) -> None:
        """Note that a beat sent at `sent_at` was successful."""
        self.beats = True
        if sent_at >= self.sent_at:
            if sent_at >= self.refuses_until:
                self.attached_at = sent_at
            self.sent_at, self.refuses_until = sent_at, deadline(sent_at, self._ttl)
            self.warned = False

    def registered(self, record: AgreedRecord | None, revision: int, sent_at: float) -> None:
        """Note that this replica has joined, and may answer by `record`."""
        self.held, self.joined, self.joining, self.filed = record, True, None, None
        self.live_revision = revision
        self.beaten(sent_at)

    def rewritten(self, revision: int) -> None:
        """Note the new revision of this replica's `live` entry in the store."""
        self.live_revision = revision

    def reconfigured(self, record: AgreedRecord | None, *, in_same_scheme: bool) -> None:
        """Note another configuration of the service, under which `record` is agreed on."""
        if self.joined and record is None and self.held is not None:
            self._leave()  # another dialect or scheme: nothing that was agreed on means anything
            self.filed = None
        elif self.joined:
            self.held = record
        elif not in_same_scheme:
            self.filed = self.joining = None

    def notice(self, now: float) -> bool:
        """Log a change of this replica between attached and detached. Returns whether there was one."""
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
                _log.warning("%s: detached: in %.0f s all requests get 503", self.service, left)
        return changed

    def _detach(self) -> None:
        """Stop refusing versions: this replica is detached until it joins again."""
        self.refuses_until = NEVER
        self.live_revision = 0

    def _leave(self) -> None:
        """Stop answering requests of the service: this replica is out until it joins again."""
        self._detach()
        self.filed = self.held if self.joined else self.filed
        self.joined, self.held, self.joining = False, None, None
