"""What a backend says about versions, as values: its advert, what a reply says, what a probe asks and hears.

Dialects make these, `core.fleet` and `core.replying` take them. `core.dialect`, the contract, hands them on,
so that a dialect has one door to import from. Nothing here reads a header or a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, final

from gateway.core.message import Header
from gateway.core.ranges import VersionSet
from gateway.core.version import Version


@final
@dataclass(frozen=True, slots=True)
class Advert:
    """What a backend says it serves. `versions` of a silent one are what its silence stands for; may be
    empty."""

    versions: VersionSet
    silent: bool = False
    default: Version | None = None


class Refused(Enum):
    """Whether a reply refuses the request because of its version."""

    NO = "no"
    YES = "yes"
    """Nothing was executed; the map was stale."""
    READ_BODY = "read_body"
    """Only the body can tell: hold it (up to 64 KiB) and ask `read_refusal`."""


@final
@dataclass(frozen=True, slots=True)
class Served:
    """What a reply's head says. All None: the backend is silent about versions here."""

    version: Version | None = None
    """The version that was executed, as the backend said it; None also when its text was no version (V8)."""
    advert: Advert | None = None
    """The backend's own range, where its replies carry one: an in-band fact."""
    refused: Refused = Refused.NO
    ranged: bool = False
    """True: range headers stand on this reply, so the offer's must replace them."""
    said: str = ""
    """The owned header's own text, for dialects that keep a part of it (Chef's request_version)."""


@final
@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One GET on a backend's own address. `path` is relative to the backend's URL."""

    path: str
    headers: tuple[Header, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What came back: at most 1 MiB of body, already decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True, slots=True)
class ProbeFault:
    """The answer says nothing that can be believed. `reason` is a closed-set metric label."""

    reason: str
    """`status`, `document`, `range`, `unauthorized` …"""
    detail: str
    """One sentence for the operator."""


ProbeStep: TypeAlias = Advert | ProbeRequest | ProbeFault
"""What a dialect makes of the answers so far: done, one more question, or nonsense."""
