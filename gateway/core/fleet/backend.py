"""A backend as configured, and the same backend as observed: a member of its service's member set.

An operator changes the one, facts the other. Nothing here applies a fact (`core.fleet.fleet`) or reads a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.dialect import Advertisement
from gateway.core.fleet.admission import Network
from gateway.core.fleet.connections import NO_QUEUE, Queue
from gateway.core.fleet.doubt import (
    KNOWN_VERSION,
    LEGACY_ANSWERS,
    NEVER,
    NO_MISMATCHES,
    Mismatches,
    UnknownVersion,
)
from gateway.core.fleet.probed_document import ProbedDocument
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet

ContextKey: TypeAlias = tuple[str | None, str | None, str | None, bool, str]


@final
@dataclass(frozen=True, slots=True)
class BackendTls:
    """TLS settings for one backend. Paths name PEM files."""

    server_name: str
    """Name or IP address that the backend's certificate must have. A name is also sent (SNI)."""
    ca: str | None = None
    """File of the certificates that are trusted for a backend; None: those of the system."""
    certificate: str | None = None
    """Client certificate of the gateway, with its chain; None: none."""
    key: str | None = None
    verify: bool = True
    """Whether the backend's certificate must be valid. If not, anyone on the way can impersonate it."""
    digest: str = ""
    """Checksum of the contents of these PEM files. New ones make another backend, with new connections."""

    @property
    def context_key(self) -> ContextKey:
        """Key of the OpenSSL context that equal backends share."""
        return self.ca, self.certificate, self.key, self.verify, self.digest


UNIX_AUTHORITY: Final = "localhost"


@final
@dataclass(frozen=True, slots=True)
class Backend:
    """Address and settings of one backend."""

    name: str
    host: str
    port: int
    path: str = ""
    """Base path of the backend, without a trailing slash: put before the path of every request."""
    weight: int = 1
    declared: VersionSet | None = None
    """Versions declared in the configuration. A backend that has them is always fresh and never probed."""
    backup: bool = False
    """Whether the backend gets requests only if no other one that serves the version is usable."""
    max_requests: int = 0
    """Most requests in flight to the backend; 0: no limit."""
    max_connections: int = 0
    """Most open connections to the backend; 0: no limit."""
    queue: Queue = NO_QUEUE
    tls: BackendTls | None = None
    socket_path: str = ""
    """Path of the backend's Unix socket, instead of host and port; empty: TCP."""
    source: str = ""
    """Key of the source that discovered the backend (`Source.key`); empty: it is configured by name."""
    networks: tuple[Network, ...] | None = None
    """Allowed networks of the backend's source (`source.why_refused`); None: it is configured by name."""
    leaves_at: float | None = None
    """Time of the backend's removal, because its source lists it no more: seconds of the clock that dates
    facts. Until then its last advertisement counts, and it gets no request. None: it stays."""

    @property
    def leaving(self) -> bool:
        return self.leaves_at is not None

    @property
    def authority(self) -> str:
        """The backend's host and port as in a link, IPv6 in brackets; `localhost` on a Unix socket."""
        if self.socket_path:
            return UNIX_AUTHORITY
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """Base of the links that the backend writes with its own address."""
        return f"{'http' if self.tls is None else 'https'}://{self.authority}{self.path}"

    @property
    def url(self) -> str:
        """URL of the backend. Two backends are the same one if name and URL are equal."""
        return f"unix:{self.socket_path}" if self.socket_path else self.origin

    @property
    def bound(self) -> int:
        """Most requests in flight to the backend, each on a connection of its own; 0: no limit."""
        return min((each for each in (self.max_requests, self.max_connections) if each), default=0)


class Freshness(StrEnum):
    """Reliability of a member's advertisement, in the order in which members are tried."""

    FRESH = "fresh"
    STALE = "stale"
    DOWN = "down"
    UNKNOWN = "unknown"


FRESHNESS_AFTER_FAILURES: tuple[Freshness, ...] = (
    Freshness.FRESH,  # the last probe succeeded
    Freshness.STALE,  # one has failed since
    Freshness.STALE,
    Freshness.DOWN,  # three in a row, or more
)
"""Transition table of failed probes: success leads to row 0, failure to the next row; the last row stays. A
member that never answered is `UNKNOWN`. A failed probe ages an advertisement and never erases it."""


class MemberSummary(NamedTuple):
    """Summary of a member: all that offers and the choice of a backend use. Equal ones cost as one."""

    advertised: VersionSet | None
    """Versions that the member advertises; None: they are not known."""
    usable: VersionSet
    legacy: bool
    drained: bool
    probed: bool
    restored: bool
    version_unknown: bool
    connect_failed: bool
    freshness: Freshness
    unhealthy: bool = False
    backup: bool = False
    absent: bool = False

    @property
    def in_service(self) -> bool:
        return self.advertised is not None and not self.drained


@final
class Mark:
    """Identity token: compares equal only to itself."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Member:
    """A member: a backend as observed. Equal if the same is known; times of facts are not compared."""

    service: str
    backend: Backend
    advertisement: Advertisement | None = None
    failures: int = 0
    """Failed probes of the member in a row, capped at the last row of `FRESHNESS_AFTER_FAILURES`."""
    drained_by: str | None = None
    """Name that was given with the drain, empty if none was; None: the member is not drained."""
    scheme_id: tuple[object, ...] = ()
    """Dialect and scheme in which `advertisement` was read. In another one it has no meaning."""
    probe_error: str | None = None
    """Reason why the last probe failed, one sentence."""
    connect_failed: bool = False
    """Whether a connection to the member failed, and no probe has succeeded since. It is tried last."""
    connect_error: str = ""
    """Reason why the connection failed, a part of a sentence; has a meaning only with `connect_failed`."""
    mismatches: Mismatches = NO_MISMATCHES
    unknown_version: UnknownVersion = KNOWN_VERSION
    restored: bool = False
    """Whether `advertisement` is from the state file, and the first probe has not ended. It counts for the
    offer, and the member gets no request (semantics, State across restarts)."""
    unhealthy: str | None = None
    """Reason why the member's health check failed, whatever versions it serves; None: it did not fail."""
    returned: bool = False
    """Whether the member was leaving, its source names it again, and no probe has ended since. At its address
    another server may answer now, so it gets no request until a probe says which."""
    document: ProbedDocument | None = None
    advertised_at: float = field(default=NEVER, compare=False)
    """Time at which the request was sent that brought `advertisement`."""
    connect_failed_at: float = field(default=NEVER, compare=False)
    """Time at which the connection failed. An older probe does not clear it."""
    drained: bool = field(init=False, default=False)
    key: str = field(init=False, default="")
    """Key of the member, unique in the gateway: `service/backend`."""
    weight: int = field(init=False, default=1)
    bound: int = field(init=False, default=0)
    legacy: bool = field(init=False, default=False)
    mark: Mark = field(init=False, compare=False, repr=False, default_factory=Mark)
    """Identity token of what is known of the member; it stays if only the times of facts are new."""

    def __post_init__(self) -> None:
        """Compute the member's derived attributes, which every request reads."""
        object.__setattr__(self, "drained", self.drained_by is not None)
        object.__setattr__(self, "key", f"{self.service}/{self.backend.name}")
        object.__setattr__(self, "weight", self.backend.weight)
        object.__setattr__(self, "bound", self.backend.bound)
        object.__setattr__(self, "legacy", self.advertisement is not None and self.advertisement.legacy)

    def has_mount(self, mount: str) -> bool:
        """Whether the member serves this part of its API, as far as probes have shown."""
        known = self.advertisement
        return known is not None and (known.mounts is None or mount in known.mounts)

    @property
    def freshness(self) -> Freshness:
        if self.backend.declared is not None:
            return Freshness.FRESH
        if self.advertisement is None or self.restored:
            return Freshness.UNKNOWN
        return FRESHNESS_AFTER_FAILURES[self.failures]

    @property
    def version_unknown(self) -> bool:
        """Whether the member gets no negotiated request because an older server may run there now."""
        return self.unknown_version.holds

    @property
    def mismatched(self) -> VersionSet:
        """Versions at which the member gets no request, because responses named other ones (threats V9)."""
        return self.mismatches.avoided

    @property
    def suspect(self) -> bool:
        """Whether requests, or a legacy answer, cast doubt on the member that no later probe has cleared."""
        return self.connect_failed or self.version_unknown or bool(self.mismatched)

    @property
    def probe_wanted_at(self) -> float | None:
        """Time at which the request was sent that last raised a doubt which only a probe can clear; None:
        there is none. The member is probed at once, once for each such time."""
        times = [self.mismatches.last_at] if self.mismatches.wait_for_probe else []
        if self.unknown_version.wait_for_probe:
            times.append(self.unknown_version.missing_at)
        return max(times, default=None)

    @property
    def usable_versions(self) -> VersionSet:
        """Versions at which the member may get requests."""
        if self.advertisement is None or self.restored or self.version_unknown or self.absent:
            return NO_VERSIONS
        mismatched = self.mismatched
        return self.advertisement.versions - mismatched if mismatched else self.advertisement.versions

    @property
    def error(self) -> str | None:
        """Reason not to rely on the member, or on its advertisement, one sentence; None: there is none."""
        if self.probe_error is not None:
            return self.probe_error
        if self.backend.leaves_at is not None:
            return "its source names it no more, it is leaving"
        if self.returned:
            return "its source names it again, no probe has ended since"
        if self.restored:
            return "known from the state file only, its first probe has not ended"
        if self.unknown_version.legacy_answers:
            return (
                "answers as a server without versions, "
                f"{self.unknown_version.legacy_answers} of {LEGACY_ANSWERS}"
            )
        if self.version_unknown:
            return "a response lacked the served version, its versions are unknown until a probe shows them"
        if self.mismatched:
            return "responses named other versions than the requested ones, it gets no requests at these"
        if self.connect_failed and self.connect_error:
            return f"a request could not connect to it: {self.connect_error}"
        return None

    @property
    def absent(self) -> bool:
        """Whether the member gets no request and still counts: leaving, or back and not probed yet."""
        return self.returned or self.backend.leaves_at is not None

    @property
    def probed(self) -> bool:
        """Whether the member's first probe has ended, or it is leaving, so that nothing waits for one."""
        if self.backend.leaves_at is not None:
            return True
        return not self.restored and (self.advertisement is not None or self.failures > 0)

    @property
    def in_service(self) -> bool:
        """Whether the member is configured, not drained, and its advertisement known (semantics, Words)."""
        return self.advertisement is not None and not self.drained

    @property
    def summary(self) -> MemberSummary:
        return MemberSummary(
            None if self.advertisement is None else self.advertisement.versions,
            self.usable_versions,
            self.legacy,
            self.drained,
            self.probed,
            self.restored,
            self.version_unknown,
            self.connect_failed,
            self.freshness,
            self.unhealthy is not None,
            self.backend.backup,
            self.absent,
        )
