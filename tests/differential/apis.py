"""The APIs of the differential test: how each is configured, and where its servers look for the version.

All dialects, and of `custom` every kind of location. Each API is a service of one gateway, chosen by `Host`.
Nothing here sends or reads a byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

DOMAIN: Final = "example"


# --- where servers look ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """A header. `spelling`: the text around the version."""

    name: str
    spelling: str = "{}"
    absent: str = ""
    """The version for which the header may be absent, as its servers read absence."""
    sent: bool = True


@dataclass(frozen=True)
class Microversion:
    """The version that microversion-parse finds: the library with which OpenStack servers read headers."""

    service_type: str
    legacy_headers: tuple[str, ...] = ()
    sent: bool = True


@dataclass(frozen=True)
class Query:
    """A query parameter."""

    name: str
    sent: bool = True


@dataclass(frozen=True)
class Parameter:
    """A parameter of the media types in `Accept` and `Content-Type`. `types` empty: of every type."""

    name: str
    types: tuple[str, ...] = ()
    sent: bool = True


@dataclass(frozen=True)
class Path:
    """The path segment after `prefix`, or the first segment with `before` and a digit."""

    prefix: str = ""
    before: str = ""
    sent: bool = True


Location: TypeAlias = Header | Microversion | Query | Parameter | Path


# --- APIs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """An operation that exists only from one version on."""

    methods: tuple[str, ...]
    path: str
    """A regular expression of the whole path, decoded and without a suffix."""
    lowest: str


@dataclass(frozen=True)
class Api:
    """One service of the gateway."""

    name: str
    versions: str
    """What its backend serves, as `versions` in the configuration."""
    good: tuple[str, ...]
    """Requested versions that are on offer."""
    outside: tuple[str, ...]
    """Well-formed versions that are not."""
    locations: tuple[Location, ...]
    targets: tuple[str, ...]
    """Paths of resources and documents. `{}` is the version."""
    response: Mapping[str, str]
    """Response headers with versions, as its servers send them. `{}` is the served version."""
    configuration: str
    """The keys of the service but `match` and `backends`, in YAML's flow style."""
    newest: str = "latest"
    unversioned: tuple[str, ...] = ()
    """Paths (with everything below them) where servers read no version in the target."""
    negotiated_everywhere: bool = False
    """Every other request is negotiated."""
    strip: str = ""
    """The path prefix of the route, which servers do not see."""
    operations: tuple[Operation, ...] = ()
    signed: bool = False
    """Clients sign requests, in some protocols with the version."""
    suffixes: tuple[str, ...] = ()
    """Endings of a path that servers take for the type that a client wants."""
    method_override: tuple[str, ...] = ()
    """Request headers that servers take for the method of a POST."""

    @property
    def host(self) -> str:
        return f"{self.name}.{DOMAIN}"

    @cached_property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers in which servers look."""
        names = [location.name for location in self.locations if isinstance(location, Header)]
        if any(isinstance(location, Parameter) for location in self.locations):
            names += ["Accept", "Content-Type"]
        return tuple(names)

    def service(self, port: int) -> str:
        """The service in the configuration, with one backend on this port of loopback."""
        match = f"{{host: {self.host}{f', path: {self.strip}' if self.strip else ''}}}"
        backend = f"{{name: {self.name}-1, url: 'http://127.0.0.1:{port}', versions: '{self.versions}'}}"
        return f"  {self.name}: {{{self.configuration}, match: {match}, backends: [{backend}]}}"


_STANDARD: Final = "OpenStack-API-Version"
_IRONIC: Final = "X-OpenStack-Ironic-API-{}Version"
_NOVA: Final = "X-OpenStack-Nova-API-Version"
_MANILA: Final = "X-OpenStack-Manila-API-Version"
_INSPECTOR: Final = "X-OpenStack-Ironic-Inspector-API-{}Version"
_CHEF: Final = "X-Ops-Server-API-Version"
_CHEF_OBJECT: Final = '{"min_version":"0","max_version":"2","request_version":"{}","response_version":"{}"}'

_IRONIC_API: Final = Api(
    "ironic",
    versions="1.1-1.90",
    good=("1.1", "1.9", "1.58", "1.72", "1.90"),
    outside=("1.0", "1.91", "1.999", "2.1"),
    locations=(
        Header(_IRONIC.format("")),
        Header(_STANDARD, "baremetal {}"),
        Microversion("baremetal", (_IRONIC.format(""),)),
    ),
    targets=(
        "/v1/nodes",
        "/v1/nodes/abc",
        "/v1/nodes/abc/vifs",
        "/v1/nodes/abc/vifs.json",
        "/v1",
        "/",
        "/v1/",
        "/v1.json",
        "/v2",
    ),
    response={
        _IRONIC.format(""): "{}",
        _IRONIC.format("Minimum-"): "1.1",
        _IRONIC.format("Maximum-"): "1.90",
    },
    configuration="dialect: ironic, "
    "operations: [{methods: [GET], path: '/v1/nodes/{n}/vifs', versions: '>=1.28'}]",
    operations=(Operation(("GET", "HEAD"), "/v1/nodes/[^/]+/vifs/?", "1.28"),),
    suffixes=(".json",),
)

_NOVA_API: Final = Api(
    "nova",
    versions="2.1-2.90",
    good=("2.1", "2.9", "2.10", "2.53", "2.90"),
    outside=("2.0", "2.91", "3.1"),
    locations=(
        Header(_NOVA),
        Header(_STANDARD, "compute {}"),
        Microversion("compute", (_NOVA,)),
    ),
    targets=(
        *(
            "/v2.1/servers",
            "/v2.1/servers/1",
            "/v2.1/servers/1/tags",
            "/v2.1/servers/1/tags.json",
            "/v2.1",
            "/v2.1/",
            "/",
            "/v2/servers",
        ),
        *("/v2", "/v1.1/servers", "/servers", "//v2.1//servers"),
    ),
    response={_NOVA: "{}", _STANDARD: "compute {}"},
    configuration="dialect: nova, "
    "operations: [{methods: [PUT, GET], path: '/v2.1/servers/{s}/tags', versions: '>=2.26'}]",
    operations=(Operation(("GET", "HEAD", "PUT"), "/v2.1/servers/[^/]+/tags/?", "2.26"),),
    suffixes=(".json",),
)

_SENLIN_API: Final = Api(
    "senlin",
    versions="1.0-1.14",
    good=("1.0", "1.5", "1.14"),
    outside=("1.15", "2.0"),
    locations=(Header(_STANDARD, "clustering {}"), Microversion("clustering")),
    targets=(
        "/v1/clusters",
        "/v1/clusters/1/attrs",
        "/v1/clusters/1/attrs.json",
        "/v1",
        "/v1/",
        "/",
        "/versions",
        "/v1.0/clusters",
        "/clusters",
    ),
    response={_STANDARD: "clustering {}"},
    configuration="dialect: senlin, "
    "operations: [{methods: [GET], path: '/v1/clusters/{c}/attrs', versions: '>=1.2'}]",
    operations=(Operation(("GET", "HEAD"), "/v1/clusters/[^/]+/attrs", "1.2"),),
    suffixes=(".json",),
)

_CHEF_API: Final = Api(
    "chef",
    versions="0-2",
    good=("0", "1", "2"),
    outside=("3", "-1", "-100", "99"),
    locations=(Header(_CHEF, absent="0"),),
    targets=("/users", "/organizations/o/nodes/x", "/license", "/_status", "/server_api_version", "/version"),
    response={_CHEF: _CHEF_OBJECT},
    configuration="dialect: chef",
    newest="pineapple",
    signed=True,
)

_PLACEMENT_API: Final = Api(
    "placement",
    versions="1.0-1.39",
    good=("1.0", "1.10", "1.39"),
    outside=("1.40", "0.9", "2.0"),
    locations=(Header(_STANDARD, "placement {}"), Microversion("placement")),
    targets=("/resource_providers", "/", "/usages"),
    response={_STANDARD.lower(): "placement {}"},
    configuration="dialect: openstack, openstack: {service_type: placement}",
)

_CINDER_API: Final = Api(
    "cinder",
    versions="3.0-3.71",
    good=("3.0", "3.27", "3.71"),
    outside=("3.72", "2.0"),
    locations=(Header(_STANDARD, "volume {}"), Microversion("volume")),
    targets=("/v3/p/volumes", "/v3/p/volumes.json", "/v3/", "/"),
    response={_STANDARD: "volume {}"},
    configuration="dialect: openstack, openstack: {service_type: volume}",
)

_MANILA_API: Final = Api(
    "manila",
    versions="2.0-2.91",
    good=("2.0", "2.45", "2.91"),
    outside=("2.92", "1.0"),
    locations=(Header(_MANILA),),
    targets=("/v2/shares", "/v2/shares/1.json", "/v2/", "/"),
    response={_MANILA: "{}"},
    configuration="dialect: openstack, openstack: {service_type: shared-file-system}",
)

_MAGNUM_API: Final = Api(
    "magnum",
    versions="1.1-1.11",
    good=("1.1", "1.7", "1.11"),
    outside=("1.12", "0.1"),
    locations=(Header(_STANDARD, "container-infra {}"), Microversion("container-infra")),
    targets=("/v1/clusters", "/v1/", "/"),
    response={
        _STANDARD: "container-infra {}",
        "OpenStack-API-Minimum-Version": "container-infra 1.1",
        "OpenStack-API-Maximum-Version": "container-infra 1.11",
    },
    configuration="dialect: openstack, openstack: {service_type: container-infra}",
)

_INSPECTOR_API: Final = Api(
    "inspector",
    versions="1.0-1.18",
    good=("1.0", "1.9", "1.18"),
    outside=("1.19",),
    locations=(Header(_INSPECTOR.format("")),),
    targets=("/v1/introspection", "/v1", "/"),
    response={_INSPECTOR.format("Minimum-"): "1.0", _INSPECTOR.format("Maximum-"): "1.18"},
    configuration="dialect: openstack, openstack: {service_type: baremetal-introspection}",
)

OPENSTACK_APIS: Final = (
    *(_IRONIC_API, _NOVA_API, _SENLIN_API, _PLACEMENT_API, _CINDER_API, _MANILA_API, _MAGNUM_API),
    _INSPECTOR_API,
)

_NUMBERS: Final = ("1", "2", "3", "7", "9")

_HEADER_API: Final = Api(
    "header",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10", "99"),
    locations=(Header("X-Api-Version", "v{}"),),
    targets=("/orders", "/orders/1", "/health", "/health/deep", "/health.json"),
    negotiated_everywhere=True,
    response={"X-Api-Served": "{}", "X-Api-Lowest": "1", "X-Api-Highest": "9"},
    configuration="dialect: custom, custom: {places: [{header: X-Api-Version, spelling: 'v{version}'}], "
    "newest: latest, unversioned: [/health], reply: {served: X-Api-Served, minimum: X-Api-Lowest, "
    "maximum: X-Api-Highest}}",
    unversioned=("/health",),
)

_DATE_API: Final = Api(
    "date",
    versions="2024-01-31, 2024-06-01, 2025-01-01",
    good=("2024-01-31", "2024-06-01", "2025-01-01"),
    outside=("2023-01-01", "2026-01-01", "2024-02-01"),
    locations=(Header("Example-Version"), Query("version")),
    targets=("/v1/charges", "/v1/charges/1", "/ping"),
    negotiated_everywhere=True,
    response={"Example-Version": "{}"},
    configuration="dialect: custom, custom: {places: [{header: Example-Version}, {query: version}], "
    "scheme: date, unversioned: [/ping], reply: {served: Example-Version}}",
    unversioned=("/ping",),
)

_QUERY_API: Final = Api(
    "query",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10"),
    locations=(Query("api_version"),),
    targets=("/shop/items", "/shop/items/1", "/shop", "/shop/", "/shop/ping"),
    negotiated_everywhere=True,
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{query: api_version}], newest: latest, "
    "unversioned: [/ping], reply: {served: X-Served}}",
    unversioned=("/ping",),
    strip="/shop",
)

_MEDIA_API: Final = Api(
    "media",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10"),
    locations=(Parameter("version"),),
    targets=("/documents", "/documents/1", "/ping"),
    negotiated_everywhere=True,
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{parameter: version}], newest: latest, "
    "unversioned: [/ping], reply: {served: X-Served}}",
    unversioned=("/ping",),
)

_VENDOR_TYPES: Final = ("application/vnd.example+json", "text/vnd.example+csv")

_VENDOR_API: Final = Api(
    "vendor",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10"),
    locations=(Parameter("compatible-with", _VENDOR_TYPES),),
    targets=("/index/_search", "/index"),
    negotiated_everywhere=True,
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{parameter: compatible-with, media_types: "
    f"[{', '.join(_VENDOR_TYPES)}]}}], reply: {{served: X-Served}}}}",
)

_PATH_API: Final = Api(
    "path",
    versions="1.1-1.40",
    good=("1.1", "1.9", "1.24", "1.40"),
    outside=("1.0", "1.41", "2.0"),
    locations=(Path(before="v"),),
    targets=("/v{}/containers/json", "/v{}/info", "/v{}", "/containers/json", "/_ping", "/volumes"),
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{path: '/v{version}'}], scheme: major.minor, "
    "unversioned: [/_ping], reply: {served: X-Served}}",
    unversioned=("/_ping",),
)

_PREFIX_API: Final = Api(
    "prefix",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10"),
    locations=(Path("/admin/office/kiss"),),
    targets=(
        "/admin/office/kiss/{}/x",
        "/admin/office/kiss/{}",
        "/admin/office/kiss",
        "/other/{}/x",
        "/admin",
    ),
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{path: '/admin/office/kiss/{version}'}], "
    "newest: latest, reply: {served: X-Served}}",
)

_SEVERAL_API: Final = Api(
    "several",
    versions="1-9",
    good=_NUMBERS,
    outside=("0", "10"),
    locations=(
        Header("API-Version"),
        Query("api-version"),
        Parameter("v"),
        Path("/api"),
        Header("X-Old-Version", sent=False),
        Query("ver", sent=False),
    ),
    targets=("/api/{}/x", "/api/{}", "/other/x", "/ping", "/api/{}/jobs/1", "/api/{}/jobs/1.json"),
    negotiated_everywhere=True,
    response={"X-Served": "{}"},
    configuration="dialect: custom, custom: {places: [{header: API-Version}, {query: api-version}, "
    "{parameter: v}, {path: '/api/{version}'}, {header: X-Old-Version, sent: false}, "
    "{query: ver, sent: false}], newest: latest, unversioned: [/ping], suffixes: [.json], "
    "method_override: [X-HTTP-Method-Override], reply: {served: X-Served}}, "
    "operations: [{methods: [DELETE], path: '/api/{v}/jobs/{id}', versions: '>=5'}]",
    unversioned=("/ping",),
    operations=(Operation(("DELETE",), "/api/[^/]+/jobs/[^/]+", "5"),),
    suffixes=(".json",),
    method_override=("X-HTTP-Method-Override",),
)

_CUSTOM_APIS: Final = (
    *(_HEADER_API, _DATE_API, _QUERY_API, _MEDIA_API, _VENDOR_API, _PATH_API, _PREFIX_API, _SEVERAL_API),
)

APIS: Final[Mapping[str, Api]] = {api.name: api for api in (*OPENSTACK_APIS, _CHEF_API, *_CUSTOM_APIS)}
"""By the name of the service."""

QUERY_NAMES: Final = sorted(
    {location.name for api in APIS.values() for location in api.locations if isinstance(location, Query)}
)

PATHS: Final = tuple(
    location for api in APIS.values() for location in api.locations if isinstance(location, Path)
)


def configuration(port: int) -> str:
    """A configuration with all APIs, whose backends are one server on this port of loopback."""
    start = ("listen: 127.0.0.1:0", "admin: {listen: 127.0.0.1:0}", "access_log: {format: off}", "services:")
    return "\n".join((*start, *(api.service(port) for api in APIS.values()), ""))


def folded(name: str) -> str:
    """A header name as servers see it that keep only letters and digits of it."""
    return re.sub(r"[^a-z0-9]", "-", name.lower())
