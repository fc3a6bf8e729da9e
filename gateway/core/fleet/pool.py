"""The members of one service, found by name and counted by grade.

Immutable. What depends on all members is kept beside them and follows each change of a few: so one fact costs
about the same whether a service has two backends or a thousand. No rule is applied here: what a fact means is
up to `core.fleet.fleet`, what is offered to `core.fleet.offer_state` and `core.fleet.offer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import is_not
from types import MappingProxyType
from typing import NamedTuple, TypeVar, final

from gateway.core.fleet.backend import Grade, Mark, Member
from gateway.core.versions.version import Version

_Item = TypeVar("_Item")


def with_items(mapping: Mapping[str, _Item], items: Mapping[str, _Item]) -> Mapping[str, _Item]:
    """The mapping with `items` in place of those of the same names, in the same order."""
    copy = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)  # 20 times as fast
    copy.update(items)
    return MappingProxyType(copy)


def names_of_others(before: Mapping[str, _Item], after: Mapping[str, _Item]) -> Iterator[str]:
    """The names of the items that are other objects than in `before`, or were not there."""
    # Nearly all are the same, in the same order: they are compared without Python code.
    others = compress(after.items(), map(is_not, chain(before.values(), repeat(None)), after.values()))
    return (name for name, item in others if before.get(name) is not item)


class Group(NamedTuple):
    """How many members have one grade."""

    grade: Grade
    number: int


def _add(groups: dict[Grade, Group], grade: Grade) -> Grade:
    """Count one more of this grade, and give the one object for it."""
    group = groups.get(grade)
    if group is None:
        groups[grade] = Group(grade, 1)
        return grade
    groups[group.grade] = Group(group.grade, group.number + 1)
    return group.grade


def _remove(groups: dict[Grade, Group], grade: Grade) -> None:
    number = groups[grade].number
    if number == 1:
        del groups[grade]
    else:
        groups[grade] = Group(grade, number - 1)


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """The members of one service, in the configuration's order."""

    members: tuple[Member, ...]
    pin: Version | None = None
    """An operator's ceiling at run time."""
    scheme_id: tuple[object, ...] = ()
    """The scheme in which `pin` was read, see `Member.scheme_id`."""
    undiscovered: bool = False
    """True: some source of backends has not answered and not failed yet, so that more may come at once."""
    positions: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Where each member is, by its backend's name."""
    grades: tuple[Grade, ...] = field(default=(), compare=False, repr=False)
    """Grade of each member, in order. Those that are equal are one object."""
    by_grade: Mapping[Grade, Group] = field(default_factory=dict, compare=False, repr=False)
    mark: Mark = field(default_factory=Mark, compare=False, repr=False)
    """Another one whenever something else is known of a member. Where only times are new it stays."""
    counted: tuple[Member, ...] | None = field(default=None, compare=False, repr=False)
    """The members from which the last four were made; they are made anew for others."""

    def __post_init__(self) -> None:
        if self.counted is not self.members:
            groups: dict[Grade, Group] = {}
            grades = tuple(_add(groups, member.grade) for member in self.members)
            positions = {member.backend.name: at for at, member in enumerate(self.members)}
            object.__setattr__(self, "grades", grades)
            object.__setattr__(self, "by_grade", groups)
            object.__setattr__(self, "positions", positions)
            object.__setattr__(self, "mark", Mark())
            object.__setattr__(self, "counted", self.members)

    @property
    def groups(self) -> tuple[Group, ...]:
        """How many members there are of each grade."""
        return tuple(self.by_grade.values())

    @property
    def all_probed(self) -> bool:
        """Whether every source has answered or failed, and every member's first probe has ended."""
        return not self.undiscovered and all(grade.probed for grade in self.by_grade)

    def member(self, backend: str) -> Member | None:
        at = self.positions.get(backend)
        return None if at is None else self.members[at]

    def with_members(self, changed: Mapping[int, Member]) -> Pool:
        """The pool with these members in place of those at the same positions."""
        members, grades, groups, mark = list(self.members), list(self.grades), dict(self.by_grade), self.mark
        for at, member in changed.items():
            before = members[at]
            members[at] = member
            if member.mark is not before.mark:
                if member == before:
                    object.__setattr__(member, "mark", before.mark)
                else:
                    _remove(groups, grades[at])
                    grades[at] = _add(groups, member.grade)
                    mark = Mark()
        everyone = tuple(members)
        return Pool(
            everyone,
            self.pin,
            self.scheme_id,
            self.undiscovered,
            positions=self.positions,
            grades=tuple(grades),
            by_grade=groups,
            mark=mark,
            counted=everyone,
        )

    def knows_the_same(self, other: Pool) -> bool:
        """Whether the same is known and commanded as in `other`, a state of the same pool; times do not
        count."""
        return self.mark is other.mark and self.pin == other.pin

    def others_than(self, before: Pool) -> Iterator[Member]:
        """The members that are other objects than in `before`."""
        if self.positions is not before.positions:
            return iter(self.members)
        return compress(self.members, map(is_not, self.members, before.members))

    def news_since(self, before: Pool) -> Iterator[tuple[Member | None, Member]]:
        """The members of which something else is known, each behind what it was (None: it was not there)."""
        for member in self.others_than(before):
            old = before.member(member.backend.name)
            if old is None or (old.mark is not member.mark and old != member):
                yield old, member
