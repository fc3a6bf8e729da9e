"""A minimal dialect with every kind of endpoint, and builders of services, fleets and snapshots for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from gateway.core.decision.decision import Decision, DecisionCache, decide
from gateway.core.decision.explanation import NO_LOAD, NO_REQUESTS_IN_FLIGHT, Load, explain
from gateway.core.decision.operations import Operations
from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    DefaultVersion,
    Dialect,
    Endpoint,
    GatewayError,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedKind,
    RequestedVersion,
    Served,
    VersionMatch,
    VersionRefusal,
)
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Fact, Fleet, ProbeFailed, ProbeSucceeded, configured_member_set
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header, RequestHead, Response, all_values
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import MajorMinor, Scheme, Version
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_described

XY = MajorMinor()

LATEST_REQUESTED = RequestedVersion(RequestedKind.LATEST, text="latest")

MINIMUM = DefaultVersion(DefaultKind.MINIMUM)

RESOURCE = Endpoint("resource")
ENDPOINTS = {
    "/doc": Endpoint("doc", negotiated=False, document=True, versioned_only=True),
    "/legacy": Endpoint("legacy", negotiated=False),
    "/new": Endpoint("new", versioned_only=True),
    "/own": Endpoint("own", answered=True),
    "/costly": Endpoint("costly", negotiated=False, answered=True, rate_limited=True),
}


class Toy(Dialect):
    """X.Y in `X-Version`: `1.5`, `latest`, or `signed 1.5` for a request that is signed over it."""

    name = "toy"
    reads = frozenset({"x-version", "accept"})
    owned_request = frozenset({"x-version", "x-kind"})
    owned_response = frozenset({"x-version", "x-min", "x-max"})

    def __init__(
        self,
        default_version: DefaultVersion = MINIMUM,
        *,
        scheme: Scheme = XY,
        match: VersionMatch = VersionMatch.EXACT,
        vary: tuple[str, ...] = ("X-Version",),
    ) -> None:
        self.default_version, self.scheme, self.version_match, self.vary = (
            default_version,
            scheme,
            match,
            vary,
        )

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        return ENDPOINTS.get(path, RESOURCE)

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        text = headers.get("X-Version")
        if text is None:
            return NO_VERSION_REQUESTED
        if text == "latest":
            return LATEST_REQUESTED
        version = self.scheme.parse(text.removeprefix("signed "))
        if version is None:
            return RequestedVersion(RequestedKind.MALFORMED, text=text)
        return RequestedVersion(RequestedKind.EXACT, version, text, signed=text.startswith("signed "))

    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        """`X-Kind` is made from a header that the dialect reads and does not own."""
        kind = headers.get("Accept", "none")
        return (("X-Version", self.scheme.format(version)), ("X-Kind", kind))

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        return Response(406, body=refusal.reason.value.encode())

    def error_response(self, error: GatewayError) -> Response:
        return Response(error.status, body=error.title.encode())

    def answer(
        self,
        endpoint: Endpoint,
        head: RequestHead,
        offered: VersionSet | None,
        operations: Operations,
    ) -> Response:
        if endpoint.rate_limited and offered is None:
            return self.error_response(GatewayError(503, "Nothing is known."))
        known = "unknown" if offered is None else self.scheme.format(offered.highest)
        listed = "".join(f" {each.method} {each.path.text}" for each in operations.listed)
        return Response(200, body=f"{head.method} {head.path}?{head.query} {known}{listed}".encode())

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        low, high = (self.scheme.parse(headers.get(name, "")) for name in ("X-Min", "X-Max"))
        text = "".join(all_values(headers, "X-Version"))
        return Served(
            self.scheme.parse(text),
            Advertisement(VersionSet.between(low, high)) if low and high else None,
            VersionRefusal.YES if status == 406 else VersionRefusal.NO,
            has_range=high is not None,
            text=text,
        )

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        version = response.negotiated if response.legacy else response.served.version
        lines = () if version is None else (("X-Version", self.scheme.format(version)),)
        if not (response.served.has_range or response.legacy):
            return lines
        return (
            *lines,
            ("X-Min", self.scheme.format(response.offered.lowest)),
            ("X-Max", self.scheme.format(response.offered.highest)),
        )

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        return Advertisement(VersionSet())


class OtherToy(Toy):
    """The same dialect under another name."""

    name = "other"


def v(text: str) -> Version:
    return XY.require(text)


def upto(highest: int, lowest: int = 1) -> Advertisement:
    """1.`lowest` to 1.`highest`."""
    return Advertisement(VersionSet.between(Version(1, lowest), Version(1, highest)))


def legacy(*versions: str) -> Advertisement:
    return Advertisement(VersionSet.only(*map(v, versions)), legacy=True)


def backend(name: str, **more: Any) -> Backend:
    return replace(Backend(name, f"{name}.test", 80), **more)


def service(*names: str, name: str = "toy", dialect: Dialect | None = None, **more: Any) -> Service:
    """A service with plain backends of these names, unless `backends` says otherwise."""
    backends = more.pop("backends", tuple(map(backend, names)))
    return Service(name, dialect or Toy(), backends, **more)


def fleet_of(services: Iterable[Service], known: Fleet | None = None) -> Fleet:
    """The fleet of a configuration, with what is `known` of its backends."""
    before = known.member_sets if known else {}
    member_sets = {
        service.name: configured_member_set(service, before.get(service.name)) for service in services
    }
    return Fleet(MappingProxyType(member_sets))


def observed(fleet: Fleet, results: Mapping[str, Advertisement | None], name: str = "toy") -> Fleet:
    """After a probe of each backend: its advertisement, or None for a failed probe."""
    for who, advertisement in results.items():
        fact: Fact = (
            ProbeFailed("no connection", 1.0) if advertisement is None else ProbeSucceeded(advertisement, 1.0)
        )
        fleet = fleet.observe(name, who, fact)
    return fleet


def drain(fleet: Fleet, *names: str, service: str = "toy") -> Fleet:
    before = fleet.member_sets[service]
    after = tuple(
        replace(member, drained_by="" if member.backend.name in names else None) for member in before.all
    )
    return Fleet(MappingProxyType({**fleet.member_sets, service: replace(before, all=after)}))


def members(
    results: Mapping[str, Advertisement | None], drained: Iterable[str] = (), **more: Any
) -> MemberSet:
    one = service(*results, **more)
    return drain(observed(fleet_of([one]), results), *drained).member_sets["toy"]


def snapshot(
    results: Mapping[str, Advertisement | None],
    drained: Iterable[str] = (),
    unprobed: Iterable[str] = (),
    **more: Any,
) -> Snapshot:
    """`results` as in `observed`; the probes of `unprobed` backends have not ended yet."""
    first = Snapshot.configured([service(*results, *unprobed, **more)], now=0.0)
    return first.with_fleet(drain(observed(first.fleet, results), *drained), 0.0)


# --- decisions ---------------------------------------------------------------------------------------------


def send(
    base: Snapshot,
    version: str | None,
    name: str = "",
    *,
    path: str = "/x",
    wall_time: float = 0.0,
    cache: DecisionCache | None = None,
) -> Decision:
    """The decision on a request of a client with this name. `version` None: it names none."""
    fields = () if version is None else (("x-version", version),)
    head = RequestHead("GET", path, "", fields)
    cache = {} if cache is None else cache
    return decide(base, head, "api.test", {}, 0, cache, client_name=name, wall_time=wall_time)


def no_decisions() -> DecisionCache:
    """A decision cache for several requests."""
    return {}


# --- explanations ------------------------------------------------------------------------------------------


def explained_json(
    snapshot: Snapshot,
    method: str,
    target: str,
    headers: Iterable[Header] = (),
    load: Load = NO_LOAD,
    *,
    wall_time: float = 0.0,
) -> dict[str, Any]:
    """The explanation of a request that is described by these texts, as the admin listener makes it."""
    table = NameTable.for_requests(snapshot.selected_names)
    head = read_described(method, target, headers, table, Limits())
    return explain(snapshot, head, head.host, load, wall_time=wall_time)


def explained(
    snapshot: Snapshot,
    method: str,
    target: str,
    headers: Iterable[Header] = (),
    in_flight_by_member: Mapping[str, int] = NO_REQUESTS_IN_FLIGHT,
    load: Load | None = None,
) -> Any:
    """The same with attributes in place of keys."""
    shown = explained_json(snapshot, method, target, headers, load or Load(in_flight_by_member))
    return with_attributes(shown)


def with_attributes(value: Any) -> Any:
    """JSON, each object with attributes in place of keys."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: with_attributes(each) for key, each in value.items()})
    return tuple(map(with_attributes, value)) if isinstance(value, tuple) else value
