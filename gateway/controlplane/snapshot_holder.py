"""Holds the current snapshot: the one mutable reference in the gateway.

Everybody reads `current`. Only this file rebinds it, in one assignment. It belongs to one event loop and is
not safe for threads. What a fact or an operator command means is up to `core.fleet.fleet`, what a snapshot
is made of to `core.fleet.snapshot`. `stabilization_timer` calls `advance` when only time has passed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TypeAlias, final

from gateway.core.fleet.fleet import Fact, Fleet, OperatorCommand
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import UNTRUSTED_HEADERS

Subscriber: TypeAlias = Callable[[Snapshot, Snapshot], None]

_log = logging.getLogger("skewgate.snapshot")


@final
class SnapshotHolder:
    """Holds the current snapshot and calls subscribers with (before, after) when another one replaces it.

    `clock` must be the one by which facts are dated: seconds, monotonic.
    """

    __slots__ = ("_clock", "_notifying", "_pending", "_subscribers", "current")

    def __init__(self, snapshot: Snapshot, clock: Callable[[], float] = monotonic) -> None:
        self.current: Snapshot = snapshot
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._pending: deque[tuple[Snapshot, Snapshot]] = deque()
        """Changes of which the subscribers have not been notified yet."""
        self._notifying = False

    def update(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one that requests see. Subscribers have been notified when this returns."""
        before = self.current
        if snapshot is not before:
            self.current = snapshot
            self._pending.append((before, snapshot))
            self._notify()

    def reconfigure(
        self, services: Sequence[Service], untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    ) -> None:
        """Put another configuration in force. What is known, offered and commanded is carried over."""
        self.update(
            Snapshot.configured(
                services, now=self._clock(), after=self.current, untrusted_headers=untrusted_headers
            )
        )

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Take in a fact. Subscribers are notified only if it says something new."""
        self._set_fleet(self.current.fleet.observe(service, backend, fact))

    def observe_all(self, facts: Iterable[tuple[str, str, Fact]]) -> None:
        """Take in facts (service, backend, fact), in this order, as one change."""
        fleet = self.current.fleet
        for service, backend, fact in facts:
            fleet = fleet.observe(service, backend, fact)
        self._set_fleet(fleet)

    def apply(self, service: str, command: OperatorCommand) -> None:
        """Apply an operator's command. It is in force when this returns."""
        self._set_fleet(self.current.fleet.apply(service, command))

    def advance(self) -> None:
        """Account for the time that has passed: pending versions may have become due."""
        self.update(self.current.with_fleet(self.current.fleet, self._clock()))

    def _set_fleet(self, fleet: Fleet) -> None:
        before = self.current
        if fleet is before.fleet:
            return
        after = before.with_fleet(fleet, self._clock())
        if after.views is before.views:
            # The same knowledge again: only its time is new, with which older facts will be compared.
            self.current = after
        else:
            self.update(after)

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
            while self._pending:
                before, after = self._pending.popleft()
                for subscriber in tuple(self._subscribers):
                    try:
                        subscriber(before, after)
                    except Exception:  # noqa: BLE001 - logged; the other subscribers must be called
                        _log.exception("a subscriber failed; the new snapshot is in force all the same")
        finally:
            self._notifying = False
