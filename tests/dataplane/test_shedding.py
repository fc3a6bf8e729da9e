"""Shedding: when it begins and ends, by lags that are given; and on a model of an overloaded event loop, that
the requests that are served wait for a bounded time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from gateway.core.fleet.timeouts import NO_TIMEOUT
from gateway.dataplane.limits.shedding import ALL, CALM, NEW, NOTHING, YOUNG, YOUNG_AGE, Shedder

LIMIT = 0.5
TICK = 0.25


def observe(shedder: Shedder, *lags: float, now: float = 100.0) -> float:
    """Ticks that come late by `lags`; returns the time of the last."""
    for lag in lags:
        now += TICK + lag
        shedder.observe(lag, now)
    return now


def test_one_late_tick_says_nothing() -> None:
    shedder = Shedder(LIMIT)

    observe(shedder, 0.0, 30.0, 0.0, 0.6, 0.1, 0.6)

    assert (shedder.level, shedder.sheds_from) == (0, NOTHING)


def test_first_new_connections_then_young_ones_then_all() -> None:
    shedder = Shedder(LIMIT)

    now = observe(shedder, 0.6, 0.6)
    late_since = 100.0 + TICK
    assert (shedder.level, shedder.sheds_from) == (NEW, late_since)
    now = observe(shedder, 0.6, 0.6, now=now)
    assert (shedder.level, shedder.sheds_from) == (YOUNG, late_since - YOUNG_AGE)
    observe(shedder, 0.6, 0.6, 0.6, 0.6, now=now)
    assert (shedder.level, shedder.sheds_from) == (ALL, -NOTHING)


@pytest.mark.parametrize("lag, level", [(0.6, NEW), (1.0, NEW), (1.1, YOUNG), (9.0, YOUNG)])
def test_the_second_lag_says_how_much_is_too_much(lag: float, level: int) -> None:
    shedder = Shedder(LIMIT)

    observe(shedder, 0.6, lag)

    assert shedder.level == level


def calm_down(shedder: Shedder, now: float) -> tuple[float, float]:
    """Ticks in time until the level is another one: the time, and how long it took."""
    begun, level = now, shedder.level
    while shedder.level == level:
        now = observe(shedder, 0.0, now=now)
    return now, now - begun


def test_a_level_ends_after_a_second_below_half_of_the_limit() -> None:
    shedder = Shedder(LIMIT)
    now = observe(shedder, 0.6, 0.6, 0.6, 0.6)
    assert shedder.level == YOUNG

    now = observe(shedder, *[0.3] * 50, now=now)  # neither too late nor calm
    assert shedder.level == YOUNG
    now = observe(shedder, 0.0, 0.0, 0.0, 0.3, now=now)  # not for a second
    assert shedder.level == YOUNG
    now, seconds = calm_down(shedder, now)
    assert (shedder.level, seconds) == (NEW, CALM + TICK)
    calm_down(shedder, now)
    assert (shedder.level, shedder.sheds_from) == (0, NOTHING)


def test_where_it_begins_again_it_lasts_longer() -> None:
    shedder, now, durations = Shedder(LIMIT), 100.0, []
    for _ in range(8):
        now = observe(shedder, 0.6, 0.6, now=now)
        now, seconds = calm_down(shedder, now)
        durations.append(seconds - TICK)
    assert durations == [1, 2, 4, 8, 16, 32, 32, 32]

    now = observe(shedder, *[0.0] * 300, now=now)
    now = observe(shedder, 0.6, 0.6, now=now)
    assert calm_down(shedder, now)[1] == CALM + TICK


def test_off() -> None:
    shedder = Shedder(NO_TIMEOUT)

    observe(shedder, *[5.0] * 20)

    assert shedder.level == 0


# --- a model of an event loop ------------------------------------------------------------------------------


@dataclass
class Request:
    """One request: made by a connection, with one pass of the loop for its head and one for its response."""

    opened: float
    """When its connection was made."""
    sent: float
    passes_left: int = 2
    reconnects: bool = False
    """Its client makes a new connection for the next one, at once."""


@dataclass
class Loop:
    """An event loop as a queue: a turn takes all that was ready when it began, and lasts as long as that
    costs. Time passes only here, so a result is the same on every machine."""

    shedder: Shedder
    cost: float
    """Seconds of one pass of a request."""
    shed_cost: float
    rate: float
    """Requests a second that come on new connections, whatever happens: an open system."""
    established: int
    """Connections made long ago, each of which sends a request when it has its response."""
    reconnecting: int = 0
    """Clients that make a connection for each request, also after a refusal, and never wait."""
    now: float = 0.0
    latencies: list[tuple[float, bool, float]] = field(default_factory=list)
    """(when, on an established connection, seconds) of each request that was served."""
    refused: int = 0
    refused_established: int = 0

    def run(self, seconds: float) -> None:
        ready = deque(Request(-1000.0, 0.0) for _ in range(self.established))
        ready.extend(Request(0.0, 0.0, reconnects=True) for _ in range(self.reconnecting))
        arrived, due = 0, TICK
        while self.now < seconds:
            turn, ready = ready, deque()
            if not turn:
                self.now = max(self.now + 1 / self.rate, self.now)
            for request in turn:
                self._pass(request, ready)
            while arrived < self.now * self.rate:
                moment = arrived / self.rate
                ready.append(Request(moment, moment))
                arrived += 1
            if self.now >= due:
                self.shedder.observe(self.now - due, self.now)
                due = self.now + TICK

    def _pass(self, request: Request, ready: deque[Request]) -> None:
        if request.passes_left == 2 and self.shedder.sheds(request.opened):
            self.now += self.shed_cost
            self.refused += 1
            if request.reconnects:
                ready.append(Request(self.now, self.now, reconnects=True))
            if request.opened < 0:
                self.refused_established += 1
                ready.append(Request(request.opened, self.now))
            return
        self.now += self.cost
        request.passes_left -= 1
        if request.passes_left:
            ready.append(request)
            return
        self.latencies.append((self.now, request.opened < 0, self.now - request.sent))
        if request.opened < 0 or request.reconnects:
            opened = self.now if request.reconnects else request.opened
            ready.append(Request(opened, self.now, reconnects=request.reconnects))

    def longest(self, after: float, *, established: bool | None = None) -> float:
        """The longest latency of a served request, once the first reaction is over."""
        return max(
            seconds
            for when, of_established, seconds in self.latencies
            if when >= after and established in (None, of_established)
        )


def overloaded(limit: float) -> Loop:
    """Four times as many requests as the loop can serve, beside 100 established clients. A refusal costs a
    tenth of a served request."""
    loop = Loop(Shedder(limit), cost=0.0005, shed_cost=0.0001, rate=4000, established=100)
    loop.run(60.0)
    return loop


def test_an_overloaded_loop_serves_with_a_bounded_latency() -> None:
    loop = overloaded(LIMIT)

    # Two turns are late until it is certain, the second about four times as long as the first, and a request
    # has two passes.
    assert loop.longest(after=15.0) < 8 * LIMIT
    assert loop.refused > 10_000
    assert loop.refused_established == 0
    seconds = sorted(seconds for when, established, seconds in loop.latencies if established and when > 10.0)
    assert len(seconds) > 1000
    assert seconds[len(seconds) * 9 // 10] < LIMIT


def test_without_shedding_it_is_not_bounded() -> None:
    """The same model, so the bound above is the doing of the shedder."""
    assert overloaded(NO_TIMEOUT).longest(after=10.0) > 10.0


def test_no_request_is_refused_below_the_limit() -> None:
    loop = Loop(Shedder(LIMIT), cost=0.0005, shed_cost=0.0001, rate=500, established=100)
    loop.run(30.0)

    assert loop.refused == 0


@pytest.mark.parametrize("established", [200, 3000])
def test_established_clients_alone_do_not_make_it_late_forever(established: int) -> None:
    """So many that one turn takes three seconds: at last their requests are refused as well, and what is
    served waits no longer than without them."""
    loop = Loop(Shedder(LIMIT), cost=0.0005, shed_cost=0.00005, rate=10, established=established)
    loop.run(30.0)

    assert (loop.refused_established > 0) == (established == 3000)
    assert loop.longest(after=15.0) < 8 * LIMIT


def test_clients_that_only_reconnect_do_not_cost_the_established_ones_their_requests() -> None:
    """Refusing those alone keeps the loop late. To refuse the others as well would not help."""
    loop = Loop(Shedder(LIMIT), cost=0.0005, shed_cost=0.0001, rate=10, established=100, reconnecting=8000)
    loop.run(30.0)

    assert loop.refused > 100_000
    assert loop.refused_established == 0
    assert loop.longest(after=15.0, established=True) < 8 * LIMIT


def test_established_clients_are_served_again_when_they_are_no_longer_the_load() -> None:
    shedder = Shedder(LIMIT)
    now = observe(shedder, *[0.6] * 6)
    assert shedder.level == ALL

    for _ in range(100):
        assert shedder.sheds(now)  # new connections
    assert shedder.sheds(now - 1000.0)
    observe(shedder, 0.6, 0.6, now=now)

    assert shedder.level == YOUNG
    assert not shedder.sheds(now - 1000.0)
