"""`skew`: how far apart the releases of a service's backends are, in upgrade steps.

A backend shows versions, not its release. Its highest version tells it: the release that has it, or else the
next one. If that leaves a choice, the shortest distance counts, so that a warning is always true. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.core.dialect import Dialect
from gateway.core.fleet.backend import MemberSummary
from gateway.core.fleet.member_set import MemberSet
from gateway.core.versions.version import Version
from gateway.keys.kinds import section
from gateway.keys.texts import count


@final
@dataclass(frozen=True, slots=True)
class Skew:
    """Largest distance of the releases in service that is supported."""

    releases: int = count(1, 20).key(
        1,
        "How many upgrade steps the newest release in service may be ahead of the oldest. A step leads to "
        "the next release; in OpenStack also from a SLURP release to the next one.",
        reason="Projects test upgrades of one step.",
        example=2,
    )


SKEW: Final = section(
    Skew,
    "A warning when releases in service, by the highest versions of backends, are further apart than the "
    "API's project supports. Their order is OpenStack's; in other dialects that of `releases`.",
)


class SkewState(NamedTuple):
    """Distance of the releases in service, in upgrade steps, and the backends that are too new."""

    releases: int
    supported: int
    too_new: tuple[str, ...] = ()
    problem: str | None = None


@final
class ReleaseOrder:
    """The releases of a service in order. `releases`: those of its configuration."""

    def __init__(self, dialect: Dialect, releases: Mapping[str, Version]) -> None:
        versions = {**dialect.releases, **releases} if dialect.release_order else releases
        self.names = dialect.release_order or tuple(sorted(releases, key=lambda name: releases[name]))
        self.skip_level = [self.names.index(name) for name in dialect.skip_level]
        self.known = [(at, versions[name]) for at, name in enumerate(self.names) if name in versions]

    def span(self, summary: MemberSummary) -> tuple[int, int]:
        """The oldest and the newest release that a backend in service may have, as positions in order."""
        if not summary.advertised or (summary.legacy and summary.advertised.highest < self.known[0][1]):
            return self.known[0][0] - 1, self.known[0][0] - 1
        highest, versions = summary.advertised.highest, [version for _, version in self.known]
        begin, end = bisect_left(versions, highest), bisect_right(versions, highest)
        first = self.known[begin - 1][0] + 1 if begin else self.known[0][0]
        last = self.known[end][0] - (begin < end) if end < len(versions) else len(self.names)
        return first, max(first, last)

    def steps(self, older: int, newer: int) -> int:
        """The least number of upgrade steps from one release to a newer one."""
        at, count = older, 0
        while at < newer:
            skipping = [each for each in self.skip_level if at < each <= newer]
            at = skipping[0] if skipping and at in self.skip_level else at + 1
            count += 1
        return count

    def state(self, members: MemberSet, supported: int) -> SkewState:
        """How far apart the backends in service are."""
        spans = {summary: self.span(summary) for summary in members.by_summary if summary.in_service}
        oldest, newest = min(spans.values(), default=(0, 0)), max(spans.values(), default=(0, 0))
        steps = self.steps(oldest[1], newest[0])
        if steps <= supported:
            return SkewState(steps, supported)
        pairs = zip(members.all, members.summaries, strict=True)
        found = [(member.backend.name, spans[summary]) for member, summary in pairs if summary in spans]
        too_new = tuple(name for name, span in found if self.steps(oldest[1], span[0]) > supported)
        more = f" and {len(too_new) - 4} more" if len(too_new) > 4 else ""
        problem = (
            f"too new for {next(name for name, span in found if span == oldest)} ({self._name(oldest)}): "
            f"{', '.join(too_new[:4])}{more}; the newest is {self._name(newest)}, {steps} upgrade steps "
            f"ahead, {supported} supported: drain what is too new, or upgrade the oldest first"
        )
        return SkewState(steps, supported, too_new, problem)

    def _name(self, span: tuple[int, int]) -> str:
        """Write releases as `2024.1`, `xena to yoga`, `before kilo` or `after 2026.2`."""
        begin, end = self.known[0][0], self.known[-1][0]
        if span[0] < begin or span[0] > end:
            return f"before {self.names[begin]}" if span[0] < begin else f"after {self.names[end]}"
        first, last = self.names[span[0]], self.names[min(span[1], end)]
        return first if first == last else f"{first} to {last}"
