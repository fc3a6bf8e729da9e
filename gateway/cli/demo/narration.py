"""What the demo prints: one line for every request, a sentence for every turn of the story, and the sum at
the end.

A line joins what a client was told (`Exchange`) with what the gateway recorded of the same request
(`Outcome`); the client's address is what they have in common, since each client has its own and waits for
its reply. Requests from other addresses are a visitor's: somebody who tries the gateway by hand, told from
the record alone.

Counts and words only: nothing here decides or sends anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from gateway.cli.demo.clients import Exchange
from gateway.cli.printing import Paint, Style, plain
from gateway.core.backend import Member, Standing
from gateway.core.decision import Verdict
from gateway.core.dialect import AskKind
from gateway.core.offer import Phase
from gateway.core.snapshot import ServiceView, Snapshot, SnapshotSource
from gateway.telemetry.outcome import NO_BACKEND, Outcome

REFUSALS: Final = frozenset({Verdict.BELOW_MIN, Verdict.ABOVE_MAX, Verdict.MALFORMED})


@final
@dataclass(frozen=True, slots=True)
class Passed:
    """What is kept of an `Outcome`, which is only valid while it is recorded."""

    backend: str
    method: str
    target: str
    status: int
    ask: AskKind | None
    verdict: Verdict | None
    version: str
    attempts: int
    error: str

    @classmethod
    def of(cls, outcome: Outcome) -> Passed:
        return cls(
            outcome.backend,
            outcome.method,
            outcome.target,
            outcome.status,
            outcome.ask,
            outcome.verdict,
            outcome.version,
            outcome.attempts,
            outcome.error,
        )


@final
class Tally:
    """The sums of a run."""

    def __init__(self) -> None:
        self.requests = 0
        self.backends: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.faults: list[str] = []
        self.moved = 0
        """Requests that were moved to another backend because the first could not take them."""

    def add(self, exchange: Exchange, passed: Passed | None) -> None:
        self.requests += 1
        if exchange.fault:
            self.faults.append(f"{exchange.client}: {exchange.method} {exchange.path}: {exchange.fault}")
        elif exchange.status == 406:
            self.refused[exchange.client] += 1
        else:
            self.versions[exchange.served] += 1
        self.backends[_by(passed) if passed else "nobody"] += 1
        self.moved += bool(passed and passed.attempts > 1)


@final
class Narrator:
    """Prints the demo as it happens. `clients` maps each client's address to its kind."""

    def __init__(
        self, service: str, clients: Mapping[str, str], paint: Paint, write: Callable[[str], None]
    ) -> None:
        self.tally = Tally()
        self._service = service
        self._clients = clients
        self._paint = paint
        self._write = write
        self._source: SnapshotSource | None = None
        self._passed: dict[str, Passed] = {}
        self._waiting: dict[str, Exchange] = {}

    def follow(self, source: SnapshotSource) -> None:
        """Where the state of the fleet is read for the reasons in a line."""
        self._source = source

    # -- what happens

    def say(self, sentence: str, style: Style = Style.BOLD) -> None:
        """A turn of the story."""
        self._write(self._paint(f"{_clock()}  *** {sentence}", style))

    def hear(self, outcome: Outcome) -> None:
        """The gateway's half of a request; for `Gateway.listen`."""
        passed = Passed.of(outcome)
        if outcome.client not in self._clients:
            self._line(
                "visitor",
                passed.method,
                passed.target,
                _ask_word(passed),
                self._done(passed),
                self._why(passed),
            )
            return
        waiting = self._waiting.pop(outcome.client, None)
        if waiting is not None:
            self._finish(waiting, passed)
        else:
            self._passed[outcome.client] = passed

    def tell(self, exchange: Exchange) -> None:
        """The client's half. Either half may come first; the line is printed when both are there."""
        passed = self._passed.pop(exchange.address, None)
        if passed is not None or exchange.status == 0:
            self._finish(exchange, passed)
        else:
            self._waiting[exchange.address] = exchange

    def changed(self, before: Snapshot, after: Snapshot) -> None:
        """The gateway learned something; for `Cell.subscribe`."""
        old, new = before.views.get(self._service), after.views.get(self._service)
        if old is None or new is None or old is new:
            return
        for was, member in zip(old.pool.members, new.pool.members, strict=True):
            self._tell_member(was, member, new)
        if old.offer.versions != new.offer.versions or old.offer.phase is not new.offer.phase:
            self._tell_offer(old, new)

    def close(self) -> None:
        """Print what still waits for its other half."""
        for exchange in self._waiting.values():
            self._finish(exchange, None)
        self._waiting.clear()

    # -- sentences about the fleet

    def _tell_member(self, was: Member, member: Member, view: ServiceView) -> None:
        name, serves = member.backend.name, _serves(member, view)
        if was.advert is None and member.advert is not None:
            self.say(f"The gateway learned what {name} serves: {serves}.", Style.DIM)
        elif member.advert is not None and was.advert != member.advert:
            self.say(
                f"The gateway learned that {name} now serves {serves} (before: {_serves(was, view)}).",
                Style.DIM,
            )
        if was.standing is member.standing:
            return
        if member.standing is Standing.STALE:
            self.say(
                f"{name} does not answer a probe: it is tried last now, its last word still counts.",
                Style.DIM,
            )
        elif member.standing is Standing.LOST:
            self.say(
                f"{name} missed three probes in a row and counts as lost; what it served is not forgotten.",
                Style.DIM,
            )
        elif was.standing in (Standing.STALE, Standing.LOST):
            self.say(f"{name} answers again.", Style.DIM)

    def _tell_offer(self, old: ServiceView, new: ServiceView) -> None:
        was, now, reason = offered(old), offered(new), _why_phase(new)
        change = f"The offer {f'goes from {was} to' if was != now else 'stays'} {now}"
        if not old.offer.versions:
            change = f"The offer is {now}"
        self.say(f"{change}, the fleet is {new.offer.phase}{f': {reason}' if reason else ''}.")

    # -- lines about requests

    def _finish(self, exchange: Exchange, passed: Passed | None) -> None:
        self.tally.add(exchange, passed)
        why = self._why(passed) if passed else ""
        if exchange.note:
            why = exchange.note if exchange.status < 400 else f"{exchange.note}; {why}"
        if exchange.fault:
            why = self._paint(f"LOST: {exchange.fault}", Style.RED)
        done = (
            self._done(passed)
            if passed and exchange.status
            else self._padded(str(exchange.status or "no reply"), Style.RED)
        )
        self._line(exchange.client, exchange.method, exchange.path, exchange.asked or "nothing", done, why)

    def _line(self, who: str, method: str, path: str, asked: str, done: str, why: str) -> None:
        what = f"{method} {plain(path)}"
        self._write(f"{_clock()}  {who:<11}  {what:<14}  asks {asked:<7}  {done}  {why}".rstrip())

    def _done(self, passed: Passed) -> str:
        """`200 by api-1 at 1.58`."""
        by = _by(passed)
        at = f" at {passed.version}" if passed.version and passed.backend != NO_BACKEND else ""
        return self._padded(f"{passed.status} by {by}{at}", _style_of(passed.status))

    def _padded(self, text: str, style: Style) -> str:
        """Padded first: escape sequences have no width."""
        return self._paint(f"{text:<22}", style)

    def _why(self, passed: Passed) -> str:
        view = self._source.current.views.get(self._service) if self._source else None
        if view is None:
            return passed.error
        if passed.verdict is Verdict.MALFORMED:
            return "that is no version, no backend was asked"
        if passed.verdict in REFUSALS:
            side = "above" if passed.verdict is Verdict.ABOVE_MAX else "below"
            return f"{side} the offer {offered(view)}, no backend was asked"
        if passed.verdict is Verdict.UNAVAILABLE:
            return "no backend that serves it can be reached at the moment"
        if passed.error:
            return passed.error
        if passed.attempts > 1:
            return "another backend was tried first, nothing was executed there"
        return self._why_served(passed, view)

    def _why_served(self, passed: Passed, view: ServiceView) -> str:
        """Why this backend got it, and at this version."""
        parse = view.service.dialect.scheme.parse
        version = parse(passed.version)
        if version is None:
            return "no version means anything here"
        if passed.ask is AskKind.SILENT:
            return f"silence means {passed.version}, written into the request"
        able = [
            member
            for member in view.by_version.candidates(version).members
            if member.standing is Standing.FRESH
        ]
        names = " and ".join(sorted(member.backend.name for member in able)) or "nobody fresh"
        if passed.ask is AskKind.LATEST:
            more = [member for member in able if member.advert and member.advert.versions.highest > version]
            if not more:
                return "latest is the offer's maximum"
            newest = (
                view.service.dialect.scheme.format(more[0].advert.versions.highest) if more[0].advert else ""
            )
            return f"latest is the offer's maximum, not the {newest} of {more[0].backend.name}"
        return f"on offer, {names} serve{'s' if len(able) == 1 else ''} it"


def offered(view: ServiceView) -> str:
    """The offer as `1.1-1.58`; `nothing yet` before there is one."""
    return view.offer.versions.format(view.service.dialect.scheme) if view.offer.versions else "nothing yet"


def _why_phase(view: ServiceView) -> str:
    """Empty where the phase says it all."""
    offer = view.offer
    if offer.phase is Phase.MIXED:
        return (
            f"{' and '.join(offer.held_by)} could serve more, but whoever answers must serve what is offered"
        )
    if offer.phase is Phase.SETTLING and offer.pending:
        more, settle = offer.pending.format(view.service.dialect.scheme), view.service.settle
        return f"all serve the same now, {more} is offered once that has stood for {settle:g} s"
    return "all backends serve the same" if offer.phase is Phase.UNIFORM else ""


def _serves(member: Member, view: ServiceView) -> str:
    return member.advert.versions.format(view.service.dialect.scheme) if member.advert else "nothing known"


def _by(passed: Passed) -> str:
    return "the gateway" if passed.backend == NO_BACKEND else passed.backend


def _ask_word(passed: Passed) -> str:
    """What a visitor asked for; what `latest` came to stands behind it."""
    if passed.ask is AskKind.LATEST:
        return f"latest -> {passed.version}" if passed.version else "latest"
    if passed.ask is AskKind.EXACT:
        return passed.version or "exact"
    return "nothing" if passed.ask in (None, AskKind.SILENT) else str(passed.ask)


def _style_of(status: int) -> Style:
    if status < 400:
        return Style.GREEN
    return Style.YELLOW if status < 500 else Style.RED


def _clock() -> str:
    return time.strftime("%H:%M:%S")
