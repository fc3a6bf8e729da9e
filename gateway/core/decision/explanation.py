"""Explanations of decisions: `explain` returns what would happen to a request, and why, as JSON values.

It calls `decision.decide` with the snapshot that a request would take, and adds what is known of every
backend. Nothing is sent and nothing is cached. Texts of the client are unchanged: escape them for display.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, final

from gateway.core.decision.decision import (
    Answer,
    AnswerCached,
    DocumentKey,
    Forward,
    NegotiationResult,
    Refuse,
    Resolution,
    Unrouted,
    decide,
)
from gateway.core.decision.operations import possible_methods
from gateway.core.decision.routing import Route
from gateway.core.decision.selection import ALL_REQUESTS, NO_CANDIDATES, NOBODY, Candidates, Tier, is_full
from gateway.core.dialect import RefusalReason, RequestedKind, RequestedVersion
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import Request
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme


class ExclusionReason(StrEnum):
    """Kind of reason why a backend does not get the request that is explained."""

    NOT_ASKED = "not_asked"
    """Reason: the gateway answers or refuses the request itself; no backend gets it."""
    UNKNOWN = "unknown"
    DRAINED = "drained"
    LEAVING = "leaving"
    LEGACY = "legacy"
    MOUNT = "mount"
    """Reason: the backend's release lacks this part of the API."""
    VERSION = "version"
    MISMATCH = "mismatch"
    """Reason: a response to a request for this version named another served version."""
    EJECTED = "ejected"


NO_REQUESTS_IN_FLIGHT: Mapping[str, int] = {}


@final
class Load(NamedTuple):
    """Load of the backends, by member key: requests in flight, shares held back, ejections."""

    in_flight: Mapping[str, int] = NO_REQUESTS_IN_FLIGHT
    held_back: Mapping[str, int] = NOBODY
    ejected: Mapping[str, str] = MappingProxyType({})
    """Reason for each ejection of a backend, one sentence, by member key."""


NO_LOAD: Final = Load()


def explain(
    snapshot: Snapshot,
    head: Request,
    host: str = "",
    load: Load = NO_LOAD,
    cached_documents: Container[DocumentKey] = (),
    *,
    client_name: str = "",
    wall_time: float = 0.0,
) -> dict[str, Any]:
    """Explain the decision on a request. `head`: from the data plane. `cached_documents`, `client_name`,
    `wall_time`: as for `decide`."""
    route = snapshot.routes.find(host, head.path)
    cached, held_back = cached_documents, load.held_back
    decision = decide(
        snapshot,
        head,
        host,
        load.in_flight,
        0,
        {},
        cached_documents=cached,
        held_back=held_back,
        client_name=client_name,
        wall_time=wall_time,
    )
    target = f"{head.path}?{head.query}" if head.query else head.path
    request = {"generation": snapshot.generation, "method": head.method, "path": target, "host": host}
    request["client_name"] = client_name or None
    if isinstance(decision, Unrouted) or route is None:
        return {
            **request,
            "decision": "unrouted",
            "because": "no service matches this host and path",
            **dict.fromkeys(("service", "dialect", "route", "local_path", "endpoint", "requested", "offer")),
            **dict.fromkeys(("result", "version", "bridged", "operation")),
            "status": 404,
            **dict.fromkeys(("candidates", "left_out", "sends", "sends_legacy", "announces"), ()),
            "response": None,
        }
    return {**request, **_routed(head, route, decision, load)}


def _routed(head: Request, route: Route, decision: _Routed, load: Load) -> dict[str, Any]:
    resolution = decision.resolution
    if isinstance(decision, AnswerCached):
        resolution = _without_backends(resolution)
    view, endpoint, requested = resolution.view, resolution.endpoint, resolution.requested
    dialect, match = view.service.dialect, route.match
    scheme, path = dialect.scheme, route.local(head.path)
    response = decision.response if isinstance(decision, Refuse | Answer) else None
    waits = isinstance(decision, Forward) and decision.member is None
    return {
        "decision": _KINDS[type(decision)],
        "because": _because(resolution, decision) + (WAITS if waits else ""),
        "service": view.service.name,
        "dialect": dialect.name,
        "route": {"host": route.host, "path": match.path, "strip_prefix": match.strip_prefix},
        # The path as the API itself knows it.
        "local_path": _local_path(resolution, path, head.query),
        "endpoint": {
            "name": endpoint.name,
            "negotiated": endpoint.negotiated,
            "document": endpoint.document,
            "answered": endpoint.answered,
        },
        "requested": None
        if requested is None
        else {
            "kind": requested.kind.value,
            "text": requested.text,
            # The one that was read, canonical; None where none was named.
            "version": None if requested.version is None else scheme.format(requested.version),
        },
        "offer": _offer(view, scheme),
        # As skewgate_negotiations_total would count it; None where nothing is negotiated.
        "result": None if resolution.result is None else resolution.result.value,
        "version": None if _outside(resolution) else resolution.version_text or None,
        # `X-Skewgate-Bridged` of the response: requested and negotiated version; None: it is not bridged.
        "bridged": resolution.bridged or None,
        # Response headers about the end of the version, unless the backend or `headers` has them.
        "announces": () if _outside(resolution) else view.service.announcement(resolution.version),
        "operation": _operation(resolution, head, path),
        # Status of the local response; None: the backend's own.
        "status": None if response is None else response.status,
        "candidates": _candidates(resolution, load),
        "left_out": _left_out(view, resolution, scheme, load),
        "sends": _lines(resolution.request_field_lines),
        "sends_legacy": _lines(resolution.legacy_request_field_lines),
        "response": None
        if response is None
        else {
            "status": response.status,
            "headers": response.headers,
            "body": response.body.decode("utf-8", "replace"),
        },
    }


_Routed: TypeAlias = Forward | Refuse | Answer | AnswerCached
_KINDS: Final = {Forward: "forward", Refuse: "refuse", Answer: "answer", AnswerCached: "answer"}


def _without_backends(resolution: Resolution) -> Resolution:
    """The resolution of a document that is answered from the cache: no backend gets the request."""
    return replace(
        resolution,
        result=NegotiationResult.SERVED if resolution.requested is not None else None,
        candidates=NO_CANDIDATES,
        request_field_lines=b"",
        legacy_request_field_lines=b"",
    )


def ends(versions: VersionSet, scheme: Scheme) -> dict[str, str | None]:
    """The lowest and highest version of a set, both None for the empty set."""
    return {
        "min": scheme.format(versions.lowest) if versions else None,
        "max": scheme.format(versions.highest) if versions else None,
    }


def offer_limits(offer: Offer, scheme: Scheme) -> dict[str, Any]:
    """The ends of an offer, and what bounds it, for explanations and `/status`."""
    return {
        **ends(offer.versions, scheme),
        "policy": offer.policy.value,
        "ceiling": None if offer.ceiling is None else scheme.format(offer.ceiling),
        "floor": None if offer.floor is None else scheme.format(offer.floor),
        **({} if offer.sunset is None else {"floor_sunset": offer.sunset.isoformat()}),
    }


def _local_path(resolution: Resolution, path: str, query: str) -> str:
    """The request's path as the API sees it; the whole target if the version is in it."""
    version = resolution.version
    if not resolution.target_has_version or version is None or not resolution.candidates.tiers:
        return path
    target = f"{path}?{query}" if query else path
    return resolution.view.service.dialect.write_target(resolution.endpoint, target, version)


def _operation(resolution: Resolution, head: Request, path: str) -> dict[str, Any] | None:
    dialect, missing = resolution.view.service.dialect, resolution.missing_operation
    found = missing
    if found is None and resolution.operations is not None:
        methods = possible_methods(head, dialect.method_override, dialect.method_parameter)
        rules = (resolution.operations.find(method, dialect.operation_path(path)) for method in methods)
        found = next((rule for rule in rules if rule is not None), None)
    if found is None:
        return None
    return {
        "method": found.method,
        "path": found.path.text,
        "versions": found.format_versions(dialect.scheme),
        "exists": missing is None,
    }


def _offer(view: ServiceView, scheme: Scheme) -> dict[str, Any]:
    offer, own = view.offer, view.own_ceiling
    return {
        **offer_limits(offer, scheme),
        # That of this client (`offer.for`), by which min and max are cut; None: it has none.
        "own_ceiling": None if own is None else scheme.format(own),
        "phase": offer.phase.value,
        "transparent": offer.transparent,
    }


WAITS: Final = "; all suitable backends are full, so it waits"


def _because(resolution: Resolution, decision: _Routed) -> str:
    """Reason for the decision on a request, in one sentence. It does not repeat the client's own text."""
    view, requested = resolution.view, resolution.requested
    offered = _offered(view)
    if view.service.maintenance is not None:
        return "the service is in maintenance: the configuration has one answer for every request"
    if isinstance(decision, AnswerCached):
        return "no backend that may give this document is in service: it is answered from the cache"
    if isinstance(decision, Answer):
        return "the gateway answers this endpoint itself"
    if resolution.offered is None or view.offer.transparent:
        return _without_offer(view)
    if requested is None:
        if isinstance(decision, Forward):
            return "no version is negotiated at this endpoint: any backend that can answer it may get it"
        return "no version is negotiated at this endpoint, but no backend can answer it"
    if resolution.result is NegotiationResult.BROWNOUT:
        text = resolution.version_text  # a bridge, too, may lead there
        return f"a brown-out refuses deprecated versions now, and this would be executed at {text}"
    if _outside(resolution):
        refused = _refused_version(requested, resolution.version_text)
        return f"{refused} is not in the offer {offered}{_NOT_BRIDGED if view.bridge else ''}"
    if resolution.version is None:
        return _undecided(view)
    negotiated = _negotiated(resolution, requested, offered)
    if resolution.missing_operation is not None:
        return f"{negotiated}, but {resolution.missing_operation.format(view.service.dialect.scheme)}"
    if isinstance(decision, Forward):
        return negotiated
    return f"{negotiated}, but no backend in service can execute it"


_NOT_BRIDGED: Final = ", and the bridge of this client does not lead anywhere from this request"


def _negotiated(resolution: Resolution, requested: RequestedVersion, offered: str) -> str:
    assert resolution.version is not None
    text, bridge = resolution.version_text, resolution.view.bridge
    if resolution.bridged and bridge is not None:
        asked = _refused_version(requested, resolution.bridged.partition(" ")[0])
        return f"{asked} is not in the offer {offered}, but {bridge.sentence()}, which leads to {text}"
    if resolution.version in resolution.view.offer.versions:
        return f"{_REQUESTED[requested.kind]} leads to {text} of the offer {offered}"
    return f"all replicas accept {text}, and show the offer {offered}"


def _offered(view: ServiceView) -> str:
    """The versions on offer, and the own ceiling by which they are cut for this client."""
    scheme, own = view.service.dialect.scheme, view.own_ceiling
    text = view.offer.versions.format(scheme)
    return text if own is None else f"{text} (up to {scheme.format(own)} for this client)"


def _without_offer(view: ServiceView) -> str:
    agreed = view.agreed
    if view.own_ceiling is not None and view.offer.reachable and not view.offer.transparent:
        own = view.service.dialect.scheme.format(view.own_ceiling)
        return f"nothing is on offer up to {own}, the own ceiling of this client"
    if agreed is not None and agreed.legacy_only and not agreed.transparent:
        return "some replica sees legacy backends only, so nothing is negotiated and only these get requests"
    if view.offer.transparent:
        return "every backend in service is legacy, so nothing is negotiated and nothing is changed"
    if agreed is not None and agreed.voting and agreed.record is None and not agreed.attached:
        return "this replica has not joined the others, or was away from them too long: it answers nothing"
    return "nothing is on offer at the moment: no backend's versions are known, or a ceiling allows none"


def _undecided(view: ServiceView) -> str:
    if view.agreed is not None and not view.agreed.attached:
        return "this replica is detached: others may offer this version by now, so it does not refuse it"
    return "the replicas have not decided about this version yet"


_REQUESTED: Mapping[RequestedKind, str] = {
    RequestedKind.EXACT: "the requested version",
    RequestedKind.LATEST: "`latest`",
    RequestedKind.NONE: "a request without a version",
    RequestedKind.MALFORMED: "a malformed version",
}


def _refused_version(requested: RequestedVersion, text: str) -> str:
    """The refused version in words; `text` is the version, if there is one."""
    if requested.kind is RequestedKind.NONE and text:
        return f"the default version ({text})"
    return f"{_REQUESTED[requested.kind]} ({text})" if text else _REQUESTED[requested.kind]


def _candidates(resolution: Resolution, load: Load) -> tuple[dict[str, Any], ...]:
    scheme = resolution.view.service.dialect.scheme
    return tuple(
        {
            "backend": member.backend.name,
            "url": member.backend.url,
            "tier": number,
            "freshness": member.freshness.value,
            "serves": _serves(member, scheme),
            "legacy": member.legacy,
            "weight": member.backend.weight,
            "in_flight": load.in_flight.get(member.key, 0),
            "why": f"{_why_in_tier(member)}{_why_not_now(member, load)}",
        }
        for number, members in enumerate(_not_ejected(resolution.candidates, load), 1)
        for member in members
    )


def _not_ejected(candidates: Candidates, load: Load) -> list[list[Member]]:
    """The members of each tier without those that are ejected; all of them if no other is usable."""

    def left(tier: Tier) -> list[Member]:
        return [member for member in tier.members if load.held_back.get(member.key) != 0]

    if not any(left(tier) for tier in candidates.usable):
        return [list(tier.members) for tier in candidates.tiers]
    return [members for members in map(left, candidates.tiers) if members]


def _why_not_now(member: Member, load: Load) -> str:
    """Reason why a candidate gets no requests at this moment; empty: there is none."""
    if is_full(member, load.in_flight):
        return f"; it is full, it takes {member.bound} requests at a time"
    share = load.held_back.get(member.key, ALL_REQUESTS)
    if not share:
        return f"; it is ejected ({_why_ejected(member, load)}), but no other backend is usable"
    if share < ALL_REQUESTS:
        return f"; it comes back after an ejection, with {100 * share // ALL_REQUESTS} % of its requests"
    return ""


def _why_ejected(member: Member, load: Load) -> str:
    return load.ejected.get(member.key, "it failed again and again")


def _why_in_tier(member: Member) -> str:
    if member.connect_failed:
        return "a connection to it failed, and no probe has succeeded since"
    if member.unhealthy is not None:
        return member.unhealthy
    known = _FRESHNESS_REASONS[member.freshness]
    if member.backend.declared is not None:
        known = "its versions are declared"
    return f"a backup, {known}" if member.backend.backup else known


_FRESHNESS_REASONS: Mapping[Freshness, str] = {
    Freshness.FRESH: "its last probe succeeded",
    Freshness.STALE: "its last probe failed",
    Freshness.DOWN: "its last three probes failed",
    Freshness.UNKNOWN: "it has never answered",
}


def _left_out(
    view: ServiceView, resolution: Resolution, scheme: Scheme, load: Load
) -> tuple[dict[str, Any], ...]:
    """Every backend that is left out, with the reason, and whether it serves the negotiated version."""
    able = {member.key for member in resolution.candidates.members}
    chosen = {member.key for tier in _not_ejected(resolution.candidates, load) for member in tier}
    left_out = []
    for member in view.members.all:
        if member.key in chosen:
            continue
        if member.key in able:
            reason, why = ExclusionReason.EJECTED, f"ejected: {_why_ejected(member, load)}"
        else:
            reason, why = _reason(member, resolution, scheme)
        left_out.append(
            {
                "backend": member.backend.name,
                "url": member.backend.url,
                "freshness": member.freshness.value,
                "serves": _serves(member, scheme),
                "reason": reason.value,
                "why": why,
                "could_serve": _could_serve(member, resolution),
            }
        )
    return tuple(left_out)


def _reason(member: Member, resolution: Resolution, scheme: Scheme) -> tuple[ExclusionReason, str]:
    """Reason why a member is not a candidate: the first that applies."""
    if member.advertisement is None:
        error = f" ({member.error})" if member.error else ""
        return ExclusionReason.UNKNOWN, f"its versions are not known yet{error}"
    if member.drained:
        return ExclusionReason.DRAINED, f"drained by {member.drained_by or 'an operator'}"
    if member.absent:
        return ExclusionReason.LEAVING, member.error or ""
    transparent = resolution.view.offer.transparent
    nothing_offered = resolution.offered is None and not transparent
    answered = resolution.endpoint.answered or resolution.view.service.maintenance is not None
    if nothing_offered or resolution.result in _OUTSIDE or answered:
        able = {None: "", True: f"; it serves {resolution.version_text}"}.get(
            _could_serve(member, resolution), f"; it does not serve {resolution.version_text}"
        )
        return ExclusionReason.NOT_ASKED, f"the gateway answers this request itself{able}"
    if member.legacy and resolution.endpoint.versioned_only:
        return ExclusionReason.LEGACY, "it is legacy, and this endpoint needs a versioned backend"
    mount = resolution.endpoint.mount
    if mount is not None and not member.has_mount(mount):
        return ExclusionReason.MOUNT, f"it does not have /{mount}"
    if member.restored or member.version_unknown:
        return ExclusionReason.UNKNOWN, f"its versions are not known now ({member.error})"
    if resolution.version is not None and resolution.version in member.mismatched:
        text = resolution.version_text
        return (
            ExclusionReason.MISMATCH,
            f"a response to {text} named another served version, and no regular probe has succeeded since",
        )
    return ExclusionReason.VERSION, f"serves {_serves(member, scheme)}, not {resolution.version_text}"


def _could_serve(member: Member, resolution: Resolution) -> bool | None:
    if resolution.version is None or member.advertisement is None:
        return None
    return resolution.version in member.advertisement.versions


_OUTSIDE = frozenset(map(NegotiationResult, RefusalReason))


def _outside(resolution: Resolution) -> bool:
    """Whether the version itself was refused: it is malformed, not on offer, or in a brown-out."""
    return resolution.result in _OUTSIDE and resolution.missing_operation is None


def _serves(member: Member, scheme: Scheme) -> str:
    return member.advertisement.versions.format(scheme) if member.advertisement is not None else "unknown"


def _lines(request_field_lines: bytes) -> tuple[str, ...]:
    return tuple(request_field_lines.decode("latin-1").split("\r\n")[:-1])
