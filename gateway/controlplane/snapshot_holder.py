"""Holds the current snapshot: the one mutable reference in the gateway.

Everybody reads `current`. Only this file rebinds it, in one assignment. The facts of one event-loop iteration
are applied as one batch: a thousand of them make one snapshot. A caller that needs their effect within the
iteration calls `apply_batch`. It belongs to one event loop and is not safe for threads. What a fact or an
operator command means is up to `core.fleet.fleet`, what a snapshot is made of to `core.fleet.snapshot`.
`StabilizationTimer` calls `advance` when only time has passed: the policy has given versions for their whole
wait, or the first offer has waited `offer.stabilization` for backends that did not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, TypeAlias, final

from gateway.core.agreement.attachment import Agreed
from gateway.core.fleet.fleet import Fact, ObservedFact, OperatorCommand
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS

Subscriber: TypeAlias = Callable[[Snapshot, Snapshot], None]

_log = logging.getLogger("skewgate.snapshot")


class Configured(NamedTuple):
    """A configuration that is worked out and not yet in force."""

    before: Snapshot
    """The one that was current."""
    snapshot: Snapshot


@final
class SnapshotHolder:
    """Holds the current snapshot and calls subscribers with (before, after) when another one replaces it.

    `clock` must be the one by which facts are dated: seconds, monotonic. `agreed`: with what a service begins
    that is new; None: it stands alone. `learned` is called with the facts of each change that facts have made
    here, and not with those that `follow` gets.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        clock: Callable[[], float] = monotonic,
        agreed: Agreed | None = None,
        learned: Callable[[Sequence[ObservedFact]], None] | None = None,
    ) -> None:
        self.current: Snapshot = snapshot
        self._clock = clock
        self._agreed = agreed
        self._learned = learned
        self._batch: list[ObservedFact] = []
        """In the order in which they came."""
        self._subscribers: list[Subscriber] = []
        self._pending: deque[tuple[Snapshot, Snapshot]] = deque()
        """Changes of which the subscribers have not been notified yet."""
        self._notifying = False
        self._in_turns: Iterator[None] | None = None
        """What is left to notify, one subscriber in each turn of the event loop."""
        self._all_notified = asyncio.Event()

    def update(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one that requests see. Subscribers have been notified when this returns."""
        before = self.current
        if snapshot is not before:
            self.current = snapshot
            self._pending.append((before, snapshot))
            self._notify()

    def configured(
        self, services: Sequence[Service], untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    ) -> Configured:
        """Another configuration, with all that is known, offered and commanded now. May be called in a
        thread. What is learned in the time that it takes is carried over here, too: so little is left."""
        before = self.current
        snapshot = Snapshot.configured(
            services,
            now=self._clock(),
            after=before,
            untrusted_headers=untrusted_headers,
            agreed=self._agreed,
        )
        known_now = self.current
        return Configured(known_now, snapshot.brought_up(before, known_now, self._clock()))

    def put_in_force(self, configured: Configured) -> None:
        """Make it the current one. What was learned or commanded meanwhile is carried over, too. Requests see
        it when this returns; the subscribers are notified one in each turn of the event loop, because a
        configuration may be large. `notified` waits for that."""
        self.notify_now()
        before = self.current
        self.current = configured.snapshot.brought_up(configured.before, before, self._clock())
        self._pending.append((before, self.current))
        self._in_turns = self._calls()
        self._all_notified.clear()
        asyncio.get_running_loop().call_soon(self._notify_one)

    async def notified(self) -> None:
        """Wait until the subscribers have been notified of everything."""
        if self._in_turns is not None:
            await self._all_notified.wait()

    def batch(self, service: str, backend: str, fact: Fact) -> None:
        """Add a fact to the batch that is applied at the end of this event-loop iteration."""
        if not self._batch:
            asyncio.get_running_loop().call_soon(self.apply_batch)
        self._batch.append((service, backend, fact))

    def apply_batch(self) -> None:
        """Apply the batch now."""
        if self._batch:
            self.observe_all(())

    def notify_now(self) -> None:
        """Apply the batch: every subscriber knows what is in force when this returns."""
        self.apply_batch()
        self._notify()

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Apply a fact now, after the batch."""
        self.observe_all(((service, backend, fact),))

    def observe_all(self, facts: Iterable[ObservedFact]) -> None:
        """Apply the batch and then `facts`, all as one change. Subscribers are called only if something is
        new."""
        batch, self._batch = self._batch, []
        before, all_facts = self.current, (*batch, *facts)
        self._replace(before.after(all_facts, self._clock()))
        if self._learned is not None and self.current.views is not before.views:
            self._learned(all_facts)

    def apply(self, service: str, command: OperatorCommand) -> None:
        """Apply an operator's command. It is in force when this returns."""
        self.notify_now()
        before = self.current
        self._replace(before.with_fleet(before.fleet.apply(service, command), self._clock()))

    def agree(self, agreed: Mapping[str, Agreed | None]) -> None:
        """Decide these services by what is agreed on from now on; None: by their offer states. In force when
        this returns, and the subscribers have been notified, unless a configuration is being put in force."""
        self.apply_batch()
        self._replace(self.current.with_agreed(agreed, self._clock()))

    def follow(self, snapshot: Snapshot, facts: Iterable[ObservedFact] = ()) -> None:
        """Take over what another holder has published, with `facts` that it has not seen. The batch
        must have been applied before. In force, and notified as one change, when this returns; nobody is
        notified if it says nothing new."""
        assert not self._batch, "a fact would be lost"
        self._replace(snapshot.after(facts, self._clock()))

    def discover(self, services: Iterable[Service]) -> None:
        """These services have other backends now. In force when this returns, and the subscribers have been
        notified, unless a configuration is being put in force."""
        self.notify_now()
        self._replace(self.current.with_discovered(services, self._clock()))

    def advance(self) -> None:
        """Account for the time that has passed: pending versions may have become due."""
        self.observe_all(())

    def _replace(self, after: Snapshot) -> None:
        before = self.current
        if after.views is before.views:
            # The same knowledge again: only its time is new, with which older facts will be compared.
            self.current = after
        elif self._in_turns is None:
            self.update(after)
        else:
            self.current = after
            self._pending.append((before, after))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(before, after)` on every change, in order. Returns a function that ends this."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def _notify(self) -> None:
        """A change that a subscriber makes waits until all subscribers were called for the one before."""
        if self._notifying:
            return
        self._notifying = True
        try:
            for _ in self._in_turns or self._calls():
                pass
        finally:
            self._notifying = False
            self._end_turns()

    def _notify_one(self) -> None:
        if self._in_turns is None:
            return
        self._notifying = True
        try:
            next(self._in_turns)
        except StopIteration:
            self._end_turns()
        else:
            asyncio.get_running_loop().call_soon(self._notify_one)
        finally:
            self._notifying = False

    def _end_turns(self) -> None:
        self._in_turns = None
        self._all_notified.set()

    def _calls(self) -> Iterator[None]:
        """Call each subscriber for each change, in order."""
        while self._pending:
            before, after = self._pending.popleft()
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(before, after)
                except Exception:  # noqa: BLE001 - logged; the other subscribers must be called
                    _log.exception("a subscriber failed; the new snapshot is in force all the same")
                yield


@final
class StabilizationTimer:
    """Wakes the snapshot holder when time alone changes an offer: one timer for the whole gateway, from
    `start` to `close`, on the running loop. `clock` must be the snapshot holder's."""

    def __init__(self, snapshot_holder: SnapshotHolder, clock: Callable[[], float] = monotonic) -> None:
        self._snapshot_holder = snapshot_holder
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        self._set()

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._cancel()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if before.dues is not after.dues and before.due != after.due:
            self._set()

    def _set(self) -> None:
        self._cancel()
        due = self._snapshot_holder.current.due
        if due is not None:
            pause = max(0.0, due - self._clock())
            self._timer = asyncio.get_running_loop().call_later(pause, self._on_timer)

    def _on_timer(self) -> None:
        """A timer may be early by the resolution of its clock. Then nothing is due, and it is set again."""
        self._timer = None
        self._snapshot_holder.advance()
        if self._timer is None:
            self._set()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
