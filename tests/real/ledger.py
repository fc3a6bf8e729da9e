"""The books of an upgrade: each thing that a client did, and what the recorders saw of it.

What it does: `Ledger` puts a client's call, its requests before the gateway and its requests before the
servers together by the call's id, and says what was lost, executed twice or at another version than told;
what a server itself answered with 500 and what a server took with it when it ended is counted apart.

Rules: values in, values out. What is judged here came over the wire; nothing is asked from the gateway.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.real.hop import Exchange
from tests.real.launching import Release
from tests.real.loops import CALL_HEADER, Call
from tests.real.stand import lie, misdirected

# What must not be executed twice. DELETE may be sent again: twice is as good as once.
ONCE = frozenset({"POST", "PATCH"})
# What a gateway says of a server that gave no reply, or of having none.
GATEWAY_ERRORS = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it arrived at a server: which member of the fleet, and what ran there at that moment."""

    member: str
    release: Release
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which something was not there: a member that was being stopped, from its last new connection
    to its process's end; or what a member needs, from its end to its successor."""

    member: str
    began: float
    ended: float

    def meets(self, one: Exchange) -> bool:
        """True when this request was under way in this time."""
        return one.began <= self.ended and (one.ended is None or one.ended >= self.began)


@dataclass(frozen=True, slots=True)
class Excuse:
    """A failure that is a server's own: 500 to one of these methods, by this release, saying `text`.

    `within`: only in this time; then nobody can know what has been written, else all has."""

    release: Release
    methods: frozenset[str]
    text: str
    within: Window | None = None

    def covers(self, one: Exchange, source: Arrival, said: str) -> bool:
        """True when this reply by `source`, of which the client got to read `said`, is such a failure."""
        return (
            one.status == 500
            and source.release == self.release
            and one.method in self.methods
            and self.text in said
            and (self.within is None or self.within.meets(one))
        )


@dataclass(slots=True)
class Ledger:
    """The findings. `lost`, `duplicated`, `desynced`, `misdirected` and `forgotten` must be empty.

    `passed_500` and `in_doubt` are not the gateway's doing, each with its evidence checked. `doubtful` are
    the nodes of which nobody can know what was written."""

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
    """Everything by call. `seen`: what clients asked and were told. `windows`: when members ended. `offers`:
    the ranges that clients may be told, one after the other."""
    ledger = Ledger(calls=len(calls))
    asked: dict[str | None, list[Exchange]] = defaultdict(list)
    came: dict[str | None, list[Arrival]] = defaultdict(list)
    for one in seen:
        asked[one.request.get(CALL_HEADER)].append(one)
    for arrival in arrivals:
        came[arrival.exchange.request.get(CALL_HEADER)].append(arrival)
        if wrong := misdirected(arrival.exchange, arrival.release):
            place = f"{arrival.member} ({arrival.release.number})"
            ledger.misdirected.append(f"{place} got {arrival.exchange}: {wrong}")
    ledger.requests = sum(map(len, asked.values()))
    ledger.desynced += untruths(seen, offers)
    for call in calls:
        _Case(call, asked.pop(call.call, []), came.pop(call.call, []), windows, ledger).judge(excuses)
    ledger.forgotten += forgotten(call for call in calls if call.node not in ledger.doubtful)
    ledger.lost += [f"nobody's request: {one}" for some in asked.values() for one in some]
    for arrival in (one for some in came.values() for one in some if one.exchange.was_forwarded):
        ledger.duplicated.append(f"nobody's request at {arrival.member}: {arrival.exchange}")
    return ledger


class _Case:
    """One call: what its client was told (`seen`) and what the servers saw of it (`came`)."""

    def __init__(
        self,
        call: Call,
        seen: list[Exchange],
        came: list[Arrival],
        windows: Sequence[Window],
        ledger: Ledger,
    ) -> None:
        self._call = call
        self._seen = seen
        self._came = came
        self._windows = windows
        self._ledger = ledger
        # The statuses for which the client may rightly say that it failed.
        self._failures = 0

    def judge(self, excuses: Sequence[Excuse]) -> None:
        """Enter all that there is to say of this call."""
        by_target: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        for one in self._seen:
            if one.status == 406 and one.served is None:
                # The gateway's own word: no server was asked. The library asks again at a version on offer.
                self._ledger.refusals += 1
            else:
                by_target[one.method, one.request.start].append(one)
        for (method, start), told in by_target.items():
            came = [one for one in self._came if one.exchange.request.start == start]
            self._count(method, told, came)
            for one in told:
                self._answer(one, came, excuses)
        if not self._seen:
            self._lose("no request of it was seen")
        if self._call.error is not None and not self._failures:
            self._lose("the client failed though every reply was good")

    def _count(self, method: str, told: list[Exchange], came: list[Arrival]) -> None:
        """Each request arrived once; one without a reply may have been sent again where that is harmless."""
        more = len(came) - len(told)
        replied = sum(arrival.exchange.reply is not None for arrival in came)
        if replied > len(told) or (more > 0 and method in ONCE):
            self._ledger.duplicated.append(
                f"{self._call}: {', '.join(f'{a.member}: {a.exchange}' for a in came)}"
            )
        elif more > 0:
            self._ledger.resent += more

    def _answer(self, one: Exchange, came: list[Arrival], excuses: Sequence[Excuse]) -> None:
        answered = [other for other in came if _same_reply(one, other.exchange)]
        if one.status is None:
            self._lose(f"no reply: {one}")
        elif not answered and one.status in GATEWAY_ERRORS:
            self._unanswered(one, came)
        elif not answered:
            self._ledger.desynced.append(f"{self._call}: told {one}, of which no server knows")
        elif one.status >= 400:
            source = answered[-1]
            self._failures += 1
            excuse = next((e for e in excuses if e.covers(one, source, self._call.text)), None)
            if excuse is not None:
                self._ledger.passed_500[f"{excuse.text}: {one.method} at {source.release.number}"] += 1
                if excuse.within is not None:
                    self._ledger.doubtful.add(self._call.node)
            elif not self._may_be_missing(one, came):
                self._lose(f"{source.member} ({source.release.number}) said {one.status}: {one}")

    def _unanswered(self, one: Exchange, came: list[Arrival]) -> None:
        """The gateway says that no server answered. Only what may not be sent again may end so, only when the
        server that had it was ending, and only when it had been sent there once."""
        ending = {window.member for window in self._windows if window.meets(one)}
        silent = {arrival.member for arrival in came if arrival.exchange.reply is None}
        self._failures += 1
        # A connection that the ending server never took from its queue is not among the arrivals.
        taken_along = ending and silent <= ending and len(came) == len(silent) <= 1
        if one.status == 502 and one.method in ONCE and taken_along:
            self._ledger.in_doubt.append(f"{self._call}: {one}")
            self._ledger.doubtful.add(self._call.node)
        else:
            self._lose(f"{one}; it had been sent to {[arrival.member for arrival in came] or 'nobody'}")

    def _may_be_missing(self, one: Exchange, came: list[Arrival]) -> bool:
        """404 is right where nobody can know whether the node was made, and of a DELETE that was sent again
        because a server took it with it as it ended: the node was gone already."""
        sent_again = one.method == "DELETE" and any(arrival.exchange.reply is None for arrival in came)
        return one.status == 404 and (sent_again or self._call.node in self._ledger.doubtful)

    def _lose(self, why: str) -> None:
        self._ledger.lost.append(f"{self._call}: {why}")


def _same_reply(told: Exchange, given: Exchange) -> bool:
    """The client was told what this server said, and of the version that it had been sent."""
    # On / nothing is negotiated: no version is sent there, and new servers speak of one nevertheless.
    as_sent = given.served in (None, given.asked) or told.path == "/"
    return as_sent and (told.status, told.served) == (given.status, given.served)


def untruths(seen: Sequence[Exchange], offers: Sequence[tuple[str, str]]) -> list[str]:
    """Where a client was told a range that is none of these, one that was over already, or another version
    than it asked for. Ranges follow each other: who asks after somebody was told one gets no older one."""
    found = []
    told = [one for one in seen if one.offered != (None, None)]
    for one in told:
        place = next((place for place, offer in enumerate(offers) if offer == one.offered), None)
        if place is None:
            found.append(f"{one}: told {one.offered}, and the offers were {offers}")
            continue
        newer = offers[place + 1 :]
        if any(other.offered in newer and (other.ended or math.inf) < one.began for other in told):
            found.append(f"{one}: told {one.offered} when clients had been told more")
        if reason := lie(one, offers[place]):
            found.append(f"{one}: {reason}")
    return found


def forgotten(calls: Iterable[Call]) -> list[str]:
    """Where a node that was made was not in the list, or what was changed was not there afterwards, also when
    the answer to the change was an error."""
    found = []
    changes: dict[str, str] = {}
    for call in calls:
        if call.what == "change":
            changes[call.node] = call.call
        due = {"show": {"changed": changes[call.node]} if call.node in changes else {}, "list": True}
        if call.error is None and call.what in due and call.value != due[call.what]:
            found.append(f"{call}: got {call.value}, not {due[call.what]}")
    return found
