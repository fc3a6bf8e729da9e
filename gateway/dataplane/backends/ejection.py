"""Passive ejection (outlier ejection): a member that keeps failing gets no requests for a while.

    failures in a row -> ejected, for `time` x the number of its ejections -> re-enters, with a growing share

    MemberFailures  <-  Ejections          counts and decides
                    <-  ReportedFailures   in one of several workers: the main process decides

Only failures of requests count, and they are known here alone: no fact, no snapshot and no offer changes
(semantics, Choosing). `core.decision.selection` gets each member's share of its requests, and still uses
ejected members if no other is usable. The coarse `Context.now` does not do here: the time of an ejection is
compared with that of a prober's fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gateway.core.decision.selection import ALL_REQUESTS
from gateway.core.fleet.failures import EjectionReason
from gateway.dataplane.local_responses.failures import Failure
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.worker_report import Ejected

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend, Member
    from gateway.core.fleet.failures import Ejection
    from gateway.core.fleet.snapshot import ServiceView, SnapshotSource
    from gateway.dataplane.limits.sharing import SharedLimits
    from gateway.telemetry.metrics import Metrics

FIRST_SHARE: Final = 0.1
"""Share of its usual requests that a member gets first after its ejection."""

REASON_OF: Final[dict[Failure, EjectionReason]] = {
    Failure.NOT_SENT: EjectionReason.BAD_GATEWAY,
    Failure.NO_REPLY: EjectionReason.BAD_GATEWAY,
    Failure.BAD_REPLY: EjectionReason.BAD_GATEWAY,
    Failure.MISPLACED: EjectionReason.BAD_GATEWAY,
    Failure.REPLY_CUT: EjectionReason.BAD_GATEWAY,
    Failure.REPLY_TIMEOUT: EjectionReason.TIMEOUT,
    Failure.REPLY_STALLED: EjectionReason.TIMEOUT,
}
"""Ejection reason by failure. No other failure is the member's fault. Failures to connect come through
`connect_failed`."""

_CLOSED_IDLE: Final = frozenset({Failure.NOT_SENT, Failure.NO_REPLY})
"""Failures that do not count for ejection on a connection that was idle: servers close idle ones."""

_TEXTS: Final[Mapping[EjectionReason, str]] = {
    EjectionReason.CONNECT: "no connection could be made",
    EjectionReason.BAD_GATEWAY: "connections broke, or responses were invalid",
    EjectionReason.TIMEOUT: "no response came in time",
    EjectionReason.SERVER_ERROR: "it answered with server errors",
}


OnEjection: TypeAlias = Callable[[str, str, bool], None]
"""Callback for ejections of members: (member key, what happened and why, whether it is ejected now)."""


def untold(_key: str, _text: str, _ejected: bool) -> None:  # noqa: FBT001
    """Ignore an ejection: the default callback."""


@final
class _Record:
    """Failure history of one member."""

    def __init__(self, member: Member, now: float) -> None:
        self.key = member.key
        self.service = member.service
        self.backend: Backend = member.backend
        self.failures = 0
        self.ejections = 0
        self.since = 0.0
        """Time of the member's last ejection."""
        self.until = 0.0
        """Time at which the member's ejection ends; 0: it is not ejected."""
        self.returned_at = 0.0
        """Time at which the member began to get requests again; 0: it is not re-entering."""
        self.well_since = now
        """Time since which the member has neither failed nor been ejected, and no ejection was forgotten."""
        self.reason = EjectionReason.CONNECT

    @property
    def sentence(self) -> str:
        return f"{_TEXTS[self.reason]}, {self.failures} in a row"


class MemberFailures:
    """Failures of requests by member, and which members are held back for them."""

    def __init__(self, snapshots: SnapshotSource) -> None:
        self.held_back: dict[str, int] = {}
        """Reduced shares of requests of ejected and re-entering members, by key. Always the same object."""
        self.watching = False
        """Whether responses must be reported: a member has failed lately, or statuses count as failures."""
        self._snapshots = snapshots
        self._counts_status = False
        """Whether some service counts responses with a status from 500 on as failures."""
        self._looked_at: object = None
        """Routes (one object for each configuration) for which `_counts_status` was computed last."""

    # -- what requests have met

    def failed(self, member: Member, failure: Failure, *, reused: bool) -> None:
        """Report a failed attempt at `member`. `reused`: it was on a connection that was idle."""
        reason = REASON_OF.get(failure)
        if reason is not None and not (reused and failure in _CLOSED_IDLE):
            self.count(member, reason)

    def connect_failed(self, service: str, backend: str) -> None:
        """Report a failure to connect to a backend that was not a shortage of this process."""
        member = self._member(service, backend)
        if member is not None:
            self.count(member, EjectionReason.CONNECT)

    def responded(self, member: Member, status: int) -> None:
        """Report a complete response of `member`. Call it while `watching`."""
        if status >= 500 and self._counts_status:
            plan = self._plan(member)
            if plan is not None and EjectionReason.SERVER_ERROR in plan.on:
                self.count(member, EjectionReason.SERVER_ERROR)
                return
        self.answered(member.key)

    def count(self, member: Member, reason: EjectionReason) -> None:
        """Count a failure of `member`, if its service counts failures of this kind."""
        raise NotImplementedError

    def answered(self, key: str) -> None:
        """Note that the member has answered a request to the end."""
        raise NotImplementedError

    # -- as time passes

    def tick(self) -> None:
        """Adapt the failure histories and ejections to the present time and configuration, at every tick."""
        routes = self._snapshots.current.routes
        if self._looked_at is not routes:
            self._looked_at = routes
            plans = [view.service.ejection for view in self._snapshots.current.views.values()]
            self._counts_status = any(
                plan is not None and EjectionReason.SERVER_ERROR in plan.on for plan in plans
            )

    def ejected(self) -> dict[str, Ejected]:
        """Ejected members by key."""
        raise NotImplementedError

    def _plan(self, member: Member) -> Ejection | None:
        view = self._snapshots.current.views.get(member.service)
        return None if view is None else view.service.ejection

    def _member(self, service: str, backend: str) -> Member | None:
        members = self._snapshots.current.fleet.member_sets.get(service)
        return None if members is None else members.member(backend)


@final
class Ejections(MemberFailures):
    """Counts failures and ejects members, for all workers. `clock`: the monotonic clock of the prober."""

    def __init__(
        self,
        snapshots: SnapshotSource,
        metrics: Metrics,
        clock: Callable[[], float],
        on_change: OnEjection = untold,
    ) -> None:
        super().__init__(snapshots)
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._records: dict[str, _Record] = {}

    # -- what requests have met

    def answered(self, key: str) -> None:
        record = self._records.get(key)
        if record is not None and not record.until:
            record.failures = 0

    def count(self, member: Member, reason: EjectionReason) -> None:
        plan = self._plan(member)
        if plan is None or reason not in plan.on:
            return
        now = self._clock()
        record = self._records.get(member.key)
        if record is None:
            record = self._records[member.key] = _Record(member, now)
            self.watching = True
        if record.until:
            return  # an ejected member is used if no other is usable
        record.failures += 1
        record.well_since = now
        if record.failures >= (1 if record.returned_at else plan.failures) and self._may_eject(member, plan):
            self._eject(record, plan, reason, now)

    def _may_eject(self, member: Member, plan: Ejection) -> bool:
        """Whether one more member may be ejected. One that gets no requests anyway is not."""
        view = self._snapshots.current.views[member.service]
        known = view.members.member(member.backend.name)
        if known is None or not known.in_service:
            return False
        return len(self._ejected_of(member.service)) < most_ejected(view, plan)

    def _ejected_of(self, service: str) -> list[_Record]:
        return [record for record in self._records.values() if record.until and record.service == service]

    def _eject(self, record: _Record, plan: Ejection, reason: EjectionReason, now: float) -> None:
        record.reason = reason
        record.ejections += 1
        seconds = min(plan.time * record.ejections, plan.max_time)
        record.since, record.until, record.returned_at = now, now + seconds, 0.0
        self.held_back[record.key] = 0
        self._metrics.count(OfBackend.ejections, reason, service=record.service, backend=record.backend.name)
        self._tell(record, f"ejected for {seconds:g} s: {record.sentence}; check {record.backend.url}")

    def _tell(self, record: _Record, text: str) -> None:
        self._on_change(record.key, text, bool(record.until))

    # -- as time passes

    def tick(self) -> None:
        """End ejections, let members re-enter, and forget old failures."""
        super().tick()
        if self._records:
            now = self._clock()
            for record in list(self._records.values()):
                self._look_at(record, now)
            for service in {record.service for record in self._records.values()}:
                self._keep_max_share(service, now)
        self.watching = self._counts_status or bool(self._records)

    def _look_at(self, record: _Record, now: float) -> None:
        member = self._member(record.service, record.backend.name)
        plan = None if member is None else self._plan(member)
        if member is None or plan is None or member.backend.url != record.backend.url:
            del self._records[record.key]
            self.held_back.pop(record.key, None)
            if record.until and member is not None:
                record.until = 0.0
                self._tell(record, "no longer ejected: its configuration has changed")
        elif record.until:
            if now >= record.until or _answers_again(record, member):
                self._end(record, now, plan)
        elif record.returned_at:
            share = max(FIRST_SHARE, (now - record.returned_at) / plan.time)
            if share < 1:
                self.held_back[record.key] = int(share * ALL_REQUESTS)
            else:
                record.returned_at = 0.0
                del self.held_back[record.key]
        elif not record.failures:
            self._forget(record, plan, now)

    def _end(self, record: _Record, now: float, plan: Ejection) -> None:
        record.until, record.failures = 0.0, 0
        record.returned_at = record.well_since = now
        self.held_back[record.key] = int(FIRST_SHARE * ALL_REQUESTS)
        self._tell(record, f"no longer ejected; back to its full share of requests within {plan.time:g} s")

    def _forget(self, record: _Record, plan: Ejection, now: float) -> None:
        """Forget one ejection for each `time` without failures, in the end the member's history."""
        if not record.ejections:
            del self._records[record.key]
        elif now - record.well_since >= plan.time:
            record.ejections -= 1
            record.well_since = now

    def _keep_max_share(self, service: str, now: float) -> None:
        """End the earliest ejections if, after a drain or a reload, more members are ejected than may be."""
        view = self._snapshots.current.views.get(service)
        plan = None if view is None else view.service.ejection
        if view is None or plan is None:
            return
        ejected = sorted(self._ejected_of(service), key=lambda record: record.since)
        surplus = max(0, len(ejected) - most_ejected(view, plan))
        for record in ejected[:surplus]:
            self._end(record, now, plan)

    # -- for other workers, and for people

    @property
    def failing(self) -> set[str]:
        """Keys of members whose last request has failed and that are not ejected."""
        return {key for key, record in self._records.items() if record.failures and not record.until}

    def ejected(self) -> dict[str, Ejected]:
        now = self._clock()
        return {
            record.key: Ejected(record.sentence, max(0.0, record.until - now))
            for record in self._records.values()
            if record.until
        }


def most_ejected(view: ServiceView, plan: Ejection) -> int:
    """Maximum number of members of a service that may be ejected at the same time."""
    in_service = sum(
        group.number for group in view.members.groups if group.summary.in_service and not group.summary.absent
    )
    return in_service * plan.max_share // 100


def _answers_again(record: _Record, member: Member) -> bool:
    """Whether a probe or response proves that a member works again.

    Only after the first ejection for connect failures: a probe that connects does just that, and if a probe
    ended every ejection the times could not grow. Other failures are those of requests that are unlike a
    probe.
    """
    return (
        record.reason is EjectionReason.CONNECT
        and record.ejections == 1
        and not member.connect_failed
        and member.advertised_at > record.since
    )


@final
class ReportedFailures(MemberFailures):
    """Failures of requests in one of several workers, which are reported to the main process."""

    def __init__(self, snapshots: SnapshotSource, shared: SharedLimits) -> None:
        super().__init__(snapshots)
        self._shared = shared
        self._failing: dict[str, str] = {}
        """Members whose next complete response is reported, with their URLs (empty: unknown)."""

    def count(self, member: Member, reason: EjectionReason) -> None:
        plan = self._plan(member)
        if plan is not None and reason in plan.on:
            self._failing[member.key] = member.backend.url
            self.watching = True
            self._shared.on_failure(member.key, member.backend.url, reason)

    def answered(self, key: str) -> None:
        url = self._failing.pop(key, None)
        if url is not None:
            self.watching = self._counts_status or bool(self._failing)
            self._shared.on_failure(key, url, None)

    def put_in_force(self, held_back: Mapping[str, int], failing: Iterable[str]) -> None:
        """Apply the main process's ejections. `failing`: members that have failed in any worker since."""
        self.held_back.clear()
        self.held_back.update(held_back)
        for key in failing:
            self._failing.setdefault(key, "")
        self.watching = self._counts_status or bool(self._failing)

    def tick(self) -> None:
        """Forget the failures of members that get no requests any more."""
        super().tick()
        for key in tuple(self._failing):
            service, _, backend = key.partition("/")
            member = self._member(service, backend)
            if member is None or not member.in_service:
                del self._failing[key]
        self.watching = self._counts_status or bool(self._failing)

    def ejected(self) -> dict[str, Ejected]:
        """Ejected members, always empty here: the main process knows them."""
        return {}
