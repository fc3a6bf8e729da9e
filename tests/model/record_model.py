"""The records of the agreement's model, and the real ladder from one to the next, under all votes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import compress, product
from typing import Final, NamedTuple

from gateway.core.agreement.ladder import LiveReplica, Vote, next_record
from gateway.core.agreement.record import AgreedRecord, Level
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, unbroken
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme, Version


class Contents(NamedTuple):
    """All that matters in a record but its number."""

    levels: tuple[Level, ...]
    """Of each version that moves, by the three sets."""
    is_empty: bool

    def answers(self) -> tuple[Level, ...]:
        """The levels by which a replica answers."""
        return tuple(Level.UNDECIDED for _ in self.levels) if self.is_empty else self.levels


@dataclass(frozen=True)
class Universe:
    """The versions that the records of a model are about."""

    scheme: Scheme
    versions: tuple[Version, ...]
    """Those that move."""
    base: VersionSet = NO_VERSIONS
    """Offered all the time beside them, so that no record is empty."""
    floor: Version | None = None
    """Raised when what moves is to fall; None: the votes give it up."""

    @property
    def first(self) -> Contents:
        """With which a model begins: nothing of what moves is on offer."""
        return Contents(tuple(Level.REFUSED for _ in self.versions), is_empty=not self.base)

    def record(self, levels: tuple[Level, ...], state: VersionSet) -> AgreedRecord:
        """The record with these levels, and any state."""
        both = list(zip(self.versions, levels, strict=True))
        offered, accepted, opened = (
            self.base | VersionSet.only(*(version for version, at in both if at >= level))
            for level in (Level.OFFERED, Level.ACCEPTED, Level.UNDECIDED)
        )
        return AgreedRecord(1, "rule", state, offered, accepted, opened)

    def contents(self, record: AgreedRecord) -> Contents:
        """The other way round."""
        sets = (record.open, record.accepted, record.offered)
        levels = tuple(Level(sum(version in each for each in sets)) for version in self.versions)
        return Contents(levels, record.is_empty)

    def states(self) -> list[VersionSet]:
        """Every state that there can be."""
        found = []
        for chosen in product((False, True), repeat=len(self.versions)):
            some = VersionSet.only(*compress(self.versions, chosen))
            if unbroken(self.base | some, self.scheme) == self.base | some:
                found.append(self.base | some)
        return found


ONE: Final = Universe(MajorMinor(), (Version(1, 2),), VersionSet.only(Version(1, 1)))
"""One version above another that stays."""
BENEATH: Final = Universe(MajorMinor(), (Version(1, 1),), VersionSet.only(Version(1, 2)), floor=Version(1, 2))
"""One version beneath another that stays: a floor hides it."""
ALONE: Final = Universe(CalendarDate(), (Version(2024, 1, 1),))
"""One version that comes and goes: at times nothing is on offer."""
TWO: Final = Universe(CalendarDate(), (Version(2024, 1, 1), Version(2024, 2, 1)))
"""Two such versions."""


@cache
def following(
    universe: Universe, contents: Contents, live: tuple[bool, ...], *, all_attached: bool
) -> frozenset[Contents]:
    """The contents of every record that `next_record` computes after one with `contents`, whatever the
    state, the votes, the pin and the floor are. `live`: of each live replica, whether it has acknowledged.

    All vote the same: what counts of votes is the union of one part and the intersection of another, and one
    vote can be any of these (tests/core/agreement/test_ladder.py).
    """
    found: set[Contents] = set()
    for state in universe.states():
        record = universe.record(contents.levels, state)
        if record.is_empty is not contents.is_empty:
            continue
        pins = (None, Version(1, 0), *universe.versions)
        raised = {None, universe.floor, *universe.versions}
        for floor, want, pin, raise_ in product(universe.states(), universe.states(), pins, raised):
            vote = Vote("rule", floor & state, want, want)
            replicas = {str(at): LiveReplica(int(acked), vote) for at, acked in enumerate(live)}
            registered = list(replicas) if all_attached else [*replicas, "away"]
            after = next_record(record, replicas, registered, pin, universe.scheme, raise_)
            if after is not None:
                found.add(universe.contents(after))
    return frozenset(found)


@cache
def leading(
    universe: Universe, contents: Contents, live: tuple[bool, ...], *, all_attached: bool, up: bool
) -> frozenset[Contents]:
    """The same when all replicas want everything, or (not `up`) nothing but what stays: by their votes, or by
    a floor."""
    floor = None if up else universe.floor
    wanted = universe.states()[-1] if up or floor is not None else universe.base
    vote = Vote("rule", wanted, wanted, wanted)
    replicas = {str(at): LiveReplica(int(acked), vote) for at, acked in enumerate(live)}
    registered = list(replicas) if all_attached else [*replicas, "away"]
    record = universe.record(contents.levels, NO_VERSIONS if contents.is_empty else wanted)
    after = next_record(record, replicas, registered, None, universe.scheme, floor)
    return frozenset() if after is None else frozenset({universe.contents(after)})
