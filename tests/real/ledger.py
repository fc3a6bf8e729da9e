"""The judge of a rolling upgrade: it compares the calls of clients with the records of the recorders.

What it does: `judge` groups a client's call, its requests in front of the gateway and its requests at the
servers by the id of the call. It finds what was lost, executed twice, or executed at another version than the
client saw. Failures of the servers themselves are counted separately: their own 500, and requests that a
server did not complete when it ended.

Rules: values in, values out. Everything judged here was on the wire; the gateway itself is not queried.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.real.apis import IRONIC
from tests.real.continuous_clients import CALL_HEADER, Call
from tests.real.launcher import Release
from tests.real.recorder import Exchange

# Methods that must not be executed twice. A DELETE may be sent again, because it is idempotent.
ONCE = frozenset({"POST", "PATCH"})
# The gateway's own statuses when a server gave no response, or when there is no server.
GATEWAY_ERRORS = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request at a server: the member of the fleet, and its release at that time."""

    member: str
    release: Release
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which something was missing.

    For a member that is stopped, it lasts from the last accepted connection to the end of the process. For
    the conductor, it lasts from its end to the start of the next one.
    """

    member: str
    began: float
    ended: float

    def overlaps(self, exchange: Exchange) -> bool:
        """True when this request was in progress in this time."""
        return exchange.began <= self.ended and (exchange.ended is None or exchange.ended >= self.began)


@dataclass(frozen=True, slots=True)
class Excuse:
    """A failure of a server itself: this release responds `status` to one of these methods, with `text`.

    `within`: only in this time. Then it is unknown what was written, else everything was written.
    """

    release: Release
    methods: frozenset[str]
    text: str
    within: Window | None = None
    status: int = 500

    def covers(self, exchange: Exchange, source: Arrival, text: str) -> bool:
        """True when this response of `source`, whose `text` the client has read, is such a failure."""
        return (
            exchange.status == self.status
            and source.release == self.release
            and exchange.method in self.methods
            and self.text in text
            and (self.within is None or self.within.overlaps(exchange))
        )


@dataclass(slots=True)
class Ledger:
    """The findings. `lost`, `duplicated`, `desynced`, `misdirected` and `forgotten` must be empty.

    `passed_500` and `in_doubt` are failures of servers, with checked evidence. `doubtful`: the nodes for
    which it is unknown what was written.
    """

    calls: int = 0
    requests: int = 0
    refusals: int = 0
    resent: int = 0
    passed_500: Counter[str] = field(default_factory=Counter)
    in_doubt: list[str] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    desynced: list[str] = field(default_factory=list)
    misdirected: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)


def judge(
    calls: Sequence[Call],
    seen: Sequence[Exchange],
    arrivals: Sequence[Arrival],
    windows: Sequence[Window],
    excuses: Sequence[Excuse],
    offers: Sequence[tuple[str, str]],
) -> Ledger:
    """Judge every call. `seen`: the exchanges of clients. `windows`: when members were stopped. `offers`: the
    ranges that clients may see, in order."""
    ledger = Ledger(calls=len(calls))
    seen_by_call: dict[str | None, list[Exchange]] = defaultdict(list)
    arrived_by_call: dict[str | None, list[Arrival]] = defaultdict(list)
    for exchange in seen:
        seen_by_call[exchange.request.get(CALL_HEADER)].append(exchange)
    for arrival in arrivals:
        arrived_by_call[arrival.exchange.request.get(CALL_HEADER)].append(arrival)
        if reason := IRONIC.misdirected(arrival.exchange, arrival.release):
            server = f"{arrival.member} ({arrival.release.number})"
            ledger.misdirected.append(f"{server} got {arrival.exchange}: {reason}")
    ledger.requests = sum(map(len, seen_by_call.values()))
    ledger.desynced += wrong_responses(seen, offers)
    for call in calls:
        _Case(
            call, seen_by_call.pop(call.call, []), arrived_by_call.pop(call.call, []), windows, ledger
        ).judge(excuses)
    ledger.forgotten += forgotten(call for call in calls if call.node not in ledger.doubtful)
    ledger.lost += [
        f"a request without a call: {exchange}" for rest in seen_by_call.values() for exchange in rest
    ]
    for arrival in (arrival for rest in arrived_by_call.values() for arrival in rest):
        if arrival.exchange.was_forwarded:
            ledger.duplicated.append(f"a request without a call at {arrival.member}: {arrival.exchange}")
    return ledger


class _Case:
    """One call: the exchanges of its client (`seen`), and those at the servers (`arrived`)."""

    def __init__(
        self,
        call: Call,
        seen: list[Exchange],
        arrived: list[Arrival],
        windows: Sequence[Window],
        ledger: Ledger,
    ) -> None:
        self._call = call
        self._seen = seen
        self._arrived = arrived
        self._windows = windows
        self._ledger = ledger
        # The number of responses because of which the client may report a failure.
        self._failures = 0

    def judge(self, excuses: Sequence[Excuse]) -> None:
        by_target: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        for exchange in self._seen:
            if exchange.status == 406 and exchange.served is None:
                # The gateway's own refusal. The library repeats the request at a version in the offer.
                self._ledger.refusals += 1
            else:
                by_target[exchange.method, exchange.request.start_line].append(exchange)
        for (method, start), seen in by_target.items():
            arrived = [arrival for arrival in self._arrived if arrival.exchange.request.start_line == start]
            self._count(method, seen, arrived)
            for exchange in seen:
                self._judge_response(exchange, arrived, excuses)
        if not self._seen:
            self._lose("none of its requests was seen")
        if self._call.error is not None and not self._failures:
            self._lose("the client failed though every response was good")

    def _count(self, method: str, seen: list[Exchange], arrived: list[Arrival]) -> None:
        """Each request arrived once. One without a response may have been sent again if that is harmless."""
        more = len(arrived) - len(seen)
        responses = sum(arrival.exchange.response is not None for arrival in arrived)
        if responses > len(seen) or (more > 0 and method in ONCE):
            texts = (f"{arrival.member}: {arrival.exchange}" for arrival in arrived)
            self._ledger.duplicated.append(f"{self._call}: {', '.join(texts)}")
        elif more > 0:
            self._ledger.resent += more

    def _judge_response(self, exchange: Exchange, arrived: list[Arrival], excuses: Sequence[Excuse]) -> None:
        sources = [arrival for arrival in arrived if _same_response(exchange, arrival.exchange)]
        if exchange.status is None:
            self._lose(f"no response: {exchange}")
        elif not sources and exchange.status in GATEWAY_ERRORS:
            self._judge_gateway_error(exchange, arrived)
        elif not sources:
            self._ledger.desynced.append(f"{self._call}: the client saw {exchange}, but no server sent it")
        elif exchange.status >= 400:
            source = sources[-1]
            self._failures += 1
            excuse = next((e for e in excuses if e.covers(exchange, source, self._call.text)), None)
            if excuse is not None:
                self._ledger.passed_500[f"{excuse.text}: {exchange.method} at {source.release.number}"] += 1
                if excuse.within is not None:
                    self._ledger.doubtful.add(self._call.node)
            elif not self._may_be_missing(exchange, arrived):
                server = f"{source.member} ({source.release.number})"
                self._lose(f"{server} responded {exchange.status}: {exchange}")

    def _judge_gateway_error(self, exchange: Exchange, arrived: list[Arrival]) -> None:
        """The gateway reports that no server responded. That is allowed only for a request that must not be
        repeated, and only when it was sent once, to a server that was ending."""
        ending = {window.member for window in self._windows if window.overlaps(exchange)}
        unanswered = {arrival.member for arrival in arrived if arrival.exchange.response is None}
        self._failures += 1
        # The recorder has no arrival for a connection that the ending server never accepted.
        lost_with_server = ending and unanswered <= ending and len(arrived) == len(unanswered) <= 1
        if exchange.status == 502 and exchange.method in ONCE and lost_with_server:
            self._ledger.in_doubt.append(f"{self._call}: {exchange}")
            self._ledger.doubtful.add(self._call.node)
        else:
            members = [arrival.member for arrival in arrived]
            self._lose(f"{exchange}; it was sent to {members or 'no server'}")

    def _may_be_missing(self, exchange: Exchange, arrived: list[Arrival]) -> bool:
        """A 404 is right when it is unknown whether the node was created. It is right for a DELETE that was
        sent again after its server ended without a response: the first one has deleted the node."""
        sent_again = exchange.method == "DELETE" and any(
            arrival.exchange.response is None for arrival in arrived
        )
        return exchange.status == 404 and (sent_again or self._call.node in self._ledger.doubtful)

    def _lose(self, reason: str) -> None:
        self._ledger.lost.append(f"{self._call}: {reason}")


def _same_response(seen: Exchange, sent: Exchange) -> bool:
    """The client saw the response that this server sent, which has the version in its request."""
    # On `/` nothing is negotiated: the request has no version, but new servers respond with one.
    at_sent_version = sent.served in (None, sent.requested) or seen.path == "/"
    return at_sent_version and (seen.status, seen.served) == (sent.status, sent.served)


def wrong_responses(seen: Sequence[Exchange], offers: Sequence[tuple[str, str]]) -> list[str]:
    """Where a client saw an unknown range, a former range, or another version than it requested.

    The ranges follow each other: a request that begins after a client saw one range gets no older one.
    """
    found = []
    with_range = [(exchange, exchange.offered) for exchange in seen if exchange.offered != (None, None)]
    for exchange, offered in with_range:
        position = next((at for at, offer in enumerate(offers) if offer == offered), None)
        if position is None:
            found.append(f"{exchange}: the range is {offered}, and the offers were {offers}")
            continue
        newer = offers[position + 1 :]
        if any(
            range_ in newer and (other.ended or math.inf) < exchange.began for other, range_ in with_range
        ):
            found.append(f"{exchange}: the range is {offered}, after clients saw a newer one")
        if reason := IRONIC.wrong_response(exchange, offers[position]):
            found.append(f"{exchange}: {reason}")
    return found


def forgotten(calls: Iterable[Call]) -> list[str]:
    """Where a created node was missing in the list, or a change was missing afterwards, also when the
    response to the change was an error."""
    found = []
    changes: dict[str, str] = {}
    for call in calls:
        if call.what == "change":
            changes[call.node] = call.call
        due = {"show": {"changed": changes[call.node]} if call.node in changes else {}, "list": True}
        if call.error is None and call.what in due and call.value != due[call.what]:
            found.append(f"{call}: got {call.value}, not {due[call.what]}")
    return found
