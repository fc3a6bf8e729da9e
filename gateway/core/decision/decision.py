"""Decisions: `decide` takes a request's head and one snapshot, and routes, negotiates and chooses a backend.
`reselect` chooses another backend after the first attempt failed. Nothing else decides this.

The numbers in the bodies are the stops of docs/ARCHITECTURE.md:

    3  route                                             `decide`
    4  read the requested version                        `resolve`, cached
    5  negotiate                                         `resolve`, cached
       does the operation exist in that version?         `decide`, for every request
       is the version refused now, in a brown-out?       `decide`, for every request
    6  find the candidates                               `resolve`, cached
       select one of them                                `decide`, for every request

A *dialect* is how one API family writes versions and errors. A *view* is one service in a snapshot, its
*offer* the versions that clients are told, a *member* one of its backends. A *legacy* member predates version
headers. A *transparent* service has only such members: its requests are forwarded without negotiation.

Pure: requests in flight and random bits are parameters. `decide` reads and fills the caller's decision cache,
which changes the cost and not the result. `core.decision.explanation` explains decisions to people.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias, final

from gateway.core.decision.local_responses import (
    for_client,
    local_answer,
    maintenance_response,
    unavailable,
    version_refusal,
)
from gateway.core.decision.negotiation import exact_version, negotiate, negotiate_agreed
from gateway.core.decision.operations import Operation, Operations, possible_methods
from gateway.core.decision.selection import NO_CANDIDATES, NOBODY, Candidates, eligible, select
from gateway.core.dialect import (
    DefaultKind,
    DefaultVersion,
    Endpoint,
    MissingOperation,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
)
from gateway.core.fleet.backend import Member
from gateway.core.fleet.lifecycle import Lifecycle
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import SAFE_METHODS, Header, Request, Response, as_mapping, render
from gateway.core.http.request_ids import RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version


@final
class DocumentKey(NamedTuple):
    """Identity of a discovery document: service, endpoint, target, and the members that may have sent it."""

    service: Service
    endpoint: Endpoint
    target: str
    """Local path of the document in the dialect's one spelling, and the query unchanged."""
    members: MemberSet | None = None
    """Members whose probes may have brought the cached document; None: no member's."""
    from_legacy: bool = True
    """Whether cached documents of legacy members count: not if another member can be asked."""


def document_key(
    view: ServiceView, endpoint: Endpoint, path: str, query: str, *, forwardable: bool = False
) -> DocumentKey:
    """The cache key of the document at the local `path`. `forwardable`: some member may give it now."""
    plain = view.service.dialect.document_path(path)
    target = f"{plain}?{query}" if query else plain
    return DocumentKey(view.service, endpoint, target, view.members, from_legacy=not forwardable)


DOCUMENT_METHODS = frozenset({"GET", "HEAD"})

MAX_CACHED_REQUEST_SIZE = 512
"""Most bytes of a request's version headers for its decision to be cached: no real version is longer."""

MAX_CACHED_DECISIONS = 4096
"""Most entries of a decision cache. Fleets see a few dozen requested versions. A full cache is emptied."""


class NegotiationResult(StrEnum):
    """Result of a negotiation: the label `result` of `skewgate_negotiations_total`."""

    SERVED = "served"
    BELOW_MIN = "below_min"
    ABOVE_MAX = "above_max"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
    TRANSPARENT = "transparent"
    BRIDGED = "bridged"
    """Result: the requested version is not on offer, and a bridge led to another one."""
    BROWNOUT = "brownout"


EXECUTED = frozenset({NegotiationResult.SERVED, NegotiationResult.BRIDGED})
"""Negotiation results of requests that a backend executes at the negotiated version."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """Decision about a requested version at an endpoint under one view, without the choice of the backend."""

    view: ServiceView
    endpoint: Endpoint
    requested: RequestedVersion | None = None
    """Version that the request names; None, as `result`: nothing is negotiated at this endpoint."""
    result: NegotiationResult | None = None
    version: Version | None = None
    """Negotiated version of the request, or the refused one."""
    candidates: Candidates = NO_CANDIDATES
    response: Response | None = None
    """The gateway's own response: a refusal, a document, or the 503 when there is no candidate."""
    request_field_lines: bytes = b""
    """Header lines that name the version to a member with version headers."""
    legacy_request_field_lines: bytes = b""
    """Header lines that name the version to a legacy member."""
    offered: VersionSet | None = None
    detached_response: Response | None = None
    """Response 503 in place of the version refusal once this replica is detached; None: there is none."""
    bridged: str = ""
    """Requested and negotiated version of a bridged request, as `1.24 -> 1.44`; empty: it is not bridged."""
    missing_operation: Operation | None = None
    """Operation that does not exist in the negotiated version. Such a resolution is not cached."""
    version_text: str = field(init=False)
    service: str = field(init=False)
    requested_kind: RequestedKind | None = field(init=False)
    prefix: str = field(init=False)
    """Path prefix that is removed from requests for backends; empty: they get the whole path."""
    target_has_version: bool = field(init=False)
    """Whether the dialect's `write_target` writes the version into the request target."""
    request_ids: RequestIds = field(init=False)
    rewrites_document: bool = field(init=False)
    prefers_cached_document: bool = field(init=False)
    """Whether the discovery document is answered from the cache; `candidates` are for a cache miss."""
    operations: Operations | None = field(init=False)
    """Operations to check the request against; None: there are none, or no version was negotiated."""
    brownouts: Lifecycle | None = field(init=False)
    """Brown-outs that may refuse the request, which a backend would execute at a deprecated version."""
    always_forwarded: bool = field(init=False)
    """Whether every such request is forwarded: none is refused for its path or the time, or answered here."""
    timeouts: Timeouts = field(init=False)
    limits: Limits = field(init=False)
    request_edits: HeaderEdits | None = field(init=False)
    response_edits: HeaderEdits | None = field(init=False)
    """Configured header changes of responses from backends; None: none. `response` has them already."""

    def __post_init__(self) -> None:
        """Compute the resolution's fields that each request would otherwise look up through four objects."""
        service, match = self.view.service, self.view.service.match
        negotiated = self.result in _NEGOTIATED and self.version is not None
        refused = self.result not in _NEGOTIATED and self.requested is not None
        executed_at = self.version if self.candidates.tiers and not self.endpoint.document else None
        derived: dict[str, object] = {
            "version_text": "" if self.version is None else service.dialect.scheme.format(self.version),
            "service": service.name,
            "requested_kind": self.requested.kind if self.requested is not None else None,
            "prefix": match.prefix if match.strip_prefix else "",
            "target_has_version": service.dialect.target_has_version,
            "request_ids": service.dialect.request_ids,
            "rewrites_document": self.endpoint.document and not self.view.offer.transparent,
            "prefers_cached_document": not refused
            and service.maintenance is None
            and self.view.prefers_cached_document(self.endpoint, self.candidates),
            "operations": (service.operations or None) if negotiated else None,
            "brownouts": service.lifecycle if service.has_brownouts(executed_at) else None,
            "timeouts": service.timeouts,
            "limits": service.limits,
            "request_edits": service.request_edits,
            "response_edits": service.response_edits,
        }
        depends = derived["operations"] or derived["brownouts"] or derived["prefers_cached_document"]
        derived["always_forwarded"] = bool(self.candidates.tiers) and not depends
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def bridged_header(self) -> tuple[Header, ...]:
        """The header of every response to a bridged request; empty for others."""
        return (("X-Skewgate-Bridged", self.bridged),) if self.bridged else ()

    @property
    def bridge_direction(self) -> str:
        """`lifted`: a bridged request is executed at a later version; `clamped`: at an earlier one."""
        asked = None if self.requested is None else self.requested.version
        lifted = asked is not None and self.version is not None and asked < self.version
        return "lifted" if lifted else "clamped"


_NEGOTIATED = EXECUTED | {NegotiationResult.UNAVAILABLE}
"""Negotiation results that mean, with a version, that it is on offer, even if no backend serves it now."""


@final
class Forward:
    """Decision: send the request to `member`; None: all suitable members are full, so it waits (`awaited`).
    `reselect` may choose another of `resolution.candidates`. No tuple: one is made for nearly every request,
    and the compiled build makes a plain object in a tenth of the time."""

    __slots__ = ("member", "methods", "path", "resolution")

    resolution: Resolution
    member: Member | None
    path: str
    """Path of the request as the API knows it, without the route's prefix."""
    methods: tuple[str, ...]
    """Methods that the backend may execute; more than one where a server also takes it from elsewhere than
    the request line. The request is sent again only if all of them allow it."""


@final
class Refuse(NamedTuple):
    """Decision: the gateway refuses the request, finally or for the moment. No backend gets it."""

    resolution: Resolution
    response: Response
    result: NegotiationResult


@final
class Answer(NamedTuple):
    """Decision: the gateway answers the request itself. No backend gets it."""

    resolution: Resolution
    response: Response


@final
class AnswerCached(NamedTuple):
    """Decision: the gateway answers with a cached discovery document, because no member can give it now."""

    resolution: Resolution
    key: DocumentKey


@final
class Unrouted(NamedTuple):
    """Decision: no service matches, so the answer is 404, without a dialect."""


NO_ROUTE = Unrouted()

Decision: TypeAlias = Forward | Refuse | Answer | AnswerCached | Unrouted

DecisionKey: TypeAlias = tuple[str, Endpoint, tuple[object, ...]]
DecisionCache: TypeAlias = dict[DecisionKey, Resolution]


def decide(
    snapshot: Snapshot,
    head: Request,
    host: str,
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    decision_cache: DecisionCache,
    *,
    throttled: Container[str] = (),
    cached_documents: Container[DocumentKey] = (),
    held_back: Mapping[str, int] = NOBODY,
    leases: Mapping[str, int] | None = None,
    client_name: str = "",
    wall_time: float = 0.0,
) -> Decision:
    """Decide about a request: find its route, version and backend, or a response of the gateway.

    `in_flight_by_member`: requests in flight by member key. `random_bits`: 64 of them. `decision_cache`: a
    table that the caller keeps from call to call; entries of a view that is no longer current are ignored.
    `throttled`: services whose rate-limited endpoints have answered too often. `cached_documents`: those that
    the caller can answer. `held_back`, `leases`: as for `selection.select`. `client_name`, `wall_time`: name
    of the client and seconds since the epoch, which decide about own paces, bridges and brown-outs.
    """
    method, path, query = head.method, head.path, head.query
    # 3. Route.
    route = snapshot.routes.find(host, path)
    if route is None:
        return NO_ROUTE
    view = snapshot.views[route.service]
    if client_name and view.own:
        view = view.for_client(client_name, wall_time)
    if route.prefix:
        path = route.local(path)
    # 4, 5, and the candidates of 6: `resolve`, cached by the key of the view, endpoint, selected fields.
    dialect = view.service.dialect
    methods: tuple[str, ...] = (method,)
    if dialect.method_override or (query and _may_name_method(query, dialect.method_parameter)):
        methods = possible_methods(head, dialect.method_override, dialect.method_parameter)
    endpoint = dialect.endpoint(methods[0], path, query)
    key = (view.key, endpoint, head.selected)
    resolution = decision_cache.get(key)
    if resolution is None or resolution.view is not view:
        resolution = resolve(view, endpoint, head, path, throttled)
        _store(decision_cache, key, resolution, head)
    if not resolution.always_forwarded:
        # 5, for every request, because path and time are not in the key: is it refused for one of them?
        if resolution.operations is not None or resolution.brownouts is not None:
            resolution = _conditional(resolution, head, methods, path, wall_time)
        if resolution.prefers_cached_document and method in DOCUMENT_METHODS:
            forwardable = bool(resolution.candidates.tiers)
            document = document_key(view, endpoint, path, query, forwardable=forwardable)
            if document in cached_documents:
                return AnswerCached(resolution, document)
        if not resolution.candidates.tiers:
            return _local(resolution)
    # 6. Select one of the candidates.
    member = select(resolution.candidates, in_flight_by_member, random_bits, (), held_back, leases)
    if methods[0] != method:  # one of the servers may not read the header that overrides it
        methods = (*methods, method)
    forward = Forward()  # without arguments, which would double its cost
    forward.resolution, forward.member = resolution, member
    forward.path, forward.methods = path, methods
    return forward


def _may_name_method(query: str, parameter: str | None) -> bool:
    return parameter is not None and ("%" in query or parameter in query)


def _conditional(
    resolution: Resolution, head: Request, methods: tuple[str, ...], path: str, wall_time: float
) -> Resolution:
    """The resolution, or the refusal of its operation, or of its version in a brown-out."""
    if resolution.operations is not None:
        plain = resolution.view.service.dialect.operation_path(path)
        missing = _missing_operation(resolution, resolution.operations, methods, plain)
        if missing is not None:
            return missing
    view, brownouts, requested = resolution.view, resolution.brownouts, resolution.requested
    window = None if brownouts is None else brownouts.brownout_at(wall_time)
    if brownouts is None or window is None or requested is None or resolution.offered is None:
        return resolution
    if not (brownouts.unsafe or SAFE_METHODS.issuperset((head.method, *methods))):
        return resolution
    text = brownouts.refusal(window.end, view.service.dialect.scheme)
    refusal = Refusal(RefusalReason.BROWNOUT, requested, resolution.version, resolution.offered, text)
    return _refused_version(view, resolution.endpoint, refusal, head, window.end - wall_time)


def _missing_operation(
    resolution: Resolution, operations: Operations, methods: tuple[str, ...], path: str
) -> Resolution | None:
    """Refusal of an operation outside its versions; None: no refusal. `methods`: all that may apply."""
    version, requested = resolution.version, resolution.requested
    assert version is not None, "operations are looked up where a version was negotiated"
    assert requested is not None
    assert resolution.offered is not None
    found = (operations.find(method, path) for method in methods)
    operation = next((one for one in found if one is not None and version not in one.versions), None)
    if operation is None:
        return None
    view = resolution.view
    missing = MissingOperation(version, requested, resolution.offered, operation.refusal)
    below = operation.versions.begins_after(version)
    response = view.service.dialect.refuse_operation(missing)
    response = response.with_headers(*view.service.announcement(version), *resolution.bridged_header)
    return replace(
        resolution,
        result=NegotiationResult.BELOW_MIN if below else NegotiationResult.ABOVE_MAX,
        candidates=NO_CANDIDATES,
        response=for_client(view, response),
        request_field_lines=b"",
        legacy_request_field_lines=b"",
        missing_operation=operation,
    )


def _store(decision_cache: DecisionCache, key: DecisionKey, resolution: Resolution, head: Request) -> None:
    """Cache a resolution, within bounds, because clients choose the keys (threats V11)."""
    size = sum(len(name) + len(value) for name, value in head.fields)
    if resolution.endpoint.answered or size > MAX_CACHED_REQUEST_SIZE:
        return
    if len(decision_cache) >= MAX_CACHED_DECISIONS:
        decision_cache.clear()
    decision_cache[key] = resolution


def _local(resolution: Resolution) -> Refuse | Answer:
    assert resolution.response is not None
    if resolution.endpoint.answered:
        return Answer(resolution, resolution.response)
    return Refuse(resolution, resolution.response, resolution.result or NegotiationResult.UNAVAILABLE)


def resolve(
    view: ServiceView, endpoint: Endpoint, head: Request, path: str, throttled: Container[str] = ()
) -> Resolution:
    """Decide a request's version and its candidate backends. Runs dialect code; the caller caches it."""
    dialect, offer, offered = view.service.dialect, view.offer, view.offer.offered
    if view.service.maintenance is not None:
        response = maintenance_response(view, view.service.maintenance)
        return Resolution(view, endpoint, response=response, offered=offered)
    if endpoint.answered:
        response = local_answer(view, endpoint, head, path, throttled)
        return Resolution(view, endpoint, response=response, offered=offered)
    fields = _fields(view, head)
    if offer.transparent:
        candidates, lines = view.candidates(None, endpoint), render(fields)
        return _forward(view, endpoint, candidates, lines, result=NegotiationResult.TRANSPARENT)
    headers = as_mapping(fields)
    not_owned = [(name, value) for name, value in fields if name not in dialect.owned_request]
    if not endpoint.negotiated:
        # While nothing is on offer, do not forward: clients would take one backend's range for the service's.
        candidates = NO_CANDIDATES if offered is None else view.candidates(None, endpoint)
        lines = render((*dialect.without_version(headers), *not_owned))
        return _forward(view, endpoint, candidates, lines)
    # 4. Requested version.
    requested = dialect.read_requested(endpoint, headers)
    # 5. Negotiate.
    negotiated = _negotiated(view, endpoint, requested)
    if negotiated is None:
        return Resolution(
            view,
            endpoint,
            requested=requested,
            result=NegotiationResult.UNAVAILABLE,
            response=unavailable(view, requested),
            offered=offered,
        )
    bridged = ""
    if isinstance(negotiated, Refusal):
        refusal = negotiated
        negotiated = view.bridged(refusal, endpoint)
        if negotiated is None:
            return _refused_version(view, endpoint, refusal, head)
        assert refusal.version is not None
        bridged = f"{dialect.scheme.format(refusal.version)} -> {dialect.scheme.format(negotiated)}"
    # 6. Candidates, and the header lines with which either kind gets the negotiated version.
    if requested.signed:  # the signature covers the version fields: route by them, and do not change them
        request_field_lines = legacy_request_field_lines = render(fields)
    else:
        request_field_lines = render((*dialect.write_request(endpoint, negotiated, headers), *not_owned))
        legacy_request_field_lines = render(not_owned)
    return _forward(
        view,
        endpoint,
        view.candidates(negotiated, endpoint),
        request_field_lines,
        legacy_request_field_lines,
        requested=requested,
        result=NegotiationResult.BRIDGED if bridged else NegotiationResult.SERVED,
        version=negotiated,
        bridged=bridged,
    )


def _negotiated(
    view: ServiceView, endpoint: Endpoint, requested: RequestedVersion
) -> Version | Refusal | None:
    """The negotiated version, or a refusal; None (503): nothing is on offer, or this version is undecided."""
    dialect, offered, agreed = view.service.dialect, view.offer.offered, view.agreed
    default = view.service.effective_default_version
    if endpoint.document and default.kind is DefaultKind.REFUSED:
        default = DefaultVersion(DefaultKind.MINIMUM)  # who is refused may ask for the range
    if view.own_ceiling is not None and agreed is not None:
        wanted = exact_version(requested, default)
        if wanted is not None and wanted > view.own_ceiling:
            agreed = None  # whether replicas accept it does not matter: the file decides
    if agreed is not None:
        latest = requested.kind is RequestedKind.LATEST or (
            requested.kind is RequestedKind.NONE and default.kind is DefaultKind.MAXIMUM
        )
        if latest and not agreed.attached and offered is not None:
            # What others offer by now is not known here: the highest version that somebody serves.
            served = VersionSet.of(view.by_version.segments) & offered
            return served.highest if served else offered.highest
        return negotiate_agreed(requested, offered, agreed, default, dialect.version_match)
    return None if offered is None else negotiate(requested, offered, default, dialect.version_match)


def _refused_version(
    view: ServiceView, endpoint: Endpoint, refusal: Refusal, head: Request, seconds: float | None = None
) -> Resolution:
    """The refusal of a version, with the response in its place once this replica is detached. `seconds`: as
    for `version_refusal`."""
    agreed = view.agreed is not None and refusal.reason is not RefusalReason.MALFORMED
    return Resolution(
        view,
        endpoint,
        requested=refusal.requested,
        result=NegotiationResult(refusal.reason.value),
        version=refusal.version,
        response=version_refusal(view, endpoint, refusal, as_mapping(_fields(view, head)), seconds),
        offered=refusal.offered,
        detached_response=unavailable(view, refusal.requested) if agreed else None,
    )


def _fields(view: ServiceView, head: Request) -> tuple[Header, ...]:
    """Selected header lines of a request, but for those that the configuration changes."""
    edits = view.service.request_edits
    return head.fields if edits is None else edits.others(head.fields)


def as_detached(refuse: Refuse) -> Refuse:
    """The refusal at a replica whose deadline has passed: 503 in place of a refused version, which the others
    may offer by now. Call it when the refusal is about to be written, by the clock of that moment."""
    response = refuse.resolution.detached_response
    if response is None:
        return refuse
    return Refuse(refuse.resolution, response, NegotiationResult.UNAVAILABLE)


def unbridged(resolution: Resolution) -> Refuse:
    """The 503 to a bridged request at a replica whose deadline has passed, as `as_detached`."""
    response = unavailable(resolution.view, resolution.requested)
    return Refuse(resolution, response, NegotiationResult.UNAVAILABLE)


def _forward(
    view: ServiceView,
    endpoint: Endpoint,
    candidates: Candidates,
    request_field_lines: bytes,
    legacy_request_field_lines: bytes | None = None,
    *,
    requested: RequestedVersion | None = None,
    result: NegotiationResult | None = None,
    version: Version | None = None,
    bridged: str = "",
) -> Resolution:
    """The resolution of a request that may be forwarded; without candidates its response is 503.
    `legacy_request_field_lines` None: the same as `request_field_lines`."""
    response = None
    if not candidates.tiers:
        response = unavailable(view, requested)
        result = NegotiationResult.UNAVAILABLE if requested else None
    offered = view.offer.offered
    if offered is None and version is not None:
        # While nothing is on offer, only what is agreed on may be served. Such a response tells the
        # version that was requested and no other.
        offered = VersionSet.only(version)
    legacy_lines = request_field_lines if legacy_request_field_lines is None else legacy_request_field_lines
    return Resolution(
        view,
        endpoint,
        requested=requested,
        result=result,
        version=version,
        candidates=candidates,
        response=response,
        request_field_lines=request_field_lines,
        legacy_request_field_lines=legacy_lines,
        offered=offered,
        bridged=bridged,
    )


# --- another backend ---------------------------------------------------------------------------------------


def reselect(
    resolution: Resolution,
    snapshot: Snapshot,
    in_flight_by_member: Mapping[str, int],
    random_bits: int,
    tried: Collection[str] = (),
    held_back: Mapping[str, int] = NOBODY,
    *,
    leases: Mapping[str, int] | None = None,
) -> Member | None:
    """Choose another backend for the request of `resolution`; None: none is left, or `awaited` are full.

    The negotiated version stays. A member that was drained or has lost the version since then is not chosen,
    and one to which a connection failed only if no other is left. Parameters as in `selection.select`.
    """
    candidates = _present_candidates(resolution, snapshot.views.get(resolution.service))
    return select(candidates, in_flight_by_member, random_bits, tried, held_back, leases)


def awaited(
    resolution: Resolution,
    snapshot: Snapshot,
    tried: Collection[str] = (),
    held_back: Mapping[str, int] = NOBODY,
) -> tuple[Member, ...]:
    """Members that a request waits for if none was chosen for it; empty: all were tried."""
    candidates = _present_candidates(resolution, snapshot.views.get(resolution.service))
    return tuple(member for tier in eligible(candidates, tried, held_back) for member in tier.members)


def _present_candidates(resolution: Resolution, view: ServiceView | None) -> Candidates:
    """Members that can take the request now: those of the resolution if its service was replaced or removed,
    or has become transparent or ceased to be, since the head was written for it."""
    before = resolution.view
    if (
        view is None
        or view is before
        or view.service is not before.service
        or view.offer.transparent is not before.offer.transparent
    ):
        return resolution.candidates
    return view.candidates(resolution.version, resolution.endpoint)
