"""The members of one service, found by name and counted by summary.

Immutable. Values that depend on all members are updated for the few that change, so one fact costs about the
same with two backends or a thousand. `core.fleet.fleet` applies facts, `core.fleet.offer` forms offers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, compress, repeat
from operator import is_not
from types import MappingProxyType
from typing import NamedTuple, TypeVar, final

from gateway.core.agreement.raised import NOT_RAISED, Raised
from gateway.core.fleet.backend import Mark, Member, MemberSummary
from gateway.core.versions.version import Version

_Item = TypeVar("_Item")


def with_items(mapping: Mapping[str, _Item], items: Mapping[str, _Item]) -> Mapping[str, _Item]:
    """A copy of a mapping with `items` in place of those with the same names, in the same order."""
    copy = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)  # 20 times as fast
    copy.update(items)
    return MappingProxyType(copy)


def names_of_others(before: Mapping[str, _Item], after: Mapping[str, _Item]) -> Iterator[str]:
    """Names of a mapping's items that are other objects than in `before`, or were not there."""
    # Nearly all are the same, in the same order: they are compared without Python code.
    others = compress(after.items(), map(is_not, chain(before.values(), repeat(None)), after.values()))
    return (name for name, item in others if before.get(name) is not item)


class Group(NamedTuple):
    """A summary of members, with the number of members that share it."""

    summary: MemberSummary
    number: int


def _add(groups: dict[MemberSummary, Group], summary: MemberSummary) -> MemberSummary:
    """Count one more member with this summary, and return the one object for it."""
    group = groups.get(summary)
    if group is None:
        groups[summary] = Group(summary, 1)
        return summary
    groups[group.summary] = Group(group.summary, group.number + 1)
    return group.summary


def _remove(groups: dict[MemberSummary, Group], summary: MemberSummary) -> None:
    number = groups[summary].number
    if number == 1:
        del groups[summary]
    else:
        groups[summary] = Group(summary, number - 1)


@final
@dataclass(frozen=True, slots=True)
class MemberSet:
    """The members of one service, in the configuration's order."""

    all: tuple[Member, ...]
    pin: Version | None = None
    raised: Raised = NOT_RAISED
    scheme_id: tuple[object, ...] = ()
    """Dialect and scheme in which `pin` and `raised` were read; in another they have no meaning."""
    undiscovered: bool = False
    """Whether some source of backends has neither answered nor failed yet, so that more may come at once."""
    positions: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    summaries: tuple[MemberSummary, ...] = field(default=(), compare=False, repr=False)
    """Summary of each member of the service, in order. Equal ones are one object."""
    by_summary: Mapping[MemberSummary, Group] = field(default_factory=dict, compare=False, repr=False)
    mark: Mark = field(default_factory=Mark, compare=False, repr=False)
    """Identity token: replaced when something else is known of a member; it stays if only times are new."""
    counted: tuple[Member, ...] | None = field(default=None, compare=False, repr=False)
    """Members for which the set's derived fields were computed; they are computed again for others."""

    def __post_init__(self) -> None:
        if self.counted is not self.all:
            groups: dict[MemberSummary, Group] = {}
            summaries = tuple(_add(groups, member.summary) for member in self.all)
            positions = {member.backend.name: at for at, member in enumerate(self.all)}
            object.__setattr__(self, "summaries", summaries)
            object.__setattr__(self, "by_summary", groups)
            object.__setattr__(self, "positions", positions)
            object.__setattr__(self, "mark", Mark())
            object.__setattr__(self, "counted", self.all)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each member summary of the service, with the number of members that share it."""
        return tuple(self.by_summary.values())

    @property
    def all_probed(self) -> bool:
        """Whether every source has answered or failed, and every member's first probe has ended."""
        return not self.undiscovered and all(summary.probed for summary in self.by_summary)

    @property
    def legacy_alone(self) -> bool:
        """Whether some member is known, and all that are known are legacy. Drained and down ones count."""
        known = [summary.legacy for summary in self.by_summary if summary.advertised is not None]
        return bool(known) and all(known)

    @property
    def drained(self) -> Mapping[str, str]:
        """Names of the drained backends, each with the name that was given for that, or an empty one."""
        return {each.backend.name: each.drained_by for each in self.all if each.drained_by is not None}

    def member(self, backend: str) -> Member | None:
        at = self.positions.get(backend)
        return None if at is None else self.all[at]

    def names(self, wanted: Callable[[MemberSummary], object]) -> tuple[str, ...]:
        """Names of the members whose summary is wanted, in order."""
        found = {id(summary) for summary in self.by_summary if wanted(summary)}
        each = zip(self.all, self.summaries, strict=True) if found else ()
        return tuple(member.backend.name for member, summary in each if id(summary) in found)

    def with_members(self, changed: Mapping[int, Member]) -> MemberSet:
        """A copy of the member set with these members in place of those at the same positions."""
        members = list(self.all)
        news: dict[int, Member] = {}
        for at, member in changed.items():
            before = members[at]
            members[at] = member
            if member.mark is not before.mark:
                if member == before:
                    object.__setattr__(member, "mark", before.mark)
                else:
                    news[at] = member
        everyone = tuple(members)
        summaries, groups, mark = self.summaries, self.by_summary, self.mark
        if news:  # otherwise only times are new, as after most probes
            summaries, groups = self._counted_with(news)
            mark = Mark()
        return replace(
            self, all=everyone, summaries=summaries, by_summary=groups, mark=mark, counted=everyone
        )

    def _counted_with(
        self, news: Mapping[int, Member]
    ) -> tuple[tuple[MemberSummary, ...], Mapping[MemberSummary, Group]]:
        """The summaries and their groups with these members in place of those at the same positions."""
        summaries, groups = list(self.summaries), dict(self.by_summary)
        for at, member in news.items():
            _remove(groups, summaries[at])
            summaries[at] = _add(groups, member.summary)
        return tuple(summaries), groups

    def knows_the_same(self, other: MemberSet) -> bool:
        """Whether the same is known of all members, and commanded, as in `other`, a state of this set."""
        return self.mark is other.mark and self.pin == other.pin and self.raised == other.raised

    def others_than(self, before: MemberSet) -> Iterator[Member]:
        """Members of the service that are other objects than in the earlier set `before`."""
        if self.positions is not before.positions:
            return iter(self.all)
        return compress(self.all, map(is_not, self.all, before.all))

    def news_since(self, before: MemberSet) -> Iterator[tuple[Member | None, Member]]:
        """Members with something else known than in `before`, each behind its old state (None: it is new)."""
        for member in self.others_than(before):
            old = before.member(member.backend.name)
            if old is None or (old.mark is not member.mark and old != member):
                yield old, member
