"""A second implementation of offers (semantics, Offering), with sets and times of single versions.

It knows nothing of ranges, views or snapshots. The offers of the gateway are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.versions.version import Scheme, Version

Versions: TypeAlias = frozenset[Version]
NONE: Versions = frozenset()


def newest_unbroken(versions: Versions) -> Versions:
    """From the highest down, as long as each step is in the set."""
    if not versions:
        return versions
    last = max(versions)
    return frozenset(each for each in versions if all(low in versions for low in between(each, last)))


def between(low: Version, high: Version) -> list[Version]:
    """All from `low` to `high`; for two majors a version that is in no set."""
    if low.major != high.major:
        return [Version(-1, -1)]
    return [Version(*low.major, minor) for minor in range(low.minor, high.minor + 1)]


def reached_from(start: Versions, more: Versions) -> Versions:
    """`start`, and of `more` what can be reached from it by single steps."""
    found = set(start)
    while near := {each for each in more - found if {each.step(-1), each.step(1)} & found}:
        found |= near
    return frozenset(found)


@dataclass
class Known:
    """What the model knows of one backend."""

    port: int
    declared: Versions | None = None
    versions: Versions | None = None
    legacy: bool = False
    advertised_at: float = float("-inf")
    failures: int = 0
    drained: bool = False

    @property
    def probed(self) -> bool:
        return self.versions is not None or self.failures > 0

    @property
    def fresh(self) -> bool:
        return self.declared is not None or (self.versions is not None and not self.failures)

    @property
    def in_service(self) -> bool:
        return self.versions is not None and not self.drained


@dataclass
class Model:
    """The offer state of one service, version by version."""

    scheme: Scheme
    policy: Policy
    at_least: AtLeast
    stabilization: float
    backends: dict[str, Known]
    initialized: bool = False
    offered: Versions = NONE
    given_since: dict[Version, float] = field(default_factory=dict)

    def serving(self, of: Iterable[Known]) -> Versions:
        return frozenset(version for each in of for version in each.versions or ())

    @property
    def known(self) -> list[Known]:
        return [each for each in self.backends.values() if each.versions is not None]

    @property
    def in_service(self) -> list[Known]:
        return [each for each in self.known if not each.drained]

    @property
    def counts(self) -> bool:
        """Every first probe has ended, and one has succeeded: the offer state may change."""
        return self.initialized and all(each.probed for each in self.backends.values())

    @property
    def given(self) -> Versions:
        """What the policy gives."""
        non_legacy = [each.versions for each in self.in_service if each.versions]
        number, percent = self.at_least.number, self.at_least.percent
        enough = {
            Policy.GUARANTEED: len(non_legacy),
            Policy.REACHABLE: 1,
            Policy.AT_LEAST: -(-len(non_legacy) * number // 100) if percent else number,
        }[self.policy]
        everything = frozenset[Version]().union(*non_legacy)
        return frozenset(
            each for each in everything if sum(each in one for one in non_legacy) >= max(1, enough)
        )

    def part(self, versions: Versions) -> Versions:
        return newest_unbroken(versions) if self.scheme.contiguous else versions

    def stable(self, now: float) -> Versions:
        since_latest = now - self.stabilization
        return frozenset(version for version, since in self.given_since.items() if since <= since_latest)

    def look(self, now: float) -> None:
        """What the policy has given for `stabilization` joins the offer state."""
        if self.offered and self.counts:
            stable = self.stable(now)
            self.offered = (
                reached_from(self.offered, stable) if self.scheme.contiguous else self.offered | stable
            )

    def learn(self, now: float) -> None:
        """After a fact or a command."""
        self.initialized = self.initialized or (
            all(each.probed for each in self.backends.values()) and bool(self.known)
        )
        given = self.given if self.counts else NONE
        self.given_since = {each: self.given_since.get(each, now) for each in given}
        if not self.counts:
            return
        if self.known and all(each.fresh for each in self.known):
            self.offered = self.part(self.offered & self.serving(self.known))
        if not self.offered:
            self.offered = self.part(given or self.serving(self.in_service))
        self.look(now)

    def remove(self, gone: list[Known]) -> None:
        """What only they served leaves at once, unless nothing is known of those that are left."""
        left = self.serving(self.known)
        if left:
            self.offered = self.part(self.offered - (self.serving(gone) - left))
