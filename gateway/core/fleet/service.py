"""One versioned API as configured: its dialect, its route and backends, and its policy for the offer.

Values only: `settings` makes them. No rule is applied here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import final

from gateway.core.decision.operations import NO_OPERATIONS, Operations
from gateway.core.dialect import DefaultVersion, Dialect
from gateway.core.fleet.admission import NO_CLIENT_LIMITS, Access, ClientLimits, Maintenance
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.connections import DEFAULT_REUSE, Reuse
from gateway.core.fleet.failures import DEFAULT_EJECTION, DEFAULT_RETRY, Ejection, Retry
from gateway.core.fleet.limits import DEFAULT_LIMITS, Limits
from gateway.core.fleet.match import DEFAULT_MATCH, Match
from gateway.core.fleet.probe import DEFAULT_PROBE, Probe
from gateway.core.fleet.source import Source
from gateway.core.fleet.timeouts import DEFAULT_TIMEOUTS, Timeouts
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.versions.version import Scheme, Version


class Policy(StrEnum):
    """Rule by which a service offers some of the versions that its backends serve."""

    GUARANTEED = "guaranteed"
    """Versions that every backend in service serves."""
    REACHABLE = "reachable"
    """Versions that at least one backend serves."""
    AT_LEAST = "at_least"
    """Versions that at least so many backends serve (`Service.at_least`)."""


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """Number of backends in service that must serve a version for it to be offered."""

    number: int
    percent: bool = False
    """True: `number` is a percentage, and the result is rounded up."""

    def of(self, backends: int) -> int:
        """The number for so many `backends`: at least one, and at most all of them."""
        return max(1, min(-(-backends * self.number // 100) if self.percent else self.number, backends))


ALL_BACKENDS = AtLeast(100, percent=True)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One API with one dialect. Compared by identity: a reload makes new ones."""

    name: str
    dialect: Dialect
    backends: tuple[Backend, ...]
    match: Match = DEFAULT_MATCH
    policy: Policy = Policy.GUARANTEED
    at_least: AtLeast = ALL_BACKENDS
    """Used only with the policy of that name."""
    stabilization: float = 0.0
    """Seconds for which the policy must have given a version before it joins the offer."""
    ceiling: Version | None = None
    default_version: DefaultVersion | None = None
    """Meaning of a request without a version; None: the dialect's default."""
    retry_after: bool | None = None
    """Whether a 503 carries `Retry-After`; None: the dialect's default."""
    releases: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    """Highest version of each release by its name, in addition to `Dialect.releases`."""
    operations: Operations = NO_OPERATIONS
    """Operations that exist only in some versions."""
    probe: Probe = DEFAULT_PROBE
    retry: Retry = DEFAULT_RETRY
    ejection: Ejection | None = DEFAULT_EJECTION
    """None: no backend is ejected."""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    """Time limits of the service, with those of the whole file where it has none. `limits` likewise."""
    limits: Limits = DEFAULT_LIMITS
    reuse: Reuse = DEFAULT_REUSE
    request_edits: HeaderEdits | None = None
    """Changes of request heads for backends; None: none."""
    response_edits: HeaderEdits | None = None
    """Changes of response heads for clients, also of responses that the gateway makes; None: none."""
    maintenance: Maintenance | None = None
    """None: requests are served."""
    access: Access | None = None
    """None: open to every address."""
    client_limits: ClientLimits = NO_CLIENT_LIMITS
    upgrade: frozenset[str] = frozenset()
    """Protocols, in lower case, to which a client may switch its connection: then it is a tunnel."""
    written: str = ""
    """Checksum of its part of the file and of its discovered backends; empty: it is not from a file."""
    sources: tuple[Source, ...] = ()
    """Sources of further backends."""
    undiscovered: bool = False
    """True: some source has neither answered nor failed yet."""

    def is_written_as(self, other: Service) -> bool:
        """Whether both are configured alike, so that one can replace the other without any change."""
        return self is other or (self.written != "" and self.written == other.written)

    def with_backends(self, discovered: Iterable[Backend], *, undiscovered: bool) -> Service:
        """The same service with exactly these discovered backends, behind those that the file names."""
        own = tuple(backend for backend in self.backends if not backend.source)
        found = tuple(discovered)
        digest = sha256(repr((found, undiscovered)).encode("utf-8", "surrogatepass")).hexdigest()
        written = f"{self.written.partition('+')[0]}+{digest}" if self.written else ""
        return replace(self, backends=(*own, *found), undiscovered=undiscovered, written=written)

    @property
    def has_rules(self) -> bool:
        """Whether it may refuse a client, or has maintenance on: it does not take every request."""
        return self.access is not None or self.client_limits != NO_CLIENT_LIMITS

    @property
    def effective_default_version(self) -> DefaultVersion:
        return self.default_version or self.dialect.default_version

    @property
    def effective_retry_after(self) -> bool:
        return self.dialect.retry_after if self.retry_after is None else self.retry_after

    @property
    def policy_and_number(self) -> tuple[Policy, AtLeast | None]:
        """The operator's decision about the offer: policy and number."""
        return self.policy, self.at_least if self.policy is Policy.AT_LEAST else None

    @property
    def scheme_id(self) -> tuple[object, ...]:
        """Dialect and scheme in which an advertisement must have been read to have a meaning here."""
        return (self.dialect.name, *self.dialect.scheme.key)

    def earlier_scheme(self, scheme_id: tuple[object, ...]) -> Scheme | None:
        """The scheme of `scheme_id`, if versions read in it mean the same here; None: they do not."""
        return self.dialect.scheme.earlier(scheme_id[1:]) if scheme_id[:1] == (self.dialect.name,) else None
