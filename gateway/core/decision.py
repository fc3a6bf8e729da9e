"""decide(): from a request's head and one snapshot to what happens to it. The one place that decides.

    route -> place -> ask -> settle -> candidates   = a Resolution, the same for every equal ask (`resolve`)
    Resolution + operation + load + chance           = Forward, Refuse or Answer (`decide`)

Pure: load and chance come in as parameters. The caller lends a `recall` table in which resolutions are
remembered; with an empty one the answer is the same, only slower. Explanations are `core.explanation`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias, final

from gateway.core.backend import Member
from gateway.core.dialect import Absence, Ask, AskKind, Bounds, Failure, Place, Reason, Refusal
from gateway.core.message import Header, Reply, Request, RequestHead, as_mapping, render
from gateway.core.negotiation import settle
from gateway.core.operations import Operation, Operations
from gateway.core.selection import NOBODY, Candidates, pick
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import Version

RETRY_AFTER = 2
"""Seconds: about as often as probes bring news, and the pause that OpenStack clients make by themselves (for
python-ironicclient 6.3.0, which fails on the header, see decision 0014)."""

METERED_RETRY_AFTER = 1
"""Seconds: whole ones is all that the header can say, and by then a metered place answers again."""

REMEMBERED_ASK = 512
"""Bytes of the header lines up to which an ask is worth remembering; longer ones are no honest version."""

REMEMBERED_ASKS = 4096
"""Entries; a fleet sees a few dozen different asks. A full table is emptied, which costs one resolution an
ask."""


class Verdict(StrEnum):
    """The label `outcome` of skewgate_negotiations_total."""

    SERVED = "served"
    BELOW_MIN = "below_min"
    ABOVE_MAX = "above_max"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
    TRANSPARENT = "transparent"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """What an ask in a place leads to, under one view: everything but the choice of the backend."""

    view: ServiceView
    place: Place
    ask: Ask | None
    """None where nothing is negotiated."""
    verdict: Verdict | None
    """None where nothing is negotiated."""
    version: Version | None
    """The settled version."""
    version_text: str
    """The same, canonical; empty without one."""
    candidates: Candidates
    reply: Reply | None = None
    """What the gateway says itself: a refusal, an own document, or what it says when no candidate is left."""
    marks: bytes = b""
    """Header lines for a backend that speaks versions."""
    silent_marks: bytes = b""
    """Header lines for a silent one."""
    bounds: Bounds | None = None
    absent: Operation | None = None
    """The operation that does not exist in the settled version; then this is for one request alone."""
    service: str = field(init=False)
    ask_kind: AskKind | None = field(init=False)
    prefix: str = field(init=False)
    """The path prefix that backends do not see; empty: they see it all."""
    rewrites_target: bool = field(init=False)
    rewrites_document: bool = field(init=False)
    operations: Operations | None = field(init=False)
    """Those that a request may be outside of; None where no version was settled on, or none are
    configured."""

    def __post_init__(self) -> None:
        """What the hot path would otherwise look up through four objects on every request."""
        service, match = self.view.service, self.view.service.match
        settled = self.verdict in _SETTLED and self.version is not None
        derived = {
            "service": service.name,
            "ask_kind": self.ask.kind if self.ask is not None else None,
            "prefix": match.prefix if match.strip_prefix else "",
            "rewrites_target": service.dialect.rewrites_target,
            "rewrites_document": self.place.document and not self.view.offer.transparent,
            "operations": (service.operations or None) if settled else None,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


_SETTLED = frozenset({Verdict.SERVED, Verdict.UNAVAILABLE})
"""With a version: those of an ask that the offer meets."""


@final
class Forward(NamedTuple):
    """Send it to `member`; `resolution.candidates` has the others, should no connection be had."""

    resolution: Resolution
    member: Member
    path: str
    """The local path: the API's own, without the route's prefix."""


@final
class Refuse(NamedTuple):
    """The gateway says no (or not now); no backend is touched."""

    resolution: Resolution
    reply: Reply
    verdict: Verdict


@final
class Answer(NamedTuple):
    """The gateway answers by itself."""

    resolution: Resolution
    reply: Reply


@final
class Unrouted(NamedTuple):
    """No service matches: 404, before any dialect has a say."""


NO_ROUTE = Unrouted()

Decision: TypeAlias = Forward | Refuse | Answer | Unrouted

RecallKey: TypeAlias = tuple[str, Place, tuple[object, ...]]
Recall: TypeAlias = MutableMapping[RecallKey, Resolution]


def decide(
    snapshot: Snapshot,
    head: Request,
    host: str,
    load: Mapping[str, int],
    ticket: int,
    recall: Recall,
    *,
    spent: Container[str] = (),
) -> Decision:
    """What happens to this request.

    `load`: requests in flight by member key. `ticket`: 64 random bits. `recall`: a table that the caller
    keeps from call to call; what it holds about a view that is no longer current is not believed. `spent`:
    services whose metered places have been asked too often.
    """
    route = snapshot.routes.find(host, head.path)
    if route is None:
        return NO_ROUTE
    view = snapshot.views[route.service]
    path = route.local(head.path)
    place = view.service.dialect.place(head.method, path, head.query)
    key = (route.service, place, head.apart)
    resolution = recall.get(key)
    if resolution is None or resolution.view is not view:
        resolution = resolve(view, place, head, path, spent)
        _remember(recall, key, resolution, head)
    if resolution.operations is not None:
        plain = view.service.dialect.plain_path(path)
        absent = _absent(resolution, resolution.operations, head.method, plain)
        if absent is not None:
            return _own(absent)
    if not resolution.candidates.tiers:
        return _own(resolution)
    member = pick(resolution.candidates, load, ticket)
    assert member is not None
    return Forward(resolution, member, path)


def _absent(resolution: Resolution, operations: Operations, method: str, path: str) -> Resolution | None:
    """The refusal of an operation outside its versions; None where it exists, or nothing is said of it.

    Looked up for every request: the path is no part of what is remembered.
    """
    operation, version, ask = operations.find(method, path), resolution.version, resolution.ask
    assert version is not None, "operations are looked up where a version is settled on"
    assert ask is not None
    assert resolution.bounds is not None
    if operation is None or version in operation.extent:
        return None
    view, place = resolution.view, resolution.place
    absence = Absence(version, ask, resolution.bounds, operation.refusal)
    return replace(
        resolution,
        verdict=Verdict.BELOW_MIN if operation.extent.begins_after(version) else Verdict.ABOVE_MAX,
        candidates=NOBODY,
        reply=with_vary(view, view.service.dialect.refuse_operation(absence, place)),
        marks=b"",
        silent_marks=b"",
        absent=operation,
    )


def _remember(recall: Recall, key: RecallKey, resolution: Resolution, head: Request) -> None:
    """Bounded in number and size: clients choose the keys (hardening V11)."""
    size = sum(len(name) + len(value) for name, value in head.fields)
    if resolution.place.answered or size > REMEMBERED_ASK:
        return
    if len(recall) >= REMEMBERED_ASKS:
        recall.clear()
    recall[key] = resolution


def _own(resolution: Resolution) -> Refuse | Answer:
    assert resolution.reply is not None
    if resolution.place.answered:
        return Answer(resolution, resolution.reply)
    return Refuse(resolution, resolution.reply, resolution.verdict or Verdict.UNAVAILABLE)


def resolve(
    view: ServiceView, place: Place, head: Request, path: str, spent: Container[str] = ()
) -> Resolution:
    """Stops 4 and 5: read the ask, settle, find the candidates. Runs dialect code; remembered by the
    caller."""
    dialect, offer, bounds = view.service.dialect, view.offer, view.offer.bounds
    if place.answered:
        if place.metered and view.service.name in spent:
            reply = _too_often(view, dialect.read_ask(place, as_mapping(head.fields)))
        else:
            reply = _answered(view, place, RequestHead(head.method, path, head.query, head.fields))
        return Resolution(view, place, None, None, None, "", NOBODY, reply, bounds=bounds)
    if offer.transparent:
        return _forward(view, place, view.everyone, render(head.fields), verdict=Verdict.TRANSPARENT)
    headers = as_mapping(head.fields)
    passed = passed_on(view, head.fields)
    if not place.negotiated:
        # While nothing is offered a backend's own words about versions would be all that the client hears.
        able = view.speaking if place.versioned_only else view.everyone
        lines = render((*dialect.without_version(headers), *passed))
        return _forward(view, place, NOBODY if bounds is None else able, lines)
    ask = dialect.read_ask(place, headers)
    if bounds is None:
        return _refused(view, place, ask, Verdict.UNAVAILABLE, None, unavailable(view, ask))
    settled = settle(ask, bounds, view.service.silence_rule, dialect.match)
    if isinstance(settled, Refusal):
        reply = with_vary(view, dialect.refuse(settled, place, headers))
        return _refused(view, place, ask, _VERDICT_OF[settled.reason], settled.version, reply)
    candidates = (view.speaking_by_version if place.versioned_only else view.by_version).candidates(settled)
    if ask.sealed:  # signed over its version: routed by it and never rewritten
        marks = silent_marks = render(head.fields)
    else:
        marks, silent_marks = (
            render((*dialect.write_request(place, settled, ask, silent=silent, headers=headers), *passed))
            for silent in (False, True)
        )
    return _forward(
        view, place, candidates, marks, silent_marks, ask=ask, verdict=Verdict.SERVED, version=settled
    )


_VERDICT_OF: Mapping[Reason, Verdict] = {
    Reason.BELOW_MIN: Verdict.BELOW_MIN,
    Reason.ABOVE_MAX: Verdict.ABOVE_MAX,
    Reason.MALFORMED: Verdict.MALFORMED,
}


def passed_on(view: ServiceView, fields: tuple[Header, ...]) -> tuple[Header, ...]:
    """Those of the set-apart header lines that this service's dialect does not own: they go on as they
    came."""
    owned = view.service.dialect.owned_request
    return tuple((name, value) for name, value in fields if name not in owned)


def _answered(view: ServiceView, place: Place, head: RequestHead) -> Reply:
    """What the dialect says at a place that the gateway answers itself."""
    reply = view.service.dialect.answer(place, head, view.offer.bounds, view.service.operations)
    if reply.status == 503:  # nothing is offered yet
        reply = reply.with_headers(("Retry-After", str(RETRY_AFTER)))
    return with_vary(view, reply)


def _too_often(view: ServiceView, ask: Ask) -> Reply:
    """429 at a metered place, instead of the answer."""
    return failed(
        view,
        Failure(
            429,
            "Too Many Requests",
            "This document was asked for too often.",
            retry_after=METERED_RETRY_AFTER,
            bounds=view.offer.bounds,
            ask=ask,
        ),
    )


def unavailable(view: ServiceView, ask: Ask | None) -> Reply:
    """503: a version on offer (or before any offer, any version) that nobody serves at this moment. Never
    404 or 406, which clients take for a final word (protocols 14.8)."""
    return failed(
        view,
        Failure(
            503,
            "Service Unavailable",
            "No backend that serves the requested API version is available at the moment.",
            retry_after=RETRY_AFTER,
            bounds=view.offer.bounds,
            ask=ask,
        ),
    )


def failed(view: ServiceView, failure: Failure) -> Reply:
    """An error made by the gateway after routing, in the dialect's shape."""
    reply = view.service.dialect.fail(failure)
    if failure.retry_after is not None:
        reply = reply.with_headers(("Retry-After", str(failure.retry_after)))
    return with_vary(view, reply)


def with_vary(view: ServiceView, reply: Reply) -> Reply:
    """Own replies depend on the version headers too (hardening V10)."""
    dialect = view.service.dialect
    return reply.with_headers(*vary_header(dialect.vary, apart=dialect.vary_apart))


def vary_header(names: Sequence[str], *, apart: bool) -> tuple[Header, ...]:
    """The `Vary` lines that list `names`: none for none, else one, or one each."""
    if apart:
        return tuple(("Vary", name) for name in names)
    return (("Vary", ", ".join(names)),) if names else ()


def _refused(
    view: ServiceView, place: Place, ask: Ask, verdict: Verdict, version: Version | None, reply: Reply
) -> Resolution:
    text = view.service.dialect.scheme.format(version) if version is not None else ""
    return Resolution(view, place, ask, verdict, version, text, NOBODY, reply, bounds=view.offer.bounds)


def _forward(
    view: ServiceView,
    place: Place,
    candidates: Candidates,
    marks: bytes,
    silent_marks: bytes | None = None,
    *,
    ask: Ask | None = None,
    verdict: Verdict | None = None,
    version: Version | None = None,
) -> Resolution:
    """To one of `candidates`; without any, what is said instead. `silent_marks`: None for those of
    `marks`."""
    reply = None
    if not candidates.tiers:
        reply = unavailable(view, ask)
        verdict = Verdict.UNAVAILABLE if ask else None
    text = view.service.dialect.scheme.format(version) if version is not None else ""
    quiet = marks if silent_marks is None else silent_marks
    return Resolution(
        view, place, ask, verdict, version, text, candidates, reply, marks, quiet, view.offer.bounds
    )
