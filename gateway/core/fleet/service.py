"""One versioned API as configured: dialect, route (`match`), backends, probes, and the policy of its offer.

Values only: `settings` makes them. No rule is applied here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Final, final

from gateway.core.clients import NO_NAMES, Naming
from gateway.core.decision.operations import NO_OPERATIONS, Operations
from gateway.core.dialect import DefaultVersion, Dialect, ProbePaths
from gateway.core.fleet.admission import NO_CLIENT_LIMITS, Access, ClientLimits, Maintenance
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.bridge import Bridge
from gateway.core.fleet.connections import DEFAULT_REUSE, Reuse
from gateway.core.fleet.failures import DEFAULT_EJECTION, DEFAULT_RETRY, Ejection, Retry
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.limits import DEFAULT_LIMITS, Limits
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.skew import Skew
from gateway.core.fleet.source import Source
from gateway.core.fleet.timeouts import DEFAULT_TIMEOUTS, Timeouts
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import Header, normalize_name
from gateway.core.versions.version import Scheme, Version
from gateway.keys.addresses import HOST_PATTERN, PATH
from gateway.keys.kinds import TEXT, Either, ListOf, Table, Text, section
from gateway.keys.secrets import MaskedText
from gateway.keys.texts import DURATION, FLAG, HEADER_NAME, HEADER_VALUE, count

ONE_HOST: Final = Text(lambda text: (HOST_PATTERN.read(text),), TEXT)


@final
@dataclass(frozen=True, slots=True)
class Match:
    """Hosts and path prefix whose requests belong to the service."""

    host: tuple[str, ...] | None = Either(ONE_HOST, ListOf(HOST_PATTERN)).key(
        None,
        "The Host of the request, without port, or a list of such. `*.example.org` stands for every name "
        "with one label or more before `.example.org`. An exact name wins over a wildcard, a longer wildcard "
        "over a shorter one, and both over services without this key. Without this key: any.",
        reason="Most gateways have one name.",
        example=["baremetal.example.org", "*.metal.example.org"],
    )
    path: str = PATH.key(
        "/",
        "A path prefix on a segment boundary. The longest match wins.",
        reason="A single service needs no prefix.",
        example="/baremetal",
    )
    strip_prefix: bool = FLAG.key(
        default=True,
        meaning="Whether backends get the path without the prefix.",
        reason="An API server with its own address serves from the root.",
        example=False,
    )

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of the service, each once, lower case, no port; `*.`: one label or more. Empty: any host."""
        return tuple(dict.fromkeys(self.host or ()))

    @property
    def prefix(self) -> str:
        """Path prefix of the service without trailing slash: empty for `/`."""
        return "" if self.path == "/" else self.path

    def local(self, path: str) -> str | None:
        """A server's own path as the dialect knows it; None: clients cannot reach it."""
        return ProbePaths(prefix="" if self.strip_prefix else self.prefix).local(path)


MATCH: Final = section(Match, "Hosts and path prefix whose requests belong to the service.")
DEFAULT_MATCH: Final = Match()


@final
@dataclass(frozen=True, slots=True)
class Health:
    """Health check: whether a backend wants requests, asked beside its versions."""

    path: str = field(
        metadata=PATH.required(
            "The path of the GET request after each probe, below the base path of the backend.",
            reason="APIs have it in different places.",
            example="/healthcheck",
        )
    )
    status: int = count(200, 299).key(
        200,
        "The status of a healthy backend. 404, 405 and 501 mean that it has no such check; redirects are "
        "ignored. At any other status it is unhealthy: it gets no new requests while another backend that "
        "serves the version is usable.",
        reason="The healthy status of oslo.middleware and of all others.",
        example=204,
    )


HEALTH: Final = section(Health, "Health check: whether a backend wants requests, asked beside its versions.")


@final
@dataclass(frozen=True, slots=True)
class Probe:
    """Probes by which the gateway learns the versions of backends."""

    interval: float = DURATION.key(
        "5s",
        "Time between two probes of one backend, with jitter.",
        reason="Ordinary responses show changes sooner; this is for idle backends. A probe costs little.",
        example="10s",
    )
    timeout: float = DURATION.key(
        "2s",
        "Longest duration of one whole probe.",
        reason="A discovery document needs no database; a server that is slower is overloaded.",
        example="5s",
    )
    path: str | None = PATH.key(
        None,
        "The path to probe, instead of the dialect's own.",
        reason="The dialect knows where its servers list their versions.",
        example="/v1",
    )
    headers: Mapping[str, MaskedText] = Table(HEADER_NAME, HEADER_VALUE).key(
        {},
        "Headers that are sent with each probe. Their values are never shown.",
        reason="Discovery needs no authentication in any dialect.",
        example={"X-Auth-Token": "${PROBE_TOKEN}"},
    )
    health: Health | None = HEALTH.key(
        None,
        "A health check after each probe. Without this key: none.",
        reason="A server that answers probes is usually healthy.",
        example={"path": "/healthcheck"},
    )


PROBE: Final = section(Probe, "Probes by which the gateway learns the versions of backends.")
DEFAULT_PROBE: Final = Probe()


class Policy(StrEnum):
    """Rule by which a service offers some of the versions that its backends serve."""

    GUARANTEED = "guaranteed"
    """Policy: the versions that every backend in service serves are offered."""
    REACHABLE = "reachable"
    """Policy: the versions that at least one backend in service serves are offered."""
    AT_LEAST = "at_least"
    """Policy: the versions that at least `Service.at_least` backends in service serve are offered."""


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """Number, or percentage, of backends in service that must serve a version for it to be offered."""

    number: int
    percent: bool = False
    """Whether this number of backends is a percentage; the result is then rounded up."""

    def of(self, backends: int) -> int:
        """Number of backends, out of `backends`, that must serve a version: at least one, and at most all."""
        return max(1, min(-(-backends * self.number // 100) if self.percent else self.number, backends))


ALL_BACKENDS = AtLeast(100, percent=True)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """A versioned API with its dialect. Compared by identity: a reload makes new ones."""

    name: str
    dialect: Dialect
    backends: tuple[Backend, ...]
    match: Match = DEFAULT_MATCH
    policy: Policy = Policy.GUARANTEED
    at_least: AtLeast = ALL_BACKENDS
    stabilization: float = 0.0
    """Seconds for which the policy must have given a version before it joins the offer."""
    ceiling: Version | None = None
    lifecycle: Lifecycle | None = None
    """Announced end of old versions; None: nothing is announced."""
    paces: tuple[Pace, ...] = ()
    """Lower ceilings of named clients. A client is named in at most one, as in `bridges`."""
    bridges: tuple[Bridge, ...] = ()
    """Bridges of named clients, whose refused versions are executed at another one."""
    naming: Naming = NO_NAMES
    """Rules that name the clients of `paces` and `bridges`."""
    floor: Version | None = None
    """Lowest version on offer, unless an operator sets another at run time (`MemberSet.raised`)."""
    default_version: DefaultVersion | None = None
    """Meaning of a request without a version; None: the dialect's default."""
    negotiates_legacy: bool = False
    """Whether legacy backends alone make a first offer of what they count as; else it is transparent."""
    retry_after: bool | None = None
    """Whether a 503 carries `Retry-After`; None: the dialect's default."""
    releases: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    """Highest version of each release by its name, in addition to `Dialect.releases`."""
    skew: Skew | None = None
    operations: Operations = NO_OPERATIONS
    probe: Probe = DEFAULT_PROBE
    retry: Retry = DEFAULT_RETRY
    ejection: Ejection | None = DEFAULT_EJECTION
    """Rules for ejecting failing backends; None: no backend is ejected."""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    """Time limits of the service, with those of the whole file where it has none. `limits` likewise."""
    limits: Limits = DEFAULT_LIMITS
    reuse: Reuse = DEFAULT_REUSE
    request_edits: HeaderEdits | None = None
    """Configured header changes of requests for backends; None: none."""
    response_edits: HeaderEdits | None = None
    """Configured header changes of responses, also of those that the gateway makes; None: none."""
    maintenance: Maintenance | None = None
    """Fixed answer to every request while the service is in maintenance; None: it is not."""
    access: Access | None = None
    """Lists of allowed and denied client networks; None: the service is open to every address."""
    client_limits: ClientLimits = NO_CLIENT_LIMITS
    upgrade: frozenset[str] = frozenset()
    """Protocols, in lower case, to which a client may switch its connection: then it is a tunnel."""
    written: str = ""
    """Checksum of the service's configuration and discovered backends; empty: it is not from a file."""
    sources: tuple[Source, ...] = ()
    undiscovered: bool = False
    """Whether some source of the service's backends has neither answered nor failed yet."""

    def is_written_as(self, other: Service) -> bool:
        """Whether both services are configured alike: one can replace the other without any change."""
        return self is other or (self.written != "" and self.written == other.written)

    def with_backends(self, discovered: Iterable[Backend], *, undiscovered: bool) -> Service:
        """The same service with exactly these discovered backends, behind those that the file names."""
        own = tuple(backend for backend in self.backends if not backend.source)
        found = tuple(discovered)
        digest = sha256(repr((found, undiscovered)).encode("utf-8", "surrogatepass")).hexdigest()
        written = f"{self.written.partition('+')[0]}+{digest}" if self.written else ""
        return replace(self, backends=(*own, *found), undiscovered=undiscovered, written=written)

    @property
    def sunset(self) -> Line | None:
        """Line below which versions of the service are to end; None: none is announced."""
        return None if self.lifecycle is None else self.lifecycle.sunset

    def has_brownouts(self, version: Version | None) -> bool:
        """Whether a version is refused in brown-outs; false where no version would be executed."""
        line = None if self.lifecycle is None or not self.lifecycle.brownouts else self.lifecycle.deprecated
        return line is not None and version is not None and version < line.below

    def passed_sunset(self, wall_time: float) -> Line | None:
        """Sunset that is to be enforced, without link, if it has come at `wall_time` (since the epoch)."""
        found = self.lifecycle
        if found is None or not found.enforce or not found.sunset or wall_time < found.sunset.timestamp:
            return None
        return Line(found.sunset.below, found.sunset.day)

    def is_deprecated(self, version: Version | None) -> bool:
        """Whether the end of a served version is announced; false where no version was served."""
        return self.lifecycle is not None and version is not None and version < self.lifecycle.below

    def announcement(self, version: Version | None, sent: Iterable[Header] = ()) -> tuple[Header, ...]:
        """Response headers that announce the end of a served version. What the backend has `sent` (names
        normalized) or the configuration changes is not among them."""
        if self.lifecycle is None or version is None:
            return ()
        edits = self.response_edits or HeaderEdits()
        added = (normalize_name(name) for name, _ in edits.add)
        return self.lifecycle.headers(version, {*edits.removed, *added, *(name for name, _ in sent)})

    @property
    def vary(self) -> tuple[str, ...]:
        """Names that `Vary` lists on every response: those of the dialect, and those that name clients."""
        listed = self.dialect.vary
        return (*listed, *self.naming.vary(listed)) if self.naming.rules else listed

    @property
    def has_rules(self) -> bool:
        """Whether the service may refuse a client, by its networks or its limits for one client."""
        return self.access is not None or self.client_limits != NO_CLIENT_LIMITS

    @property
    def effective_default_version(self) -> DefaultVersion:
        return self.default_version or self.dialect.default_version

    @property
    def written_for(self) -> Version | None:
        """Version on which clients that name none rely; None: the file has another rule for them."""
        default = self.default_version
        return self.dialect.written_for if default is None else default.constant

    @property
    def effective_retry_after(self) -> bool:
        return self.dialect.retry_after if self.retry_after is None else self.retry_after

    @property
    def policy_and_number(self) -> tuple[Policy, AtLeast | None]:
        """The operator's offer policy, as one pair with its number (None: the policy has none)."""
        return self.policy, self.at_least if self.policy is Policy.AT_LEAST else None

    @property
    def scheme_id(self) -> tuple[object, ...]:
        """Dialect and version scheme in which a backend's versions must have been read to be valid here."""
        return (self.dialect.name, *self.dialect.scheme.key)

    def earlier_scheme(self, scheme_id: tuple[object, ...]) -> Scheme | None:
        """The version scheme of `scheme_id`, if versions read in it mean the same here; None: they do not."""
        return self.dialect.scheme.earlier(scheme_id[1:]) if scheme_id[:1] == (self.dialect.name,) else None
