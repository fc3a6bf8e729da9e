"""Agreement between the workers of one gateway: advances the record of each service towards its offer, step
by step.

    SnapshotHolder -> WorkerAgreement -> StateKeeper -> SnapshotHolder.agree -> workers -> acknowledged
      offer states      next steps       saved first      published

Workers hold the snapshot at slightly different times. Each offers and refuses by the record that it holds.
The next record is published only when every live worker has acknowledged this one, so no two of them are more
than one level apart (`core.agreement.ladder`). A gateway with one worker has no records, except during a
take-over, when two processes serve. Knows no worker: `held` returns what they have acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.ladder import FIRST_SEQ, Target, step
from gateway.core.agreement.record import AgreedRecord, decides_nothing, seq_of
from gateway.core.agreement.votes import policy_text
from gateway.core.fleet.offer import is_transparent
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.runtime.process import end_tasks
from gateway.telemetry.process_log import about

SAVE_WAIT: Final = 2.0
"""Seconds that a step of an agreed record waits for the state file."""
SHORT_SAVE_WAIT: Final = 0.1
"""Seconds that a step waits for the state file after one that was published unsaved: the disk is slow."""
MAX_WAIT: Final = 5.0
"""Maximum seconds that `in_force` waits for all workers."""
WORKERS: Final = "workers"
STATE_FILE: Final = "state file"
TAKE_OVER: Final = "take-over"
EARLIER_WORKERS: Final = "workers of an earlier process"

_MAX_STEPS: Final = 16
"""Largest number of consecutive steps while nobody holds a record; the ladder ends after five."""

_log = logging.getLogger("skewgate.agreement")


class _Step(NamedTuple):
    """Step of a service's agreed record: the agreement before, and the one after."""

    before: Agreed
    after: Agreed


@final
class WorkerAgreement:
    """`Agreement` of a gateway without replicas.

    `held(service)`: the lowest seq of its record that a live worker has acknowledged, 0 for none; None: no
    worker is live, so a worker that joins must hold the present record first. `restored`: records of the
    state file, or of the gateway that is taken over. `alone`: one worker serves in this process, so records
    are needed only while another process serves, too. `orphans`: whether workers of an earlier process may
    still serve; they refuse nothing, and what they serve is not refused here meanwhile. `save`: write
    `to_save` to the state file and return whether it is there; None: there is no file."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        held: Callable[[str], int | None] = lambda service: None,
        *,
        restored: Mapping[str, AgreedRecord] | None = None,
        alone: bool = False,
        orphans: Callable[[], bool] = lambda: False,
        save: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._held = held
        self._restored = dict(restored or {})
        self._alone = alone
        self._orphans = orphans
        self._save = save
        self._unsaved = False
        """Whether the last step of a record was published before it was saved."""
        self._frozen: frozenset[str] = frozenset()
        """Services whose agreed records do not advance."""
        self._holding = False
        self._planned: dict[str, _Step] = {}
        """Steps of agreed records that are being saved, by service."""
        self._awaited: dict[str, str] = {}
        """Reasons why agreed records wait, by service."""
        self._changed = asyncio.Event()
        self._publishing: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Give every view its agreed record, if there are any, and take the steps that wait for nobody."""
        if not self._alone or self._orphans():
            self._take_part()
            self._put_in_force(self._steps(self._snapshot_holder.current.views))

    async def close(self) -> None:
        """Stop advancing agreed records. Steps that are being saved are not published."""
        self._stop_following()
        await end_tasks(self._publishing)

    def acknowledged(self) -> None:
        if self._unsubscribe is None:
            return
        if self._alone and not self._holding and not self._orphans():
            self._drop_records()
        else:
            self._take_steps(tuple(self._awaited))

    def hold(self, *, everything: bool = True) -> None:
        """Stop advancing agreed records. When it takes over: only those by which the other may serve."""
        self._holding = True
        self._take_part()
        self._planned.clear()
        views = self._snapshot_holder.current.views
        self._frozen = frozenset(name for name, view in views.items() if everything or _may_serve(view))
        self._take_steps(views)

    def release(self) -> None:
        self._holding, self._frozen = False, frozenset()
        if self._unsubscribe is None:
            return
        if self._alone and not self._orphans():
            self._drop_records()
        else:
            self._take_steps(self._snapshot_holder.current.views)

    async def in_force(self, service: str | None = None) -> bool:
        try:
            async with asyncio.timeout(MAX_WAIT):
                while whom := {each for name, each in self._awaited.items() if service in {None, name}}:
                    if whom <= {TAKE_OVER, EARLIER_WORKERS}:
                        return False
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def awaited(self) -> Mapping[str, str]:
        return dict(self._awaited)

    def to_save(self) -> Mapping[str, AgreedRecord]:
        found = {}
        for name, view in self._snapshot_holder.current.views.items():
            planned = self._planned.get(name)
            agreed = view.agreed if planned is None else planned.after
            if agreed is not None and agreed.record is not None:
                found[name] = agreed.record
        return found

    def _take_part(self) -> None:
        """Begin to follow the offers, and give an agreed record to every view that has none."""
        if self._unsubscribe is None:
            self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        begun = {
            name: self._begun(name, view)
            for name, view in self._snapshot_holder.current.views.items()
            if view.agreed is None or (view.agreed.record is None and name in self._restored)
        }
        self._restored.clear()
        if begun:
            self._snapshot_holder.agree(begun)

    def _begun(self, name: str, view: ServiceView) -> Agreed:
        """Return a service's first agreed record: the restored one, or one that states the present offer."""
        record = self._restored.get(name)
        if record is None and self._alone and view.offer_state.versions:
            record = _at_rest(view)
        # What another process knows as legacy, it passes on without negotiation until it has ended.
        alone = view.members.legacy_alone and not view.offer_state.versions
        transparent = view.offer.transparent or (self._holding and alone)
        return Agreed(record, transparent=record is None and transparent)

    def _drop_records(self) -> None:
        """Remove all agreed records, because no other process serves."""
        self._stop_following()
        self._snapshot_holder.agree(dict.fromkeys(self._snapshot_holder.current.views))

    def _stop_following(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._planned.clear()
        self._awaited.clear()
        self._wake_waiters()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if after.routes is not before.routes:
            self._take_steps(before.views.keys() - after.views.keys())
        self._take_steps(view.service.name for _, view in after.news_since(before))

    def _take_steps(self, services: Iterable[str]) -> None:
        """Take the steps of agreed records that are possible now, and note what the others wait for."""
        steps = self._steps(services)
        if self._save is None:
            self._put_in_force(steps)
        elif steps:
            self._planned |= steps
            self._awaited |= dict.fromkeys(steps, STATE_FILE)
            if self._publishing is None:
                # Owned by this object until `close`.
                self._publishing = asyncio.get_running_loop().create_task(self._publish(), name="agreement")

    def _steps(self, services: Iterable[str]) -> dict[str, _Step]:
        found = {}
        views = self._snapshot_holder.current.views
        for name in services:
            view = views.get(name)
            if view is None or view.agreed is None:
                self._planned.pop(name, None)
                self._awaited.pop(name, None)
                continue
            if name in self._planned:
                continue
            following = self._next(view, view.agreed)
            if isinstance(following, _Step):
                found[name] = following
            elif following is not None:
                self._awaited[name] = following
            else:
                self._awaited.pop(name, None)
        self._wake_waiters()
        return found

    def _next(self, view: ServiceView, agreed: Agreed) -> _Step | str | None:
        """Return the next step of an agreed record, or what it waits for; None: it has reached its target."""
        holders, record, all_attached = self._held(view.service.name), agreed.record, not self._orphans()
        lagging = holders is not None and holders != seq_of(record)
        wanted = _following(view, record, all_attached=True) is not None
        if view.service.name in self._frozen:
            return TAKE_OVER if wanted else None
        for _ in range(_MAX_STEPS):
            following = _following(view, record, all_attached=all_attached)
            if following is None:
                break
            if lagging:
                return WORKERS
            record = following
            if holders is not None or self._save is not None:
                break  # who joins while it is saved holds the one before
        transparent = decides_nothing(record) and is_transparent(view.service, view.members, view.offer_state)
        if record is not agreed.record or transparent is not agreed.transparent:
            return _Step(agreed, replace(agreed, record=record, transparent=transparent))
        if lagging:
            return WORKERS
        return EARLIER_WORKERS if wanted else None

    async def _publish(self) -> None:
        """Save the planned steps of agreed records and publish them, until there are none."""
        try:
            while self._planned:
                planned = dict(self._planned)
                await self._saved()
                ready = {name: each for name, each in planned.items() if self._planned.get(name) is each}
                for name in ready:
                    del self._planned[name]
                self._put_in_force(ready)
        finally:
            self._publishing = None

    async def _saved(self) -> None:
        """Wait until the planned steps are in the state file, or the disk takes too long."""
        assert self._save is not None
        saved = False
        with suppress(TimeoutError):
            async with asyncio.timeout(SHORT_SAVE_WAIT if self._unsaved else SAVE_WAIT):
                saved = await self._save()
        if self._unsaved is saved:
            if saved:
                _log.info("changes of offers are saved again before workers get them")
            else:
                _log.warning(
                    "the state file was not written in time: offers change without it; if this process is "
                    "killed now, its workers may serve what the next one refuses, until they have drained"
                )
        self._unsaved = not saved

    def _put_in_force(self, steps: Mapping[str, _Step]) -> None:
        """Publish steps of agreed records, except those whose start has been replaced meanwhile."""
        if not steps:
            return
        views = self._snapshot_holder.current.views
        current = {
            name: each.after
            for name, each in steps.items()
            if (view := views.get(name)) is not None and view.agreed == each.before
        }
        for name, agreed in current.items():
            _log_step(views[name], agreed)
            self._awaited[name] = WORKERS
        if current:
            self._snapshot_holder.agree(current)  # its subscribers take the next steps
        self._take_steps(steps.keys() - current.keys())

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed.clear()


def restored_records(saved: Mapping[str, SavedState]) -> dict[str, AgreedRecord]:
    """Return the agreed records of a state file, by service."""
    return {name: each.record for name, each in saved.items() if each.record is not None}


def _following(view: ServiceView, record: AgreedRecord | None, *, all_attached: bool) -> AgreedRecord | None:
    """Return the agreed record that is one step nearer to the offer of this gateway."""
    state, service = view.offer_state, view.service
    if not state.initialized and state.round_ended is None:
        return None  # nothing is known yet: what stood goes on standing
    rule = policy_text(service) if record is None or not state.cut else record.rule
    towards = Target(rule, state.versions, view.offer.ceiling, view.offer.floor)
    return step(record, towards, service.dialect.scheme, all_attached=all_attached)


def _at_rest(view: ServiceView) -> AgreedRecord:
    """Return the agreed record that states the present offer."""
    offered: VersionSet = view.offer.versions
    rule = policy_text(view.service)
    return AgreedRecord(FIRST_SEQ, rule, view.offer_state.versions, offered, offered, offered)


def _may_serve(view: ServiceView) -> bool:
    """Whether another process may serve by the view's record or the one before it, or without negotiation."""
    if view.agreed is None:
        return False
    record = view.agreed.record
    return view.agreed.transparent or (record is not None and bool(record.open))


def _log_step(view: ServiceView, agreed: Agreed) -> None:
    record, scheme, name = agreed.record, view.service.dialect.scheme, view.service.name
    if record is not None and _log.isEnabledFor(logging.DEBUG):
        texts = [each.format(scheme) for each in (record.offered, record.accepted, record.open)]
        values = name, record.seq, *texts
        _log.debug("%s: record %d: offered %s, accepted %s, open %s", *values, extra=about(name))
