"""Between requests, which learn with every reply, and the cell, which builds a snapshot for every news.

Two servers behind one address contradict each other with every reply; without a bound each of them would cost
a snapshot, its tables and a log line. Facts get in at once while they are few. Beyond that the newest of each
kind about each backend waits for the next slot, and all that wait are one change. Judges no fact: what is
news is `core.fleet`'s. What probes bring does not come this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, TypeAlias, final

from gateway.controlplane.cell import Cell
from gateway.core.fleet import Contradicted, Fact

A_SECOND: Final = 5
"""Slots that become free in a second; and so many, saved up, are free at most. So no second sees more than
ten changes, and a backend's word waits for a fifth of a second at most."""

Kind: TypeAlias = tuple[object, ...]


class DeferredMetrics(Protocol):
    """The part of `telemetry.metrics.Metrics` that is used here."""

    def deferred(self, service: str, backend: str) -> None: ...


@final
class Overhearing:
    """What the data plane tells of backends goes through `observe`; on the running loop, until `close`.

    `clock` must be the loop's in seconds, monotonic; it dates no fact.
    """

    def __init__(self, cell: Cell, metrics: DeferredMetrics, clock: Callable[[], float] = monotonic) -> None:
        self._cell = cell
        self._metrics = metrics
        self._clock = clock
        self._free = float(A_SECOND)
        self._filled_at = clock()
        self._waiting: dict[Kind, tuple[str, str, Fact]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Let a fact in, now or with the next slot. One that says nothing new takes no slot."""
        self._refill()
        if not self._waiting and self._free >= 1:
            self._learn([(service, backend, fact)])
            return
        if self._cell.current.fleet.observe(service, backend, fact) is self._cell.current.fleet:
            return  # nothing new, and nothing that waits can make it so: what is newer would stand against it
        self._metrics.deferred(service, backend)
        key = _kind(service, backend, fact)
        held = self._waiting.get(key)
        if held is None or held[2].at <= fact.at:
            self._waiting[key] = (service, backend, fact)
        if self._timer is None:
            pause = max(0.0, (1 - self._free) / A_SECOND)
            self._timer = asyncio.get_running_loop().call_later(pause, self._on_slot)

    def close(self) -> None:
        """Let in what still waits: it may be kept for the next start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_in()

    def _on_slot(self) -> None:
        """A loop's timer may be early by its clock's grain; what waits does not wait for another slot for
        that."""
        self._timer = None
        self._refill()
        self._let_in()

    def _let_in(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._learn(sorted(waiting.values(), key=lambda each: each[2].at))

    def _learn(self, facts: list[tuple[str, str, Fact]]) -> None:
        before = self._cell.current.views
        self._cell.observe_all(facts)
        if self._cell.current.views is not before:
            self._free -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._free = min(float(A_SECOND), self._free + (now - self._filled_at) * A_SECOND)
        self._filled_at = now


def _kind(service: str, backend: str, fact: Fact) -> Kind:
    """Facts of which only the newest counts. Every contradicted version counts."""
    return (service, backend, type(fact), fact.version if isinstance(fact, Contradicted) else None)
