"""Doubts about a backend's known versions: responses that contradict them, and answers that show none.

A member holds two values beside its advertisement. Both keep requests from it for a while, and neither
changes the offer. Nothing here applies a fact (`core.fleet.fleet`) or sends a probe. Times are those at which
requests were sent, in seconds that the caller passes; they are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, final

from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version

MAX_MISMATCHED_RANGES: Final = 256
"""Most separate ranges of mismatched versions; beyond them all that is advertised counts as mismatched.
Clients choose these versions, and each range makes every later fact cost more."""

MAX_MISMATCHED_PATHS: Final = 8
"""Most paths of mismatches told apart: clients choose them. One more counts as every version's second."""

LEGACY_ANSWERS: Final = 3
"""Legacy answers in a row until a backend with known versions counts as legacy."""

NEVER: Final = float("-inf")


@final
@dataclass(frozen=True, slots=True)
class Mismatches:
    """Versions of requests whose responses named another served version (threats V9), since the last
    successful regular probe. One path does not prove it (semantics, Knowing): such a version is avoided until
    any probe has succeeded, one that a second path contradicted until the next regular probe."""

    by_path: tuple[tuple[str, VersionSet], ...] = ()
    """Mismatched versions that only one path has shown, by path, sorted."""
    by_several: VersionSet = NO_VERSIONS
    unanswered: VersionSet = NO_VERSIONS
    """Mismatched versions of `by_path` since whose mismatch no probe has succeeded."""
    last_at: float = field(default=NEVER, compare=False)
    regular_probe_at: float = field(default=NEVER, compare=False)
    prompted_probe_at: float = field(default=NEVER, compare=False)

    @property
    def avoided(self) -> VersionSet:
        """Versions at which the member gets no request now, because of mismatches."""
        return self.by_several | self.unanswered

    @property
    def wait_for_probe(self) -> bool:
        """Whether no successful probe of the member was sent since its last mismatch."""
        return self.last_at > max(self.regular_probe_at, self.prompted_probe_at)

    def with_mismatch(self, version: Version, path: str, at: float, advertised: VersionSet) -> Mismatches:
        """Mismatches after a response to a request for `path`; this same object if it adds nothing. A regular
        probe sent later has cleared it. After a prompted one the path is remembered."""
        found = dict(self.by_path)
        if at <= self.regular_probe_at or version in self.by_several | found.get(path, NO_VERSIONS):
            return self
        one = VersionSet.only(version)
        several, unanswered = self.by_several, self.unanswered
        if any(version in versions for versions in found.values()) or (
            path not in found and len(found) == MAX_MISMATCHED_PATHS
        ):
            several = _bounded(several | one, advertised)
        else:
            found[path] = _bounded(found.get(path, NO_VERSIONS) | one, advertised)
            if at > self.prompted_probe_at:
                unanswered = _bounded(unanswered | one, advertised)
        left = ((each, versions - several) for each, versions in sorted(found.items()))
        return replace(
            self,
            by_path=tuple((each, versions) for each, versions in left if versions),
            by_several=several,
            unanswered=unanswered - several,
            last_at=max(at, self.last_at),
        )

    def after_probe(self, at: float, *, prompted: bool) -> Mismatches:
        """Mismatches of a member after a successful probe. One sent before the last mismatch clears none."""
        if prompted:
            unanswered = self.unanswered if at < self.last_at else NO_VERSIONS
            return replace(self, unanswered=unanswered, prompted_probe_at=max(at, self.prompted_probe_at))
        if at < self.last_at:
            return replace(self, regular_probe_at=max(at, self.regular_probe_at))
        return Mismatches(regular_probe_at=at)


@final
@dataclass(frozen=True, slots=True)
class UnknownVersion:
    """State of a member with unknown versions, though it has shown some: a response lacked the served version
    that its API always sends, or a probe got a legacy answer. An older server may run there now. It ends when
    a probe or passive observation shows versions, or with the third legacy answer in a row."""

    holds: bool = False
    legacy_answers: int = field(init=False, default=0)
    since: float = field(default=NEVER, compare=False)
    """Time at which the request or probe was sent whose response last showed no versions."""
    missing_at: float = field(default=NEVER, compare=False)
    """Time at which the request was sent whose response last lacked the served version."""
    answered_at: tuple[float, ...] = field(default=(), compare=False)
    """Times at which the probes were sent that got the last legacy answers in a row."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "legacy_answers", len(self.answered_at))

    @property
    def wait_for_probe(self) -> bool:
        """Whether a response has made the member's versions unknown, and no probe has answered since."""
        return self.holds and not self.legacy_answers and self.missing_at == self.since

    def with_missing(self, at: float) -> UnknownVersion:
        """State of a member's versions after a response without the served one; itself if nothing changes."""
        if self.holds and at <= self.since:
            return self
        return replace(self, holds=True, since=max(at, self.since), missing_at=max(at, self.missing_at))

    def with_legacy_answer(self, at: float) -> UnknownVersion:
        """State of the member's versions after a probe with a legacy answer."""
        return replace(self, holds=True, since=max(at, self.since), answered_at=(*self.answered_at, at))

    def after_failed_probe(self) -> UnknownVersion:
        """State of a member's versions after a failed probe: as before, but no legacy answers in a row."""
        return replace(self, answered_at=()) if self.answered_at else self

    def after_versions(self, at: float, *, passive: bool = False) -> UnknownVersion:
        """State of a member's versions after a probe or `passive` observation that showed some. A response
        may carry a range and lack the served version: then nothing is known."""
        if at >= self.since and not (passive and at == self.missing_at):
            return KNOWN_VERSION
        answered_at = tuple(each for each in self.answered_at if each > at)
        return self if answered_at == self.answered_at else replace(self, answered_at=answered_at)


NO_MISMATCHES: Final = Mismatches()
KNOWN_VERSION: Final = UnknownVersion()


def _bounded(versions: VersionSet, advertised: VersionSet) -> VersionSet:
    return versions if len(versions.ranges) <= MAX_MISMATCHED_RANGES else advertised
