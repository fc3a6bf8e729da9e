"""Keeps the offers of this replica in agreement with all others, through a store that all of them see.

    store  ->  readings  ->  Membership  ->  SnapshotHolder.agree  ->  workers
      ▲                                                                  │ acknowledged
      └── beats, acknowledgements, votes, steps  ◄──── plans  ◄──────────┘

One loop for all services. A round reads the store, sends a beat when it is due, adopts records, and writes at
most one transaction for each service, in a few bundles. The next round follows when something has changed, a
worker has acknowledged, or a beat is due. While nothing changes, a round is one transaction and one small
read, however many services there are: its guards say that all is as it was read. Decides nothing about
versions (`core.agreement`), and knows no worker: `held` returns what they hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Final, final
from uuid import uuid4

from gateway.controlplane.replication.clocks import Clocks, system_clocks
from gateway.controlplane.replication.entries import (
    DRAINED,
    ReplicaInfo,
    read_sight,
    write_beat,
    write_live,
    write_replica_info,
)
from gateway.controlplane.replication.membership import NEVER, Membership
from gateway.controlplane.replication.plans import (
    FIRST_BEAT,
    PlannedWrite,
    Purpose,
    Situation,
    awaits,
    ending,
    leaving,
    next_write,
    own_commands,
    written_command,
)
from gateway.controlplane.replication.reading import PIN, PROBE, RAISED, Reading, Readings
from gateway.controlplane.replication.reports import make_report
from gateway.controlplane.replication.saving import Saving
from gateway.controlplane.sight import ANSWERED_FOR, Sight, Sights
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import (
    MAX_OPERATIONS,
    Guard,
    NothingNewer,
    Store,
    StoreError,
    Transaction,
    Unchanged,
    commit_all,
)
from gateway.core.agreement.attachment import Registered, beat_interval
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.drains import refusal
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin, Raise
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.version import Scheme
from gateway.errors import CommandRefused
from gateway.runtime.process import end_tasks
from gateway.runtime.timer import Timer
from gateway.settings import AgreementSettings
from gateway.telemetry.neighbours import AgreementReport

MAX_WAIT: Final = 5.0
"""Maximum seconds that `in_force` waits for the store and the other replicas."""
STORE: Final = "store"

_log = logging.getLogger("skewgate.agreement")


@final
class Replication:
    """`Agreement` of one of several replicas, for all its services, from `start` to `close`.

    `snapshot_holder` must begin every service with `attachment.NOT_JOINED`, and nobody else may call its
    `agree`. `store` is closed here. `held(service)`: the lowest number of the service's record that a live
    worker or engine has acknowledged, 0 if one has acknowledged none; None: only this process serves.
    `deadlines(by service)`: gives all workers the time until which they may refuse a version, in seconds of
    CLOCK_BOOTTIME; they check it before each refusal, and refuse nothing for other services. `restored`: the
    state file's content, by service. `orphans()`: whether workers of an earlier process may still serve.
    `save`: write `to_save` and `registrations` to the state file, and return whether they are there; None:
    there is no file. `name`, `host`, `release`: for people. `clock`: the holder's."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        store: Store,
        settings: AgreementSettings,
        *,
        held: Callable[[str], int | None],
        deadlines: Callable[[Mapping[str, float]], None],
        restored: Mapping[str, SavedState] | None = None,
        orphans: Callable[[], bool] = lambda: False,
        save: Callable[[], Awaitable[bool]] | None = None,
        name: str = "",
        host: str = "",
        release: str = "",
        clocks: Clocks | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.id = uuid4().hex[:16]
        self.facts: Sights | None = None
        """What operators ask all replicas about; None: this replica probes nothing yet."""
        self._questions: dict[str, tuple[int, float, str]] = {}
        """Last question about each service: its revision, when its probes were asked for, and the member to
        judge."""
        self._snapshot_holder = snapshot_holder
        self._store = store
        self._settings = settings
        self._held = held
        self._deadlines = deadlines
        self._restored = dict(restored or {})
        self._orphans = orphans
        self._clocks = clocks or system_clocks()
        self._clock = clock
        self._readings = Readings(store, settings.prefix, snapshot_holder, self._clocks.boot_time)
        self._registration = write_replica_info(ReplicaInfo(name, host, release))
        self._beat_key = self._readings.beats_prefix + self.id
        self._members: dict[str, Membership] = {}
        """This replica's memberships, by service. Each changes itself."""
        self._first_members: tuple[Membership, ...] = ()
        """Memberships in the services of the start, on which `is_joining` depends."""
        self._joining_until = NEVER
        """Time after which clients may be sent here although this replica has not joined since its start. One
        that comes back continues with the offer of its state file, while the others may have moved on."""
        self._leaving: dict[str, tuple[float, Reading]] = {}
        """Removed services: the time of removal, and their last readings."""
        self._own_beat = Unchanged(self._beat_key, 0)
        """Last beat of this replica in the store."""
        self._beats = 0
        """Number of beats that were sent: no two have the same text."""
        self._beat_at = NEVER
        """Time of this replica's next beat (sign of life), by the clock of deadlines."""
        self._given_deadlines: Mapping[str, float] = {}
        """Deadlines for refusing versions that the workers have been given, by service."""
        self._dirty: set[str] = set()
        """Services that the next round of the agreement must handle: something about them may be new."""
        self._holding = False
        self._store_error = ""
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._saving = Saving(self.id, self._members, save, self._clocks, self.acknowledged, settings.forget)
        self._timer = Timer()
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start this replica with the state file's content, detached, and begin to join."""
        for name in self._snapshot_holder.current.views:
            self._add(name)
        self._first_members = tuple(self._members.values())
        self._joining_until = self._clocks.boot_time() + self._settings.ttl
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        self._show()
        self._store.watch(self._readings.prefix, self._hinted)
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replication")

    async def close(self) -> None:
        """End this replica's registration: nobody is served any more. After a take-over it is kept."""
        self._unsubscribe()
        await end_tasks(self._task)
        await self._saving.close()
        self._timer.cancel()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self._settings.ttl):
                await self._sign_off()
        await self._store.close()
        self._changed.set()

    async def _sign_off(self) -> None:
        if self._members and not self._store_error:
            await self._read_all()
            if not self._holding:
                await self._saving.end()  # first: without a registration nobody goes on by the file
            readings = [*self._readings.services.values(), *(each for _, each in self._leaving.values())]
            ends = [leaving(each, self.id, registered=self._holding) for each in readings]
            beat = Transaction((), {}, (self._beat_key,))
            await commit_all(self._store, [*(each for each in ends if each.deletes), beat])

    def _add(self, name: str) -> None:
        saved = self._restored.pop(name, None)
        self._members[name] = Membership(name, self.id, self._settings, self._clocks, saved)
        self._dirty.add(name)

    def acknowledged(self) -> None:
        self._dirty.update(self._members)
        self._wake.set()

    def hold(self, *, everything: bool = True) -> None:
        """Note that another process serves, too; both are replicas, so nothing stops. `everything`: it takes
        over, and ends this one's registration. Otherwise this one ends the other's, once that has ended."""
        self._holding = True

    def release(self) -> None:
        self._holding = False
        self.acknowledged()

    def _hinted(self) -> None:
        self._readings.stale = True
        self._wake.set()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if after.routes is not before.routes:
            for name in before.views.keys() - after.views.keys():
                self._members.pop(name, None)
                self._dirty.discard(name)
                reading = self._readings.services.pop(name, None)
                if reading is not None:
                    self._leaving[name] = self._clocks.boot_time(), reading
            for name in after.views.keys() - before.views.keys():
                self._leaving.pop(name, None)
                self._add(name)
                self._readings.stale = True
        for old, view in after.news_since(before):
            name = view.service.name
            self._dirty.add(name)
            if old is not None and old.service is not view.service and view.agreed is not None:
                in_same_scheme = old.service.scheme_id == view.service.scheme_id
                self._members[name].reconfigured(view.agreed.record, in_same_scheme=in_same_scheme)
                self._readings.configured_anew(name)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            began = asyncio.get_running_loop().time()
            try:
                again = await self._round()
                self._store_answers("")
            except Exception as error:  # noqa: BLE001 - logged; without beats this replica would detach for ever
                again = False
                # It is unknown what of the last round was carried out.
                self._readings.stale = True
                self._dirty.update(self._members)
                if isinstance(error, StoreError):
                    self._store_answers(str(error))
                else:
                    _log.exception("a round of the agreement failed because of a bug in the gateway")
            self._show()
            self._saving.save_what_is_new()  # that it is attached, too, although the store has gone again
            self._changed.set()
            self._changed.clear()
            await self._pause(began, again=again)

    async def _pause(self, began: float, *, again: bool) -> None:
        """Wait until the agreement's next round: something has changed, or the next beat is due."""
        loop = asyncio.get_running_loop()
        if self._store_error:
            await asyncio.sleep(max(0.0, began + beat_interval(self._settings.ttl) - loop.time()))
            return
        await asyncio.sleep(max(0.001, self._readings.pause_until - loop.time()))
        if again or self._wake.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._beat_at - self._clocks.boot_time())):
                await self._wake.wait()

    async def _round(self) -> bool:
        """Do one round of the agreement. True: another one should follow at once."""
        is_due = self._clocks.boot_time() >= self._beat_at
        if is_due:
            self._beat_at = self._clocks.boot_time() + beat_interval(self._settings.ttl)
        if is_due and not self._readings.stale and await self._quiet_beat():
            self._dirty |= await self._readings.read_beats()
        elif is_due or self._readings.stale:
            await self._read_all()
            for me in self._members.values():
                self._compare(me, self._readings.services[me.service])
            if is_due:
                await self._beat()
        self._show()
        views = self._snapshot_holder.current.views
        # An enforced sunset comes by the clock alone.
        enforcing = {name for name, view in views.items() if view.service.passed_sunset(inf)}
        self._dirty |= enforcing & self._members.keys()
        self._adopt_all()
        wrote = await self._write(self._plans())
        wrote |= await self._leave_removed()
        if wrote:
            self._readings.stale = True
        return wrote

    async def _quiet_beat(self) -> bool:
        """Send a beat on condition that nothing has changed since everything was read. False: something has.
        The own beat is a guard, too: a store that was emptied or restored does not have it."""
        resync_at = self._readings.resync_at(self._settings.ttl)
        if not self._own_beat.revision or asyncio.get_running_loop().time() >= resync_at:
            return False
        sent_at = self._clocks.boot_time()
        nothing_newer = NothingNewer(self._readings.prefix, self._readings.revision)
        if not await self._commit_beat((nothing_newer, self._own_beat)):
            return False
        for me in self._members.values():
            if me.live_revision:
                me.beaten(sent_at)
        return True

    async def _beat(self) -> None:
        """Send beats on condition that the `live` entries are as they were read."""
        beating = [
            (me, Unchanged(self._readings.services[name].live_key(self.id), me.live_revision))
            for name, me in self._members.items()
            if me.live_revision
        ]
        for at in range(0, len(beating), MAX_OPERATIONS):
            part = beating[at : at + MAX_OPERATIONS]
            sent_at = self._clocks.boot_time()
            if not await self._commit_beat(tuple(guard for _, guard in part)):
                self._readings.stale = True
                continue
            for me, _ in part:
                me.beaten(sent_at)

    async def _commit_beat(self, guards: tuple[Guard, ...]) -> bool:
        self._beats += 1
        key, text = self._beat_key, write_beat(self._beats, self._answers())
        revision = await self._store.commit(Transaction(guards, {key: text}))
        if revision is None:
            return False
        self._own_beat = Unchanged(key, revision, text)
        return True

    async def _read_all(self) -> None:
        self._dirty |= await self._readings.read(self._members)
        self._dirty &= self._members.keys()
        for name, reading in self._readings.services.items():
            asked = reading.entries.get(PROBE)
            known = self._questions.get(name)
            if self.facts is not None and asked and (known is None or asked.revision != known[0]):
                self._questions[name] = asked.revision, self.facts.probe(name), asked.text

    def _answers(self) -> dict[str, tuple[int, Sight, Scheme]]:
        """This replica's answers to the last questions, for its beat."""
        views, facts, oldest = self._snapshot_holder.current.views, self.facts, self._clock() - ANSWERED_FOR
        return {
            name: (question, facts.sight(name, at, judged), views[name].service.dialect.scheme)
            for name, (question, at, judged) in self._questions.items()
            if facts is not None and at > oldest and name in views
        }

    def _compare(self, me: Membership, reading: Reading) -> None:
        """Update a membership by what was read from the store, and apply the commands of operators in it."""
        me.read(reading, self._clocks.boot_time())
        if not me.live_revision:
            self._dirty.add(me.service)
        if reading.problem or (reading.record is None and not me.live_revision):
            return
        members = self._snapshot_holder.current.fleet.member_sets[me.service]
        if PIN not in reading.unclear and members.pin != reading.pin:
            self._snapshot_holder.apply(me.service, Pin(reading.pin))
        if RAISED not in reading.unclear and members.raised != reading.raised:
            self._snapshot_holder.apply(me.service, Raise(reading.raised.floor, reading.raised))
        for member in members.all if DRAINED not in reading.unclear else ():
            by = reading.drained.get(member.backend.name)
            if member.drained_by != by:
                command = Drain(member.backend.name, drained=by is not None, by=by or "")
                self._snapshot_holder.apply(me.service, command)

    def _adopt_all(self) -> None:
        now = self._clocks.boot_time()
        for name in self._dirty:
            reading = self._readings.services.get(name)
            if reading is not None and not reading.problem:
                self._members[name].follow(reading, now)
        self._show()
        self._saving.save_what_is_new()

    def _plans(self) -> list[tuple[str, PlannedWrite]]:
        found = []
        for name in sorted(self._dirty):
            reading = self._readings.services.get(name)
            if reading is not None:
                plan = next_write(self._situation(self._members[name], reading))
                if plan is not None:
                    found.append((name, plan))
        self._dirty.clear()
        return found

    def _situation(self, me: Membership, reading: Reading) -> Situation:
        view, snapshot = self._snapshot_holder.current.views[me.service], self._snapshot_holder.current
        members = snapshot.fleet.member_sets[me.service]
        idle = frozenset[str]() if self.facts is None else self.facts.idle(me.service)
        own = snapshot.vote(me.service, self._clock())
        held = self._held(me.service)
        in_force_here = (held is None or held == me.seq) and self._saving.is_saved(me)
        before = reading.live.get(self.id)
        ack = me.seq if in_force_here or before is None else before.replica.ack
        # One that is detached goes over to the record when it is registered, and acknowledges it when all
        # its workers do. One that is out answers nothing until then.
        joins = me.seq if me.joined or me.joining is None else me.joining.seq

        vote = own.vote
        if vote is not None:
            # An older release reads no vote with either, and takes no step.
            floors = reading.knows_floors
            passed = view.service.passed_sunset(self._clocks.wall()) if floors else None
            vote = replace(vote, least=vote.least if floors else None, passed=passed)

        def text(ack: int) -> str:
            return write_live(ack, vote, idle, view.service, transparent=own.transparent)

        return Situation(
            me=me,
            reading=reading,
            beats=self._readings.beats,
            registration=self._registration,
            own_text=text(ack),
            joining_text=text(joins),
            own_commands=own_commands(members, view.service.dialect.scheme),
            in_force_here=in_force_here,
            ends_predecessors=not self._orphans() and not self._holding,
            ttl=self._settings.ttl,
            forget=self._settings.forget,
            now=self._clocks.boot_time(),
        )

    async def _write(self, plans: list[tuple[str, PlannedWrite]]) -> bool:
        """Commit the planned transactions. True: something was written, or has changed since it was read."""
        if not plans:
            return False
        sent_at = self._clocks.boot_time()
        revisions = await commit_all(self._store, [plan.transaction for _, plan in plans])
        for (name, plan), revision in zip(plans, revisions, strict=True):
            me = self._members.get(name)
            if revision is None or me is None:
                self._dirty.update({name} & self._members.keys())
                continue
            if plan.purpose is Purpose.JOIN:
                me.registered(plan.record, revision, sent_at)
                self._own_beat = Unchanged(self._beat_key, revision, FIRST_BEAT)
            elif plan.purpose is Purpose.VOTE:
                me.rewritten(revision)
            elif plan.purpose is Purpose.REMOVE:
                _log.info("%s: removed entries of replicas that are gone", name)
        self._show()
        return True

    async def _leave_removed(self) -> bool:
        """End the registrations of removed services, once no worker can serve them any more."""
        now = self._clocks.boot_time()
        over = [name for name, (at, _) in self._leaving.items() if now >= at + self._settings.ttl]
        for name in over:
            before = self._leaving.pop(name)[1]
            contents = await self._store.read(before.prefix)
            entries = {key.removeprefix(before.prefix): each for key, each in contents.entries.items()}
            transaction = leaving(replace(before, entries=entries), self.id, registered=False)
            if transaction.deletes:
                await self._store.commit(transaction)
        return bool(over)

    def _show(self) -> None:
        """Publish this replica's membership in each service; set a timer for the next change by time."""
        now, views = self._clocks.boot_time(), self._snapshot_holder.current.views
        changed, deadlines, next_at = {}, {}, float("inf")
        for name, me in self._members.items():
            if me.notice(now):
                self._dirty.add(name)
            if me.was_attached:
                next_at = min(next_at, me.refuses_until)
            deadlines[name] = me.refuses_until
            agreed = me.agreed(now)
            if name in views and views[name].agreed != agreed:
                changed[name] = agreed
        if changed:
            self._snapshot_holder.agree(changed)
        if deadlines != self._given_deadlines:
            self._given_deadlines = deadlines
            self._deadlines(deadlines)
        # An end of `forget` is noticed at the next beat.
        self._timer.set(min(next_at - now, self._settings.ttl) + 0.001, self._show)

    def _store_answers(self, error: str) -> None:
        if error and not self._store_error:
            _log.warning("the store that replicas share does not respond: %s", error)
        elif self._store_error and not error:
            _log.info("the store that replicas share responds again")
        self._store_error = error

    @property
    def is_joining(self) -> bool:
        """Whether clients should not be sent to this replica yet: it has not joined since its start, and one
        TTL has not passed. After that it gets clients even while detached, because it serves."""
        return not all(me.beats for me in self._first_members) and (
            self._clocks.boot_time() < self._joining_until
        )

    async def joined(self) -> None:
        """Wait until this replica is not joining any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._joining_until - self._clocks.boot_time())):
                while self.is_joining:
                    await self._changed.wait()

    async def in_force(self, service: str | None = None) -> bool:
        try:
            async with asyncio.timeout(MAX_WAIT):
                while whom := [each for name, each in self.awaited().items() if service in {None, name}]:
                    if STORE in whom and self._store_error:
                        return False
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def awaited(self) -> Mapping[str, str]:
        now, found = self._clocks.boot_time(), {}
        for name, me in self._members.items():
            reading = self._readings.services.get(name)
            if reading is None or not me.is_attached(now):
                found[name] = STORE
            elif whom := awaits(me, reading, dirty=name in self._dirty or self._readings.stale):
                found[name] = ", ".join(whom)
        return found

    def report(self) -> AgreementReport:
        """State of the agreement between replicas, for `/status` and metrics."""
        return make_report(
            self.id,
            self._members,
            self._readings,
            self._settings,
            self._clocks,
            store_error=self._store_error,
            joining=self.is_joining,
        )

    def to_save(self) -> Mapping[str, AgreedRecord]:
        return self._saving.records()

    def registrations(self) -> Mapping[str, Registered]:
        """Registrations that the state file must hold, by service."""
        return self._saving.registrations()

    async def command(self, service: str, command: OperatorCommand) -> None:
        """Give an operator's command to all replicas. It is in force here on return. Raises `StoreError`."""
        if service not in self._members:
            return
        for _ in range(5):
            await self._read_all()
            self._hinted()  # what was read is compared by the next round
            reading = self._readings.services[service]
            if reading.problem:
                raise StoreError(f"{service}: {reading.problem}")
            if isinstance(command, Raise) and command.floor is not None and not reading.knows_floors:
                raise CommandRefused("a live replica knows no floors: update all replicas first")
            view = self._snapshot_holder.current.views[service]
            drained = view.members.drained if DRAINED in reading.unclear else reading.drained
            if (reason := refusal(view, drained, command)) is not None:
                raise CommandRefused(reason)
            transaction = written_command(reading, command, drained, self.id)
            if transaction is None or await self._store.commit(transaction) is not None:
                self._hinted()
                self._snapshot_holder.apply(service, command)
                return
        raise StoreError(f"{service}: another replica wrote at the same time; try again")

    async def request_probes(self, service: str, judged: str) -> int:
        """Ask all live replicas to probe a service. Returns the question's revision. `judged`: a member of
        which they tell what they have counted; empty: that of the last question. Raises `StoreError`."""
        if not judged and service in self._questions:
            *_, judged = self._questions[service]
        question = await self._store.commit(
            Transaction((), {f"{self._readings.prefix}{service}/{PROBE}": judged})
        )
        self._hinted()
        if question is None:
            raise StoreError("the store did not take the question")
        return question

    def sights(self, service: str, question: int) -> Mapping[str, Sight | None]:
        """Answers of the other live replicas to a question, by their ids; None: not answered yet."""
        reading, beats = self._readings.services.get(service), self._readings.beats
        if reading is None:
            return {}
        others = {*reading.live, *reading.unreadable} - {self.id}
        scheme = reading.service.dialect.scheme
        return {
            each: read_sight(beats[each].text, service, question, scheme) if each in beats else None
            for each in sorted(others)
        }

    async def forget(self, replica: str) -> bool:
        """End a replica's registration. False: it is live, or not registered. Raises `StoreError`."""
        await self._read_all()
        readings = [each for each in self._readings.services.values() if replica in each.known]
        if not readings or any(replica in (*each.live, *each.unreadable) for each in readings):
            return False
        revisions = await commit_all(self._store, [ending(each, replica, self.id) for each in readings])
        self._hinted()
        return None not in revisions
