"""One versioned API as configured: its dialect, where it is found, and what the operator wants offered.

Values only; made by `settings`, read by everything behind it. No rule is applied here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import final

from gateway.core.backend import Backend
from gateway.core.dialect import Dialect, Silence
from gateway.core.operations import NO_OPERATIONS, Operations
from gateway.core.version import Version


class Policy(StrEnum):
    """What a service offers of what its backends serve."""

    GUARANTEED = "guaranteed"
    """What every backend in service serves."""
    REACHABLE = "reachable"
    """What at least one serves."""
    AT_LEAST = "at_least"
    """What at least so many of them serve (`Service.at_least`)."""


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """How many of the backends in service must serve a version for it to be offered."""

    number: int
    percent: bool = False
    """True: `number` of a hundred; rounded up."""

    def of(self, backends: int) -> int:
        """How many of `backends` that are: at least one."""
        return max(1, -(-backends * self.number // 100) if self.percent else self.number)


EVERYONE = AtLeast(100, percent=True)


@final
@dataclass(frozen=True, slots=True)
class Match:
    """Which requests belong to a service."""

    host: str | None = None
    """Lower case, without port; None: any."""
    path: str = "/"
    """A prefix on a segment boundary, with a leading slash and (but for `/`) no trailing one."""
    strip_prefix: bool = True
    """Whether backends see the path without that prefix."""

    @property
    def prefix(self) -> str:
        """What is taken off a path: empty for `/`."""
        return "" if self.path == "/" else self.path


@final
@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How a service's backends are asked for their versions. Seconds."""

    interval: float = 5.0
    timeout: float = 2.0
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class RetryPlan:
    """How often, and after what, a request is tried on another backend."""

    attempts: int = 3
    on_connect: bool = True
    on_no_reply: bool = True
    on_version: bool = True


@final
@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One API with one dialect. Compared by identity: a reload makes new ones."""

    name: str
    dialect: Dialect
    backends: tuple[Backend, ...]
    match: Match = Match()
    policy: Policy = Policy.GUARANTEED
    at_least: AtLeast = EVERYONE
    """Counts with the policy of that name only."""
    settle: float = 0.0
    """Seconds for which the policy must have given a version before it is offered, too."""
    ceiling: Version | None = None
    silence: Silence | None = None
    """What silence means here; None: as the dialect says."""
    releases: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    """Highest version by release name, beyond the dialect's own table (`Dialect.releases`): for ceilings."""
    operations: Operations = NO_OPERATIONS
    """What exists in some of its versions only."""
    probe: ProbePlan = ProbePlan()
    retry: RetryPlan = RetryPlan()

    @property
    def silence_rule(self) -> Silence:
        return self.silence or self.dialect.silence

    @property
    def language(self) -> tuple[object, ...]:
        """What an advert must have been read in to be understood here."""
        return (self.dialect.name, *self.dialect.scheme.key)
