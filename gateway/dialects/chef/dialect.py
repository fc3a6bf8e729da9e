"""The dialect `chef`: Chef Server (erchef), goiardi and chef-zero, which implement RFC 041 with differences.

Versions are whole numbers in `X-Ops-Server-API-Version`. A request without the header means the constant 0.
Responses carry one JSON object in a header of the same name. A Chef client keeps the first range that it gets
for the life of its process, and takes a response without the header for a server that has only 0. So every
response gets the header as soon as there is an offer, whether a backend or the gateway made it.

The dialect must not change a request that is signed over its version (protocol 1.3), nor the path or body of
any request. It must not treat every 406 as a version refusal: erchef also writes the response version -1 when
a 406 is about `Accept`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final, Literal, Self, TypeAlias

from gateway.core.decision.negotiation import negotiate
from gateway.core.decision.operations import NEXT, NO_OPERATIONS, Operation, Operations, PathTemplate
from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    ConfigurationRules,
    DefaultKind,
    DefaultVersion,
    Dialect,
    Endpoint,
    GatewayError,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedKind,
    RequestedVersion,
    Served,
    VersionRefusal,
)
from gateway.core.http.message import (
    Header,
    RequestHead,
    Response,
    agreed_text,
    all_values,
    as_mapping,
    normalize_name,
)
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version
from gateway.dialects.chef.version_object import (
    HEADER,
    HEADER_FOLDED,
    INTEGER,
    NO_VERSION,
    ZERO,
    compact_json,
    load_object,
    read_integer,
    read_object,
    read_range,
    request_version_text,
    response_version_text,
    write_object,
)
from gateway.keys.texts import literal

SIGN_FOLDED = normalize_name("X-Ops-Sign")
GOIARDI_FOLDED = normalize_name("X-Goiardi")

ERROR = "invalid-x-ops-server-api-version"
"""Value of the key `error` in the body of a version refusal, and in that of no other response."""

RESOURCE = Endpoint("resource")
UNVERSIONED = Endpoint("unversioned", negotiated=False)
"""Endpoint of requests that never reach erchef's version check: health, the manifest, the file store."""

VERSION_DOCUMENT: Final = Endpoint("server_api_version", negotiated=False, answered=True)
EXTENDED_DOCUMENT: Final = Endpoint(
    "server_api_version/extended", negotiated=False, answered=True, rate_limited=True
)

MAX_VERSIONS: Final = 100
"""Largest number of versions listed for an operation, newest first. Chef Server has three."""

Element: TypeAlias = Mapping[str, str | int]

_UNVERSIONED = frozenset({"_status", "_stats", "_route", "version", "bookshelf"})
_JSON: Header = ("Content-Type", "application/json")

_PROTOCOLS_WITHOUT_VERSION = frozenset({"1.0", "1.1", "1.2"})
"""Signing protocols whose signature does not cover the version header."""

_LEGACY_STATUSES = frozenset({400, 401, 404})
"""Statuses of servers before 12.1 for an unsigned `GET /users`, in JSON. nginx before them sends HTML."""

RELEASES: Mapping[str, Version] = MappingProxyType(
    {
        "12.0": ZERO,
        **{f"12.{minor}": Version(1) for minor in range(1, 17)},
        "12.17.33": Version(1),
        **dict.fromkeys(("12.17.60", "12.18", "12.19", "13.0", "14.0", "15.0", "15.10"), Version(2)),
    }
)
"""The highest API version of each Chef release. It changed between two builds of 12.17."""


ErrorKeys: TypeAlias = Literal["server", "rfc041"]


@dataclass(frozen=True, slots=True)
class ChefOptions:
    """Options of the dialect `chef`."""

    error_keys: ErrorKeys = literal(ErrorKeys).key(
        "server",
        "The keys of the range in the body of a version refusal. `server`: min_version "
        "and max_version, as in Chef Server. `rfc041`: min_api_version and max_api_version, as in the "
        "RFC and in chef-zero.",
        reason="What the dialect's servers do.",
        example="rfc041",
    )


class Chef(Dialect):
    """The dialect of Chef Infra Server."""

    name = "chef"
    Options: ClassVar[type] = ChefOptions

    scheme: Scheme = INTEGER
    reads = frozenset({HEADER_FOLDED, SIGN_FOLDED})
    owned_request = frozenset({HEADER_FOLDED})
    owned_response = frozenset({HEADER_FOLDED})
    vary: tuple[str, ...] = (HEADER,)
    default_version = DefaultVersion(DefaultKind.CONSTANT, ZERO)
    written_for: Version | None = ZERO
    legacy_versions = VersionSet.only(ZERO)
    releases = RELEASES
    configuration_rules = ConfigurationRules(path_is_signed=True)

    def __init__(self, options: ChefOptions) -> None:
        infix = "api_" if options.error_keys == "rfc041" else ""
        self._keys = f"min_{infix}version", f"max_{infix}version"

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service, made from its options."""
        assert isinstance(options, ChefOptions)
        return cls(options)

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request. The gateway serves `/server_api_version`; nginx serves some without
        erchef."""
        first, _, rest = path.lstrip("/").partition("/")
        if first in _UNVERSIONED:
            return UNVERSIONED
        return (_document_endpoint(rest) or RESOURCE) if first == "server_api_version" else RESOURCE

    def operation_path(self, path: str) -> str:
        """The path of an operation without `.json`, which Chef Server takes for a part of a name."""
        return path.removesuffix(".json") or "/"

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The version that a request asks for. Repeated lines are joined with a comma, and so malformed.
        A signed version must be spelled as the server will spell it to check the signature."""
        signature = _read_signature(headers)
        signed = signature is not Signature.WITHOUT_VERSION
        values = all_values(headers, HEADER_FOLDED)
        text = ", ".join(values)
        if signature is Signature.UNNAMED:
            return RequestedVersion(RequestedKind.MALFORMED, None, text, signed)
        if not values:
            # A signature without a version covers 0, whatever the default version of this service is.
            return (
                RequestedVersion(RequestedKind.EXACT, ZERO, "0", signed=True)
                if signed
                else NO_VERSION_REQUESTED
            )
        number = read_integer(text)
        if number is None or (signed and text != str(number)):
            return RequestedVersion(RequestedKind.MALFORMED, None, text, signed)
        return RequestedVersion(RequestedKind.EXACT, Version(number), text, signed)

    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        """The version header for a backend, also at version 0: goiardi sends no object without the header."""
        return ((HEADER, self.scheme.format(version)),) if endpoint.negotiated else ()

    # -- 2. local responses

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version: 406 as erchef writes it, with the client's spelling in it."""
        request_version = NO_VERSION if refusal.version is None else self.scheme.format(refusal.version)
        named = refusal.requested.kind is not RequestedKind.NONE
        text = refusal.requested.text if named else request_version
        lowest, highest = self._keys
        body = {
            "error": ERROR,
            "message": refusal.text or f"Specified version {text} not supported",
            lowest: refusal.offered.lowest[0],
            highest: refusal.offered.highest[0],
        }
        # Servers send no type here. Without one, a client could take a body that quotes the request for HTML.
        version_object = write_object(refusal.offered, request_version, NO_VERSION)
        return Response(406, (version_object, _JSON), compact_json(body))

    def error_response(self, error: GatewayError) -> Response:
        """An error response in Chef's shape, with the version object once the range is known."""
        headers: tuple[Header, ...] = (_JSON,)
        if error.offered is not None:
            request_version = request_version_text(error.requested)
            response_version = response_version_text(error.status, request_version)
            headers = (write_object(error.offered, request_version, response_version), _JSON)
        return Response(error.status, headers, compact_json({"error": [error.detail]}))

    def answer(
        self,
        endpoint: Endpoint,
        head: RequestHead,
        offered: VersionSet | None,
        operations: Operations = NO_OPERATIONS,
    ) -> Response:
        """The answer to `/server_api_version`: the offer, or below `/extended` the operations in it. The
        version is checked before the method, as in erchef. A request without a version gets the document even
        when 0 is no longer on offer: its client may not know the versions yet."""
        headers = as_mapping(head.fields)
        requested = self.read_requested(endpoint, headers)
        if offered is None:
            detail = "No API version is offered at the moment."
            return self.error_response(GatewayError(503, detail, requested=requested))
        if HEADER in headers:
            negotiated = negotiate(requested, offered, self.default_version)
            if isinstance(negotiated, Refusal):
                return self.refuse(negotiated, endpoint, headers)
        if head.method not in {"GET", "HEAD"}:
            detail = "The API versions can only be read."
            response = self.error_response(GatewayError(405, detail, offered=offered, requested=requested))
            return response.with_headers(("Allow", "GET, HEAD"))
        body = _write_document(endpoint, head.path, offered, operations)
        if body is None:
            detail = "There is no such endpoint."
            return self.error_response(GatewayError(404, detail, offered=offered, requested=requested))
        request_version = request_version_text(requested)
        version_object = write_object(offered, request_version, request_version)
        return Response(200, (version_object, _JSON), compact_json(body))

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """The versions that a backend's response names. A version refusal is a 406 whose object has a request
        version outside the object's own range. Without a usable object only the body says so."""
        lines = all_values(headers, HEADER_FOLDED)
        text = agreed_text(lines)
        request_version, response_version, versions = read_object(text)
        refused = VersionRefusal.NO
        if status == 406 and endpoint.negotiated:
            if request_version is None or not versions:
                refused = VersionRefusal.READ_BODY
            elif response_version == NO_VERSION and Version(int(request_version)) not in versions:
                refused = VersionRefusal.YES
        return Served(
            version=None if response_version is None else self.scheme.parse(response_version),
            advertisement=Advertisement(versions) if versions else None,
            version_refusal=refused,
            has_range=bool(lines),
            text=text,
            repeated=None if request_version is None else self.scheme.parse(request_version),
        )

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """The range that the body of a version refusal names, in the keys of either kind of server."""
        members = load_object(body)
        if members.get("error") != ERROR:
            return None
        versions = read_range(members, "min_version", "max_version") or read_range(
            members, "min_api_version", "max_api_version"
        )
        return Advertisement(versions) if versions else None

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The version header for a response to a client: the offer, with the request and response version of
        the backend, or those that a newer backend would have sent."""
        if response.status < 200:
            return ()
        backend = read_object(response.served.text)
        negotiated = ZERO if response.negotiated is None else response.negotiated
        request_version = backend.request or self.scheme.format(negotiated)
        response_version = backend.response or response_version_text(response.status, request_version)
        return (write_object(response.offered, request_version, response_version),)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe: an unsigned `GET /users` with version -1, which erchef refuses with its range before
        it looks for a signature. Goiardi sends no object for that version, so it gets a second request,
        with 0."""
        if not answers:
            return _probe_request(path, NO_VERSION)
        answer = answers[-1]
        if answer.status == 429 or answer.status >= 500:
            return ProbeFault("status", f"answered {answer.status}, which has no meaning for versions")
        if "html" in answer.headers.get("Content-Type", "").lower():
            return ProbeFault("document", f"answered {answer.status} with an HTML page")
        lines = all_values(answer.headers, HEADER_FOLDED)
        if lines:
            versions = read_object(agreed_text(lines)).versions
            fault = ProbeFault("range", f"{HEADER} does not have a range from a minimum up to a maximum")
            return Advertisement(versions) if versions else fault
        if all_values(answer.headers, GOIARDI_FOLDED):
            # A goiardi without the object at 0 is from before versions.
            return _probe_request(path, "0") if len(answers) == 1 else self._legacy(answer)
        if answer.status in _LEGACY_STATUSES:
            return self._legacy(answer)
        if answer.status == 200:
            return ProbeFault("document", "answered 200 without versions: a welcome page, or no Chef Server")
        return self.read_refusal(answer.status, answer.body) or ProbeFault(
            "status", f"answered {answer.status} where 406, 400 or 401 was expected"
        )

    def _legacy(self, answer: ProbeResponse) -> ProbeStep:
        """The advertisement of a legacy server, if it answers a probe in JSON of this API; else a fault."""
        members = load_object(answer.body) if "json" in answer.headers.get("Content-Type", "").lower() else {}
        if members and (answer.status == 200 or "error" in members):
            return Advertisement(self.legacy_versions, legacy=True)
        return ProbeFault("document", f"answered {answer.status} without versions, and not as a Chef Server")


class Signature(Enum):
    """Whether the signature of a request covers the version."""

    WITHOUT_VERSION = "without_version"
    """Signature: there is none, or it leaves the version header out."""
    WITH_VERSION = "with_version"
    """Signature: it covers the version header, as every protocol does that is not known to leave it out."""
    UNNAMED = "unnamed"
    """Signature: whether it covers the version header is unknown; a line of it names no protocol."""


def _read_signature(headers: Mapping[str, str]) -> Signature:
    """Read from a request's `X-Ops-Sign` lines whether its signature covers the version."""
    covers = False
    for line in all_values(headers, SIGN_FOLDED):
        items = (item.partition("=") for item in line.replace(",", ";").split(";"))
        protocols = {value.strip() for name, _, value in items if name.strip().lower() == "version"}
        if not protocols or "" in protocols:
            return Signature.UNNAMED
        covers = covers or bool(protocols - _PROTOCOLS_WITHOUT_VERSION)
    return Signature.WITH_VERSION if covers else Signature.WITHOUT_VERSION


def _probe_request(path: str | None, version: str) -> ProbeRequest:
    """The request of a probe. Without its first two headers the nginx before erchef sends a welcome page."""
    return ProbeRequest(
        path or "/users",
        (
            ("X-Chef-Version", "12.0.0"),
            ("X-Ops-Userid", "probe"),
            ("Accept", "application/json"),
            (HEADER, version),
        ),
    )


# --- the documents that the gateway serves itself, as RFC 041 has them: no server has the extended one ------


def _document_endpoint(rest: str) -> Endpoint | None:
    """The endpoint of the document whose path is `/server_api_version/` and `rest`; None: there is none."""
    below = rest.strip("/")
    if not below:
        return VERSION_DOCUMENT
    return EXTENDED_DOCUMENT if below == "extended" or below.startswith("extended/") else None


def _write_document(
    endpoint: Endpoint, path: str, offered: VersionSet, operations: Operations
) -> Mapping[str, object] | None:
    """The gateway's own JSON document at `path`; None: it names an operation without a version on offer."""
    if endpoint == VERSION_DOCUMENT:
        return {"min_api_version": offered.lowest[0], "max_api_version": offered.highest[0]}
    wanted = path.partition("extended")[2].strip("/")
    if not wanted:
        return {"endpoints": _endpoints(offered, operations)}
    method, _, operation_path = wanted.partition("/")
    # The spelling of the document, `/users/:user`, is found as well: any text matches a placeholder.
    operation = operations.find(method, operation_path)
    elements = _elements(operation, offered) if operation is not None else []
    if operation is None or not elements:
        return None
    return {"name": operation.path.rfc041_text, "versions": elements}


def _endpoints(offered: VersionSet, operations: Operations) -> list[Mapping[str, object]]:
    """Document entries of operations on offer or in development, one for each path, as configured."""
    by_path: dict[PathTemplate, list[Element]] = {}
    for operation in operations.listed:
        by_path.setdefault(operation.path, []).extend(_elements(operation, offered))
    return [
        {"name": path.rfc041_text, "versions": elements} for path, elements in by_path.items() if elements
    ]


def _elements(operation: Operation, offered: VersionSet) -> list[Element]:
    """Document entries of an operation: one for each version on offer, oldest first, then for the next."""
    since = max(offered.lowest, offered.highest.step(1 - MAX_VERSIONS))
    newest = VersionSet.between(since, offered.highest)
    statuses = {
        version[0]: rule.status.value for rule in operation.rules for version in rule.versions & newest
    }
    rows: list[tuple[str | int, str]] = sorted(statuses.items())
    rows += [(NEXT, rule.status.value) for rule in operation.rules if not rule.versions][:1]
    return [{"method": operation.method, "version": version, "status": status} for version, status in rows]
