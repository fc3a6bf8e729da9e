"""What an explanation tells, as values that people and programs can be shown. Made by `core.explanation`.

The names here are the keys of `/explain`; nothing is decided or worded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, final

from gateway.core.message import Header


class Outcome(StrEnum):
    """The four ends of a decision."""

    FORWARD = "forward"
    REFUSE = "refuse"
    ANSWER = "answer"
    UNROUTED = "unrouted"


class LeftOut(StrEnum):
    """Why a backend would not get the request."""

    NOT_ASKED = "not_asked"
    """The gateway answers by itself; no backend is touched."""
    UNKNOWN = "unknown"
    DRAINED = "drained"
    SILENT = "silent"
    VERSION = "version"
    CONTRADICTED = "contradicted"
    """It said of a reply to this version that it was executed at another one."""


@final
@dataclass(frozen=True, slots=True)
class RouteTold:
    """Which match led to the service."""

    host: str | None
    path: str
    strip_prefix: bool


@final
@dataclass(frozen=True, slots=True)
class PlaceTold:
    """What the target is to the dialect."""

    name: str
    negotiated: bool
    document: bool
    answered: bool


@final
@dataclass(frozen=True, slots=True)
class AskTold:
    """What the request says about its version. `text` is the client's own: escape it before it is shown."""

    kind: str
    text: str
    version: str | None = None
    """The version that was read, canonical; None where none was named: `latest`, nothing, or no version."""


@final
@dataclass(frozen=True, slots=True)
class OfferTold:
    """What the service offers at this moment."""

    min: str | None
    max: str | None
    policy: str
    ceiling: str | None
    phase: str
    transparent: bool


@final
@dataclass(frozen=True, slots=True)
class OperationTold:
    """What is configured of the operation that the request is for."""

    method: str
    path: str
    """The template: `/v1/nodes/{id}`."""
    versions: str
    """Those in which it exists: `1.5 and later`, `no version yet`."""
    exists: bool
    """In the settled version."""


@final
@dataclass(frozen=True, slots=True)
class CandidateTold:
    """A backend that may get the request. Tier 1 is tried first."""

    backend: str
    url: str
    tier: int
    standing: str
    serves: str
    silent: bool
    weight: int
    in_flight: int
    why: str
    """Why it is in its tier."""


@final
@dataclass(frozen=True, slots=True)
class LeftOutTold:
    """A backend that would not get it."""

    backend: str
    url: str
    standing: str
    serves: str
    reason: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class ReplyTold:
    """What the gateway would say by itself."""

    status: int
    headers: tuple[Header, ...]
    body: str


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen to one request under one snapshot."""

    generation: int
    method: str
    path: str
    host: str
    decision: str
    because: str
    """One sentence."""
    service: str | None = None
    dialect: str | None = None
    route: RouteTold | None = None
    local_path: str | None = None
    """The path as the API itself knows it."""
    place: PlaceTold | None = None
    ask: AskTold | None = None
    """None where no version is read."""
    offer: OfferTold | None = None
    outcome: str | None = None
    """As skewgate_negotiations_total would count it; None where nothing is negotiated."""
    version: str | None = None
    """The settled version; None where none was settled on."""
    operation: OperationTold | None = None
    """None where none is configured for it, or no version was settled on."""
    status: int | None = None
    """What the gateway would answer; None: the backend's own."""
    candidates: tuple[CandidateTold, ...] = ()
    left_out: tuple[LeftOutTold, ...] = ()
    sends: tuple[str, ...] = ()
    """Those header lines to a backend with versions that stand for what the dialects read."""
    sends_silent: tuple[str, ...] = ()
    """The same to a silent one."""
    reply: ReplyTold | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as plain dicts, lists, texts and numbers."""
        return asdict(self)
