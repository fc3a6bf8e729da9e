"""How many TLS handshakes may be under way at once, and who of them goes on next.

    added -> its first record is here: parked -> a slot is free: active -> steps, some each turn -> removed

A handshake costs a thousand times more than the bytes that begin it. So their number is bounded, no turn of
the event loop spends more than `STEP_TIME` on them, and all is shared by source: one that floods takes slots
and time from itself, not from others. Who has sent nothing whole takes no slot. Reads no bytes itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from time import perf_counter
from typing import Final, final

STEP_TIME: Final = 0.002
"""Seconds of one turn of the loop. A signature takes 0.05 (ECDSA) to 1 ms (RSA): those who are connected wait
no longer than that for a flood."""
MAX_PAUSE: Final = 1.0
"""Seconds after which an active one that owes the next bytes yields, while others wait for a slot."""
MAX_COMPARED: Final = 32
"""Sources that are compared when a slot is free."""


class OpeningConnection:
    """A connection before HTTP, as it is seen here."""

    __slots__ = ("active", "deadline", "heard_at", "queued", "source")

    def __init__(self) -> None:
        self.source = ""
        """Whose it is, for sharing: an IPv4 address, or a network of IPv6."""
        self.active = False
        """It has a slot."""
        self.queued = False
        """It waits for the gateway, not for its peer."""
        self.deadline = 0.0
        self.heard_at = 0.0

    def activated(self) -> None:
        """It has a slot now: go on."""
        raise NotImplementedError

    def step(self) -> None:
        """Do the next part of the handshake."""
        raise NotImplementedError

    def refuse(self, reason: str) -> None:
        """Close it: the deadline has passed, or it has to yield."""
        raise NotImplementedError


class _Turns:
    """Connections that wait, by source; each source in turn has one of its own."""

    __slots__ = ("_by_source",)

    def __init__(self) -> None:
        self._by_source: dict[str, deque[OpeningConnection]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def add(self, one: OpeningConnection) -> None:
        """To the end of those of its source."""
        self._by_source.setdefault(one.source, deque()).append(one)

    def next(self, having: Callable[[str], int] | None = None) -> OpeningConnection:
        """The first of the source whose turn it is; of a few sources the one that has least already."""
        sources = iter(self._by_source)
        source = next(sources) if having is None else min(islice(sources, MAX_COMPARED), key=having)
        waiting = self._by_source.pop(source)
        one = waiting.popleft()
        if waiting:
            self._by_source[source] = waiting
        return one


@final
class Openings:
    """All connections of a worker that have not come to HTTP yet. `bound`: how many may be active."""

    def __init__(self, bound: int, timer: Callable[[], float] = perf_counter) -> None:
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._timer = timer
        self._all: dict[OpeningConnection, None] = {}
        """The oldest first."""
        self._active: dict[str, dict[OpeningConnection, None]] = {}
        """By source."""
        self._count = 0
        """How many are active."""
        self._parked = _Turns()
        self._queue = _Turns()
        self._filling = False

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[OpeningConnection]:
        return iter(tuple(self._all))

    @property
    def active(self) -> int:
        """How many are active."""
        return self._count

    @property
    def oldest_deadline(self) -> float:
        """The deadline of the one that came first; infinite where there is none."""
        return next((one.deadline for one in self._all), inf)

    def add(self, one: OpeningConnection) -> None:
        """A connection has come."""
        self._all[one] = None

    def enter(self, one: OpeningConnection) -> None:
        """It has sent what a handshake begins with, and waits for a slot: it is activated now or later."""
        self._parked.add(one)
        if self._count >= self._bound:
            self._make_room(one.source)
        self._fill()

    def removed(self, one: OpeningConnection) -> None:
        """It has come to HTTP, or is closed."""
        if self._all.pop(one, self) is self:
            return
        if one.active:
            self._take_slot_from(one)
        self._fill()

    def queue(self, one: OpeningConnection) -> None:
        """Call its `step` soon."""
        if one.queued:
            return
        one.queued = True
        if not self._queue:
            self._loop.call_soon(self._run_steps)
        self._queue.add(one)

    def yield_one(self) -> bool:
        """Close the oldest connection of the source that has most; False if there is none."""
        of_source: dict[str, int] = {}
        for one in self._all:
            of_source[one.source] = of_source.get(one.source, 0) + 1
        if not of_source:
            return False
        greediest = max(of_source, key=lambda source: of_source[source])
        next(one for one in self._all if one.source == greediest).refuse("displaced")
        return True

    def on_tick(self, now: float) -> None:
        """Close those whose time is over, and silent ones while others wait for a slot."""
        for one in [one for one in self._all if one.deadline <= now]:
            one.refuse("timeout")
        if not self._parked:
            return
        for one in [one for one in self._all if one.active and not one.queued]:
            if one.heard_at <= now - MAX_PAUSE:
                one.refuse("displaced")

    def close(self) -> None:
        """Close all of them."""
        for one in tuple(self._all):
            one.refuse("closed")

    # -- slots

    def _slots_of(self, source: str) -> int:
        return len(self._active.get(source, ()))

    def _give_slot_to(self, one: OpeningConnection) -> None:
        one.active = True
        self._active.setdefault(one.source, {})[one] = None
        self._count += 1

    def _take_slot_from(self, one: OpeningConnection) -> None:
        one.active = False
        self._count -= 1
        same_source = self._active[one.source]
        del same_source[one]
        if not same_source:
            del self._active[one.source]

    def _make_room(self, source: str) -> None:
        """A source that has two slots more than that of a newcomer gives one back: the oldest that waits for
        its peer."""
        mine = self._slots_of(source)
        greediest = max(self._active.values(), key=len)
        if len(greediest) > mine + 1:
            victim = next((one for one in greediest if not one.queued), None)
            if victim is not None:
                victim.refuse("displaced")

    def _fill(self) -> None:
        """Activate those who wait, while slots are free. Not from within itself: what is activated may end at
        once."""
        if self._filling:
            return
        self._filling = True
        try:
            while self._parked and self._count < self._bound:
                one = self._parked.next(self._slots_of)
                if one in self._all:
                    self._give_slot_to(one)
                    one.activated()
        finally:
            self._filling = False

    # -- steps

    def _run_steps(self) -> None:
        end = self._timer() + STEP_TIME
        try:
            while self._queue:
                one = self._queue.next()
                one.queued = False
                if one in self._all:
                    self._run_step(one)
                    if self._timer() >= end:
                        break
        finally:
            if self._queue:  # also after a step that has failed: it is no reason to forget the others
                self._loop.call_soon(self._run_steps)

    def _run_step(self, one: OpeningConnection) -> None:
        try:
            one.step()
        except Exception:
            one.refuse("other")
            raise  # the loop reports it, as for any callback
