"""A backend as configured, and the same backend as observed (a member of its service's pool).

These are two values, because an operator changes the one and facts change the other. Nothing here lets a fact
in (`core.fleet.fleet`) or reads a clock: times are seconds that the caller passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

from gateway.core.dialect import Advertisement
from gateway.core.fleet.doubt import (
    KNOWN_VERSION,
    LEGACY_ANSWERS,
    NEVER,
    NO_MISMATCHES,
    Mismatches,
    UnknownVersion,
)
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet


@final
@dataclass(frozen=True, slots=True)
class Backend:
    """One replica's address."""

    name: str
    host: str
    port: int
    path: str = ""
    """Base path without a trailing slash, put before the path of every request."""
    weight: int = 1
    declared: VersionSet | None = None
    """Versions from the configuration; such a backend is always fresh and never probed."""

    @property
    def authority(self) -> str:
        """`host:port`, IPv6 in brackets, as in a link or a `Location`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}{self.path}"


class Freshness(StrEnum):
    """How far the advertisement of a member can be relied on, in the order in which members are tried."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    UNKNOWN = "unknown"


FRESHNESS_AFTER_FAILURES: tuple[Freshness, ...] = (
    Freshness.FRESH,  # the last probe succeeded
    Freshness.STALE,  # one has failed since
    Freshness.STALE,
    Freshness.LOST,  # three in a row, or more
)
"""The transition table: a successful probe leads to row 0, a failed one to the next row; the last row stays.
A member that never answered is `UNKNOWN` in every row. A failed probe ages what is known and never erases
it."""


@final
@dataclass(frozen=True, slots=True)
class Member:
    """One backend as observed. Two are equal when the same is known; the times of the facts do not count."""

    service: str
    backend: Backend
    advertisement: Advertisement | None = None
    failures: int = 0
    """Failed probes in a row, capped at the table's last row."""
    drained: bool = False
    scheme_id: tuple[object, ...] = ()
    """Name of the dialect and key of the scheme in which `advertisement` was read. In another one it has no
    meaning."""
    probe_error: str | None = None
    """Why the last probe failed, one sentence."""
    connect_failed: bool = False
    """True: a connection to it failed, and no probe has succeeded since. Tried last."""
    mismatches: Mismatches = NO_MISMATCHES
    unknown_version: UnknownVersion = KNOWN_VERSION
    restored: bool = False
    """True: `advertisement` is from the state file, and the first probe has not ended. It counts for the
    offer, and the member gets no request (semantics, State across restarts)."""
    advertised_at: float = field(default=NEVER, compare=False)
    """When the request was sent that brought `advertisement`."""
    connect_failed_at: float = field(default=NEVER, compare=False)
    """When the connection failed. An older probe does not clear that."""
    key: str = field(init=False, default="")
    """`service/backend`, unique in the gateway."""
    weight: int = field(init=False, default=1)
    legacy: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Compute what every request reads."""
        object.__setattr__(self, "key", f"{self.service}/{self.backend.name}")
        object.__setattr__(self, "weight", self.backend.weight)
        object.__setattr__(self, "legacy", self.advertisement is not None and self.advertisement.legacy)

    @property
    def freshness(self) -> Freshness:
        if self.backend.declared is not None:
            return Freshness.FRESH
        if self.advertisement is None or self.restored:
            return Freshness.UNKNOWN
        return FRESHNESS_AFTER_FAILURES[self.failures]

    @property
    def version_unknown(self) -> bool:
        """Whether it gets no negotiated request because an older server may run there now."""
        return self.unknown_version.holds

    @property
    def mismatched(self) -> VersionSet:
        """The versions at which it gets no request, because its responses named other ones (threats V9)."""
        return self.mismatches.avoided

    @property
    def suspect(self) -> bool:
        """Whether requests, or a legacy answer, have cast doubt on it that no later probe has cleared."""
        return self.connect_failed or self.version_unknown or bool(self.mismatched)

    @property
    def probe_wanted_at(self) -> float | None:
        """When the request was sent that last showed something which only a probe can clear up; None: nothing
        waits for one. It is to be probed at once, once for each such time."""
        times = [self.mismatches.last_at] if self.mismatches.wait_for_probe else []
        if self.unknown_version.wait_for_probe:
            times.append(self.unknown_version.missing_at)
        return max(times, default=None)

    @property
    def usable_versions(self) -> VersionSet:
        """The versions at which it may get requests."""
        if self.advertisement is None or self.restored or self.version_unknown:
            return NO_VERSIONS
        mismatched = self.mismatched
        return self.advertisement.versions - mismatched if mismatched else self.advertisement.versions

    @property
    def error(self) -> str | None:
        """Why its advertisement cannot be relied on, one sentence; None: it can."""
        if self.probe_error is not None:
            return self.probe_error
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
        return None

    @property
    def probed(self) -> bool:
        """True once its first probe has ended, in success or failure."""
        return not self.restored and (self.advertisement is not None or self.failures > 0)

    @property
    def in_service(self) -> bool:
        """Configured, not drained, and its advertisement is known (semantics, Words)."""
        return self.advertisement is not None and not self.drained
