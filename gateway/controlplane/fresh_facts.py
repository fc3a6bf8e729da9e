"""What replicas see of a service by probes that were sent after an operator asked for them.

    request  ->  every live replica probes each backend of the service now
    sights  <-  what each replica has seen since, as a `Sight`

Other replicas are asked and answer through the store (`replication`). What an operator waits for is judged in
`admin.waiting`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from gateway.controlplane.sight import ANSWERED_FOR, Sight
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Member

if TYPE_CHECKING:
    from gateway.controlplane.prober import Prober
    from gateway.controlplane.replication.replication import Replication

_AT: Final = r":([0-9]+\.[0-9]+):([0-9]+)"
"""Pattern of a question after the id of this process: its time here, and its revision (0: no store)."""


@final
class FreshFacts:
    """Asks for probes, and returns what came of them. `in_flight()`: requests in flight by member key, of all
    workers. With `replication`, questions go to all replicas."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        prober: Prober,
        in_flight: Callable[[], Mapping[str, int]],
        replication: Replication | None = None,
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._prober = prober
        self._in_flight = in_flight
        self._replication = replication
        self._id = uuid4().hex[:8]
        if replication is not None:
            replication.facts = self

    async def request(self, service: str) -> str:
        """Ask all replicas to probe a service. Returns the name of the question. Raises `StoreError`."""
        revision = 0 if self._replication is None else await self._replication.request_probes(service)
        return f"{self._id}:{self._prober.probe_now(service):.9f}:{revision}"

    def knows(self, question: str) -> bool:
        """Whether this process has asked `question`, and replicas still answer it."""
        asked = re.fullmatch(self._id + _AT, question)
        return asked is not None and monotonic() < float(asked[1]) + ANSWERED_FOR / 2

    def repeat(self, service: str, question: str) -> None:
        """Probe the backends again that have not answered a probe since the question."""
        self._prober.probe_now(service, unanswered_since=float(question.split(":")[1]))

    def sights(self, service: str, question: str) -> Mapping[str, Sight | None]:
        """What each live replica has seen since the question, by its id; this one's is empty. None: the
        replica has not answered the question yet."""
        _, at, revision = question.split(":")
        others = {} if self._replication is None else self._replication.sights(service, int(revision))
        return {"": self.sight(service, float(at)), **others}

    def probe(self, service: str) -> float:
        """Probe a service for another replica. Returns the time for `sight`."""
        return self._prober.probe_now(service)

    def sight(self, service: str, since: float) -> Sight:
        """What this replica sees of a service by probes that were sent at `since` or later."""
        self._snapshot_holder.apply_batch()
        view = self._snapshot_holder.current.views[service]
        members, in_flight = view.members.all, self._in_flight()
        counts = [member for member in members if not member.drained and not member.backend.leaving]
        answered = {member.backend.name for member in members if self._has_answered(member, service, since)}
        names = frozenset(member.backend.name for member in counts)
        return Sight(
            view.offer.phase.value,
            {each.backend.name: each.usable_versions for each in members if each.backend.name in answered},
            names - answered,
            frozenset(name for name in names if not self._prober.has_ended((service, name), since)),
            frozenset(each.backend.name for each in members if each.drained and not in_flight.get(each.key)),
        )

    def _has_answered(self, member: Member, service: str, since: float) -> bool:
        """Whether the present knowledge of a backend is from a probe since then. An answer without versions
        counts only when it is believed."""
        if member.unknown_version.legacy_answers or member.probe_error is not None:
            return False
        return self._prober.has_answered((service, member.backend.name), since)

    async def changed(self, seconds: float) -> None:
        """Wait until the snapshot changes, at most for some seconds."""
        news = asyncio.Event()
        unsubscribe = self._snapshot_holder.subscribe(lambda _before, _after: news.set())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), seconds)
        finally:
            unsubscribe()
