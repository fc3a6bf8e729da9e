"""Failures of members as one of several workers meets them: the parent is told, counts those of all workers
and decides (`ejection.Ejections`). What it has decided comes back to `put_in_force`.

    a failure                        is told, each
    a complete response after it     is told once: it ends the row of failures

Complete responses of a member that has failed in another worker are told, too, once for each `put_in_force`
that names it. All others cost nothing. Sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, final

from gateway.dataplane.backends.ejection import MemberFailures
from gateway.telemetry.worker_report import Ejected

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Member
    from gateway.core.fleet.failures import EjectionReason
    from gateway.core.fleet.snapshot import SnapshotSource

Tell: TypeAlias = "Callable[[str, str, EjectionReason | None], None]"
"""Called with (member key, URL of the backend, what has failed). None: it has answered."""


@final
class ReportedFailures(MemberFailures):
    """Those of one worker."""

    def __init__(self, snapshots: SnapshotSource, tell: Tell) -> None:
        super().__init__(snapshots)
        self._tell = tell
        self._failing: dict[str, str] = {}
        """Members whose next complete response is told, with their URLs (empty: not known)."""

    def count(self, member: Member, reason: EjectionReason) -> None:
        """A failure of `member`, which counts if its service counts those."""
        plan = self._plan(member)
        if plan is not None and reason in plan.on:
            self._failing[member.key] = member.backend.url
            self.watching = True
            self._tell(member.key, member.backend.url, reason)

    def answered(self, key: str) -> None:
        """The member with this key has answered a request to the end."""
        url = self._failing.pop(key, None)
        if url is not None:
            self.watching = self._counts_status or bool(self._failing)
            self._tell(key, url, None)

    def put_in_force(self, held_back: Mapping[str, int], failing: Iterable[str]) -> None:
        """What the parent has decided. `failing`: keys of members that have failed in any worker since the
        last time."""
        self.held_back.clear()
        self.held_back.update(held_back)
        for key in failing:
            self._failing.setdefault(key, "")
        self.watching = self._counts_status or bool(self._failing)

    def look(self) -> None:
        """Forget members that get no requests any more."""
        super().look()
        for key in tuple(self._failing):
            service, _, backend = key.partition("/")
            member = self._member(service, backend)
            if member is None or not member.in_service:
                del self._failing[key]
        self.watching = self._counts_status or bool(self._failing)

    def ejected(self) -> dict[str, Ejected]:
        """The parent knows."""
        return {}
