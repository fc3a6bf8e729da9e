"""The contract between the gateway and one dialect, and the values that cross it.

A dialect translates: texts of one API family in, values of core out, and back. It is pure: the same arguments
give the same result, it keeps no state, reads no clock and never raises on anything that came from the
network. It owns every header that its backends read, because a header that one side reads and the other does
not is how versions get desynchronised (decision 0008). It decides nothing: `core.decision.negotiation`
negotiates the version.

The values come in the order in which a request and its response meet them. `Dialect` follows: first what
every dialect has, then the parts that few have, None or empty by default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, SupportsIndex, TypeAlias, final
from urllib.parse import unquote

from gateway.core.decision.operations import Operations
from gateway.core.fleet.lifecycle import Line
from gateway.core.http.links import LinkRewriter, move
from gateway.core.http.message import REASON_PHRASES, Header, RequestHead, Response
from gateway.core.http.request_ids import PLAIN_IDS, RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version

# --- what a request says -----------------------------------------------------------------------------------


class Endpoint(NamedTuple):
    """A request target as the dialect sees it, by method, path and query alone. A part of the decision
    cache's key, found for every request: a plain tuple, normally a constant, hashes fast."""

    name: str
    """Name of the kind of endpoint, which `explain` shows: `resource`, `root`, `v1`."""
    negotiated: bool = True
    """Whether a version means something at the endpoint; if not (Ironic `/`), owned headers are dropped."""
    document: bool = False
    """Whether the endpoint is a discovery document: successes are rewritten to the offer, or become 502."""
    answered: bool = False
    """Whether the dialect answers at the endpoint, and no backend does (Chef `/server_api_version`)."""
    versioned_only: bool = False
    """Whether the endpoint needs a member with versions, not a legacy one (Nova `/v2.1`; any document)."""
    served_always: bool = False
    """Whether each successful response of the endpoint names the served version (semantics, Knowing)."""
    version_in_target: str | None = None
    """Version in the path or query; None: none. The dialect bounds its length, because it is cached."""
    rate_limited: bool = False
    """Whether an `answered` endpoint costs more than a refusal, so that each service answers it at a bounded
    rate, and then with 429. `read_requested` is called here, too, for what the 429 says."""
    choices: bool = False
    """Whether only a response of status 300 is the `document`. Every other is the API's own, which a request
    header may select at any path (Nova outside its mounts)."""
    mount: str | None = None
    """Part of the API that has this endpoint, such as Cinder's `/v2`. Only members with it get requests."""


class RequestedKind(StrEnum):
    """Form of the requested version: the label `requested` of `skewgate_negotiations_total`."""

    EXACT = "exact"
    LATEST = "latest"
    NONE = "none"
    MALFORMED = "malformed"


@final
@dataclass(frozen=True, slots=True)
class RequestedVersion:
    """The version that a request names, with the form in which it is named."""

    kind: RequestedKind
    version: Version | None = None
    text: str = ""
    """Client's spelling of the version, for refusals that quote it. Bounded by the limit of header lines."""
    signed: bool = False
    """Whether the client signed the header that holds its version (Chef protocol 1.3). Such a request is
    routed by its version and not rewritten: owned headers pass as they came."""


NO_VERSION_REQUESTED = RequestedVersion(RequestedKind.NONE)


class DefaultKind(Enum):
    """Kind of rule for requests that name no version."""

    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    CONSTANT = "constant"
    REFUSED = "refused"


@final
@dataclass(frozen=True, slots=True)
class DefaultVersion:
    """The rule for requests that name no version. `constant` is set only with `CONSTANT`."""

    kind: DefaultKind
    constant: Version | None = None


class VersionMatch(Enum):
    """Rule by which an exactly requested version is matched with the offer."""

    EXACT = "exact"
    NEAREST_EARLIER = "nearest_earlier"
    """Rule: the newest version on offer that is not newer than the requested one (dates and names)."""
    NEAREST_LATER = "nearest_later"
    """Rule: the oldest version on offer that is not older: one that is no longer served leads to the next."""


# --- what the gateway may say ------------------------------------------------------------------------------


class RefusalReason(StrEnum):
    """Reason why a request is refused before any backend gets it; also a value of the label `result`."""

    BELOW_MIN = "below_min"
    ABOVE_MAX = "above_max"
    MALFORMED = "malformed"
    BROWNOUT = "brownout"


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a requested version: it leads to no version on offer, or is in a brown-out."""

    reason: RefusalReason
    requested: RequestedVersion
    version: Version | None
    """Requested version, or the constant of the default version; None: malformed. In a brown-out the version
    that would be executed."""
    offered: VersionSet
    text: str = ""
    """Sentences for the client in place of the dialect's own; empty: the dialect's."""


@final
@dataclass(frozen=True, slots=True)
class GatewayError:
    """Error that the gateway itself answers with after routing: 502, 503, 504, 413, a missing operation."""

    status: int
    detail: str
    """Fixed sentence about the error, which never echoes what the client sent (threats O12)."""
    retry_after: int | None = None
    offered: VersionSet | None = None
    """The versions on offer, if any: some clients must find them on errors, too (Chef)."""
    requested: RequestedVersion | None = None

    @property
    def title(self) -> str:
        """The reason phrase of the status: `Service Unavailable`."""
        return REASON_PHRASES.get(self.status, "Error")


@final
@dataclass(frozen=True, slots=True)
class MissingOperation:
    """A request for an operation that does not exist in the negotiated version."""

    version: Version
    requested: RequestedVersion
    offered: VersionSet
    status: int | None = None
    """Configured status of the refusal, 400 or 404; None: the dialect's own."""

    @property
    def error(self) -> GatewayError:
        """The error for APIs without a response of their own: the configured status, or 404."""
        detail = "This operation does not exist in the requested API version."
        return GatewayError(self.status or 404, detail, offered=self.offered, requested=self.requested)


# --- what a backend says -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Advertisement:
    """The versions that a backend says it serves; of a legacy one those that it stands for, perhaps none."""

    versions: VersionSet
    legacy: bool = False
    default: Version | None = None
    mounts: frozenset[str] | None = None
    """Parts of the API (`Endpoint.mount`) that the backend has, of those that not all have; None: unknown."""


class VersionRefusal(Enum):
    """Whether a response refuses the request because of its version."""

    NO = "no"
    YES = "yes"
    """Version refusal: nothing was executed, and the backend's known advertisement is out of date."""
    READ_BODY = "read_body"
    """Only the response's body shows whether it is one: buffer up to 64 KiB and call `read_refusal`."""


@final
@dataclass(frozen=True, slots=True)
class Served:
    """Version information in a response head. With all defaults: none."""

    version: Version | None = None
    """The version that the backend says it executed; None: it names none, or no valid one (threats V8)."""
    advertisement: Advertisement | None = None
    """The backend's own version range, if its response carries one: a passive observation."""
    version_refusal: VersionRefusal = VersionRefusal.NO
    has_range: bool = False
    """Whether the response has range headers, which those of the offer must replace."""
    text: str = ""
    """Value of the version header, for dialects whose `write_response` repeats it or a part of it."""
    repeated: Version | None = None
    """Requested version as the response repeats it; None: it repeats none. If it differs from our request's,
    the response tells nothing about our request (chef-zero always repeats `0`)."""


@final
@dataclass(frozen=True, slots=True)
class BackendResponse:
    """Head of a backend's response, with everything that decides which version headers the client gets."""

    endpoint: Endpoint
    status: int
    served: Served
    negotiated: Version | None
    offered: VersionSet
    """Versions on offer, which replace the backend's own range."""
    legacy: bool = False
    """Whether the backend is legacy. The client gets the version headers that a newer one would have sent."""


@final
@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """A GET request of a probe. `path` is relative to the backend's URL."""

    path: str
    headers: tuple[Header, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """Response to a probe request: a body of at most `limits.document`, already decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True, slots=True)
class ProbeFault:
    """Failed probe: the responses hold nothing that can be relied on."""

    reason: str
    """Reason of the probe's failure, one of a closed set: `status`, `document`, `range`, `unauthorized` …"""
    detail: str
    """Explanation of the probe's failure for the operator, one sentence."""


ProbeStep: TypeAlias = Advertisement | ProbeRequest | ProbeFault
"""Result of one step of a probe: an advertisement, one more request, or a failure."""


# --- documents ---------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Links:
    """Rewrites the links of a document so that the client can follow them."""

    backend: str
    """The backend's own scheme, authority and base path: `http://10.0.0.5:6385`."""
    host: str
    """The client's Host, which the backend got too and builds its links from."""
    public: str
    """Base under which the client reached the gateway: `https://api.example:443/baremetal`."""
    moved_to: str | None = None
    """Base under which the present client reached the gateway, if `host` and `public` are another's."""
    _rewriter: LinkRewriter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rewriter = LinkRewriter(backend=self.backend, host=self.host, public=self.public)
        object.__setattr__(self, "_rewriter", rewriter)

    def rewrite(self, link: str) -> str:
        """Rewrite `link` so that the client can follow it. Links to third parties stay unchanged."""
        public = self._rewriter.rewrite(link)
        return public if self.moved_to is None else move(public, before=self.public, after=self.moved_to)


# --- parts that few dialects have --------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class DirectPaths:
    """Paths below which every request without escapes is for a negotiated endpoint and no document, whatever
    its method and query. An engine may send it straight to a backend, at the version in its headers."""

    prefix: str
    """Path prefix of the requests that may bypass the gateway: `/v1/`."""
    first: str = "A-Za-z0-9"
    """Characters that may follow this path prefix, as in the brackets of a regular expression."""
    besides: tuple[str, ...] = ()
    """Path prefixes that are excluded, in lower case: the case of a path does not count."""


@final
class OptionWarning(NamedTuple):
    """Warning about a misleading but valid value in a dialect's options, `at` this position."""

    at: tuple[str | int, ...]
    message: str
    hint: str


@final
@dataclass(frozen=True, slots=True)
class ConfigurationRules:
    """Demands of a dialect on its service's configuration beyond its own options. Settings check them."""

    missing_option: str = ""
    """The option without which probes cannot read versions, as an operator writes it. Until it is set, every
    backend must declare its versions. Empty: backends can be probed."""
    path_is_signed: bool = False
    """Whether clients sign the path: then a configuration under which backends get another one is refused."""
    option_paths: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    """Paths in the dialect's options, each with its position there, in the form that `endpoint` gets."""
    warnings: tuple[OptionWarning, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes that `check` prints about a correct service, one sentence each."""
    says_default: bool = False
    """Whether `check` prints what requests without a version get, because no server's habit decides it."""


@final
@dataclass(frozen=True, slots=True)
class ProbePaths:
    """Paths that probes request. A dialect that needs them has an option `probes` of this type."""

    path: str | None = None
    """Configured path of version probes (`probe.path`); None: the dialect's own."""
    health: str | None = None
    prefix: str = ""
    """Path prefix of the service's route, if backends get it, too; else empty."""

    def local(self, path: str) -> str | None:
        """A path as servers have it, in the form for `Dialect.endpoint`; None: clients cannot reach it."""
        if not self.prefix:
            return path
        rest = path[len(self.prefix) :]
        return (rest or "/") if path.startswith(self.prefix) and rest[:1] in ("", "/") else None


# --- the contract ------------------------------------------------------------------------------------------

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a dialect that has nothing to configure."""


class Dialect(ABC):
    """Version negotiation of one API family. One instance for each service, made from its options.

    `Options` is a frozen dataclass whose fields are keys (`keys.kinds`). Methods follow the order in which a
    request and its response pass through them. Their `offered`, the versions on offer, is never empty.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions

    scheme: Scheme
    reads: frozenset[str]
    """Every request header that the dialect reads, normalized: decisions are cached by their values."""
    owned_request: frozenset[str]
    """Request headers (normalized) that are removed before `write_request`, with all that carry versions."""
    owned_response: frozenset[str]
    """Response headers (normalized) that are removed before `write_response` writes them anew."""
    vary: tuple[str, ...]
    """Names that `Vary` lists on every response, canonical."""
    vary_separately: bool = False
    """Whether each name in `vary` gets a `Vary` line of its own (Nova). If not, one line lists them."""
    default_version: DefaultVersion
    """Rule for requests without a version, unless the service configures one."""
    version_match: VersionMatch = VersionMatch.EXACT
    written_for: Version | None = None
    """Version for which clients that name none were written; None: each follows the offer."""
    legacy_versions: VersionSet = VersionSet()
    """Versions that a backend without versions stands for in a mixed fleet; empty: not in the offer."""
    releases: Mapping[str, Version] = {}
    """Highest version of each release of the API, by the release's name, for ceilings."""
    release_order: tuple[str, ...] = ()
    """Names of the API's releases, from the oldest; empty: `releases` of the service gives the order."""
    skip_level: tuple[str, ...] = ()
    """Releases between each of which and the next of them an upgrade is supported, past those in between."""

    retry_after: bool = True
    """Default of a service's `retry_after`: whether a 503 carries `Retry-After`. Some clients break on it."""
    method_override: tuple[str, ...] = ()
    """Request headers (normalized, also in `reads`) that may hold the method of a POST. The first counts."""
    method_parameter: str | None = None
    """Query parameter that servers of this API take for the method; None: they read none."""

    request_ids: RequestIds = PLAIN_IDS
    target_has_version: bool = False
    """Whether the version is in the request target, in its path or its query. `write_target` writes it."""
    configuration_rules: ConfigurationRules = ConfigurationRules()

    direct_paths: tuple[DirectPaths, ...] = ()
    """Paths on which requests may bypass the gateway, through an engine."""
    made_of: object = None
    """Options from which `made` made this dialect; None: it was made in another way."""

    @classmethod
    def configured(cls, options: object) -> Self:
        """Make the dialect of one service; `options` is an instance of `Options`. Raises `VersionTextError`
        or `ValueError`, preferably an `OptionsError`, which has the position."""
        return cls()

    @classmethod
    @final
    def made(cls, options: object) -> Self:
        """Make the dialect of one service so that it can be pickled. Raises what `configured` raises."""
        dialect = cls.configured(options)
        dialect.made_of = options
        return dialect

    @final
    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle only the dialect's options: the other process makes the dialect anew."""
        if self.made_of is None:
            return super().__reduce_ex__(protocol)
        return type(self).made, (self.made_of,)

    # -- 1. the request

    @abstractmethod
    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """Classify a request target. Runs on every request: keep it to a few comparisons."""

    @abstractmethod
    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The version requested at a negotiated endpoint. `headers`: a multidict with those of `reads`."""

    @abstractmethod
    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        """The owned header lines for the backend, each name once and canonical; none for a legacy backend.
        `headers` as for `read_requested`: the version may be a part of a value (a media type of `Accept`)."""

    def write_target(self, endpoint: Endpoint, target: str, version: Version) -> str:
        """The request target with the negotiated version, if `target_has_version`. On each such request."""
        return target

    def without_version(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """The owned header lines for an endpoint where nothing is negotiated: what they hold besides a
        version. No lines, unless versions are only a part of a header's value."""
        return ()

    def operation_path(self, path: str) -> str:
        """The spelling of `path` by which operations are looked up: without a version segment, one for all
        that servers take for the same. Runs on every negotiated request of a service with operations."""
        return path

    def document_path(self, path: str) -> str:
        """The one spelling of a document's path: every spelling that servers take for the same path leads to
        one cached document. By default it has no escapes and no trailing slashes."""
        plain = unquote(path) if "%" in path else path
        return "/" + plain.strip("/")

    # -- 2. local responses

    @abstractmethod
    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response to a version that is not on offer, as its servers give it. The caller adds `Vary`."""

    def answer(
        self, endpoint: Endpoint, head: RequestHead, offered: VersionSet | None, operations: Operations
    ) -> Response:
        """The response at an `answered` endpoint, without `Vary` and `Retry-After`. `offered` may be None."""
        raise NotImplementedError("a dialect with an `answered` endpoint answers it")

    @abstractmethod
    def error_response(self, error: GatewayError) -> Response:
        """The response to an error, in the API's own format. The caller adds `Retry-After` and `Vary`."""

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response to an operation outside its versions, as its servers give it: 404, unless they use
        another status. `missing.status` overrides both. The caller adds `Vary`."""
        return self.error_response(missing.error)

    def write_request_id(self, response: Response, request_id: str) -> Response:
        """A response of the gateway with the request id in its headers."""
        return response.with_headers(*((name, request_id) for name in self.request_ids.response_headers))

    # -- 3. the backend's response

    @abstractmethod
    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """Version information of a response head. `headers`: a multidict with those of `owned_response`."""

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """Version range in a refusal's body (`VersionRefusal.READ_BODY`); None: it has another reason."""
        return None

    @abstractmethod
    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The owned header lines of a response for the client, without `Vary`."""

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """A discovery document with the offer's range and reachable links. None: this body is not such a
        document. Then the response is 502, so that no client sees one backend's own range.

        Read `body` with `json_body.read_json`, which bounds what it costs: nothing else is served meanwhile.
        The result is kept for the same arguments.
        """
        return None

    def announce_sunset(self, body: bytes, sunset: Line) -> bytes:
        """A rewritten discovery document that announces the end of versions, if its form has a place."""
        return body

    # -- 4. probes

    @classmethod
    def recognize(cls, answer: ProbeResponse) -> Mapping[str, str] | ProbeFault | None:
        """The options that let `probe` read the server with this document at `/`. A fault: the server speaks
        this dialect, and the document does not name them. None: `probe` needs no options."""
        return None

    @abstractmethod
    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The next step of a probe. Without `answers`: the first request (`path` replaces the dialect's own).
        Called again with all responses so far until it returns a result; at most 4 requests."""
