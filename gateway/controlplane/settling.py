"""Wakes the cell when time alone changes an offer: what the policy gave has stood for `settle`.

One timer for the whole gateway, set to the next moment that matters. What then happens is `core.memory`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import final

from gateway.controlplane.cell import Cell
from gateway.core.snapshot import Snapshot


@final
class Settling:
    """From `start` to `close`, on the running loop. `clock` must be the cell's."""

    def __init__(self, cell: Cell, clock: Callable[[], float] = monotonic) -> None:
        self._cell = cell
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        self._unsubscribe = self._cell.subscribe(self._changed)
        self._set(self._cell.current)

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._cancel()

    def _changed(self, before: Snapshot, after: Snapshot) -> None:
        if before.due != after.due:
            self._set(after)

    def _set(self, snapshot: Snapshot) -> None:
        self._cancel()
        if snapshot.due is not None:
            pause = max(0.0, snapshot.due - self._clock())
            self._timer = asyncio.get_running_loop().call_later(pause, self._wake)

    def _wake(self) -> None:
        """A loop's timer may be early by its clock's grain: then nothing has ripened, and it is set again."""
        self._timer = None
        self._cell.advance()
        if self._timer is None:
            self._set(self._cell.current)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
