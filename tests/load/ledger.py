"""The judge of a load run: it compares what clients saw, what backends executed, and what happened meanwhile.

What it does: `Ledger.judge` gives every request an `End`, and lists each breach of the gateway's promise with
the request that proves it. The following is allowed:

- `REFUSED`: 406 for an exact version that was outside an offer in force during the request.
- `UNAVAILABLE`: 503 when at some moment of the request no backend that was up, in service and known served
  its version. A 503 says that nothing was executed, so nothing may have been. With several workers also while
  the offer comes to have the version, or stops: until all of them hold that it is undecided. Also 502, when
  the request was at the last such backend while that one was terminated or killed.
- `IN_DOUBT`: 502, or no response, to a request that cannot be sent twice (a POST, or a body too large to be
  kept) while a backend was terminated or killed. The backend may have executed it, so the gateway must not
  repeat it: it is executed at most once.
- `TIMED_OUT`: 504 to a request that cannot be sent twice and was sent to a backend that hung, before the
  gateway could know. The backend may still execute it: this is in doubt as well. No other one may have.
- `CUT`: a response that ends early because the backend that sent it was killed or hung. Its beginning had
  reached the client already. The client can detect the cut, by the length or by the chunks. Also 504, when
  the beginning of the head had reached the gateway: then nothing is sent again.
- `DISCONNECTED`: no response, because the worker process of the gateway that had the connection was killed
  during the request, or while the connection was idle. Never on a connection that was made later: those that
  wait go to the next worker.
- `TURNED_AWAY`: 503 or no response, without an execution, to a request on a new connection in a crowd: while
  more clients connected than the gateway has descriptors for, or while the next gateway starts after one with
  workers was killed. Never on an established connection, and never
  because the gateway had closed one that was established.

A partition is to a request what a hang is. Every other request must succeed. A backend executed it, an
unsafe one exactly once. It was executed at the requested or negotiated version, which is the version and
within the range that the response names. A response belongs to the request that it answers. An established
connection is not closed while it is idle. A run that sets `prompt` allows no other delay than those that it
lists. And the offer, as /status and every client saw it, falls only within the spans in which it was taken
back.

Rules: pure. Whatever is unknown counts against the gateway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Final, NamedTuple, final

from tests.kit.status import Offer, Sample, number
from tests.load.records import LATEST, Death, Delay, Execution, How, Outage, Request, Serving, Span

DEFAULT_VERSION: Final = "1.1"
"""The version of a request without one, as Ironic takes it."""


AGREEMENT: Final = 0.5
"""Seconds within which several workers agree on an offer, on a busy machine."""

IDLE: Final = 10.0
"""Seconds for which a client may leave a connection alone: so long after a process of the gateway has ended
it may find out."""


class End(Enum):
    SERVED = "served"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    IN_DOUBT = "in doubt"
    TIMED_OUT = "timed out"
    CUT = "cut"
    TURNED_AWAY = "turned away"
    DISCONNECTED = "disconnected"
    LOST = "lost"


class Breach(Enum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    DESYNCED = "desynced"
    """Executed at another version than the client requested or saw."""
    MISDIRECTED = "misdirected"
    """The response belongs to another request."""
    EVICTED = "evicted"
    """The established connection of its client had been closed while it was idle, without a word."""
    LATE = "late"
    WRONG_RANGE = "wrong range"
    FELL = "fell"


class Finding(NamedTuple):
    """One breach, the request or reading that shows it, and the proof in words."""

    kind: Breach
    who: str
    proof: str


@final
@dataclass(frozen=True, slots=True)
class Judgement:
    """The end of every request by its identity, and every breach. `doubts`: the outages that left requests
    in doubt."""

    ends: dict[str, End]
    breaches: tuple[Finding, ...]
    doubts: Counter[How]

    def __str__(self) -> str:
        return "\n".join(f"{finding.kind.value}: {finding.proof}" for finding in self.breaches)


@final
class Ledger:
    """All records of one run.

    `falls`: the spans in which an operator or the fleet took the offer back. `crowds`: those in which more
    clients connected than the gateway has descriptors for, or nobody listened. `deaths`: when processes of
    the gateway were killed or replaced, which closes idle connections. `agreement`: several workers serve,
    which show a rise or a fall a little apart. `prompt`: the seconds that a request may take, and `delays`
    what may be added; without it no request is late.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        executions: Sequence[Execution],
        samples: Sequence[Sample],
        *,
        outages: Sequence[Outage] = (),
        serving: Sequence[Serving] = (),
        falls: Sequence[Span] = (),
        crowds: Sequence[Span] = (),
        deaths: Sequence[Death] = (),
        agreement: bool = False,
        prompt: float | None = None,
        delays: Sequence[Delay] = (),
    ) -> None:
        self._requests = requests
        self._samples = samples
        self._received = [sample.received for sample in samples]
        self._sent = [sample.sent for sample in samples]
        self._outages = outages
        self._serving = serving
        self._falls = falls
        self._crowds = crowds
        self._deaths = deaths
        self._apart = AGREEMENT if agreement else 0.0
        """Seconds by which two workers may be apart."""
        self._prompt = prompt
        self._delays = delays
        self._executions: defaultdict[str, list[Execution]] = defaultdict(list)
        recorded = {request.ident for request in requests}
        self._unrecorded = [execution for execution in executions if execution.ident not in recorded]
        for execution in executions:
            if not execution.refused:
                self._executions[execution.ident].append(execution)

    def judge(self) -> Judgement:
        ends = {request.ident: self._end(request) for request in self._requests}
        breaches = [
            Finding(kind, request.ident, proof)
            for request in self._requests
            for kind, proof in self._breaches_of(request, ends[request.ident])
        ]
        breaches += [
            Finding(Breach.LOST, execution.ident, f"executed, but no client recorded it: {execution}")
            for execution in self._unrecorded
        ]
        breaches += [Finding(Breach.FELL, who, proof) for who, proof in self._falls_of_offer()]
        doubts = Counter(
            next(how for how in (How.KILLED, How.TERMINATED) if self._met(request, how))
            for request in self._requests
            if ends[request.ident] is End.IN_DOUBT
        )
        return Judgement(ends, tuple(breaches), doubts)

    # -- how one request ended

    def _end(self, request: Request) -> End:
        if request.status in (200, 201) and not request.fault:
            return End.SERVED
        if request.status == 406 and self._may_be_refused(request):
            return End.REFUSED
        if request.status == 503 and (self._may_be_unavailable(request) or self._may_be_undecided(request)):
            return End.UNAVAILABLE
        if request.status in (502, 0) and self._met(request, How.TERMINATED, How.KILLED):
            if not request.resendable:
                return End.IN_DOUBT
            if request.status == 502 and self._may_be_unavailable(request):
                return End.UNAVAILABLE
        if request.status == 504 and not request.resendable and self._may_be_timed_out(request):
            return End.TIMED_OUT
        if (request.status == 0 or (request.dripped and request.status == 504)) and self._was_cut(request):
            return End.CUT
        if request.status in (503, 0) and self._may_be_turned_away(request):
            return End.TURNED_AWAY
        if request.status == 0 and self._was_disconnected(request):
            return End.DISCONNECTED
        return End.LOST

    def _may_be_refused(self, request: Request) -> bool:
        """Whether an offer without its version may have been in force. `latest` and no version always fit."""
        if request.requested in ("", LATEST):
            return False
        return not all(offer.holds(request.requested) for offer in self._offers(request))

    def _may_be_unavailable(self, request: Request) -> bool:
        """Whether at some moment of the request no backend could serve it."""
        versions = {self._version(request, offer) for offer in self._offers(request)}
        return any(self._has_gap(version, request.began, request.ended) for version in versions)

    def _may_be_undecided(self, request: Request) -> bool:
        """Whether several workers were about to agree that its version is offered, or is not any more."""
        if not self._apart or request.requested in ("", LATEST):
            return False
        return len({offer.holds(request.requested) for offer in self._offers(request)}) == 2

    def _has_gap(self, version: str, since: float, until: float) -> bool:
        """Whether there was a moment in this time without a backend that served `version`."""
        able = sorted(serving.span for serving in self._serving if number(serving.highest) >= number(version))
        covered = since
        for span in able:
            if span.since <= covered:
                covered = max(covered, span.until)
        return covered <= until

    def _may_be_turned_away(self, request: Request) -> bool:
        """Whether it came on a new connection into a crowd, and was not executed."""
        is_new = not (request.established or request.evicted or self._executions[request.ident])
        return is_new and any(crowd.overlaps(request.began, request.ended) for crowd in self._crowds)

    def _was_disconnected(self, request: Request) -> bool:
        """Whether a process of the gateway was killed during the request, or before it while its connection
        was idle: the client may find that out only when it sends the next one."""
        waited = IDLE if request.established else 0.0
        return any(
            death.killed and request.began - waited <= death.at <= request.ended for death in self._deaths
        )

    def _was_evicted(self, request: Request) -> bool:
        """Whether its client had lost its idle connection, and no process of the gateway had ended lately."""
        return request.evicted and not any(
            death.at <= request.ended and request.began <= death.at + IDLE for death in self._deaths
        )

    def _may_be_timed_out(self, request: Request) -> bool:
        """Whether a backend hung or was cut off during the request, and no other one executed it."""
        unresponsive = {
            outage.backend
            for outage in self._outages
            if outage.how in (How.HUNG, How.PARTITIONED)
            and outage.span.overlaps(request.began, request.ended)
        }
        executed = {execution.backend for execution in self._executions[request.ident]}
        return bool(unresponsive) and executed <= unresponsive

    def _met(self, request: Request, *kinds: How) -> bool:
        """Whether such an outage of any backend happened during the request."""
        return any(
            outage.how in kinds and outage.span.overlaps(request.began, request.ended)
            for outage in self._outages
        )

    def _was_cut(self, request: Request) -> bool:
        """Whether the backend that executed it last was killed, hung or cut off during the request."""
        executions = self._executions[request.ident]
        return bool(executions) and any(
            outage.how is not How.TERMINATED
            and outage.backend == executions[-1].backend
            and outage.span.overlaps(request.began, request.ended)
            for outage in self._outages
        )

    # -- the breaches that one request proves

    def _breaches_of(self, request: Request, end: End) -> Iterator[tuple[Breach, str]]:
        executions = self._executions[request.ident]
        if end is End.LOST:
            yield Breach.LOST, f"{request}; {_executed(executions)}"
        if end is End.SERVED and not executions:
            yield Breach.LOST, f"{request}; no backend executed it"
        if len(executions) > 1 and not request.resendable:
            yield Breach.DUPLICATED, f"{request}; {_executed(executions)}"
        if executions and not request.resendable and request.status in (406, 503):
            yield Breach.DESYNCED, f"{request}; this says that nothing was done, but {_executed(executions)}"
        offers = self._offers(request)
        due = {request.served} if end is End.SERVED else {self._version(request, offer) for offer in offers}
        if any(execution.version not in due for execution in executions):
            yield Breach.DESYNCED, f"{request}; {_executed(executions)}"
        if request.answered not in ("", request.ident):
            yield Breach.MISDIRECTED, f"{request}; the response belongs to {request.answered}"
        if self._was_evicted(request):
            yield Breach.EVICTED, f"{request}; the established connection of its client had been closed"
        if end is not End.LOST and self._is_late(request):
            yield Breach.LATE, f"{request}; it took {request.ended - request.began:.1f} s"
        if end in (End.SERVED, End.REFUSED):
            yield from self._wrong_fields(request, offers, served=end is End.SERVED)

    def _is_late(self, request: Request) -> bool:
        if self._prompt is None or request.slow:
            return False
        allowed = self._prompt + sum(
            delay.seconds for delay in self._delays if delay.span.overlaps(request.began, request.ended)
        )
        return request.ended - request.began > allowed

    def _wrong_fields(
        self, request: Request, offers: Sequence[Offer], *, served: bool
    ) -> Iterator[tuple[Breach, str]]:
        """The range and the version in the response must be those in force."""
        seen = Offer(request.lowest, request.highest)
        if seen not in offers:
            yield Breach.WRONG_RANGE, f"{request}; the offer was {_either(offers)}"
        elif not served and seen.holds(request.requested):
            yield Breach.WRONG_RANGE, f"{request}; refused although it is in the range"
        elif served and request.served != self._version(request, seen):
            yield Breach.DESYNCED, f"{request}; {self._version(request, seen)} was due"

    @staticmethod
    def _version(request: Request, offer: Offer) -> str:
        """The version at which the request must be executed under this offer."""
        return {"": DEFAULT_VERSION, LATEST: offer.highest}.get(request.requested, request.requested)

    def _offers(self, request: Request) -> list[Offer]:
        """Every offer that may have been in force during the request: from the last reading that ended before
        it to the first that began after it. Several workers hold another one a little earlier or later."""
        first = max(bisect_right(self._received, request.began - self._apart) - 1, 0)
        last = bisect_left(self._sent, request.ended + self._apart)
        return list(dict.fromkeys(sample.offer for sample in self._samples[first : last + 1]))

    # -- the offer over time

    def _falls_of_offer(self) -> Iterator[tuple[str, str]]:
        """Every time that somebody saw a smaller offer than somebody had seen before, outside `falls`."""
        seen = [
            Observation(sample.sent - self._apart, sample.received + self._apart, sample.offer, "/status")
            for sample in self._samples
        ]
        seen += [
            Observation(
                request.began - self._apart,
                request.ended + self._apart,
                Offer(request.lowest, request.highest),
                request.ident,
            )
            for request in self._requests
            if request.lowest and request.highest
        ]
        periods: defaultdict[int, list[Observation]] = defaultdict(list)
        for observation in sorted(seen):
            if not any(fall.overlaps(observation.began, observation.ended) for fall in self._falls):
                periods[sum(fall.until < observation.began for fall in self._falls)].append(observation)
        for observations in periods.values():
            yield from _falls_in(observations)


class Observation(NamedTuple):
    """The offer that somebody saw, at some moment between the two times."""

    began: float
    ended: float
    offer: Offer
    who: str


def _falls_in(observations: Iterable[Observation]) -> Iterator[tuple[str, str]]:
    """The falls among `observations`, which are sorted by their beginning.

    An observation is earlier than another one only if it ended before the other one began. Observations that
    overlap have no order.
    """
    ended: list[tuple[float, Observation]] = []
    widest: Observation | None = None
    for observation in observations:
        heappush(ended, (observation.ended, observation))
        while ended[0][0] < observation.began:
            earlier = heappop(ended)[1]
            if widest is None or not _within(earlier.offer, widest.offer):
                widest = earlier
        if widest is not None and not _within(widest.offer, observation.offer):
            smaller, larger = _either([observation.offer]), _either([widest.offer])
            yield observation.who, f"{observation.who} saw {smaller} after {widest.who} saw {larger}"


def _within(smaller: Offer, larger: Offer) -> bool:
    return larger.holds(smaller.lowest) and larger.holds(smaller.highest)


def _executed(executions: Sequence[Execution]) -> str:
    texts = [f"by {execution.backend} at {execution.version}" for execution in executions]
    return f"executed {' and '.join(texts)}" if texts else "not executed"


def _either(offers: Sequence[Offer]) -> str:
    return " or ".join(f"{offer.lowest}-{offer.highest}" for offer in offers) or "not known"
