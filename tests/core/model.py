"""A second implementation of offers (semantics, Offering), with sets and times of single versions.

It knows nothing of ranges, views or snapshots, and nothing of facts: it is told the last report of every
backend. The offers of the gateway are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.versions.version import Scheme, Version

Versions: TypeAlias = frozenset[Version]
NONE: Versions = frozenset()

HOUR = 3600.0


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


def union(sets: Iterable[Versions | None]) -> Versions:
    return frozenset(version for each in sets for version in each or ())


@dataclass
class Known:
    """What the model knows of one backend."""

    name: str
    versions: Versions | None = None
    """Its last report; None: it was never heard."""
    legacy: bool = False
    probed: bool = False
    down: bool = False
    drained: bool = False

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
    backends: list[Known]
    offered: Versions = NONE
    begun: bool = False
    """The first offer was made."""
    round_ended: float | None = None
    legacy_alone: bool = False
    given_since: dict[Version, float] = field(default_factory=dict)
    falls: Counter[Version] = field(default_factory=Counter)
    offered_since: dict[Version, float] = field(default_factory=dict)
    cut: bool = False
    removed: Versions = NONE

    # -- what is known

    @property
    def known(self) -> list[Known]:
        return [each for each in self.backends if each.versions is not None]

    @property
    def serving(self) -> list[Known]:
        """In service, and serving any version."""
        return [each for each in self.backends if each.in_service and each.versions]

    @property
    def all_probed(self) -> bool:
        return all(each.probed for each in self.backends)

    @property
    def last_reports(self) -> Versions:
        return union(each.versions for each in self.known)

    @property
    def counts(self) -> Counter[Version]:
        """How many of those in service serve each version."""
        return Counter(version for each in self.serving for version in each.versions or ())

    @property
    def given(self) -> Versions:
        """What the policy gives."""
        members = len(self.serving)
        number, percent = self.at_least.number, self.at_least.percent
        enough = {
            Policy.GUARANTEED: members,
            Policy.REACHABLE: 1,
            Policy.AT_LEAST: min(-(-members * number // 100) if percent else number, members),
        }[self.policy]
        return frozenset(version for version, count in self.counts.items() if count >= max(1, enough))

    def part(self, versions: Versions) -> Versions:
        return newest_unbroken(versions) if self.scheme.contiguous else versions

    def joined(self, more: Versions) -> Versions:
        return reached_from(self.offered, more) if self.scheme.contiguous else self.offered | more

    # -- what happens

    def look(self, now: float) -> None:
        """Time has passed: the first offer is made in any case, and what was given for its wait joins."""
        self._begin(now)
        if self.begun and self.all_probed and self.offered:
            dues = {version: since + self._wait(version) for version, since in self.given_since.items()}
            for moment in sorted({due for due in dues.values() if due <= now}):
                self._forget(moment)
                self._offer(
                    self.joined(frozenset(each for each, due in dues.items() if due <= moment)), moment
                )
        self._forget(now)

    def learn(self, now: float) -> None:
        """After a fact or a command."""
        self._forget(now)
        self._begin(now)
        if self.begun:
            self._move(now)

    def reconfigure(self, gone: Iterable[Known], *, cut: bool) -> None:
        """Another configuration: `backends` are the new ones already."""
        self.removed |= union(each.versions for each in gone)
        self.cut = self.cut or cut

    def restart(self, *, cut: bool) -> None:
        """Falls are forgotten, and so is everything about time."""
        self.begun = bool(self.offered)
        self.round_ended, self.legacy_alone, self.removed = None, False, NONE
        self.given_since, self.offered_since = {}, {}
        self.falls.clear()
        self.cut = self.cut or cut

    # -- the rules

    def _begin(self, now: float) -> None:
        if self.begun:
            return
        if self.round_ended is None:
            if not self.all_probed:
                return
            self.round_ended = now
        versioned = any(not each.legacy for each in self.known)
        if self.known and not versioned:
            self.legacy_alone = True
        waited = len(self.known) == len(self.backends) or now >= self.round_ended + self.stabilization
        if versioned and (self.legacy_alone or (self.all_probed and waited)):
            self.begun, self.cut, self.removed = True, False, NONE
            self._form(now)

    def _form(self, now: float) -> None:
        most = max(self.counts.values(), default=0)
        best = frozenset(version for version, count in self.counts.items() if count == most)
        self._offer(self.part(self.given or best), now)

    def _move(self, now: float) -> None:
        if not self.all_probed:
            self.given_since = {}
            return
        given, last_reports = self.given, self.last_reports
        fallen = self.offered - last_reports - self.removed
        left = self.offered & last_reports
        if self.cut and given:
            left &= given
        self.cut, self.removed = False, NONE
        self._offer(self.part(left), now)
        self.falls.update(fallen)
        if not self.offered:
            self._form(now)
        reached = self.joined(given) - self.offered if self.offered else NONE
        self.given_since = {each: self.given_since.get(each, now) for each in reached}
        self.look(now)

    def _offer(self, versions: Versions, now: float) -> None:
        self.offered = versions
        self.offered_since = {each: self.offered_since.get(each, now) for each in versions}

    def _wait(self, version: Version) -> float:
        return self.stabilization * min(64, 1 << self.falls[version])

    def _forget(self, now: float) -> None:
        for version, since in self.offered_since.items():
            if now - since >= HOUR:
                del self.falls[version]

    # -- what is shown

    @property
    def pending(self) -> Versions:
        return frozenset(self.given_since) - self.offered

    @property
    def transparent(self) -> bool:
        in_service = [each for each in self.backends if each.in_service]
        return (
            (self.begun or self.round_ended is not None)
            and not self.offered
            and bool(in_service)
            and all(each.legacy for each in self.known)
        )

    def phase(self, shown: Versions) -> str:
        """`shown`: what is on offer under the ceiling."""
        if (not shown or not self.known) and not self.transparent:
            return "unknown"
        if len({each.versions for each in self.serving}) > 1 or self._kept(shown):
            return "mixed"
        if shown != self.offered:
            return "capped"
        return "stabilizing" if self.pending else "uniform"

    def held(self, shown: Versions) -> tuple[str | None, tuple[str, ...]]:
        """The rule and the backends."""
        if shown != self.offered:
            return "ceiling", ()
        if self.pending:
            return "stabilization", ()
        if not shown:
            return None, ()
        if kept := self._kept(shown):
            keeping = [each for each in self.known if each.drained or each.down]
            return "state", tuple(each.name for each in keeping if (each.versions or NONE) & kept)
        top = max((max(each.versions or ()) for each in self.serving), default=None)
        newest = [each for each in self.serving if max(each.versions or ()) == top]
        if more := union(each.versions for each in newest) - shown:
            rule = "state" if self.policy is Policy.REACHABLE else self.policy.value
            return rule, self._lacking(more)
        if more := shown - self.given:
            return "state", self._lacking(more)
        return None, ()

    def _kept(self, shown: Versions) -> Versions:
        """On offer, and served by none in service but down ones."""
        return shown - union(each.versions for each in self.serving if not each.down)

    def _lacking(self, more: Versions) -> tuple[str, ...]:
        return tuple(each.name for each in self.serving if not more <= (each.versions or NONE))
