"""The one mutable word: the current snapshot.

Everybody reads `current`, a request once; only this file rebinds it, in one assignment. It belongs to one
event loop and is not for threads. What a fact or an order means is `core.fleet`'s; what a snapshot is made of
is `core.snapshot`'s; who wakes it when only time has passed is `settling`'s.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TypeAlias, final

from gateway.core.fleet import Fact, Fleet, Order
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot

Subscriber: TypeAlias = Callable[[Snapshot, Snapshot], None]

_log = logging.getLogger("skewgate.cell")


@final
class Cell:
    """Holds the current snapshot and tells subscribers (before, after) when another one takes its place.

    `clock` must be the one by which facts are dated: seconds, monotonic.
    """

    __slots__ = ("_clock", "_subscribers", "_telling", "_untold", "current")

    def __init__(self, snapshot: Snapshot, clock: Callable[[], float] = monotonic) -> None:
        self.current: Snapshot = snapshot
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._untold: deque[tuple[Snapshot, Snapshot]] = deque()
        self._telling = False

    def update(self, snapshot: Snapshot) -> None:
        """From here on, `snapshot` is what requests see; subscribers have been told when this returns."""
        before = self.current
        if snapshot is not before:
            self.current = snapshot
            self._untold.append((before, snapshot))
            self._tell()

    def configure(self, services: Sequence[Service]) -> None:
        """Put another configuration in force; what is known, promised and ordered is carried over."""
        self.update(Snapshot.configured(services, now=self._clock(), after=self.current))

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Let a fact in. Nobody is told when it says nothing new."""
        self._know(self.current.fleet.observe(service, backend, fact))

    def observe_all(self, facts: Iterable[tuple[str, str, Fact]]) -> None:
        """Let facts (service, backend, fact) in, in this order, as one change."""
        fleet = self.current.fleet
        for service, backend, fact in facts:
            fleet = fleet.observe(service, backend, fact)
        self._know(fleet)

    def obey(self, service: str, order: Order) -> None:
        """Let an operator's order in: in force when this returns."""
        self._know(self.current.fleet.obey(service, order))

    def advance(self) -> None:
        """Let the time in that has gone by: an offer may have stood long enough to grow."""
        self.update(self.current.knowing(self.current.fleet, self._clock()))

    def _know(self, fleet: Fleet) -> None:
        before = self.current
        if fleet is before.fleet:
            return
        after = before.knowing(fleet, self._clock())
        if after.views is before.views:
            # The same knowledge heard again: only its time is new, which an older fact will be compared with.
            self.current = after
        else:
            self.update(after)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(before, after)` on every change, in order; returns how to end that."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def _tell(self) -> None:
        """Changes made by a subscriber wait until everybody has heard of the one before."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                before, after = self._untold.popleft()
                for subscriber in tuple(self._subscribers):
                    try:
                        subscriber(before, after)
                    except Exception:  # noqa: BLE001 - logged; the others must hear of it
                        _log.exception("a subscriber of the snapshot failed; the snapshot is in force")
        finally:
            self._telling = False
