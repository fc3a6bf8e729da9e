"""The rule of the offer as docs/semantics.md states it, version by version, without the gateway's code.

What it does: it keeps what is known of each backend of one service, takes facts and commands with their
times, and says what is on offer, what is pending, and what holds the offer.

Rules: it is written from the page alone, not from the code that it is compared with. A version is a pair
(major, minor). Where the page gives a rule, the comment here gives its heading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

Pair: TypeAlias = tuple[int, int]
Versions: TypeAlias = frozenset[Pair]

NONE: Final[Versions] = frozenset()
HOUR: Final = 3600.0
MOST_DOUBLINGS: Final = 6
"""Twice as long each time, up to 64 times."""
LOST_AFTER: Final = 3
LEGACY_AFTER: Final = 3


@dataclass
class Known:
    """One configured backend, and what was heard of it (Knowing)."""

    declared: bool = False
    last_report: Versions | None = None
    legacy: bool = False
    probed: bool = False
    """Its first probe has ended since it is configured, or since the restart."""
    failures: int = 0
    legacy_row: int = 0
    drained: bool = False
    leaving: bool = False
    """Its source names it no more, and it counts as probed (Members that leave)."""
    absent: bool = False
    """Leaving, or back and not probed since."""

    @property
    def down(self) -> bool:
        """Nothing that only such ones serve is served at this moment."""
        return self.absent or (not self.declared and self.failures >= LOST_AFTER)

    def was_probed(self, failures: int = 0) -> None:
        self.probed, self.failures, self.absent = True, failures, self.leaving

    @property
    def in_service(self) -> bool:
        return self.last_report is not None and not self.drained

    def showed(self, versions: Versions) -> None:
        """A probe or a passive observation brought versions."""
        self.last_report, self.legacy, self.legacy_row = versions, False, 0

    def looked_legacy(self, legacy_versions: Versions) -> None:
        """A probe was answered as a server without versions answers (Becoming legacy)."""
        if self.last_report is not None and not self.legacy:
            self.legacy_row += 1
            if self.legacy_row < LEGACY_AFTER:
                return
        self.last_report, self.legacy, self.legacy_row = legacy_versions, True, 0


@dataclass(frozen=True)
class Policy:
    """`guaranteed`, `reachable` or `at_least`, the last with a number or a percentage."""

    name: str
    number: int = 0
    percent: bool = False

    def enough(self, backends: int) -> int:
        """How many of `backends` must serve a version."""
        if self.name == "guaranteed":
            return backends
        if self.name == "reachable":
            return 1
        wanted = -(-backends * self.number // 100) if self.percent else self.number
        return min(max(wanted, 1), backends)


@dataclass
class Model:
    """One service."""

    unbroken: bool
    """The scheme's clients are shown a minimum and a maximum (One range)."""
    legacy_versions: Versions
    stabilization: float
    policy: Policy
    backends: dict[str, Known]
    pinned: Pair | None = None
    file_ceiling: Pair | None = None
    offered: Versions = NONE
    has_offered: bool = False
    round_ended: float | None = None
    legacy_alone: bool = False
    pending: dict[Pair, float] = field(default_factory=dict)
    falls: dict[Pair, int] = field(default_factory=dict)
    offered_since: dict[Pair, float] = field(default_factory=dict)
    to_cut: bool = False
    removed: Versions = NONE
    negotiates_legacy: bool = False
    """`legacy: refuse` (Legacy backends, Refuse)."""
    file_floor: Pair | None = None
    raised: Pair | None = None
    sunset: tuple[Pair, int] | None = None
    """That the file wants enforced: the lowest version that stays, and the day."""
    enforced: tuple[Pair, int] | None = None
    """The last sunset for which the clock need not raise the floor any more."""

    # --- facts and commands: each has the time at which it happens ------------------------------------------

    def probe_succeeded(self, name: str, versions: Versions, now: float) -> None:
        self._until(now)
        backend = self.backends[name]
        backend.was_probed()
        backend.showed(versions)
        self._settle(now)

    def probe_was_legacy(self, name: str, now: float) -> None:
        self._until(now)
        backend = self.backends[name]
        backend.was_probed()
        backend.looked_legacy(self.legacy_versions)
        self._settle(now)

    def probe_failed(self, name: str, now: float) -> None:
        self._until(now)
        backend = self.backends[name]
        backend.was_probed(backend.failures + 1)
        backend.legacy_row = 0
        self._settle(now)

    def observed(self, name: str, versions: Versions, now: float) -> None:
        """A response carried a range."""
        self._until(now)
        self.backends[name].showed(versions)
        self._settle(now)

    def drain(self, name: str, drained: bool, now: float) -> None:
        self._until(now)
        self.backends[name].drained = drained
        self._settle(now)

    def calendar(self, today: int) -> None:
        """An enforced sunset raises the floor when its day has come, once, and never lowers it (Floor)."""
        if self.sunset is None or self.sunset == self.enforced or today < self.sunset[1]:
            return
        higher = self.floor is not None and self.floor >= self.sunset[0]
        if higher and self.raised is None:
            return  # the file's own; there is nothing that a command could lower
        self.raised = self.raised if higher else self.sunset[0]
        self.enforced = self.sunset

    def reload(
        self, policy: Policy, backends: dict[str, Known], now: float, *, negotiates_legacy: bool = False
    ) -> None:
        """Another policy, and other backends; those that stay are the same objects."""
        self._until(now)
        left = [each for name, each in self.backends.items() if backends.get(name) is not each]
        self.removed |= _all(each.last_report for each in left)
        self.to_cut = self.to_cut or policy != self.policy
        self.policy, self.backends = policy, backends
        if self._legacy_alone and self.negotiates_legacy and not negotiates_legacy:
            self._withdraw()
            self.legacy_alone = True
        self.negotiates_legacy = negotiates_legacy
        self._settle(now)

    def restart(self, policy: Policy, now: float, *, negotiates_legacy: bool = False) -> None:
        """A restart with a state file, perhaps with another policy in the configuration."""
        self._until(now)
        backends = {
            name: Known(
                each.declared,
                each.last_report,
                each.legacy,
                probed=each.declared,
                drained=each.drained,
                leaving=each.leaving,
                absent=each.leaving,
            )
            for name, each in self.backends.items()
        }
        changed = policy != self.policy
        fresh = replace(self, policy=policy, backends=backends, pending={}, falls={}, removed=NONE)
        fresh.to_cut, fresh.round_ended, fresh.legacy_alone = self.to_cut or changed, None, False
        fresh.offered_since = dict.fromkeys(self.offered, now)
        self.__dict__.update(fresh.__dict__)
        if self._legacy_alone and self.negotiates_legacy and not negotiates_legacy:
            self._withdraw()
        self.negotiates_legacy = negotiates_legacy
        self._settle(now)

    def _withdraw(self) -> None:
        """Nothing is on offer any more, as before the first offer."""
        self.offered, self.has_offered = NONE, False
        self.pending, self.falls, self.offered_since = {}, {}, {}

    def look(self, now: float) -> None:
        """Only time has passed."""
        self._until(now)

    # --- time -----------------------------------------------------------------------------------------------

    def wait(self, version: Pair) -> float:
        """How long the policy must have given this version (Growing)."""
        return self.stabilization * 2.0 ** self.falls.get(version, 0)

    def _dues(self) -> Iterator[float]:
        """When time alone changes something."""
        if self.counts and not self.has_offered and self.round_ended is not None and self._offering:
            yield self.round_ended + self.stabilization
        yield from (since + self.wait(version) for version, since in self.pending.items())

    def _until(self, now: float) -> None:
        """Account for everything that happens by time alone up to `now`."""
        while any(self._changes_at(due) for due in sorted(due for due in self._dues() if due <= now)):
            pass

    def _changes_at(self, due: float) -> bool:
        """Settle at this time. False: what is due would leave a gap."""
        before = self.offered, dict(self.pending), self.has_offered
        self._settle(due)
        return before != (self.offered, self.pending, self.has_offered)

    # --- the rules ------------------------------------------------------------------------------------------

    @property
    def counts(self) -> bool:
        """While a first probe is missing."""
        return all(each.probed or each.leaving for each in self.backends.values())

    @property
    def _versioned(self) -> list[Known]:
        """Known, and not legacy; drained or not."""
        return [each for each in self.backends.values() if each.last_report is not None and not each.legacy]

    @property
    def _legacy_alone(self) -> bool:
        return not self._versioned and any(each.last_report is not None for each in self.backends.values())

    @property
    def legacy_only_offers(self) -> bool:
        """Something is on offer, and only legacy backends are known."""
        return self._legacy_alone and bool(self.offered)

    @property
    def _offering(self) -> bool:
        """A backend is known that makes a first offer (The first offer; Legacy backends, Refuse)."""
        return bool(self._versioned) or (self.negotiates_legacy and self._legacy_alone)

    @property
    def served(self) -> list[Versions]:
        """What each backend in service serves that serves any version (Policies)."""
        return [each.last_report for each in self.backends.values() if each.in_service and each.last_report]

    def given(self) -> Versions:
        """What the policy gives (Policies)."""
        return _held_by(self.served, self.policy.enough(len(self.served)))

    def formed(self) -> Versions:
        """Forming an offer."""
        given = self.given()
        most = len(self.served)
        while not given and most:
            given = _held_by(self.served, most)
            most -= 1
        return self._newest_part(given)

    def _settle(self, now: float) -> None:
        if self.counts and self.round_ended is None:
            self.round_ended = now
        formed = not self.has_offered and self.round_ended is not None and self._makes_first_offer(now)
        if formed:
            self.has_offered = True
            self._offer(self.formed(), now)
        if not (self.has_offered and self.counts):
            self.pending = {}
            return
        self._shrink(now)
        if self.to_cut:
            given, self.to_cut = self.given(), False
            if given:
                self._offer(self._newest_part(self.offered & given), now)
        if not self.offered:
            self._offer(self.formed(), now)
            self.pending = {}
        self._grow(now)

    def _makes_first_offer(self, now: float) -> bool:
        """The first offer."""
        self.to_cut, self.removed = False, NONE
        known = [each for each in self.backends.values() if each.last_report is not None]
        if not self._offering:
            self.legacy_alone = self.legacy_alone or bool(known)
            return False
        assert self.round_ended is not None
        all_answered = len(known) == len(self.backends)
        waited = all_answered or now >= self.round_ended + self.stabilization
        return self.legacy_alone or (self.counts and waited)

    def _shrink(self, now: float) -> None:
        """Shrinking."""
        gone = self.offered - _all(each.last_report for each in self.backends.values())
        fallen, self.removed = gone - self.removed, NONE
        self._offer(self._newest_part(self.offered - gone), now)
        for version in fallen:
            self.falls[version] = min(self.falls.get(version, 0) + 1, MOST_DOUBLINGS)

    def _grow(self, now: float) -> None:
        """Growing, and One range."""
        while True:
            more = self._reached(self.given()) - self.offered
            self.pending = {version: self.pending.get(version, now) for version in more}
            ripe = frozenset(each for each, since in self.pending.items() if since + self.wait(each) <= now)
            joining = self._reached(ripe) - self.offered
            if not joining:
                return
            self._offer(self.offered | joining, now)

    def _offer(self, versions: Versions, now: float) -> None:
        """Put these on offer; what stays keeps its time. After an hour without a break, falls are gone."""
        for version in self.offered - versions:
            if self.offered_since[version] + HOUR <= now:
                self.falls.pop(version, None)
        self.offered_since = {version: self.offered_since.get(version, now) for version in versions}
        self.offered = versions

    def _newest_part(self, versions: Versions) -> Versions:
        if not self.unbroken or not versions:
            return versions
        highest = max(versions)
        low = highest[1]
        while (highest[0], low - 1) in versions:
            low -= 1
        return frozenset((highest[0], minor) for minor in range(low, highest[1] + 1))

    def _reached(self, more: Versions) -> Versions:
        """What of `more` can be added to the offer without a gap, and the offer."""
        if not self.unbroken or not self.offered:
            return self.offered | more
        found = set(self.offered)
        while near := {each for each in more if each not in found and _neighbours(each) & found}:
            found |= near
        return frozenset(found)

    # --- what people are shown ------------------------------------------------------------------------------

    @property
    def floor(self) -> Pair | None:
        """That of the file, or the one that was raised in its place."""
        return self.file_floor if self.raised is None else self.raised

    @property
    def capped(self) -> Versions:
        """The offer under the ceiling."""
        ceiling = self.file_ceiling if self.pinned is None else self.pinned
        return frozenset(each for each in self.offered if ceiling is None or each <= ceiling)

    @property
    def shown(self) -> Versions:
        """The offer between ceiling and floor, which is suspended while it would leave nothing."""
        floor = self.floor
        return frozenset(each for each in self.capped if floor is None or each >= floor) or self.capped

    @property
    def transparent(self) -> bool:
        """Legacy backends, Transparent."""
        in_service = [each for each in self.backends.values() if each.in_service]
        return (
            not self.negotiates_legacy
            and self.round_ended is not None
            and not self.offered
            and bool(in_service)
            and all(each.legacy for each in in_service)
            and not self._versioned
        )

    @property
    def unserved(self) -> Versions:
        """What is on offer and served by none in service but down ones."""
        alive = (each.last_report for each in self.backends.values() if each.in_service and not each.down)
        return self.shown - _all(alive)

    @property
    def phase(self) -> str:
        """Rolling upgrade."""
        if self.transparent:
            return "mixed" if len(set(self.served)) > 1 else "uniform"
        if not self.shown or not any(each.last_report is not None for each in self.backends.values()):
            return "unknown"
        if len(set(self.served)) > 1 or self.unserved:
            return "mixed"
        if self.capped != self.offered:
            return "capped"
        return "stabilizing" if self.pending else "uniform"

    @property
    def held(self) -> tuple[str | None, frozenset[str]]:
        """`held_rule` and `held_by` (Rolling upgrade)."""
        if not self.offered:
            return None, frozenset()
        if self.capped != self.offered:
            return "ceiling", frozenset()
        if self.pending:
            return "stabilization", frozenset()
        if unserved := self.unserved:
            keepers = (each for each in self.backends.items() if each[1].drained or each[1].down)
            return "state", frozenset(name for name, each in keepers if (each.last_report or NONE) & unserved)
        highest = max((max(each) for each in self.served), default=None)
        newest = _all(each for each in self.served if max(each) == highest)
        if more := newest - self.offered:
            rule = "state" if self.policy.name == "reachable" else self.policy.name
            return rule, self._lacking(more)
        if more := self.shown - self.given():
            return "state", self._lacking(more)
        return None, frozenset()

    def _lacking(self, versions: Versions) -> frozenset[str]:
        """Those in service that serve some version, but not all of these."""
        return frozenset(
            name
            for name, each in self.backends.items()
            if each.in_service and each.last_report and not versions <= each.last_report
        )


def _all(sets: Iterable[Versions | None]) -> Versions:
    return NONE.union(*(each for each in sets if each))


def _held_by(sets: list[Versions], enough: int) -> Versions:
    return frozenset(each for each in _all(sets) if sum(each in one for one in sets) >= enough)


def _neighbours(version: Pair) -> set[Pair]:
    major, minor = version
    return {(major, minor - 1), (major, minor + 1)}
