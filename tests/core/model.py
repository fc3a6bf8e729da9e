"""What the design says a service promises, told in sets and clocks of single versions.

It knows nothing of ranges, views or snapshots: what the gateway does is held against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.service import AtLeast, Policy
from gateway.core.version import Scheme, Version

Versions: TypeAlias = frozenset[Version]
NONE: Versions = frozenset()


def newest_unbroken(versions: Versions) -> Versions:
    """Down from the highest, step by step."""
    if not versions:
        return versions
    last = max(versions)
    return frozenset(each for each in versions if all(low in versions for low in between(each, last)))


def between(low: Version, high: Version) -> list[Version]:
    """All from `low` to `high`; for two majors something that stands in no set."""
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
    silent: bool = False
    heard_at: float = float("-inf")
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
    """What the design says of one service, version by version."""

    scheme: Scheme
    policy: Policy
    at_least: AtLeast
    settle: float
    backends: dict[str, Known]
    opened: bool = False
    promised: Versions = NONE
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
        """Everybody was asked and somebody answered: now words count."""
        return self.opened and all(each.probed for each in self.backends.values())

    @property
    def given(self) -> Versions:
        """What the policy gives."""
        speaking = [each.versions for each in self.in_service if each.versions]
        number, percent = self.at_least.number, self.at_least.percent
        enough = {
            Policy.GUARANTEED: len(speaking),
            Policy.REACHABLE: 1,
            Policy.AT_LEAST: -(-len(speaking) * number // 100) if percent else number,
        }[self.policy]
        everything = frozenset[Version]().union(*speaking)
        return frozenset(
            each for each in everything if sum(each in one for one in speaking) >= max(1, enough)
        )

    def part(self, versions: Versions) -> Versions:
        return newest_unbroken(versions) if self.scheme.contiguous else versions

    def ripe(self, now: float) -> Versions:
        return frozenset(each for each, since in self.given_since.items() if since + self.settle <= now)

    def look(self, now: float) -> None:
        """What the policy has given for `settle` is promised."""
        if self.promised and self.counts:
            ripe = self.ripe(now)
            self.promised = (
                reached_from(self.promised, ripe) if self.scheme.contiguous else self.promised | ripe
            )

    def learn(self, now: float) -> None:
        """After something has become known or was ordered."""
        self.opened = self.opened or (
            all(each.probed for each in self.backends.values()) and bool(self.known)
        )
        given = self.given if self.counts else NONE
        self.given_since = {each: self.given_since.get(each, now) for each in given}
        if not self.counts:
            return
        if self.known and all(each.fresh for each in self.known):
            self.promised = self.part(self.promised & self.serving(self.known))
        if not self.promised:
            self.promised = self.part(given or self.serving(self.in_service))
        self.look(now)

    def remove(self, gone: list[Known]) -> None:
        """What only they served is gone at once, unless nothing is known of who is left."""
        left = self.serving(self.known)
        if left:
            self.promised = self.part(self.promised - (self.serving(gone) - left))
