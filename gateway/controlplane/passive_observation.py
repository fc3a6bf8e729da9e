"""Rate limit for snapshot changes by facts from requests.

Every response may bring a fact, and every new fact costs a snapshot, its tables and a log line. Two servers
behind one address contradict each other with every response. So a token bucket applies facts while they are
few; a batch costs one token. Beyond that, the newest fact of each kind about each backend waits for the next
token, and all that wait become one change. `core.fleet` decides which facts are new. Facts from probes do not
come this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.fleet import Fact, ObservedFact, VersionMismatch
from gateway.runtime.timer import Timer
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.series.declaring import Counting

CHANGES_PER_SECOND: Final = 5
"""Tokens per second, and size of the bucket: at most ten changes in a second, and a wait of 0.2 s."""


@final
class PassiveObserver:
    """Receiver of the facts that the data plane observes; on the running loop, until `close`. `clock`:
    monotonic seconds, for the rate only; it dates no fact."""

    def __init__(
        self, snapshot_holder: SnapshotHolder, metrics: Counting, clock: Callable[[], float] = monotonic
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._metrics = metrics
        self._clock = clock
        self._tokens = float(CHANGES_PER_SECOND)
        self._refilled_at = clock()
        self._waiting: dict[tuple[object, ...], ObservedFact] = {}
        self._timer = Timer()
        self._views_before: object = None
        """Views before this batch's first fact, to notice a change; None: no fact, or change paid for."""

    def observe(self, service: str, backend: str, fact: Fact) -> None:
        """Apply a fact from a request, now or with the next token. A fact without news costs no token."""
        self._pay()
        self._refill()
        if not self._waiting and self._tokens >= 1:
            if self._views_before is None:
                self._views_before = self._snapshot_holder.current.views
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._snapshot_holder.batch(service, backend, fact)
            return
        # Compared with what this turn has brought so far: a probe may have cleared up an older such fact.
        self._snapshot_holder.apply_batch()
        self._pay()
        fleet = self._snapshot_holder.current.fleet
        if fleet.observe(service, backend, fact) is fleet:
            return  # nothing new; and no waiting fact can make it new, since a newer one outweighs it
        self._metrics.count(OfBackend.deferred_facts, service=service, backend=backend)
        # Of facts of one kind only the newest counts. Mismatches at another version or path are another kind.
        mismatch = (fact.version, fact.path) if isinstance(fact, VersionMismatch) else ()
        kind = (service, backend, type(fact), *mismatch)
        waiting = self._waiting.get(kind)
        if waiting is None or waiting[2].at <= fact.at:
            self._waiting[kind] = (service, backend, fact)
        if not self._timer.is_set:
            self._timer.set((1 - self._tokens) / CHANGES_PER_SECOND, self._on_timer)

    def close(self) -> None:
        """Apply the facts that still wait for a token: they may be saved for the next start."""
        self._timer.cancel()
        self._apply_waiting()

    def _end_turn(self) -> None:
        self._snapshot_holder.apply_batch()
        self._pay()
        self._views_before = None

    def _pay(self) -> None:
        """Take a token from the bucket if the batch has been applied and has changed something."""
        before = self._views_before
        if before is not None and self._snapshot_holder.current.views is not before:
            self._views_before = None
            self._tokens -= 1

    def _on_timer(self) -> None:
        """Apply the facts that wait for a token, even if the timer is early by its clock's resolution."""
        self._refill()
        self._apply_waiting()

    def _apply_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        before = self._snapshot_holder.current.views
        self._snapshot_holder.observe_all(sorted(waiting.values(), key=lambda observed: observed[2].at))
        if self._snapshot_holder.current.views is not before:
            self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        added = (now - self._refilled_at) * CHANGES_PER_SECOND
        self._tokens = min(float(CHANGES_PER_SECOND), self._tokens + added)
        self._refilled_at = now
