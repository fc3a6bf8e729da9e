"""The compiled table: which plain requests an engine may send straight to a backend, and what it writes.

Made by asking `decide`, once for each version that may be asked for in each way of asking, for none and for
`latest`. A row is there only where the answer is a backend, and every member of the row's route set may get
the request. Whatever is in no row goes to the gateway beside the engine: refusals, documents, odd or repeated
headers, and all of a service that cannot be expressed (`inexpressible`): then nothing is wrong, and nothing
is faster. Only the gateway refuses.

A value, and pure. Nothing here knows an engine.
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
from gateway.core.dialect import (
    BackendResponse,
    Dialect,
    DirectPaths,
    Endpoint,
    Served,
    VersionRefusal,
)
from gateway.core.fleet.backend import Member
from gateway.core.fleet.match import Match
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import Header, RequestHead, as_mapping, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.local_responses.failures import Failure, failure_error

LATEST: Final = "latest"
ROUTE_SET_PREFIX: Final = "sg-"
"""How the name of each route set begins, and no other name in an engine."""
MAX_VERSIONS: Final = 2000
"""Versions of one service that get rows, the newest ones: no API has that many, and a table is sent whole."""
MAX_VERSION_HEADERS: Final = 3
"""Each set of them has a row for each version. No API has more."""
ALL_SETS_UP_TO: Final = 4
"""Members for which every set of them is a route set: 15 route sets of four members."""
NO_REQUESTS: Final[Mapping[str, int]] = {}
_FAILURES: Final = (Failure.CONNECT, Failure.NO_REPLY, Failure.REPLY_TIMEOUT)
_CLIENT_ERRORS: Final = range(400, 500)


Asked: TypeAlias = tuple[str | None, ...]
"""What a request has in the version headers of its service, in the order of `Traits.headers`, each header
once. None: it is absent."""


class Inexpressible(NamedTuple):
    """Why a service has no rows."""

    key: tuple[str | int, ...]
    """The key below the service: `("match", "path")`."""
    reason: str
    """One sentence for the operator, without the service's name."""


@final
@dataclass(frozen=True, slots=True)
class RouteSet:
    """Backends that serve the same. Its name says who they are: another set, or another address of one of
    them, has another name, so a name never changes its meaning."""

    service: str
    members: tuple[EngineServer, ...]
    """In order."""
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
    """A backend as an engine sees it."""

    key: str
    """`service/backend`, unique in the gateway."""
    name: str
    """The backend's own, unique in its service."""
    host: str
    port: int
    socket_path: str = ""
    """Instead of host and port."""
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
    """What becomes of one way of asking for a version."""

    asked: Asked
    version: str
    """The negotiated version, canonical."""
    route_set: str
    """The name of the route set that gets the request."""
    range: tuple[str, ...]
    """The values of `Traits.range_headers`, with the offer."""


@final
@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What the gateway answers to a failure, but for the id of the request: an engine makes none."""

    status: int
    headers: tuple[Header, ...]
    """Without the range and without `Vary`."""
    body: bytes
    has_range: bool
    """The range headers stand in it, with the offer."""


@final
@dataclass(frozen=True, slots=True)
class Traits:
    """What a dialect does with every version alike: it does not change while the configuration stays."""

    headers: tuple[str, ...]
    """The request headers that carry its version and that the backend gets, canonical."""
    written: tuple[tuple[str, str], ...]
    """For each of them what stands before the version, and what stands after."""
    decisive: tuple[str, ...]
    """Further request headers that may decide, normalized: with one of them a request is not plain."""
    removed: tuple[str, ...]
    """Request headers that the backend never gets and that decide nothing, normalized."""
    range_headers: tuple[str, ...]
    """The response headers in which a backend tells its range, and which tell the offer instead."""
    served_headers: tuple[str, ...]
    """The response headers in which a backend tells the served version."""
    refusal: VersionRefusal
    """Of a response with the next status. YES: one that has the range and no served version is about the
    version, and no other is. READ_BODY: only its body says so."""
    refusal_status: int
    vary: tuple[str, ...]
    refused: ErrorAnswer
    """When a backend refuses the version."""
    failed: tuple[ErrorAnswer, ...]
    """When no backend can be reached, none replies, and none does so in time: one of each status."""


@final
@dataclass(frozen=True, slots=True)
class ServiceTable:
    """All rows of one service, and what they have in common."""

    service: Service
    inexpressible: Inexpressible | None
    """Why it has no rows, whatever is on offer; None: it may have some."""
    traits: Traits | None = None
    """None: it cannot be expressed."""
    paths: tuple[DirectPaths, ...] = ()
    rows: tuple[Row, ...] = ()
    route_sets: tuple[RouteSet, ...] = ()
    """Those that an engine should know: all that the rows want, and those that may come."""
    missing: frozenset[str] = frozenset()
    """Names of route sets that rows want and the engine does not know: smaller ones have their requests, or
    the gateway has."""
    unusable: frozenset[str] = frozenset()
    """The keys of members that get a request only when no other is left: down, unhealthy, or refusing
    connections."""


@final
@dataclass(frozen=True, slots=True)
class Table:
    """What an engine is to do, by one snapshot."""

    services: tuple[ServiceTable, ...]

    @property
    def route_sets(self) -> tuple[RouteSet, ...]:
        return tuple(route_set for service in self.services for route_set in service.route_sets)


def compile_table(snapshot: Snapshot, known: Collection[str] | None = None) -> Table:
    """The table of `snapshot`. `known`: the names of the route sets of the running engine, which can get no
    other without a reload; None: it can have any."""
    return TableCompiler().compile(snapshot, known)


@final
class TableCompiler:
    """Compiles the table of one snapshot after the other. It asks only about services of which something has
    changed, because it asks once for each version. Where none has, the table is the same object."""

    def __init__(self) -> None:
        self._table = Table(())
        self._views: Mapping[str, ServiceView] = {}
        """Of which the table was made, and by which routes and for which route sets."""
        self._routes: Routes | None = None
        self._known: Collection[str] | None = None

    def compile(self, snapshot: Snapshot, known: Collection[str] | None = None) -> Table:
        """As `compile_table`."""
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
    reason = inexpressible(service)
    if reason is not None:
        return ServiceTable(service, reason)
    traits = _traits(view)
    if isinstance(traits, Inexpressible):
        return ServiceTable(service, traits)
    members = {member.key: EngineServer.of(member) for member in view.pool.members}
    possible = {route_set.name: route_set for route_set in _possible_sets(service, tuple(members.values()))}
    usual = [route_set for route_set in possible.values() if known is None or route_set.name in known]
    wanted: dict[str, RouteSet] = {}
    given: dict[Candidates, RouteSet | None] = {}
    """The route set that has the requests of these. Few are different."""
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


# --- what cannot be expressed ------------------------------------------------------------------------------


def inexpressible(service: Service) -> Inexpressible | None:
    """The first reason why no request of `service` can go past the gateway; None: some may."""
    for key, found, reason in _reasons(service):
        if found:
            return Inexpressible(key, reason)
    return None


def _reasons(service: Service) -> tuple[tuple[tuple[str | int, ...], bool, str], ...]:
    backends = service.backends
    return (
        (
            ("dialect",),
            not service.dialect.direct_paths or service.dialect.target_has_version,
            "an engine reads versions only in headers that hold nothing else",
        ),
        (
            ("match", "path"),
            service.match.path != Match().path,
            "an engine serves whole hosts, and no service below a path prefix",
        ),
        (("operations",), bool(service.operations), "an engine does not look up operations"),
        (
            ("headers",),
            service.request_edits is not None or service.response_edits is not None,
            "an engine does not change other headers",
        ),
        (("access",), service.has_rules, "an engine does not look at the client of a request"),
        (
            ("backends",),
            any(backend.tls is not None for backend in backends),
            "an engine speaks to backends without TLS",
        ),
        (("backends",), any(backend.path for backend in backends), "an engine adds no base path"),
        (
            ("backends",),
            any(backend.max_requests or backend.max_connections for backend in backends),
            "an engine does not share a backend's bound with the gateway",
        ),
    )


# --- what a dialect does with every version ----------------------------------------------------------------


def _traits(view: ServiceView) -> Traits | Inexpressible:
    """Asked of the dialect with the example of its scheme: what is on offer does not count."""
    dialect = view.service.dialect
    version = dialect.scheme.require(dialect.scheme.example)
    text = dialect.scheme.format(version)
    endpoint = dialect.endpoint("GET", sample_path(dialect.direct_paths[0]), "")
    lines = dialect.write_request(endpoint, version)
    if not 0 < len(lines) <= MAX_VERSION_HEADERS or any(value.count(text) != 1 for _, value in lines):
        return Inexpressible(("dialect",), "an engine reads versions only in headers that hold nothing else")
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
    """How a backend refuses a version, and with which status. Where some refusals are in the body, all are
    looked for there."""
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
    """With an offer that only shows where it stands: an engine takes it from the row."""
    response = error_response(view, failure_error(failure, offered))
    headers = {normalize_name(name): (name, value) for name, value in response.headers}
    return ErrorAnswer(
        response.status,
        tuple(header for name, header in headers.items() if name not in {*ranges, "vary"}),
        response.body,
        not headers.keys().isdisjoint(ranges),
    )


def sample_path(paths: DirectPaths) -> str:
    """A path of these."""
    return f"{paths.prefix}a"


def sample_host(service: Service) -> str:
    """A host of this service."""
    host = service.match.hosts[0] if service.match.hosts else "any.invalid"
    return f"a{host[1:]}" if host.startswith("*") else host


# --- rows --------------------------------------------------------------------------------------------------


def _ways_of_asking(view: ServiceView, traits: Traits) -> Iterator[Asked]:
    """No version; then `latest` and each version, in each set of the headers that may carry it."""
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
    """Those that somebody serves, the newest first. Nothing else can lead to a backend by its own name."""
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
    """A plain request that asks so."""
    fields = zip(traits.headers, asked, strict=True)
    lines = tuple((normalize_name(name), value) for name, value in fields if value is not None)
    return RequestHead("GET", sample_path(paths), "", lines)


def _resolution(snapshot: Snapshot, service: Service, traits: Traits, asked: Asked) -> Resolution | None:
    """What `decide` says, if that is the same at all of the direct paths and sends it to backends."""
    found: Resolution | None = None
    for paths in service.dialect.direct_paths:
        head = request_of(traits, asked, paths)
        decision = decide(snapshot, head, sample_host(service), NO_REQUESTS, 0, {})
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
    """What the range headers of the response say. None: the answer is not as plain as a row can say."""
    version, offered = resolution.version, resolution.offered
    if (
        resolution.result is not NegotiationResult.SERVED
        or version is None
        or offered is None
        or resolution.rewrites_document
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
    """Whether a writer may put it between its own separators."""
    return text.isascii() and text.isprintable() and not set(text) & set(" |\"'\\")


# --- route sets --------------------------------------------------------------------------------------------


def _route_set(service: Service, members: Iterable[EngineServer]) -> RouteSet:
    return RouteSet(service.name, tuple(sorted(members)))


def _largest_inside(route_set: RouteSet, usual: Iterable[RouteSet]) -> RouteSet | None:
    """The largest of these route sets whose members are all in `route_set`: each of them can serve the
    request. None: there is none."""
    wanted = set(route_set.members)
    fitting = [one for one in usual if wanted.issuperset(one.members)]
    return max(fitting, key=lambda one: (len(one.members), one.name), default=None)


def _possible_sets(service: Service, members: Sequence[EngineServer]) -> Iterator[RouteSet]:
    """The route sets that an upgrade may want: every set of few members; of more, those that an upgrade in
    order, or one failure, leaves."""
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
