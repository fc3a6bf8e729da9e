"""Wakes the snapshot holder when time alone changes an offer: the policy has given versions for their whole
wait, or the first offer has waited `offer.stabilization` for backends that did not answer.

One timer for the whole gateway, set to the next moment at which an offer changes. What changes then is up to
`core.fleet.offer_state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import Snapshot


@final
class StabilizationTimer:
    """Runs from `start` to `close`, on the running loop. `clock` must be the snapshot holder's."""

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
