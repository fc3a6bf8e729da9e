"""explain(): what would happen to a request, and why, as values to show to people.

It decides nothing itself: it asks `decision.decide` with the same snapshot a request would take, and tells
what came out beside what is known of every backend. Nothing is sent, nothing remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.core.backend import Member, Standing
from gateway.core.decision import Answer, Forward, Refuse, Resolution, Unrouted, Verdict, decide
from gateway.core.dialect import Ask, AskKind
from gateway.core.message import Header, Reply, RequestHead, fold
from gateway.core.offer import Offer
from gateway.core.ranges import VersionSet
from gateway.core.routing import Route
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.told import (
    AskTold,
    CandidateTold,
    Explanation,
    LeftOut,
    LeftOutTold,
    OfferTold,
    OperationTold,
    Outcome,
    PlaceTold,
    ReplyTold,
    RouteTold,
)
from gateway.core.version import Scheme

NO_LOAD: Mapping[str, int] = {}


def explain(
    snapshot: Snapshot,
    method: str,
    target: str,
    headers: Iterable[Header] = (),
    load: Mapping[str, int] = NO_LOAD,
) -> Explanation:
    """Explain `method target` with these header lines (`Host` among them when the route needs it). `load`:
    requests in flight by member key."""
    headers = tuple(headers)
    path, _, query = target.partition("?")
    fields = tuple((fold(name), value) for name, value in headers if fold(name) in snapshot.owned)
    host = next((value for name, value in headers if name.lower() == "host"), "")
    head = RequestHead(method, path, query, fields)
    route = snapshot.routes.find(host, path)
    decision = decide(snapshot, head, host, load, 0, {})
    if isinstance(decision, Unrouted) or route is None:
        return Explanation(
            snapshot.generation,
            method,
            target,
            host,
            Outcome.UNROUTED.value,
            "no service matches this host and path",
            status=404,
        )
    return _routed(snapshot, head, route, decision, target=target, host=host, load=load)


def _routed(
    snapshot: Snapshot,
    head: RequestHead,
    route: Route,
    decision: Forward | Refuse | Answer,
    *,
    target: str,
    host: str,
    load: Mapping[str, int],
) -> Explanation:
    resolution = decision.resolution
    view, place, ask = resolution.view, resolution.place, resolution.ask
    scheme, match = view.service.dialect.scheme, route.match
    reply = None if isinstance(decision, Forward) else decision.reply
    end = {Forward: Outcome.FORWARD, Refuse: Outcome.REFUSE, Answer: Outcome.ANSWER}[type(decision)]
    return Explanation(
        snapshot.generation,
        head.method,
        target,
        host,
        end.value,
        _because(resolution, end),
        service=view.service.name,
        dialect=view.service.dialect.name,
        route=RouteTold(match.host, match.path, match.strip_prefix),
        local_path=_local_path(resolution, route.local(head.path), head.query),
        place=PlaceTold(place.name, place.negotiated, place.document, place.answered),
        ask=_ask(ask, scheme) if ask is not None else None,
        offer=_offer(view.offer, scheme),
        outcome=resolution.verdict.value if resolution.verdict is not None else None,
        version=None if _outside(resolution) else resolution.version_text or None,
        operation=_operation(
            resolution, head.method, view.service.dialect.plain_path(route.local(head.path))
        ),
        status=reply.status if reply is not None else None,
        candidates=_candidates(resolution, load),
        left_out=_left_out(view, resolution, scheme),
        sends=_lines(resolution.marks),
        sends_silent=_lines(resolution.silent_marks),
        reply=_reply(reply) if reply is not None else None,
    )


def ends(versions: VersionSet, scheme: Scheme) -> tuple[str | None, str | None]:
    """Lowest and highest, both None for the empty set."""
    return (scheme.format(versions.lowest), scheme.format(versions.highest)) if versions else (None, None)


def _ask(ask: Ask, scheme: Scheme) -> AskTold:
    version = scheme.format(ask.version) if ask.version is not None else None
    return AskTold(ask.kind.value, ask.text, version)


def _local_path(resolution: Resolution, path: str, query: str) -> str:
    """The path as the API knows it; where the version stands in the target, all of the target."""
    version, dialect = resolution.version, resolution.view.service.dialect
    if not resolution.rewrites_target or version is None or not resolution.candidates.tiers:
        return path
    return dialect.write_target(resolution.place, f"{path}?{query}" if query else path, version)


def _operation(resolution: Resolution, method: str, path: str) -> OperationTold | None:
    absent = resolution.absent
    found = absent or (resolution.operations.find(method, path) if resolution.operations else None)
    if found is None:
        return None
    versions = found.extent.format(resolution.view.service.dialect.scheme)
    return OperationTold(found.method, found.path.text, versions, absent is None)


def _offer(offer: Offer, scheme: Scheme) -> OfferTold:
    ceiling = scheme.format(offer.ceiling) if offer.ceiling is not None else None
    return OfferTold(
        *ends(offer.versions, scheme), offer.policy.value, ceiling, offer.phase.value, offer.transparent
    )


def _because(resolution: Resolution, end: Outcome) -> str:
    """Why it ends so, in one sentence. The client's own text is not repeated."""
    view, ask = resolution.view, resolution.ask
    offered = view.offer.versions.format(view.service.dialect.scheme)
    if end is Outcome.ANSWER:
        return "the gateway answers this place by itself"
    if view.offer.transparent:
        return "every backend is silent about versions, so nothing is negotiated and nothing changed"
    if resolution.bounds is None:
        return "nothing is offered at this moment: no backend's versions are known, or a ceiling allows none"
    if ask is None:
        reachable = (
            "any backend that can answer it" if end is Outcome.FORWARD else "but no backend can answer it"
        )
        return f"no version is negotiated at this place, {reachable}"
    if not _outside(resolution):
        settled = f"{_WORDS[ask.kind]} settles on {resolution.version_text} of the offer {offered}"
        if resolution.absent is not None:
            return f"{settled}, but {resolution.absent.format(view.service.dialect.scheme)}"
        if end is Outcome.FORWARD:
            return settled
        return f"{settled}, but no backend in service can execute it"
    wanted = f" ({resolution.version_text})" if resolution.version_text else ""
    return f"{_WORDS[ask.kind]}{wanted} is not in the offer {offered}"


_WORDS: Mapping[AskKind, str] = {
    AskKind.EXACT: "the version asked for",
    AskKind.LATEST: "`latest`",
    AskKind.SILENT: "a request without a version",
    AskKind.GARBLED: "what stands where a version should",
}


def _candidates(resolution: Resolution, load: Mapping[str, int]) -> tuple[CandidateTold, ...]:
    """In the order in which they would be tried; inside a tier chance and load decide."""
    scheme = resolution.view.service.dialect.scheme
    return tuple(
        CandidateTold(
            member.backend.name,
            member.backend.url,
            number,
            member.standing.value,
            _serves(member, scheme),
            member.silent,
            member.backend.weight,
            load.get(member.key, 0),
            _why_then(member),
        )
        for number, tier in enumerate(resolution.candidates.tiers, 1)
        for member in tier.members
    )


def _why_then(member: Member) -> str:
    """Why it is tried no earlier, and no later."""
    if member.refusing:
        return "refused a connection, and no probe has answered since"
    if member.backend.declared is not None:
        return "its versions are declared"
    return _STANDS[member.standing]


_STANDS: Mapping[Standing, str] = {
    Standing.FRESH: "its last probe answered",
    Standing.STALE: "its last probe failed",
    Standing.LOST: "its last three probes failed",
    Standing.UNKNOWN: "it has never answered",
}


def _left_out(view: ServiceView, resolution: Resolution, scheme: Scheme) -> tuple[LeftOutTold, ...]:
    """Every other backend, with its reason."""
    chosen = {member.key for member in resolution.candidates.members}
    told = []
    for member in view.pool.members:
        if member.key not in chosen:
            reason, why = _reason(member, resolution, scheme)
            told.append(
                LeftOutTold(
                    member.backend.name,
                    member.backend.url,
                    member.standing.value,
                    _serves(member, scheme),
                    reason.value,
                    why,
                )
            )
    return tuple(told)


def _reason(member: Member, resolution: Resolution, scheme: Scheme) -> tuple[LeftOut, str]:
    """What is true of a member that is no candidate, the weightiest first."""
    if member.advert is None:
        error = f" ({member.error})" if member.error else ""
        return LeftOut.UNKNOWN, f"its versions are not known yet{error}"
    if member.drained:
        return LeftOut.DRAINED, "drained by an operator"
    transparent = resolution.view.offer.transparent
    nothing_offered = resolution.bounds is None and not transparent
    if nothing_offered or resolution.verdict in _OUTSIDE or resolution.place.answered:
        return LeftOut.NOT_ASKED, "the gateway answers by itself"
    if member.silent and resolution.place.versioned_only:
        return LeftOut.SILENT, "says nothing about versions, and this place needs a backend that does"
    if resolution.version is not None and resolution.version in member.contradicted:
        text = resolution.version_text
        return (
            LeftOut.CONTRADICTED,
            f"was asked for {text} and said that it served another, and no probe has answered since",
        )
    return LeftOut.VERSION, f"does not serve {resolution.version_text}, only {_serves(member, scheme)}"


_OUTSIDE = frozenset({Verdict.BELOW_MIN, Verdict.ABOVE_MAX, Verdict.MALFORMED})


def _outside(resolution: Resolution) -> bool:
    """Whether no version was settled on because of what was asked for."""
    return resolution.verdict in _OUTSIDE and resolution.absent is None


def _serves(member: Member, scheme: Scheme) -> str:
    return member.advert.versions.format(scheme) if member.advert is not None else "unknown"


def _lines(marks: bytes) -> tuple[str, ...]:
    return tuple(marks.decode("latin-1").split("\r\n")[:-1])


def _reply(reply: Reply) -> ReplyTold:
    return ReplyTold(reply.status, reply.headers, reply.body.decode("utf-8", "replace"))
