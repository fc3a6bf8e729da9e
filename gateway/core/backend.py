"""A backend as configured, and the same backend as observed (a member of its service's pool).

Configured and observed are two values, because an operator changes the one and facts change the other. How
facts enter is `core.fleet`; no clock here: times are seconds that the caller passes in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

from gateway.core.dialect import Advert
from gateway.core.ranges import NOTHING, VersionSet


@final
@dataclass(frozen=True, slots=True)
class BackendTls:
    """How to speak TLS to a backend. `None` paths: the system's trust store, no client certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True


@final
@dataclass(frozen=True, slots=True)
class Backend:
    """One replica's address."""

    name: str
    host: str
    port: int
    path: str = ""
    """Base path without a trailing slash, put before every path that is sent."""
    weight: int = 1
    declared: VersionSet | None = None
    """Versions from the configuration; such a backend is always fresh and never probed."""
    tls: BackendTls | None = None
    """None: plain HTTP."""

    @property
    def authority(self) -> str:
        """`host:port`, IPv6 in brackets, as a link or a `Location` names it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"


class Standing(StrEnum):
    """How far what we know of a member can be relied on; in the order in which members are tried."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"
    UNKNOWN = "unknown"


STANDING_AFTER_FAILURES: tuple[Standing, ...] = (
    Standing.FRESH,  # the last probe answered
    Standing.STALE,  # one has failed since
    Standing.STALE,
    Standing.LOST,  # three in a row, and for as long as they go on
)
"""The transition table: a probe that answers leads to row 0, one that fails a row down, the last row is kept.
A member that never answered is `UNKNOWN` in every row: a failed probe ages what is known and never erases
it."""


@final
@dataclass(frozen=True, slots=True)
class Member:
    """One backend as observed. Equality means: the same knowledge (when it was heard does not count)."""

    service: str
    backend: Backend
    advert: Advert | None = None
    failures: int = 0
    """Failed probes in a row, capped at the table's last row."""
    drained: bool = False
    language: tuple[object, ...] = ()
    """Name of the dialect and key of the scheme in which `advert` was read; in another it means nothing."""
    error: str | None = None
    """Why the last probe failed, one sentence."""
    refusing: bool = False
    """True: it refused a connection, and no probe has answered since. Tried last."""
    contradicted: VersionSet = NOTHING
    """Versions at which a reply said, since the last good probe, that another one was served (hardening V9):
    it gets no request at those."""
    heard_at: float = field(default=float("-inf"), compare=False)
    """When the request was sent that brought `advert`."""
    doubted_at: float = field(default=float("-inf"), compare=False)
    """When that was sent which last made it `refusing` or `contradicted`. An older answer does not clear
    it."""
    key: str = field(init=False, default="")
    """`service/backend`, unique in the gateway."""
    weight: int = field(init=False, default=1)
    silent: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """What requests ask for, over and over."""
        object.__setattr__(self, "key", f"{self.service}/{self.backend.name}")
        object.__setattr__(self, "weight", self.backend.weight)
        object.__setattr__(self, "silent", self.advert is not None and self.advert.silent)

    @property
    def standing(self) -> Standing:
        if self.backend.declared is not None:
            return Standing.FRESH
        if self.advert is None:
            return Standing.UNKNOWN
        return STANDING_AFTER_FAILURES[self.failures]

    @property
    def doubted(self) -> bool:
        """Requests have met something since the last good probe that speaks against it."""
        return self.refusing or bool(self.contradicted)

    @property
    def usable(self) -> VersionSet:
        """The versions at which it may get requests."""
        versions = self.advert.versions if self.advert is not None else NOTHING
        return versions - self.contradicted if self.contradicted else versions

    @property
    def probed(self) -> bool:
        """True once its first probe has ended, either way."""
        return self.advert is not None or self.failures > 0

    @property
    def in_service(self) -> bool:
        """Configured, not drained, advert known (design section 2)."""
        return self.advert is not None and not self.drained
