"""The one mutable word: the current snapshot.

Everybody reads `current`, a request once; only this file rebinds it, in one assignment. It belongs to one
event loop and is not for threads. What a fact means is `core.fleet`'s; what a snapshot is made of is
`core.snapshot`'s.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, final

from gateway.core.fleet import Fact
from gateway.core.snapshot import Snapshot

Subscriber: TypeAlias = Callable[[Snapshot, Snapshot], None]

_log = logging.getLogger("skewgate.cell")


@final
class Cell:
    """Holds the current snapshot and tells subscribers (before, after) when another one takes its place."""

    __slots__ = ("_subscribers", "_telling", "_untold", "current")

    def __init__(self, snapshot: Snapshot) -> None:
        self.current: Snapshot = snapshot
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

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Let a fact in. Nobody is told when it says nothing new."""
        before = self.current
        fleet = before.fleet.observe(service, backend, fact)
        if fleet is before.fleet:
            return
        if fleet.pools[service] == before.fleet.pools[service]:
            # The same knowledge heard again: only its time is new, which an older fact will be compared with.
            self.current = replace(before, fleet=fleet)
            return
        self.update(before.knowing(fleet))

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
