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
from gateway.core.clients import Client
from gateway.core.fleet.drains import refusal
from gateway.core.fleet.fleet import Fact, ObservedFact, OperatorCommand
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.errors import CommandRefused
from gateway.runtime.timer import Timer

Subscriber: TypeAlias = Callable[[Snapshot, Snapshot], None]

_log = logging.getLogger("skewgate.snapshot")


class Configured(NamedTuple):
    """A new configuration with its snapshot, which is computed and not yet in force."""

    before: Snapshot
    """The snapshot that was current when the new one was computed."""
    snapshot: Snapshot


@final
class SnapshotHolder:
    """Current snapshot, and the subscribers that are called with (before, after) when it is replaced.

    `clock`: monotonic seconds, the clock that dates facts. `agreed`: initial agreement of a new service;
    None: it decides alone. `learned` is called with the facts of each change by facts here, not by `follow`.
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
        """Facts that are not applied yet, in the order of arrival."""
        self._subscribers: list[Subscriber] = []
        self._pending: deque[tuple[Snapshot, Snapshot]] = deque()
        """Changes of the snapshot about which the subscribers have not been notified yet."""
        self._notifying = False
        self._in_turns: Iterator[None] | None = None
        """Notifications of subscribers left after a reload: one subscriber per event-loop iteration."""
        self._all_notified = asyncio.Event()

    def update(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the current one. Subscribers have been notified when this returns."""
        before = self.current
        if snapshot is not before:
            self.current = snapshot
            self._pending.append((before, snapshot))
            self._notify()

    def configured(
        self,
        services: Sequence[Service],
        untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS,
        clients: Sequence[Client] = (),
    ) -> Configured:
        """Compute the snapshot of another configuration. Keeps all knowledge, offers and commands. May run in
        a thread; what is learned meanwhile is included, so that little is left for `put_in_force`."""
        before = self.current
        snapshot = Snapshot.configured(
            services,
            now=self._clock(),
            after=before,
            untrusted_headers=untrusted_headers,
            clients=clients,
            agreed=self._agreed,
        )
        known_now = self.current
        return Configured(known_now, snapshot.brought_up(before, known_now, self._clock()))

    def put_in_force(self, configured: Configured) -> None:
        """Make a computed configuration current, with all that was learned since. Requests use it when this
        returns. `notified` waits for the subscribers, which are called one per event-loop iteration."""
        self.notify_now()
        before = self.current
        self.current = configured.snapshot.brought_up(configured.before, before, self._clock())
        self._pending.append((before, self.current))
        self._in_turns = self._calls()
        self._all_notified.clear()
        asyncio.get_running_loop().call_soon(self._notify_one)

    async def notified(self) -> None:
        """Wait until all subscribers have been notified of every change."""
        if self._in_turns is not None:
            await self._all_notified.wait()

    def batch(self, service: str, backend: str, fact: Fact) -> None:
        """Add a fact to the batch that is applied at the end of this event-loop iteration."""
        if not self._batch:
            asyncio.get_running_loop().call_soon(self.apply_batch)
        self._batch.append((service, backend, fact))

    def apply_batch(self) -> None:
        """Apply the facts of this event-loop iteration's batch now."""
        if self._batch:
            self.observe_all(())

    def notify_now(self) -> None:
        """Apply the batched facts and notify every subscriber of all changes."""
        self.apply_batch()
        self._notify()

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Apply a fact about a backend now, after the batched facts."""
        self.observe_all(((service, backend, fact),))

    def observe_all(self, facts: Iterable[ObservedFact]) -> None:
        """Apply the batched facts and then `facts`, as one change. Subscribers are called only for news."""
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

    def command(self, service: str, command: OperatorCommand) -> None:
        """Apply an operator's command, unless it must not be given now. Raises `CommandRefused`."""
        self.apply_batch()
        view = self.current.views.get(service)
        if view is not None and (reason := refusal(view, view.members.drained, command)) is not None:
            raise CommandRefused(reason)
        self.apply(service, command)

    def agree(self, agreed: Mapping[str, Agreed | None]) -> None:
        """Replace the agreements of these services; None: a service decides alone. In force, and notified
        unless a configuration is being put in force, when this returns."""
        self.apply_batch()
        self._replace(self.current.with_agreed(agreed, self._clock()))

    def follow(self, snapshot: Snapshot, facts: Iterable[ObservedFact] = ()) -> None:
        """Replace the current snapshot by one that another process has published, and apply `facts` that it
        has not seen. The batch must have been applied before. Subscribers are called once if there is
        news."""
        assert not self._batch, "a fact would be lost"
        self._replace(snapshot.after(facts, self._clock()))

    def discover(self, services: Iterable[Service]) -> None:
        """Replace services whose backends were discovered anew. In force when this returns. Subscribers have
        been notified, too, unless a configuration is being put in force."""
        self.notify_now()
        self._replace(self.current.with_discovered(services, self._clock()))

    def advance(self) -> None:
        """Update the offers by what time alone has changed: pending versions may have become due."""
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

    async def until(self, holds: Callable[[Snapshot], bool]) -> None:
        """Wait until `holds` is true of the current snapshot."""
        changed = asyncio.Event()
        unsubscribe = self.subscribe(lambda before, after: changed.set())
        try:
            while not holds(self.current):
                changed.clear()
                await changed.wait()
        finally:
            unsubscribe()

    def _notify(self) -> None:
        """Call all subscribers for each change of the snapshot. A change made by one waits for its turn."""
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
        """Call each subscriber for each change of the snapshot, in order: one call in each iteration."""
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
    """A timer that calls `SnapshotHolder.advance` when time alone changes an offer. One for the whole
    gateway, from `start` to `close`, on the running loop. `clock` must be the snapshot holder's."""

    def __init__(self, snapshot_holder: SnapshotHolder, clock: Callable[[], float] = monotonic) -> None:
        self._snapshot_holder = snapshot_holder
        self._clock = clock
        self._timer = Timer()
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        self._set()

    def close(self) -> None:
        self._unsubscribe()
        self._timer.cancel()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if before.dues is not after.dues and before.due != after.due:
            self._set()

    def _set(self) -> None:
        self._timer.cancel()
        due = self._snapshot_holder.current.due
        if due is not None:
            self._timer.set(due - self._clock(), self._on_timer)

    def _on_timer(self) -> None:
        """Advance the snapshot holder. A timer that fires early by its clock's resolution is set again."""
        self._snapshot_holder.advance()
        if not self._timer.is_set:
            self._set()
