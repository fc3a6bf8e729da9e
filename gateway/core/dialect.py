"""The contract between the gateway and one dialect, and the values that cross it.

A dialect translates: texts of one API family in, values of core out, and back. It is pure: the same arguments
give the same answer, it keeps nothing, reads no clock and never raises on anything that came from the
network. It owns every header that its backends read, because a header that one side reads and the other does
not is how versions get desynchronised (style A9). It decides nothing: which version is settled on is
`core.negotiation`.

Dialects import all of it from here, also what stands in `core.advert`: one door.

The order of the members below is the order in which a request and its reply pass through them.
"""

# ruff: noqa: PLC0414 -- names that are handed on are imported under their own

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Self, final

from gateway.core.advert import Advert as Advert
from gateway.core.advert import ProbeAnswer as ProbeAnswer
from gateway.core.advert import ProbeFault as ProbeFault
from gateway.core.advert import ProbeRequest as ProbeRequest
from gateway.core.advert import ProbeStep as ProbeStep
from gateway.core.advert import Refused as Refused
from gateway.core.advert import Served as Served
from gateway.core.links import rewrite
from gateway.core.message import Header, Reply, RequestHead
from gateway.core.operations import NO_OPERATIONS, Operations
from gateway.core.ranges import VersionSet
from gateway.core.version import Scheme, Version

# --- what a request says -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """What a target is to the dialect. Found for every request by `Dialect.place`: a plain tuple, so that it
    hashes fast; a dialect normally returns one of a few constants.

    Answers questions that the target alone decides; header values never do.
    """

    name: str
    """For explain: `resource`, `root`, `v1`."""
    negotiated: bool = True
    """False: a version means nothing here; owned request headers are dropped, none is written (Ironic
    `/`)."""
    document: bool = False
    """True: a discovery document, rewritten to the offer on its way back."""
    answered: bool = False
    """True: the gateway answers by `Dialect.answer`, no backend is asked (Chef `/server_api_version`)."""
    versioned_only: bool = False
    """True: silent members never get it (Nova `/v2.1`; any document). False: a silent one may, when what its
    silence stands for holds the settled version."""
    carried: str | None = None
    """What the target itself says about the version (path, query), None where it says nothing. A part of the
    key by which outcomes are remembered, so a dialect bounds its length."""
    metered: bool = False
    """True, with `answered`: an answer that costs more than a refusal. Beyond a bounded rate for each service
    it is 429; `read_ask` is asked here, too, for what that says."""


class AskKind(StrEnum):
    """The label `ask` of skewgate_negotiations_total."""

    EXACT = "exact"
    LATEST = "latest"
    SILENT = "silent"
    GARBLED = "garbled"


@final
@dataclass(frozen=True, slots=True)
class Ask:
    """What a request says about its version."""

    kind: AskKind
    version: Version | None = None
    """Only with `EXACT`."""
    text: str = ""
    """As the client spelled it, for refusals that quote it. Bounded by the head's line limit."""
    sealed: bool = False
    """True: the request is signed over its version (Chef 1.3): it is only routed. Owned headers are neither
    written nor removed, they go on as they came."""


ASK_SILENT = Ask(AskKind.SILENT)


class SilenceKind(Enum):
    """What a request without a version means."""

    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    CONSTANT = "constant"
    REFUSED = "refused"


@final
@dataclass(frozen=True, slots=True)
class Silence:
    """The rule for requests that name no version; `constant` only with `CONSTANT`."""

    kind: SilenceKind
    constant: Version | None = None


class Match(Enum):
    """How an exact ask meets the offer."""

    EXACT = "exact"
    NEAREST_EARLIER = "nearest_earlier"
    """The newest offered version that is not newer than the ask (dates and names)."""
    NEAREST_LATER = "nearest_later"
    """The oldest offered version that is not older than the ask: what is no longer served falls forward."""


# --- what the gateway may say ------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """The offer as a dialect tells it: never empty."""

    versions: VersionSet

    @property
    def lowest(self) -> Version:
        return self.versions.lowest

    @property
    def highest(self) -> Version:
        return self.versions.highest


class Reason(StrEnum):
    """Why a request is refused before any backend is touched; the label `outcome`, too."""

    BELOW_MIN = "below_min"
    ABOVE_MAX = "above_max"
    MALFORMED = "malformed"


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """An ask that the offer cannot meet."""

    reason: Reason
    ask: Ask
    version: Version | None
    """The version that was wanted (the ask's, or the constant that silence stands for); None when
    malformed."""
    bounds: Bounds


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """Anything else the gateway must say by itself after routing: 502, 503, 504, 413, an unknown
    operation."""

    status: int
    title: str
    """The reason phrase: `Service Unavailable`."""
    detail: str
    """One fixed sentence; never echoes what the client sent (hardening O12)."""
    retry_after: int | None = None
    """Seconds for `Retry-After`."""
    bounds: Bounds | None = None
    """The offer, once there is one: some clients must find it even on errors (Chef)."""
    ask: Ask | None = None


@final
@dataclass(frozen=True, slots=True)
class Absence:
    """A request for an operation that does not exist in the version that was settled on."""

    version: Version
    ask: Ask
    bounds: Bounds
    """The offer, as it stands on other replies."""
    status: int | None = None
    """The operator's word instead of what the dialect's servers say: 400 or 404."""

    @property
    def failure(self) -> Failure:
        """The same for dialects whose servers have no words of their own for it: 404 or what is told."""
        status = self.status or 404
        title = "Bad Request" if status == 400 else "Not Found"
        detail = "This operation does not exist in the requested API version."
        return Failure(status, title, detail, bounds=self.bounds, ask=self.ask)


# --- documents ---------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Links:
    """How links of a document are turned into what the client can reach."""

    backend: str
    """`http://10.0.0.5:6385`, the backend's own scheme and authority, plus its base path."""
    host: str
    """The client's Host, which the backend saw too: it builds its links from it."""
    public: str
    """`https://api.example:443/baremetal`: scheme, authority and prefix under which the client reached us."""

    def rewrite(self, link: str) -> str:
        """`link` as the client can follow it; links to third parties stay as they are."""
        return rewrite(link, backend=self.backend, host=self.host, public=self.public)


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class NoOptions:
    """For dialects that have nothing to configure."""


class Dialect(ABC):
    """One API family's way of speaking about versions. One instance a service, made from its options.

    `Options` is a frozen dataclass; each field's `metadata` may hold `description` and `examples`, from which
    the configuration's schema is made. Every default must work.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions

    scheme: Scheme
    reads: frozenset[str]
    """Every request header that any method here reads, folded (`message.fold`); the data plane remembers an
    ask's outcome by their values."""
    owned_request: frozenset[str]
    """Request headers (folded) removed before the settled version is written anew. Contains those of `reads`
    that carry versions."""
    owned_reply: frozenset[str]
    """Reply headers (folded) that are taken off and written anew by `write_reply`."""
    vary: tuple[str, ...]
    """Names that `Vary` lists on every reply, canonical."""
    vary_apart: bool = False
    """True: each name has a `Vary` line of its own (Nova)."""
    silence: Silence
    match: Match = Match.EXACT
    silent_serves: VersionSet = VersionSet()
    """What a backend without versions is taken to serve in a mixed fleet; empty: it takes no part in the
    offer."""
    releases: Mapping[str, Version] = {}
    """Highest version by release name, for ceilings."""
    can_be_asked: bool = True
    """False: nothing tells what its servers serve, so every backend must declare its versions."""
    silence_option: tuple[str, ...] = ()
    """Where in its options stands what silence means, if there."""
    rewrites_target: bool = False
    """True: `write_target` must be asked for every request, because the version stands in the target."""
    own_paths: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    """Paths in its options, each with where it stands there. As `place` sees paths: without the route's
    prefix."""
    path_is_signed: bool = False
    """True: clients sign the path, so a configuration under which backends would see another one is
    refused."""

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service; `options` is an instance of `Options`. Raises `VersionTextError` or
        `ValueError`, best an `OptionsError`, which tells where."""
        return cls()

    # -- 1. the request

    @abstractmethod
    def place(self, method: str, path: str, query: str) -> Place:
        """What this target is. Runs on every request: keep it to a few comparisons."""

    @abstractmethod
    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """The ask in a negotiated place. `headers` is a multidict that holds (at least) the headers of
        `reads`."""

    @abstractmethod
    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """The owned header lines to send, `silent` being the chosen backend's; each name once, canonical.

        `headers` as for `read_ask`: where a version is only a part of a header's value (a media type of
        `Accept`), the rest of it is found there."""

    def without_version(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """The owned header lines that go to a place where nothing is negotiated: what they say besides a
        version."""
        return ()

    def plain_path(self, path: str) -> str:
        """The one spelling of the path by which operations are found: without the version, where it stands in
        the path, and as its servers read those that they take for the same."""
        return path

    def write_target(self, place: Place, target: str, version: Version) -> str:
        """The target with the settled version in it. Only asked when `rewrites_target`."""
        return target

    # -- 2. replies made by the gateway

    @abstractmethod
    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """The dialect's own answer to an ask outside the offer, byte for byte what its servers say."""

    @abstractmethod
    def fail(self, failure: Failure) -> Reply:
        """An error in the dialect's shape. `Retry-After` and `Vary` are added by the caller."""

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """The answer to an operation outside its versions, as its servers give it: 404 unless they say
        another status. `absence.status` goes before either. `Vary` is added by the caller."""
        return self.fail(absence.failure)

    def answer(
        self, place: Place, head: RequestHead, bounds: Bounds | None, operations: Operations = NO_OPERATIONS
    ) -> Reply:
        """The reply at an `answered` place. `bounds` is None before anything is offered; `operations` are
        those of the service. `Vary`, and `Retry-After` on a 503, are added by the caller."""
        raise NotImplementedError(f"{self.name} has no place that the gateway answers")

    # -- 3. the backend's reply

    @abstractmethod
    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """What a reply's head says. `headers` is a multidict that holds the headers of `owned_reply`."""

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """Only after `Refused.READ_BODY`: the range that the refusal names, or None when it is about other
        things."""
        return None

    @abstractmethod
    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        """The owned reply header lines for the client, `bounds` instead of the backend's own range. `settled`
        is None where nothing was negotiated. For a `silent` backend: what a new one would have sent. Without
        `Vary`."""

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """A discovery document with the offer's range and reachable links; None: not such a document, pass it
        on."""
        return None

    # -- 4. probes

    @abstractmethod
    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """The next step of a probe. With no answers yet: the first request (`path` overrides the dialect's
        own).

        Called again with every answer so far until it returns an `Advert` or a `ProbeFault`; at most 4
        questions.
        """
