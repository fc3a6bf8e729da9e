"""Compiled table: the plain requests that an engine may send straight to a backend, and what it writes.

It is made by calling `decide` once for each version and each way of asking for it, for none and for `latest`.
A row exists only if every member of its route set may get the request. All other requests go to the gateway
beside the engine: refusals, documents, odd or repeated headers, and a service that cannot be expressed
(`inexpressible`). Pure values; nothing here knows a particular engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.decision.decision import Forward, NegotiationResult, Resolution, decide
from gateway.core.decision.local_responses import error_response
from gateway.core.decision.routing import Routes
from gateway.core.decision.selection import Candidates
from gateway.core.dialect import BackendResponse, Dialect, DirectPaths, Endpoint, Served, VersionRefusal
from gateway.core.fleet.backend import Member
from gateway.core.fleet.service import Match, Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import Header, RequestHead, as_mapping, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.local_responses.failures import Failure, failure_error

LATEST: Final = "latest"
ROUTE_SET_PREFIX: Final = "sg-"
"""Prefix of the names of all route sets, and of no other name in an engine."""
MAX_VERSIONS: Final = 2000
"""Largest number of versions of a service that get rows, the newest ones: a table is sent whole."""
MAX_VERSION_HEADERS: Final = 3
"""Largest number of version headers: each combination of them has a row for each version."""
ALL_SETS_UP_TO: Final = 4
"""Largest number of members for which every subset is a route set: four members have 15."""
_FAILURES: Final = (Failure.CONNECT, Failure.NO_REPLY, Failure.REPLY_TIMEOUT)
_CLIENT_ERRORS: Final = range(400, 500)
_NO_CLIENTS: Final = "an engine does not know which client sends a request"
_VERSION_HEADERS_ONLY: Final = "an engine reads versions only in headers that hold nothing else"


Asked: TypeAlias = tuple[str | None, ...]
"""Values of the version headers of a request, in the order of `Traits.headers`; None: absent."""


class Inexpressible(NamedTuple):
    """Reason why a service has no rows in an engine's table."""

    key: tuple[str | int, ...]
    """Configuration key, below the service, that is the reason, such as `("match", "path")`."""
    reason: str
    """Reason as a sentence for the operator, without the service's name."""


@final
@dataclass(frozen=True, slots=True)
class RouteSet:
    """Route set: backends that serve the same versions. Other members or addresses give it another name."""

    service: str
    members: tuple[EngineServer, ...]
    """Servers of the route set, in a canonical order."""
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # A HAProxy that runs on through an upgrade of the gateway must find the names of the release before.
        text = repr((self.service, self.members)).replace("EngineServer(", "PoolMember(")
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        object.__setattr__(self, "name", f"{ROUTE_SET_PREFIX}{digest[:20]}")

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(member.key for member in self.members)


@final
@dataclass(frozen=True, slots=True, order=True)
class EngineServer:
    """Backend as an engine sees it."""

    key: str
    """Key of the backend, `service/backend`, unique in the gateway."""
    name: str
    """Name of the backend, unique in its service."""
    host: str
    port: int
    socket_path: str = ""
    """Path of a Unix socket, in place of host and port."""
    weight: int = 1
    backup: bool = False

    @classmethod
    def of(cls, member: Member) -> EngineServer:
        backend = member.backend
        return cls(
            key=member.key,
            name=backend.name,
            host=backend.host,
            port=backend.port,
            socket_path=backend.socket_path,
            weight=backend.weight,
            backup=backend.backup,
        )


@final
@dataclass(frozen=True, slots=True)
class Row:
    """Row of an engine's table: the destination of requests that ask for a version in one particular way."""

    asked: Asked
    version: str
    """Negotiated version, in canonical spelling."""
    route_set: str
    """Name of the route set that gets the request."""
    range: tuple[str, ...]
    """Values of `Traits.range_headers`, which state the offer."""


@final
@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Error response of the gateway, without a request id: an engine makes none."""

    status: int
    headers: tuple[Header, ...]
    """Headers of the error response, without the range headers and `Vary`."""
    body: bytes
    has_range: bool
    """Whether the error response states the offer in the range headers."""


@final
@dataclass(frozen=True, slots=True)
class Traits:
    """Behaviour of a dialect that is the same for every version. It changes only with the configuration."""

    headers: tuple[str, ...]
    """Names of the request headers that carry the version to the backend, canonical."""
    written: tuple[tuple[str, str], ...]
    """Text before and after the version, in each of these request headers."""
    decisive: tuple[str, ...]
    """Normalized names of other request headers that may decide: with them a request is not plain."""
    removed: tuple[str, ...]
    """Normalized names of request headers that the backend never gets and that decide nothing."""
    range_headers: tuple[str, ...]
    """Names of the response headers in which a backend states its range; the offer replaces it."""
    served_headers: tuple[str, ...]
    """Names of the response headers in which a backend states the served version."""
    refusal: VersionRefusal
    """Meaning of a backend's response with `refusal_status`. YES: it refuses the version if it has the range
    and no served version. READ_BODY: only the body tells."""
    refusal_status: int
    vary: tuple[str, ...]
    refused: ErrorAnswer
    """Response to the client when a backend refuses the version."""
    failed: tuple[ErrorAnswer, ...]
    """Responses to clients when no backend can be reached, none replies, or none in time: one per status."""


@final
@dataclass(frozen=True, slots=True)
class ServiceTable:
    """Rows of an engine's table for one service, and what they have in common."""

    service: Service
    inexpressible: Inexpressible | None
    """Reason why the service can have no rows, whatever is on offer; None: it can."""
    traits: Traits | None = None
    """Behaviour of the service's dialect; None: the service cannot be expressed."""
    paths: tuple[DirectPaths, ...] = ()
    rows: tuple[Row, ...] = ()
    route_sets: tuple[RouteSet, ...] = ()
    """Route sets that an engine should know: all that rows use, and those that may be needed next."""
    missing: frozenset[str] = frozenset()
    """Names of route sets that rows need and the engine lacks: smaller ones or the gateway serve."""
    unusable: frozenset[str] = frozenset()
    """Keys of members that get a request only as a last resort: down, unhealthy, or refusing connections."""


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Routes of all services for an engine, made from one snapshot."""

    services: tuple[ServiceTable, ...]

    @property
    def route_sets(self) -> tuple[RouteSet, ...]:
        return tuple(route_set for service in self.services for route_set in service.route_sets)


def compile_table(snapshot: Snapshot, known: Collection[str] | None = None) -> Table:
    """Compile the table of `snapshot` for an engine. `known`: names of the route sets of a running engine,
    which gets others only by a reload; None: it can have any."""
    return TableCompiler().compile(snapshot, known)


@final
class TableCompiler:
    """Compiles the tables of successive snapshots. Only services that have changed are compiled again,
    because each version costs a decision. If none has, the table is the same object."""

    def __init__(self) -> None:
        self._table = Table(())
        self._views: Mapping[str, ServiceView] = {}
        """Service views that the last table was made from; below them its routes and known route sets."""
        self._routes: Routes | None = None
        self._known: Collection[str] | None = None

    def compile(self, snapshot: Snapshot, known: Collection[str] | None = None) -> Table:
        """Compile the table of `snapshot`, as `compile_table` does."""
        if snapshot.routes is not self._routes or known != self._known:
            self._views = {}
        before = {each.service.name: each for each in self._table.services}
        services = tuple(
            before[name] if self._views.get(name) is view else _service_table(snapshot, view, known)
            for name, view in snapshot.views.items()
        )
        if list(map(id, services)) != list(map(id, self._table.services)):
            self._table = Table(services)
        self._views, self._routes, self._known = snapshot.views, snapshot.routes, known
        return self._table


def _service_table(snapshot: Snapshot, view: ServiceView, known: Collection[str] | None) -> ServiceTable:
    service = view.service
    traits = inexpressible(service) or _traits(view)
    if isinstance(traits, Inexpressible):
        return ServiceTable(service, traits)
    members = {member.key: EngineServer.of(member) for member in view.members.all}
    possible = {route_set.name: route_set for route_set in _possible_sets(service, tuple(members.values()))}
    usual = [route_set for route_set in possible.values() if known is None or route_set.name in known]
    wanted: dict[str, RouteSet] = {}
    given: dict[Candidates, RouteSet | None] = {}
    """Route set for each set of candidates; there are few."""
    rows: list[Row] = []
    for asked in _ways_of_asking(view, traits):
        resolution = _resolution(snapshot, service, traits, asked)
        ranges = None if resolution is None else _range(resolution, traits)
        if resolution is None or ranges is None:
            continue
        candidates = resolution.candidates
        if candidates not in given:
            route_set = _route_set(service, (members[member.key] for member in candidates.members))
            wanted[route_set.name] = route_set
            given[candidates] = (
                route_set if known is None or route_set.name in known else _largest_inside(route_set, usual)
            )
        if (found := given[candidates]) is not None:
            rows.append(Row(asked, resolution.version_text, found.name, ranges))
    unusable = members.keys() - {
        one.key for tier in view.by_version.everyone.tiers if tier.usable for one in tier.members
    }
    return ServiceTable(
        service,
        inexpressible=None,
        traits=traits,
        paths=service.dialect.direct_paths,
        rows=tuple(rows),
        route_sets=tuple({**wanted, **possible}.values()),
        missing=frozenset() if known is None else frozenset(wanted.keys() - set(known)),
        unusable=frozenset(unusable),
    )


def inexpressible(service: Service) -> Inexpressible | None:
    """First reason why no request of `service` can bypass the gateway; None: some can."""
    dialect, backends = service.dialect, service.backends
    edits_headers = service.request_edits is not None or service.response_edits is not None
    has_path = service.match.path != Match().path
    over_tls = any(backend.tls is not None for backend in backends)
    bounded = any(backend.max_requests or backend.max_connections for backend in backends)
    reasons = (
        (("dialect",), not dialect.direct_paths or dialect.target_has_version, _VERSION_HEADERS_ONLY),
        (("match", "path"), has_path, "an engine routes by host, not by path prefix"),
        (("offer", "for"), bool(service.paces), _NO_CLIENTS),
        (("bridge",), bool(service.bridges), _NO_CLIENTS),
        (("operations",), bool(service.operations), "an engine does not look up operations"),
        (("headers",), edits_headers, "an engine does not change other headers"),
        (("access",), service.has_rules, "an engine does not check the client of a request"),
        (("backends",), over_tls, "an engine uses no TLS to backends"),
        (("backends",), any(backend.path for backend in backends), "an engine adds no base path"),
        (("backends",), bounded, "an engine does not share a backend's limits with the gateway"),
    )
    return next((Inexpressible(key, reason) for key, found, reason in reasons if found), None)


def _traits(view: ServiceView) -> Traits | Inexpressible:
    """Find out the traits of a dialect with the example of its scheme: what is on offer does not matter."""
    dialect = view.service.dialect
    version = dialect.scheme.require(dialect.scheme.example)
    text = dialect.scheme.format(version)
    endpoint = dialect.endpoint("GET", sample_path(dialect.direct_paths[0]), "")
    lines = dialect.write_request(endpoint, version)
    if not 0 < len(lines) <= MAX_VERSION_HEADERS or any(value.count(text) != 1 for _, value in lines):
        return Inexpressible(("dialect",), _VERSION_HEADERS_ONLY)
    before_and_after = [value.partition(text) for _, value in lines]
    headers = tuple(name for name, _ in lines)
    owned, own = dialect.owned_request, {normalize_name(name) for name in headers}
    offered = VersionSet.only(version)
    echo = dialect.write_response(BackendResponse(endpoint, 200, Served(version), version, offered))
    ranged = dialect.write_response(BackendResponse(endpoint, 200, Served(has_range=True), version, offered))
    refusal, status = _refusal(dialect, endpoint, ranged)
    ranges = {normalize_name(name) for name, _ in ranged}
    return Traits(
        headers=headers,
        written=tuple((before, after) for before, _, after in before_and_after),
        decisive=tuple(sorted(dialect.reads & owned - own | set(dialect.method_override))),
        removed=tuple(sorted(owned - dialect.reads - own)),
        range_headers=tuple(name for name, _ in ranged),
        served_headers=tuple(name for name, _ in echo),
        refusal=refusal,
        refusal_status=status,
        vary=dialect.vary,
        refused=_error_answer(view, Failure.VERSION_REFUSED, offered, ranges),
        failed=tuple(_error_answer(view, failure, offered, ranges) for failure in _FAILURES),
    )


def _refusal(dialect: Dialect, endpoint: Endpoint, ranged: Sequence[Header]) -> tuple[VersionRefusal, int]:
    """Find out how a backend refuses a version, and with which status. Some do so in the body."""
    for status in _CLIENT_ERRORS:
        found = {
            dialect.read_response(endpoint, status, as_mapping(headers)).version_refusal
            for headers in (ranged, ())
        }
        for refusal in (VersionRefusal.READ_BODY, VersionRefusal.YES):
            if refusal in found:
                return refusal, status
    return VersionRefusal.NO, 0


def _error_answer(
    view: ServiceView, failure: Failure, offered: VersionSet, ranges: Collection[str]
) -> ErrorAnswer:
    """Make the error response of a failure. An engine replaces the offer in it by that of the row."""
    response = error_response(view, failure_error(failure, offered))
    headers = {normalize_name(name): (name, value) for name, value in response.headers}
    return ErrorAnswer(
        response.status,
        tuple(header for name, header in headers.items() if name not in {*ranges, "vary"}),
        response.body,
        not headers.keys().isdisjoint(ranges),
    )


def sample_path(paths: DirectPaths) -> str:
    """Example of a path below a direct path's prefix."""
    return f"{paths.prefix}a"


def sample_host(service: Service) -> str:
    """Example of a host of the service."""
    host = service.match.hosts[0] if service.match.hosts else "any.invalid"
    return f"a{host[1:]}" if host.startswith("*") else host


def _ways_of_asking(view: ServiceView, traits: Traits) -> Iterator[Asked]:
    """Yield all ways of asking for a version: without one, and for each version in each set of headers."""
    number = len(traits.headers)
    yield (None,) * number
    scheme = view.service.dialect.scheme
    texts = [LATEST, *(scheme.format(version) for version in _versions(view))]
    chosen = [set(some) for size in range(1, number + 1) for some in combinations(range(number), size)]
    for text in texts:
        for some in chosen:
            yield tuple(
                f"{before}{text}{after}" if at in some else None
                for at, (before, after) in enumerate(traits.written)
            )


def _versions(view: ServiceView) -> list[Version]:
    """Versions that some backend serves, the newest first. No other version can lead to a backend."""
    found: list[Version] = []
    for segment in reversed(view.by_version.segments):
        if not segment.countable:
            continue
        at: Version = segment.high
        while at >= segment.low and len(found) < MAX_VERSIONS:
            found.append(at)
            if at.minor == 0:
                break
            at = at.step(-1)
    return found


def request_of(traits: Traits, asked: Asked, paths: DirectPaths) -> RequestHead:
    """Make a plain request that asks for a version in one particular way."""
    fields = zip(traits.headers, asked, strict=True)
    lines = tuple((normalize_name(name), value) for name, value in fields if value is not None)
    return RequestHead("GET", sample_path(paths), "", lines)


def _resolution(snapshot: Snapshot, service: Service, traits: Traits, asked: Asked) -> Resolution | None:
    """Decide a request, if the answer is the same for all direct paths and sends it to backends."""
    found: Resolution | None = None
    for paths in service.dialect.direct_paths:
        head = request_of(traits, asked, paths)
        decision = decide(snapshot, head, sample_host(service), {}, 0, {})
        if not isinstance(decision, Forward) or decision.resolution.view.service is not service:
            return None
        one = decision.resolution
        if found is not None and (one.version_text, one.candidates.members) != (
            found.version_text,
            found.candidates.members,
        ):
            return None
        found = one
    return found


def _range(resolution: Resolution, traits: Traits) -> tuple[str, ...] | None:
    """Values of the range headers in the response. None: a row cannot express the answer."""
    version, offered = resolution.version, resolution.offered
    if (
        resolution.result is not NegotiationResult.SERVED
        or version is None
        or offered is None
        or resolution.rewrites_document
        or resolution.view.service.is_deprecated(version)  # a row cannot announce its end
        or any(member.legacy for member in resolution.candidates.members)
    ):
        return None
    text = resolution.version_text
    lines = ((name, f"{b}{text}{a}") for name, (b, a) in zip(traits.headers, traits.written, strict=True))
    if resolution.request_field_lines != render(lines):
        return None
    dialect, endpoint = resolution.view.service.dialect, resolution.endpoint
    ranged = dialect.write_response(BackendResponse(endpoint, 200, Served(has_range=True), version, offered))
    values = tuple(value for _, value in ranged)
    if tuple(name for name, _ in ranged) != traits.range_headers or not all(map(_is_plain, (text, *values))):
        return None
    return values


def _is_plain(text: str) -> bool:
    """Whether a text is safe between the separators of an engine's configuration."""
    return text.isascii() and text.isprintable() and not set(text) & set(" |\"'\\")


def _route_set(service: Service, members: Iterable[EngineServer]) -> RouteSet:
    return RouteSet(service.name, tuple(sorted(members)))


def _largest_inside(route_set: RouteSet, usual: Iterable[RouteSet]) -> RouteSet | None:
    """Return the largest usual route set inside `route_set`: each of its members can serve the request."""
    wanted = set(route_set.members)
    fitting = [one for one in usual if wanted.issuperset(one.members)]
    return max(fitting, key=lambda one: (len(one.members), one.name), default=None)


def _possible_sets(service: Service, members: Sequence[EngineServer]) -> Iterator[RouteSet]:
    """Yield the route sets that an upgrade may need: every subset of few members; of more, those that an
    upgrade in order, or one failure, leaves."""
    number = len(members)
    if number <= ALL_SETS_UP_TO:
        for size in range(number, 0, -1):
            for chosen in combinations(members, size):
                yield _route_set(service, chosen)
        return
    for end in range(number, 0, -1):
        yield _route_set(service, members[:end])
        yield _route_set(service, members[number - end :])
    for one in members:
        yield _route_set(service, (each for each in members if each is not one))
        yield _route_set(service, (one,))
