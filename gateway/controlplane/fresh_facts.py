"""What replicas see of a service by probes that were sent after an operator asked for them.

    request  ->  every live replica probes each backend of the service now
    sights  <-  what each replica has seen since, as a `Sight`

Other replicas are asked and answer through the store (`replication`). What an operator waits for is judged in
`admin.waiting`.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from gateway.controlplane.sight import ANSWERED_FOR, Evidence, Sight
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.snapshot import Snapshot
from gateway.telemetry.request_record import NO_BACKEND
from gateway.telemetry.worker_report import Ejected

if TYPE_CHECKING:
    from gateway.controlplane.prober import Prober
    from gateway.controlplane.replication.replication import Replication

_AT: Final = r":([0-9]+\.[0-9]+):([0-9]+)"
"""Pattern of a question after the id of this process: its time here, and its revision (0: no store)."""


@final
class FreshFacts:
    """Asks for probes, and returns what came of them. `in_flight()`: requests in flight by member key, as all
    workers have counted them last. `counted()`: waits until they know the present snapshot and have counted
    anew, and an earlier gateway has ended; None: there are no other processes. `evidence`:
    `Metrics.evidence`. `ejected()`: ejections by member key. With `replication`, questions go to all."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        prober: Prober,
        in_flight: Callable[[], Mapping[str, int]],
        replication: Replication | None = None,
        counted: Callable[[], Awaitable[object]] | None = None,
        *,
        evidence: Callable[[str], Mapping[tuple[str, str, bool], int]] = lambda _service: {},
        ejected: Callable[[], Mapping[str, Ejected]] = dict,
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._prober = prober
        self._in_flight = in_flight
        self._replication = replication
        self._counted = counted
        self._evidence = evidence
        self._ejected = ejected
        self._recounts: dict[str, asyncio.Task[None] | None] = {}
        """Drained members, by key, each with the task that waits until all workers know of the drain and have
        counted anew; None: they have. Counts from before may lack a request that was sent until then."""
        self._id = uuid4().hex[:8] if replication is None else replication.id
        snapshot_holder.subscribe(self._on_change)
        if replication is not None:
            replication.facts = self

    async def request(self, service: str, judged: str = "") -> str:
        """Ask all replicas to probe a service, and what they have counted to judge a member. Returns the name
        of the question. Raises `StoreError`."""
        replication = self._replication
        revision = 0 if replication is None else await replication.request_probes(service, judged)
        return f"{self._id}:{self._prober.probe_now(service):.9f}:{revision}"

    def knows(self, question: str) -> bool:
        """Whether this process has asked `question`, and replicas still answer it."""
        asked = re.fullmatch(self._id + _AT, question)
        return asked is not None and monotonic() < float(asked[1]) + ANSWERED_FOR / 2

    def repeat(self, service: str, question: str) -> None:
        """Probe the backends again that have not answered a probe since the question."""
        self._prober.probe_now(service, unanswered_since=float(question.split(":")[1]))

    def sights(self, service: str, question: str, judged: str = "") -> Mapping[str, Sight | None]:
        """What each live replica has seen since the question, by its id; this one's is empty. None: the
        replica has not answered the question yet. `judged`: as for `request`."""
        _, at, revision = question.split(":")
        others = {} if self._replication is None else self._replication.sights(service, int(revision))
        return {"": self.sight(service, float(at), judged), **others}

    def probe(self, service: str) -> float:
        """Probe a service for another replica. Returns the time for `sight`."""
        return self._prober.probe_now(service)

    def sight(self, service: str, since: float, judged: str = "") -> Sight:
        """What this replica sees of a service by probes that were sent at `since` or later, and what it has
        counted to judge the member `judged`."""
        self._snapshot_holder.apply_batch()
        view = self._snapshot_holder.current.views[service]
        members = view.members.all
        counts = [member for member in members if not member.drained and not member.backend.leaving]
        answered = {member.backend.name for member in members if self._has_answered(member, service, since)}
        names = frozenset(member.backend.name for member in counts)
        return Sight(
            view.offer.phase.value,
            {each.backend.name: each.usable_versions for each in members if each.backend.name in answered},
            names - answered,
            frozenset(name for name in names if not self._prober.has_ended((service, name), since)),
            self.idle(service),
            self._judged(service, view.members.member(judged)),
        )

    def _judged(self, service: str, member: Member | None) -> Evidence | None:
        if member is None:
            return None
        trouble = f"down: {member.probe_error}" if member.freshness is Freshness.DOWN else ""
        if ejected := self._ejected().get(member.key):
            trouble = f"ejected: {ejected.reason}"
        found, lost = defaultdict[str, list[int]](lambda: [0, 0, 0, 0]), 0
        for (backend, version, failed), number in self._evidence(service).items():
            if backend == NO_BACKEND:
                lost += number
                continue
            first = 0 if backend == member.backend.name else 2
            found[version][first] += number
            found[version][first + 1] += number * failed
        return Evidence(member.backend.name, trouble, lost, found)

    def idle(self, service: str) -> frozenset[str]:
        """Names of drained backends to which this replica has no request in flight, and sends none."""
        members, in_flight = self._snapshot_holder.current.views[service].members.all, self._in_flight()
        self._watch_drains(members)
        return frozenset(
            each.backend.name
            for each in members
            if each.drained and self._recounts[each.key] is None and not in_flight.get(each.key)
        )

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        for _, view in after.news_since(before):
            known = before.fleet.member_sets.get(view.service.name)
            members = view.members
            self._watch_drains(members.all if known is None else members.others_than(known))

    def _watch_drains(self, members: Iterable[Member]) -> None:
        """Begin to wait for new counts of those of these members that were drained; forget the others."""
        new = []
        for each in members:
            if not each.drained:
                self._recounts.pop(each.key, None)
            elif each.key not in self._recounts:
                new.append(each.key)
        if new:
            waits = self._counted is not None
            task = asyncio.create_task(self._recount()) if waits else None  # noqa: TID251 - `_recounts` owns it
            self._recounts |= dict.fromkeys(new, task)

    async def _recount(self) -> None:
        assert self._counted is not None
        await self._counted()
        me = asyncio.current_task()
        self._recounts |= {key: None for key, task in self._recounts.items() if task is me}

    def _has_answered(self, member: Member, service: str, since: float) -> bool:
        """Whether the present knowledge of a backend is from a probe since then. An answer without versions
        counts only when it is believed."""
        if member.unknown_version.legacy_answers or member.probe_error is not None:
            return False
        return self._prober.has_answered((service, member.backend.name), since)

    async def changed(self, seconds: float) -> None:
        """Wait until the snapshot changes, at most for some seconds."""
        before = self._snapshot_holder.current
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._snapshot_holder.until(lambda now: now is not before)
