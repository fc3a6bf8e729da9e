"""One versioned API as configured: its dialect, its route and backends, and what the operator wants offered.

Values only: `settings` makes them, and everything after it reads them. No rule is applied here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import final

from gateway.core.decision.operations import NO_OPERATIONS, Operations
from gateway.core.dialect import DefaultVersion, Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.versions.version import Scheme, Version


class Policy(StrEnum):
    """Which of the versions that its backends serve a service offers."""

    GUARANTEED = "guaranteed"
    """Those that every backend in service serves."""
    REACHABLE = "reachable"
    """Those that at least one serves."""
    AT_LEAST = "at_least"
    """Those that at least so many of them serve (`Service.at_least`)."""


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """How many of the backends in service must serve a version for it to be offered."""

    number: int
    percent: bool = False
    """True: `number` is of a hundred, and the result is rounded up."""

    def of(self, backends: int) -> int:
        """The number for so many `backends`: at least one, and at most all of them."""
        return max(1, min(-(-backends * self.number // 100) if self.percent else self.number, backends))


ALL_BACKENDS = AtLeast(100, percent=True)


@final
@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Which requests belong to a service."""

    host: str | None = None
    """Lower case, without port; None: any."""
    path: str = "/"
    """A prefix on a segment boundary, with a leading slash and (but for `/`) no trailing one."""
    strip_prefix: bool = True
    """Whether backends get the path without that prefix."""

    @property
    def prefix(self) -> str:
        """The prefix that is removed from a path: empty for `/`."""
        return "" if self.path == "/" else self.path


@final
@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How a service's backends are probed. Seconds."""

    interval: float = 5.0
    timeout: float = 2.0
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class RetryPlan:
    """How often, and after which failures, a request is tried on another backend."""

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
    match: RouteMatch = RouteMatch()
    policy: Policy = Policy.GUARANTEED
    at_least: AtLeast = ALL_BACKENDS
    """Used only with the policy of that name."""
    stabilization: float = 0.0
    """Seconds for which the policy must have given a version before it joins the offer."""
    ceiling: Version | None = None
    default_version: DefaultVersion | None = None
    """What a request without a version means here; None: the dialect's default."""
    retry_after: bool | None = None
    """Whether a 503 carries `Retry-After`; None: the dialect's default."""
    releases: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    """Highest version by release name, for ceilings, in addition to `Dialect.releases`."""
    operations: Operations = NO_OPERATIONS
    """Operations that exist only in some of its versions."""
    probe: ProbePlan = ProbePlan()
    retry: RetryPlan = RetryPlan()

    @property
    def effective_default_version(self) -> DefaultVersion:
        return self.default_version or self.dialect.default_version

    @property
    def effective_retry_after(self) -> bool:
        return self.dialect.retry_after if self.retry_after is None else self.retry_after

    @property
    def policy_and_number(self) -> tuple[Policy, AtLeast | None]:
        """What an operator decides about the offer. Another pair is another decision."""
        return self.policy, self.at_least if self.policy is Policy.AT_LEAST else None

    @property
    def scheme_id(self) -> tuple[object, ...]:
        """The dialect and scheme in which an advertisement must have been read to have a meaning here."""
        return (self.dialect.name, *self.dialect.scheme.key)

    def earlier_scheme(self, scheme_id: tuple[object, ...]) -> Scheme | None:
        """The scheme of `scheme_id`, if what was read in it has the same meaning here: it is this service's,
        or one that has only gained names since. None: it has none."""
        return self.dialect.scheme.earlier(scheme_id[1:]) if scheme_id[:1] == (self.dialect.name,) else None
