"""Keeps what this replica offers in agreement with all others, through a store that all of them see.

    store  ->  readings  ->  Membership  ->  SnapshotHolder.agree  ->  workers
      ▲                                                                  │ acknowledged
      └── beats, acknowledgements, votes, steps  ◄── Following  ◄────────┘

One loop for all services. A round reads what stands there, sends a beat when it is time, adopts documents,
and writes at most one transaction for each service; all of them go in a few bundles. The next round follows
when somebody has changed something, a worker has acknowledged, or a beat is due. While nothing changes, a
round is one transaction and one small read, however many services there are: its guards say that all is as it
was read.

Decides nothing about versions (`core.agreement`), and knows no worker: `held` says what they hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Final, final
from uuid import uuid4

from gateway.controlplane.replication.clocks import Clocks, system_clocks
from gateway.controlplane.replication.commits import MAX_OPERATIONS, commit_all
from gateway.controlplane.replication.first_join import FirstJoin
from gateway.controlplane.replication.following import FIRST_BEAT, Following, Kind, Plan, Situation
from gateway.controlplane.replication.membership import NEVER, Membership
from gateway.controlplane.replication.reading import Reading
from gateway.controlplane.replication.readings import Readings
from gateway.controlplane.replication.reports import make_report
from gateway.controlplane.replication.saving import Saving
from gateway.controlplane.replication.texts import Who, write_live, write_who
from gateway.controlplane.replication.words import own_words, take_words, written_command
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import Guard, NothingNewer, Store, StoreError, Transaction, Unchanged
from gateway.core.agreement.attachment import (
    Attachment,
    Registered,
    adopts,
    beat_interval,
    seconds_to_forget,
)
from gateway.core.agreement.document import Document
from gateway.core.agreement.ladder import all_transparent, legacy_only
from gateway.core.fleet.fleet import OperatorCommand
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.snapshot import Snapshot
from gateway.settings import AgreementSettings
from gateway.telemetry.agreement import AgreementReport

MAX_WAIT: Final = 5.0
"""Seconds for which `in_force` and commands wait."""

STORE: Final = "store"

_log = logging.getLogger("skewgate.agreement")


@final
class Replication:
    """One replica, for all services of this gateway, from `start` to `close`, on the running loop.

    `snapshot_holder` must begin every service with `agreed.NOT_JOINED`, and call `agree` for nobody else.
    `store` is closed here. `held(service)`: the lowest seq of its document that any live worker (or engine)
    has acknowledged, 0 for none; None: none is live besides this process, where what is agreed is in force.
    `in_flight()`: requests in flight by member key, of all workers. `deadlines(by service)`: until when each
    worker may refuse a version, in seconds of CLOCK_BOOTTIME; it is to reach them all, and be looked at
    before each refusal. A service that is not in it refuses nothing. `restored`: what the state file says, by
    service. `orphans()`: whether workers of an earlier process may still serve. `save`: write `to_save` and
    `registrations` to the state file (`StateKeeper(documents=…, registrations=…)`), and return whether they
    are there; None: there is no file. `name`, `host`, `release`: for people. `clock`: the holder's.
    """

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        store: Store,
        settings: AgreementSettings,
        *,
        held: Callable[[str], int | None],
        in_flight: Callable[[], Mapping[str, int]],
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
        self._snapshot_holder = snapshot_holder
        self._store = store
        self._settings = settings
        self._held = held
        self._in_flight = in_flight
        self._deadlines = deadlines
        self._restored = dict(restored or {})
        self._orphans = orphans
        self._clocks = clocks or system_clocks()
        self._clock = clock
        self._readings = Readings(store, settings.prefix, snapshot_holder, self._clocks.boot_time)
        self._following = Following(
            self.id,
            self._readings.beats_prefix + self.id,
            write_who(Who(name, host, release)),
            settings.ttl,
            settings.forget,
        )
        self._members: dict[str, Membership] = {}
        self.first_join = FirstJoin(settings.ttl, self._clocks)
        self._leaving: dict[str, tuple[float, Reading]] = {}
        """Services that were removed, since when, and how they were read last."""
        self._own_beat = Unchanged(self._following.beat_key, 0)
        """The last own beat, as it stands."""
        self._beats = 0
        """How often one was sent: no two say the same."""
        self._beat_at = NEVER
        """When the next one is due."""
        self._given_deadlines: Mapping[str, float] = {}
        """The deadlines that workers have been told."""
        self._dirty: set[str] = set()
        """Services that are to be looked at."""
        self._holding = False
        self._store_error = ""
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._saving = Saving(self.id, self._members, save, self._clocks, self.acknowledged, settings.forget)
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    # --- its life

    def start(self) -> None:
        """Come up by what the state file says, detached, and begin to join. To be called before the state
        file is written and before any worker serves."""
        for name in self._snapshot_holder.current.views:
            self._add(name)
        self.first_join.begin(self._members.values())
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        self._show()
        self._store.watch(self._readings.prefix, self._hinted)
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replication")

    async def close(self) -> None:
        """End the registration; to be called when nobody is served any more. Of a gateway that was taken over
        the registration stays until its successor ends it."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._saving.close()
        if self._timer is not None:
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
            leaving = [self._following.leaving(each, registered=self._holding) for each in readings]
            beat = Transaction((), {}, (self._following.beat_key,))
            await commit_all(self._store, [*(each for each in leaving if each.deletes), beat])

    def _add(self, name: str) -> None:
        me = self._members[name] = Membership(since=self._clocks.wall())
        saved = self._restored.pop(name, None)
        if saved is not None:
            me.filed = saved.document
        if saved is not None and saved.registered is not None:
            me.resume(saved.document, saved.registered, self._clocks, self._settings.forget)
        self._dirty.add(name)

    # --- what happens elsewhere

    def acknowledged(self) -> None:
        """A worker has acknowledged, joined or ended, or the last orphan is gone."""
        self._dirty.update(self._members)
        self._wake.set()

    def hold(self, *, everything: bool = True) -> None:
        """Another process serves with this one, before or after it. Both are replicas, each by its own id, so
        nothing stands still. `everything`: it takes over from this one, and this one's registration is ended
        by it. Else this one ends the other's when it is told that that has ended."""
        self._holding = True

    def release(self) -> None:
        """No other process serves any more, or it has not begun."""
        self._holding = False
        self.acknowledged()

    def _look_at_everything(self) -> None:
        """Nobody knows what of the last round was carried out."""
        self._readings.stale = True
        self._dirty.update(self._members)

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
                me = self._members[name]
                if me.joined and view.agreed.document is None and me.held is not None:
                    me.leave()  # another dialect or scheme: nothing that was agreed on means anything
                    me.filed = None
                elif me.joined:
                    me.held = view.agreed.document
                elif old.service.scheme_id != view.service.scheme_id:
                    me.filed = me.joining = None
                self._readings.configured_anew(name)
        self._wake.set()

    # --- the loop

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            began = asyncio.get_running_loop().time()
            try:
                again = await self._round()
                self._store_answers("")
            except StoreError as error:
                again = False
                self._look_at_everything()
                self._store_answers(str(error))
            except Exception:  # noqa: BLE001 - logged; without beats this replica would detach for ever
                again = False
                self._look_at_everything()
                _log.exception("a round of the agreement failed")
            self._show()
            self._saving.save_what_is_new()  # that it is attached, too, although the store has gone again
            self._changed.set()
            self._changed.clear()
            await self._pause(began, again=again)

    async def _pause(self, began: float, *, again: bool) -> None:
        """Until somebody has changed something, or the next beat is due."""
        loop = asyncio.get_running_loop()
        if self._store_error:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(began + beat_interval(self._settings.ttl)):
                    await asyncio.Event().wait()
            return
        await asyncio.sleep(max(0.001, self._readings.pause_until - loop.time()))
        if again or self._wake.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._beat_at - self._clocks.boot_time())):
                await self._wake.wait()

    async def _round(self) -> bool:
        """True: another one is to follow at once."""
        is_due = self._clocks.boot_time() >= self._beat_at
        if is_due:
            self._beat_at = self._clocks.boot_time() + beat_interval(self._settings.ttl)
        if is_due and not self._readings.stale and await self._quiet_beat():
            self._dirty |= await self._readings.read_beats()
        elif is_due or self._readings.stale:
            await self._read_all()
            for name in self._members:
                self._look_at_itself(name)
            if is_due:
                await self._beat()
        self._show()
        self._adopt_all()
        wrote = await self._write(self._plans())
        wrote |= await self._leave_removed()
        if wrote:
            self._readings.stale = True
        return wrote

    async def _quiet_beat(self) -> bool:
        """Beat on condition that nothing has changed since everything was read. False: something has. The own
        beat is guarded, too: a store that was emptied or restored has not that one."""
        guards = NothingNewer(self._readings.prefix, self._readings.revision), self._own_beat
        if not self._own_beat.revision or asyncio.get_running_loop().time() >= self._readings.resync_at(
            self._settings.ttl
        ):
            return False
        sent_at = self._clocks.boot_time()
        if not await self._commit_beat(guards):
            return False
        for me in self._members.values():
            if me.live_revision:
                me.beaten(sent_at, self._settings.ttl)
        return True

    async def _beat(self) -> None:
        """For every service whose `live` stands as it was read, on that condition."""
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
                me.beaten(sent_at, self._settings.ttl)

    async def _commit_beat(self, guards: tuple[Guard, ...]) -> bool:
        self._beats += 1
        key, text = self._following.beat_key, str(self._beats)
        revision = await self._store.commit(Transaction(guards, {key: text}))
        if revision is not None:
            self._own_beat = Unchanged(key, revision, text)
        return revision is not None

    async def _read_all(self) -> None:
        self._dirty |= await self._readings.read(self._members)
        self._dirty &= self._members.keys()

    def _look_at_itself(self, name: str) -> None:
        """What the reading says about this replica itself."""
        me, reading = self._members[name], self._readings.services[name]
        now = self._clocks.boot_time()
        if me.joined and self._attachment(me, now) is Attachment.FORGOTTEN:
            _log.error("%s: detached for too long: nothing is answered any more", name)
            me.leave()
        if reading.problem != me.problem:
            me.problem = reading.problem
            if me.problem:
                _log.error("%s: nothing is answered: %s", name, me.problem)
        if reading.problem:
            me.leave()
        elif self._following.lost(me, reading):
            if me.live_revision:
                _log.warning("%s: the store has lost what this replica holds; it joins again", name)
            me.detach()
        elif me.live_revision:
            me.live_revision = reading.revision_of(reading.live_key(self.id))
        me.not_live_since = {
            each: me.not_live_since.get(each, now) for each in reading.known if each not in reading.live
        }
        if not me.live_revision:
            self._dirty.add(name)
        elif me.predecessors:
            me.prune((*reading.live, *reading.unreadable, *reading.known))
        if not reading.problem and (reading.document is not None or me.live_revision):
            take_words(self._snapshot_holder, reading)

    # --- what follows

    def _attachment(self, me: Membership, now: float) -> Attachment:
        return me.attachment(now, self._settings.ttl, self._settings.forget)

    def _adopt_all(self) -> None:
        """Go over to newer documents, and begin to join where `live` does not stand."""
        now = self._clocks.boot_time()
        for name in self._dirty:
            me, reading = self._members[name], self._readings.services.get(name)
            if reading is None or reading.problem:
                continue
            attached = self._attachment(me, now) is Attachment.ATTACHED
            if me.live_revision:
                if attached and reading.document is not None and adopts(me.held, reading.document):
                    me.held = reading.document
                if attached and reading.live and me.held == reading.document:
                    words = [each.replica for each in reading.live.values()]
                    me.transparent = not reading.unreadable and all_transparent(me.held, words)
                    me.legacy_only = legacy_only(me.held, words)
            else:
                me.joining = self._following.joins_with(me, reading)
        self._show()
        self._saving.save_what_is_new()

    def _plans(self) -> list[tuple[str, Plan]]:
        """What is to be written, by service."""
        found = []
        now, may_end = self._clocks.boot_time(), not self._orphans() and not self._holding
        for name in sorted(self._dirty):
            reading = self._readings.services.get(name)
            if reading is None:
                continue
            situation = self._situation(name, self._members[name], reading, now)
            plan = self._following.plan(situation, self._readings.beats, ends_predecessors=may_end)
            if plan is not None:
                found.append((name, plan))
        self._dirty.clear()
        return found

    def _situation(self, name: str, me: Membership, reading: Reading, now: float) -> Situation:
        view, snapshot = self._snapshot_holder.current.views[name], self._snapshot_holder.current
        pool = snapshot.fleet.pools[name]
        in_flight = self._in_flight()
        idle = frozenset(
            member.backend.name for member in pool.members if member.drained and not in_flight.get(member.key)
        )
        own = snapshot.vote(name, self._clock())
        held = self._held(name)
        in_force_here = (held is None or held == me.seq) and self._saving.is_saved(me)
        before = reading.live.get(self.id)
        ack = me.seq if in_force_here or before is None else before.replica.ack
        # One that is detached goes over to the document when it is registered, and acknowledges it when all
        # its workers do. One that is out answers nothing until then.
        joins = me.seq if me.joined or me.joining is None else me.joining.seq

        def text(ack: int) -> str:
            return write_live(ack, own.vote, idle, view.service, transparent=own.transparent)

        return Situation(
            me=me,
            reading=reading,
            own_text=text(ack),
            joining_text=text(joins),
            own_words=own_words(pool, view.service.dialect.scheme),
            in_force_here=in_force_here,
            attached=self._attachment(me, now) is Attachment.ATTACHED,
            now=now,
        )

    async def _write(self, plans: list[tuple[str, Plan]]) -> bool:
        """True: something was written, or has changed since it was read."""
        if not plans:
            return False
        sent_at = self._clocks.boot_time()
        revisions = await commit_all(self._store, [plan.transaction for _, plan in plans])
        for (name, plan), revision in zip(plans, revisions, strict=True):
            me = self._members.get(name)
            if revision is None or me is None:
                self._dirty.update({name} & self._members.keys())
                continue
            if plan.kind is Kind.JOIN:
                me.joins(plan.document)
                me.live_revision = revision
                self._own_beat = Unchanged(self._following.beat_key, revision, FIRST_BEAT)
                me.beaten(sent_at, self._settings.ttl)
            elif plan.kind is Kind.TELL:
                me.live_revision = revision
            if plan.kind is Kind.REMOVE:
                _log.info("%s: ended what others left in the store", name)
        self._show()
        return True

    async def _leave_removed(self) -> bool:
        """End registrations of services that were removed, once no worker can serve them any more."""
        now = self._clocks.boot_time()
        over = [name for name, (at, _) in self._leaving.items() if now >= at + self._settings.ttl]
        for name in over:
            before = self._leaving.pop(name)[1]
            contents = await self._store.read(before.prefix)
            entries = {key.removeprefix(before.prefix): each for key, each in contents.entries.items()}
            reading = replace(before, entries=entries)
            transaction = self._following.leaving(reading, registered=False)
            if transaction.deletes:
                await self._store.commit(transaction)
        return bool(over)

    # --- what is in force here

    def _show(self) -> None:
        """Publish how this replica stands to each service, and when that changes by time alone."""
        now, ttl, forget = self._clocks.boot_time(), self._settings.ttl, self._settings.forget
        views = self._snapshot_holder.current.views
        changed, deadlines, next_at = {}, {}, float("inf")
        for name, me in self._members.items():
            at = self._attachment(me, now)
            attached = at is Attachment.ATTACHED
            if attached is not me.was_attached:
                me.was_attached, me.since = attached, self._clocks.wall()
                self._dirty.add(name)
                words = "attached" if attached else "detached: it keeps its offer and refuses no version"
                _log.log(logging.INFO if attached else logging.WARNING, "%s: %s", name, words)
            if attached:
                next_at = min(next_at, me.refuses_until)
            elif me.joined and not me.warned and (left := seconds_to_forget(now, me.sent_at, forget)):
                me.warned = True
                _log.warning("%s: detached; nothing is answered any more in %.0f s", name, left)
            deadlines[name] = me.refuses_until
            agreed = me.agreed(at)
            if name in views and views[name].agreed != agreed:
                changed[name] = agreed
        if changed:
            self._snapshot_holder.agree(changed)
        if deadlines != self._given_deadlines:
            self._given_deadlines = deadlines
            self._deadlines(deadlines)
        if self._timer is not None:
            self._timer.cancel()
        self.first_join.look()
        # An end of `forget` is noticed at the next beat.
        wait = min(next_at - now, ttl) + 0.001
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._show)

    def _store_answers(self, error: str) -> None:
        if error and not self._store_error:
            _log.warning("the store of the agreement does not answer: %s", error)
        elif self._store_error and not error:
            _log.info("the store of the agreement answers again")
        self._store_error = error

    # --- what it says, and what operators say

    async def in_force(self, service: str | None = None) -> bool:
        """Wait until the documents (or that of `service`) are where all votes lead, and every live replica
        holds them. False: it takes too long, or this replica is detached."""
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
        """For whom the document of a service waits, by service. Empty: all are where they are to be."""
        now, found = self._clocks.boot_time(), {}
        for name, me in self._members.items():
            reading = self._readings.services.get(name)
            if reading is None or self._attachment(me, now) is not Attachment.ATTACHED:
                found[name] = STORE
            elif whom := self._following.awaits(me, reading, dirty=name in self._dirty):
                found[name] = ", ".join(whom)
        return found

    def report(self) -> AgreementReport:
        """How everything stands."""
        return make_report(
            self.id,
            self._members,
            self._readings,
            self._settings,
            self._clocks,
            store_error=self._store_error,
            joining=self.first_join.is_awaited,
        )

    def to_save(self) -> Mapping[str, Document]:
        """What the state file has to hold: the documents by service."""
        return self._saving.documents()

    def registrations(self) -> Mapping[str, Registered]:
        """The same of the registrations."""
        return self._saving.registrations()

    async def command(self, service: str, command: OperatorCommand) -> None:
        """Say it to all replicas. It is in force here when this returns. Raises `StoreError`."""
        if service not in self._members:
            return
        for _ in range(5):
            await self._read_all()
            self._wake.set()
            reading = self._readings.services[service]
            if reading.problem:
                raise StoreError(f"{service}: {reading.problem}")
            pool = self._snapshot_holder.current.fleet.pools[service]
            transaction = written_command(reading, command, pool, self.id)
            if transaction is None or await self._store.commit(transaction) is not None:
                self._hinted()
                self._snapshot_holder.apply(service, command)
                return
        raise StoreError(f"{service}: others write at the same time; try again")

    async def forget(self, replica: str) -> bool:
        """End the registration of one that does not come back. False: it is live, or not registered. Raises
        `StoreError`."""
        await self._read_all()
        readings = [each for each in self._readings.services.values() if replica in each.known]
        if not readings or any(replica in (*each.live, *each.unreadable) for each in readings):
            return False
        ended = [self._following.ending(each, replica).transaction for each in readings]
        revisions = await commit_all(self._store, ended)
        self._hinted()
        return None not in revisions
