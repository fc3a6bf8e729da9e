"""The judgement: what clients were told, what backends executed, and what had happened by then.

What it does: `Ledger.judge` gives every request an `End` and names each breach of the gateway's promise, with
the request that shows it. What is allowed, and why:

- 406 to an exact version that was outside an offer in force while the request was under way: `REFUSED`.
- 503 when at some moment of the request no backend that was up, in service and known served its version:
  `UNAVAILABLE`. It says that nothing was executed, and then nothing may have been. 502 likewise, when it had
  been sent to the last of them as that one was terminated or killed.
- 502, or no reply, to what cannot be sent twice (a POST; a body too large to be held) while a backend was
  being terminated or killed: it may have been executed, so the gateway must not repeat it: `IN_DOUBT`. In
  doubt means at most once.
- 504 to what cannot be sent twice and was sent to a backend that hung before the gateway could know: it may
  be executed yet: `TIMED_OUT`, and in doubt as well.
- A reply that ends before its time when the backend that was sending it was killed or hung: its beginning was
  with the client already: `CUT`. The client must be able to see it, which it can by length or by chunks.

All else must be answered with success, by a backend that executed it, at the version asked for or settled on,
which is the version that the client was told, within the range that it was told; what is unsafe exactly once.
And the offer, as /status and every client saw it, never falls outside the spans in which it was taken back.

Rules: pure; whatever is not known is not assumed in the gateway's favour.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import Final, NamedTuple, final

from tests.load.records import (
    LATEST,
    Execution,
    How,
    Offer,
    Outage,
    Request,
    Sample,
    Serving,
    Span,
    number,
)

SILENCE: Final = "1.1"
"""What a request without a version means to Ironic."""


class End(Enum):
    """How a request ended."""

    SERVED = "served"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    IN_DOUBT = "in doubt"
    TIMED_OUT = "timed out"
    CUT = "cut"
    LOST = "lost"


class Breach(Enum):
    """In which way the promise was broken."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    DESYNCED = "desynced"
    MISTOLD = "mistold"
    FELL = "fell"


class Broken(NamedTuple):
    """One breach, by which request or reading, and the proof in words."""

    kind: Breach
    who: str
    proof: str


@final
@dataclass(frozen=True, slots=True)
class Judgement:
    """Every request's end by its identity, and every breach; `doubts`: how the backends had been taken away
    that leave requests in doubt."""

    ends: dict[str, End]
    breaches: tuple[Broken, ...]
    doubts: Counter[How]

    def __str__(self) -> str:
        return "\n".join(f"{each.kind.value}: {each.proof}" for each in self.breaches)


@final
class Ledger:
    """All that is known of one run. `falls`: when the offer was taken back, by an operator or the fleet."""

    def __init__(
        self,
        requests: Sequence[Request],
        executions: Sequence[Execution],
        samples: Sequence[Sample],
        *,
        outages: Sequence[Outage] = (),
        serving: Sequence[Serving] = (),
        falls: Sequence[Span] = (),
    ) -> None:
        self._requests = requests
        self._samples = samples
        self._came = [sample.came for sample in samples]
        self._sent = [sample.sent for sample in samples]
        self._outages = outages
        self._serving = serving
        self._falls = falls
        self._executions: defaultdict[str, list[Execution]] = defaultdict(list)
        known = {request.ident for request in requests}
        self._strays = [each for each in executions if each.ident not in known]
        for each in executions:
            if not each.refused:
                self._executions[each.ident].append(each)

    def judge(self) -> Judgement:
        ends = {request.ident: self._end(request) for request in self._requests}
        breaches = [
            Broken(kind, request.ident, proof)
            for request in self._requests
            for kind, proof in self._of(request, ends[request.ident])
        ]
        breaches += [
            Broken(Breach.LOST, stray.ident, f"executed, but in no client's book: {stray}")
            for stray in self._strays
        ]
        breaches += [Broken(Breach.FELL, who, proof) for who, proof in self._dips()]
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
        if request.status == 503 and self._may_be_unavailable(request):
            return End.UNAVAILABLE
        if request.status in (502, 0) and self._met(request, How.TERMINATED, How.KILLED):
            if not request.resendable:
                return End.IN_DOUBT
            if request.status == 502 and self._may_be_unavailable(request):
                return End.UNAVAILABLE
        if request.status == 504 and not request.resendable and self._met(request, How.HUNG):
            return End.TIMED_OUT
        if request.status == 0 and self._was_cut(request):
            return End.CUT
        return End.LOST

    def _may_be_refused(self, request: Request) -> bool:
        """Whether an offer without its version may have been in force; `latest` and silence always fit."""
        if request.asked in ("", LATEST):
            return False
        return not all(offer.holds(request.asked) for offer in self._offers(request))

    def _may_be_unavailable(self, request: Request) -> bool:
        """Whether at some moment of the request nobody could serve it."""
        wanted = {self._settled(request, offer) for offer in self._offers(request)}
        return any(self._gap(version, request.began, request.ended) for version in wanted)

    def _gap(self, version: str, since: float, until: float) -> bool:
        """Whether those who served `version` leave a moment of this time without anybody."""
        able = sorted(serving.span for serving in self._serving if number(serving.highest) >= number(version))
        covered = since
        for span in able:
            if span.since <= covered:
                covered = max(covered, span.until)
        return covered <= until

    def _met(self, request: Request, *kinds: How) -> bool:
        """Whether a backend was being taken away in such a way while it was under way."""
        return any(
            outage.how in kinds and outage.span.meets(request.began, request.ended)
            for outage in self._outages
        )

    def _was_cut(self, request: Request) -> bool:
        """Whether the backend that executed it last was killed or hung while it was under way."""
        executed = self._executions[request.ident]
        return bool(executed) and any(
            outage.how is not How.TERMINATED
            and outage.backend == executed[-1].backend
            and outage.span.meets(request.began, request.ended)
            for outage in self._outages
        )

    # -- what one request proves

    def _of(self, request: Request, end: End) -> Iterator[tuple[Breach, str]]:
        executed = self._executions[request.ident]
        if end is End.LOST:
            yield Breach.LOST, f"{request}; {_told(executed)}"
        if end is End.SERVED and not executed:
            yield Breach.LOST, f"{request}; answered, but executed by nobody"
        if len(executed) > 1 and not request.resendable:
            yield Breach.DUPLICATED, f"{request}; {_told(executed)}"
        if executed and not request.resendable and request.status in (406, 503):
            yield Breach.DESYNCED, f"{request}; told that nothing was done, but {_told(executed)}"
        offers = self._offers(request)
        due = {request.served} if end is End.SERVED else {self._settled(request, offer) for offer in offers}
        if any(each.version not in due for each in executed):
            yield Breach.DESYNCED, f"{request}; {_told(executed)}"
        if end in (End.SERVED, End.REFUSED):
            yield from self._mistold(request, offers, served=end is End.SERVED)

    def _mistold(
        self, request: Request, offers: Sequence[Offer], *, served: bool
    ) -> Iterator[tuple[Breach, str]]:
        """The range and the version that the client was told must be those in force."""
        told = Offer(request.lowest, request.highest)
        if told not in offers:
            yield Breach.MISTOLD, f"{request}; the offer was {_either(offers)}"
        elif not served and told.holds(request.asked):
            yield Breach.MISTOLD, f"{request}; refused although it is within"
        elif served and request.served != self._settled(request, told):
            yield Breach.DESYNCED, f"{request}; {self._settled(request, told)} was due"

    @staticmethod
    def _settled(request: Request, offer: Offer) -> str:
        """The version that the request means under this offer."""
        return {"": SILENCE, LATEST: offer.highest}.get(request.asked, request.asked)

    def _offers(self, request: Request) -> list[Offer]:
        """Every offer that may have been in force at some moment of the request: from the last reading that
        was over before it to the first that began after it."""
        first = max(bisect_right(self._came, request.began) - 1, 0)
        last = bisect_left(self._sent, request.ended)
        return list(dict.fromkeys(sample.offer for sample in self._samples[first : last + 1]))

    # -- what the offer did

    def _dips(self) -> Iterator[tuple[str, str]]:
        """Every time that somebody was told less than somebody had been told before, with no fall between."""
        told = [Word(each.sent, each.came, each.offer, "/status") for each in self._samples]
        told += [
            Word(each.began, each.ended, Offer(each.lowest, each.highest), each.ident)
            for each in self._requests
            if each.lowest and each.highest
        ]
        stretches: defaultdict[int, list[Word]] = defaultdict(list)
        for word in sorted(told):
            if not any(fall.meets(word.began, word.ended) for fall in self._falls):
                stretches[sum(fall.until < word.began for fall in self._falls)].append(word)
        for stretch in stretches.values():
            yield from _dips_of(stretch)


class Word(NamedTuple):
    """What somebody was told of the offer, at some moment between the two times."""

    began: float
    ended: float
    offer: Offer
    who: str


def _dips_of(words: Iterable[Word]) -> Iterator[tuple[str, str]]:
    """`words` by their beginning. Only one that was over before the other began came first: nothing else has
    an order."""
    over: list[tuple[float, Word]] = []
    widest: Word | None = None
    for word in words:
        heappush(over, (word.ended, word))
        while over[0][0] < word.began:
            earlier = heappop(over)[1]
            if widest is None or not _within(earlier.offer, widest.offer):
                widest = earlier
        if widest is not None and not _within(widest.offer, word.offer):
            yield (
                word.who,
                f"{word.who} was told {_either([word.offer])} after {widest.who} {_either([widest.offer])}",
            )


def _within(smaller: Offer, larger: Offer) -> bool:
    return larger.holds(smaller.lowest) and larger.holds(smaller.highest)


def _told(executed: Sequence[Execution]) -> str:
    found = [f"by {each.backend} at {each.version}" for each in executed]
    return f"executed {' and '.join(found)}" if found else "not executed"


def _either(offers: Sequence[Offer]) -> str:
    return " or ".join(f"{offer.lowest}-{offer.highest}" for offer in offers) or "not known"
