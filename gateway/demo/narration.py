"""What the demonstration prints: a line for each request, a sentence for each event, and a summary.

A line combines what a client saw (`ClientRecord`) with what the gateway recorded of the same request
(`GatewayRecord`). The client's address connects the two: each client has its own, and waits for its response
before it sends the next request. Requests from other addresses come from a visitor who tries the gateway by
hand; their lines are made from the gateway's record alone.

This module counts and formats. It decides nothing and sends nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.offer import Phase
from gateway.core.fleet.snapshot import ServiceView, Snapshot, SnapshotSource
from gateway.demo.clients import ClientRecord
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord
from gateway.terminal import Paint, Style, plain

REFUSALS: Final = frozenset(
    {NegotiationResult.BELOW_MIN, NegotiationResult.ABOVE_MAX, NegotiationResult.MALFORMED}
)


@final
@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """The printed parts of a `RequestRecord`, copied because the original is valid only during its call."""

    backend: str
    method: str
    target: str
    status: int
    requested: RequestedKind | None
    result: NegotiationResult | None
    version: str
    attempts: int
    error: str

    @classmethod
    def of(cls, record: RequestRecord) -> GatewayRecord:
        return cls(
            record.backend,
            record.method,
            record.target,
            record.status,
            record.requested,
            record.result,
            record.version,
            record.attempts,
            record.reason,
        )


@final
class Totals:
    """The sums of one run."""

    def __init__(self) -> None:
        self.requests = 0
        self.backends: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.faults: list[str] = []
        self.retried = 0
        """Requests that were sent to another backend because the first one could not be reached."""

    def add(self, record: ClientRecord, gateway_record: GatewayRecord | None) -> None:
        self.requests += 1
        if record.fault:
            self.faults.append(f"{record.client}: {record.method} {record.path}: {record.fault}")
        elif record.status == 406:
            self.refused[record.client] += 1
        else:
            self.versions[record.served] += 1
        self.backends[_responder(gateway_record) if gateway_record else "unknown"] += 1
        self.retried += bool(gateway_record and gateway_record.attempts > 1)


@final
class Narrator:
    """Prints the demonstration as it happens. `clients` maps each client's address to its kind."""

    def __init__(
        self, service: str, clients: Mapping[str, str], paint: Paint, write: Callable[[str], None]
    ) -> None:
        self.totals = Totals()
        self._service = service
        self._clients = clients
        self._paint = paint
        self._write = write
        self._source: SnapshotSource | None = None
        self._gateway_records: dict[str, GatewayRecord] = {}
        self._client_records: dict[str, ClientRecord] = {}

    def follow(self, source: SnapshotSource) -> None:
        """Set where the state of the fleet is read. A line needs it for its reason."""
        self._source = source

    # -- events

    def announce(self, sentence: str, style: Style = Style.BOLD) -> None:
        """Print an event of the demonstration."""
        self._write(self._paint(f"{_clock()}  *** {sentence}", style))

    def on_request_record(self, request: RequestRecord) -> None:
        """Take the gateway's record of a request. A listener for `Gateway`."""
        record = GatewayRecord.of(request)
        if request.client not in self._clients:
            self._line(
                "visitor",
                record.method,
                record.target,
                _requested_text(record),
                self._result_text(record),
                self._reason(record),
            )
            return
        waiting = self._client_records.pop(request.client, None)
        if waiting is not None:
            self._finish(waiting, record)
        else:
            self._gateway_records[request.client] = record

    def on_client_record(self, record: ClientRecord) -> None:
        """Take a client's record. Either record may come first; the line is printed when both are there."""
        gateway_record = self._gateway_records.pop(record.address, None)
        if gateway_record is not None or record.status == 0:
            self._finish(record, gateway_record)
        else:
            self._client_records[record.address] = record

    def on_snapshot(self, before: Snapshot, after: Snapshot) -> None:
        """Print what changed. A subscriber of `SnapshotHolder`."""
        old, new = before.views.get(self._service), after.views.get(self._service)
        if old is None or new is None or old is new:
            return
        for old_member, member in zip(old.pool.members, new.pool.members, strict=True):
            self._announce_member(old_member, member, new)
        if old.offer.versions != new.offer.versions or old.offer.phase is not new.offer.phase:
            self._announce_offer(old, new)

    def close(self) -> None:
        """Print the client records that still wait for the gateway's."""
        for record in self._client_records.values():
            self._finish(record, None)
        self._client_records.clear()

    # -- sentences about the fleet

    def _announce_member(self, old: Member, member: Member, view: ServiceView) -> None:
        name, serves = member.backend.name, _serves(member, view)
        if old.advertisement is None and member.advertisement is not None:
            self.announce(f"The gateway learned what {name} serves: {serves}.", Style.DIM)
        elif member.advertisement is not None and old.advertisement != member.advertisement:
            self.announce(
                f"The gateway learned that {name} now serves {serves} (before: {_serves(old, view)}).",
                Style.DIM,
            )
        if old.freshness is member.freshness:
            return
        if member.freshness is Freshness.STALE:
            self.announce(
                f"A probe of {name} failed: it is tried last now, and its last known versions still count.",
                Style.DIM,
            )
        elif member.freshness is Freshness.LOST:
            self.announce(
                f"Three probes of {name} failed: it is lost now, and its last known versions still count.",
                Style.DIM,
            )
        elif old.freshness in (Freshness.STALE, Freshness.LOST):
            self.announce(f"{name} responds again.", Style.DIM)

    def _announce_offer(self, old: ServiceView, new: ServiceView) -> None:
        before, now, reason = offer_text(old), offer_text(new), _phase_reason(new)
        change = f"The offer {f'goes from {before} to' if before != now else 'stays'} {now}"
        if not old.offer.versions:
            change = f"The offer is {now}"
        self.announce(f"{change}, the fleet is {new.offer.phase}{f': {reason}' if reason else ''}.")

    # -- lines about requests

    def _finish(self, record: ClientRecord, gateway_record: GatewayRecord | None) -> None:
        self.totals.add(record, gateway_record)
        reason = self._reason(gateway_record) if gateway_record else ""
        if record.note:
            reason = record.note if record.status < 400 else f"{record.note}; {reason}"
        if record.fault:
            reason = self._paint(f"LOST: {record.fault}", Style.RED)
        result = (
            self._result_text(gateway_record)
            if gateway_record and record.status
            else self._padded(str(record.status or "no response"), Style.RED)
        )
        self._line(record.client, record.method, record.path, record.requested or "none", result, reason)

    def _line(self, client: str, method: str, path: str, requested: str, result: str, reason: str) -> None:
        request = f"{method} {plain(path)}"
        text = f"{_clock()}  {client:<11}  {request:<14}  requested {requested:<7}  {result}  {reason}"
        self._write(text.rstrip())

    def _result_text(self, record: GatewayRecord) -> str:
        """`200 by api-1 at 1.58`."""
        at = f" at {record.version}" if record.version and record.backend != NO_BACKEND else ""
        return self._padded(f"{record.status} by {_responder(record)}{at}", _style_of(record.status))

    def _padded(self, text: str, style: Style) -> str:
        """Pads before it colours, because escape sequences have no width."""
        return self._paint(f"{text:<22}", style)

    def _reason(self, record: GatewayRecord) -> str:
        view = self._source.current.views.get(self._service) if self._source else None
        if view is None:
            return record.error
        if record.result is NegotiationResult.MALFORMED:
            return "not a valid version, no backend was contacted"
        if record.result in REFUSALS:
            side = "above" if record.result is NegotiationResult.ABOVE_MAX else "below"
            return f"{side} the offer {offer_text(view)}, no backend was contacted"
        if record.result is NegotiationResult.UNAVAILABLE:
            return "no backend that serves it can be reached at the moment"
        if record.error:
            return record.error
        if record.attempts > 1:
            return "another backend was tried first, nothing was executed there"
        return self._reason_for_version(record, view)

    def _reason_for_version(self, record: GatewayRecord, view: ServiceView) -> str:
        """Why this version was negotiated, and which backends could serve it."""
        scheme = view.service.dialect.scheme
        version = scheme.parse(record.version)
        if version is None:
            return "no version is negotiated here"
        if record.requested is RequestedKind.NONE:
            return f"no version: the default {record.version} is written into the request"
        able = [
            member
            for member in view.by_version.candidates(version).members
            if member.freshness is Freshness.FRESH
        ]
        if record.requested is RequestedKind.LATEST:
            newer = [
                (member.backend.name, member.advertisement.versions.highest)
                for member in able
                if member.advertisement and member.advertisement.versions.highest > version
            ]
            if not newer:
                return "latest is the offer's maximum"
            name, highest = newer[0]
            return f"latest is the offer's maximum, not the {scheme.format(highest)} of {name}"
        names = " and ".join(sorted(member.backend.name for member in able)) or "no fresh backend"
        return f"on offer, {names} serve{'' if len(able) > 1 else 's'} it"


def offer_text(view: ServiceView) -> str:
    """The offer as `1.1-1.58`; `nothing yet` before the initial offer."""
    return view.offer.versions.format(view.service.dialect.scheme) if view.offer.versions else "nothing yet"


def _phase_reason(view: ServiceView) -> str:
    """Why the fleet is in its phase. Empty where the name of the phase says enough."""
    offer = view.offer
    if offer.phase is Phase.MIXED and offer.held_by:
        held, names = offer.held, " and ".join(offer.held_by)
        versions = held.versions.format(view.service.dialect.scheme)
        if held.versions <= offer.versions:
            return f"{versions} stays on offer, {names} must be upgraded, revived or removed"
        hold = "holds" if len(held.by) == 1 else "hold"
        return f"{names} {hold} back {versions}, every backend must serve what is offered"
    if offer.phase is Phase.STABILIZING and offer.pending:
        pending = offer.pending.format(view.service.dialect.scheme)
        seconds = f"{view.service.stabilization:g} s"
        return f"all backends serve the same, {pending} is offered once it has been stable for {seconds}"
    return "all backends serve the same" if offer.phase is Phase.UNIFORM else ""


def _serves(member: Member, view: ServiceView) -> str:
    return (
        member.advertisement.versions.format(view.service.dialect.scheme)
        if member.advertisement
        else "nothing known"
    )


def _responder(record: GatewayRecord) -> str:
    return "the gateway" if record.backend == NO_BACKEND else record.backend


def _requested_text(record: GatewayRecord) -> str:
    """The requested version of a visitor's request. After `latest`: the negotiated version."""
    if record.requested is RequestedKind.LATEST:
        return f"latest -> {record.version}" if record.version else "latest"
    if record.requested is RequestedKind.EXACT:
        return record.version or "exact"
    return "none" if record.requested is None else str(record.requested)


def _style_of(status: int) -> Style:
    if status < 400:
        return Style.GREEN
    return Style.YELLOW if status < 500 else Style.RED


def _clock() -> str:
    return time.strftime("%H:%M:%S")
