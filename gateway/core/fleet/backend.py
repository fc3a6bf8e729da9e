"""A backend as configured, and the same backend as observed (a member of its service's pool).

These are two values, because an operator changes the one and facts change the other. Nothing here lets a fact
in (`core.fleet.fleet`) or reads a clock: times are seconds that the caller passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

from gateway.core.dialect import Advertisement
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
    error: str | None = None
    """Why the last probe failed, one sentence."""
    connect_failed: bool = False
    """True: a connection to it failed, and no probe has succeeded since. Tried last."""
    mismatched: VersionSet = NO_VERSIONS
    """Versions of requests whose responses named another served version since the last successful probe
    (threats V9). It gets no request at those."""
    advertised_at: float = field(default=float("-inf"), compare=False)
    """When the request was sent that brought `advertisement`."""
    suspected_at: float = field(default=float("-inf"), compare=False)
    """When the request was sent that last made it suspect. An older probe does not clear that."""
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
        if self.advertisement is None:
            return Freshness.UNKNOWN
        return FRESHNESS_AFTER_FAILURES[self.failures]

    @property
    def suspect(self) -> bool:
        """Whether a request has met a failed connection or a mismatch since the last successful probe."""
        return self.connect_failed or bool(self.mismatched)

    @property
    def usable_versions(self) -> VersionSet:
        """The versions at which it may get requests."""
        versions = self.advertisement.versions if self.advertisement is not None else NO_VERSIONS
        return versions - self.mismatched if self.mismatched else versions

    @property
    def probed(self) -> bool:
        """True once its first probe has ended, in success or failure."""
        return self.advertisement is not None or self.failures > 0

    @property
    def in_service(self) -> bool:
        """Configured, not drained, and its advertisement is known (semantics, Words)."""
        return self.advertisement is not None and not self.drained
