"""Requests that wait because every member that may get them is full.

A member with a bound (`max_requests`, `max_connections`) takes only so many requests at a time. A request for
which all are full is counted in the shortest of their queues, and goes to whichever member has room first.
Requests for the same members go in their order, one for each request that ends, so nothing is sent all at
once. With several workers each has a part of every queue, and leases for some of a member's requests
(`sharing`); a request waits here, too, while a lease may come from another worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, final

from gateway.core.decision.decision import Resolution, awaited, reselect
from gateway.core.fleet.backend import Member
from gateway.dataplane.local_responses.failures import Failure
from gateway.telemetry.series.backend import OfBackend

if TYPE_CHECKING:
    from gateway.core.fleet.snapshot import SnapshotSource
    from gateway.dataplane.limits.sharing import SharedLimits
    from gateway.telemetry.metrics import Metrics

NO_BOUND: Final = float("inf")
LEASE_WAIT: Final = 0.1
"""Seconds for which a request without a place in a queue waits for a lease of another worker."""

Line: TypeAlias = tuple[object, ...]
"""Key of the requests that may get the same members: (service, whether it is transparent, version, endpoint,
members tried). Requests of one line go in their order. A reload makes a new service: requests from before it
wait for the old members, and do not hold up the others."""


class Turn(NamedTuple):
    """Place of a request in the queue and the rest of its waiting time, kept in case it has to wait again."""

    number: int
    """Number of the request's wait; numbers count up, so a lower one has waited longer."""
    left: float
    """Seconds for which the request may still wait."""


class WaitingRequest(Protocol):
    """A request that can wait for a member with room."""

    def on_room(self, member: Member | None, failure: Failure | None, turn: Turn) -> None:
        """Send the request to `member`, which has room; None: no member is left. It has left the queue.
        `failure`: as given to `RequestQueue.enter`. `turn`: for another wait."""

    def give_up(self, failure: Failure) -> None:
        """Fail the request: it has waited too long and left the queue."""


class _QueueEntry(NamedTuple):
    line: Line
    resolution: Resolution
    tried: tuple[str, ...]
    failure: Failure | None
    """Failure of the request's last attempt; None before the first."""
    member: Member
    """Member in whose queue the request is counted."""
    number: int
    until: float


@final
class RequestQueue:
    """The waiting requests of one worker. `in_flight_by_member` and `held_back` as for `selection.select`."""

    def __init__(
        self,
        snapshots: SnapshotSource,
        in_flight_by_member: MutableMapping[str, int],
        held_back: Mapping[str, int],
        metrics: Metrics,
        clock: Callable[[], float],
        random_bits: Callable[[], int],
        *,
        shared: SharedLimits | None = None,
    ) -> None:
        self.watches = False
        """Whether ended requests must be reported to `give_back`: some wait for room, here or elsewhere."""
        self.waiting_by_member: dict[str, int] = {}
        """Number of waiting requests by member key, without zeros."""
        self._snapshots = snapshots
        self._in_flight = in_flight_by_member
        self._held_back = held_back
        self._metrics = metrics
        self._clock = clock
        self._random_bits = random_bits
        self._shared = shared
        self._leases = None if shared is None else shared.leases
        self._lines: dict[Line, dict[WaitingRequest, _QueueEntry]] = {}
        """Waiting requests by `Line`, each line in the order of its requests' numbers; no line is empty."""
        self._entries: dict[WaitingRequest, _QueueEntry] = {}
        self._number = 0
        self._given_back: list[str] = []
        """Member keys of requests that have ended, once for each. They count as in flight until the waiting
        requests were asked, so that no newcomer takes their place."""

    def enter(
        self,
        request: WaitingRequest,
        resolution: Resolution,
        tried: tuple[str, ...],
        failure: Failure | None,
        turn: Turn | None = None,
    ) -> bool | None:
        """Let a request wait for a member with room. False: all queues are full, which is counted. None: no
        member is left. `turn`: from an earlier wait, whose place the request gets back."""
        waiting = self.waiting_by_member
        members = awaited(resolution, self._snapshots.current, tried, self._held_back)
        if not members:
            return None
        longest = NO_BOUND
        free = [one for one in members if turn or waiting.get(one.key, 0) < self._places_for(one)]
        if not free and self._shared is not None:
            longest = LEASE_WAIT
            free = [one for one in members if self._may_get_lease(one, self._shared)]
        if not free:
            full = members[0]
            self._count(full, Failure.QUEUE_FULL)
            return False
        member = min(free, key=lambda one: waiting.get(one.key, 0))
        view = resolution.view
        line = (view.service, view.offer.transparent, resolution.version, resolution.endpoint, tried)
        if turn is None:
            self._number += 1
            turn = Turn(self._number, min(member.backend.queue.timeout, longest))
        until = self._clock() + turn.left
        entry = _QueueEntry(line, resolution, tried, failure, member, turn.number, until)
        self._entries[request] = entry
        queued = self._lines.setdefault(line, {})
        is_last = not queued or next(reversed(queued.values())).number < entry.number
        queued[request] = entry
        if not is_last:
            self._lines[line] = dict(sorted(queued.items(), key=lambda each: each[1].number))
        waiting[member.key] = waiting.get(member.key, 0) + 1
        self._waiting_changed()
        return True

    def _count(self, member: Member, reason: Failure) -> None:
        self._metrics.count(
            OfBackend.queue_refused, reason, service=member.service, backend=member.backend.name
        )

    def _places_for(self, member: Member) -> int:
        length = member.backend.queue.length
        return length if self._shared is None else self._shared.places(length)

    def _may_get_lease(self, member: Member, shared: SharedLimits) -> bool:
        """Whether other workers may have unused leases of a member for all requests that would wait here."""
        elsewhere = member.bound - shared.leases.get(member.key, 0)
        waiting = self.waiting_by_member.get(member.key, 0)
        return member.key not in shared.exhausted and waiting < self._places_for(member) + elsewhere

    def _waiting_changed(self) -> None:
        shared = self._shared
        self.watches = bool(self._entries) or (shared is not None and bool(shared.recalled))
        if shared is not None:
            shared.on_leases()

    def leave(self, request: WaitingRequest) -> None:
        """Remove a waiting request that goes on, or whose client has gone."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return
        line, key = self._lines[entry.line], entry.member.key
        del line[request]
        if not line:
            del self._lines[entry.line]
        self._waiting_changed()
        left = self.waiting_by_member[key] - 1
        if left:
            self.waiting_by_member[key] = left
        else:
            del self.waiting_by_member[key]

    def give_back(self, key: str) -> None:
        """Note that a request at the member `key` has ended while others wait (`watches`). The next one
        begins in the next loop iteration, not inside this call."""
        if not self._given_back:
            asyncio.get_running_loop().call_soon(self._pass_on)
        self._given_back.append(key)

    def _pass_on(self) -> None:
        given_back, self._given_back = self._given_back, []
        for key in given_back:
            self._in_flight[key] -= 1
        if self._shared is not None and self._shared.recalled:
            for key in given_back:
                if key in self._shared.recalled:
                    self._shared.give_turn(key, self._in_flight[key])
            self._shared.on_leases()
        self._admit()

    def leases_wanted(self) -> dict[str, int]:
        """Number of waiting requests that could go to each member, by key."""
        wanted: dict[str, int] = {}
        for line in self._lines.values():
            entry = next(iter(line.values()))
            for member in self._awaited(entry):
                if member.bound:
                    wanted[member.key] = wanted.get(member.key, 0) + len(line)
        return wanted

    def leases_changed(self) -> None:
        """Try the waiting requests again: there are other leases, or other workers want other ones."""
        self._admit()
        self._waiting_changed()

    def expire(self) -> None:
        """Fail requests that have waited too long, and try the others again: members come, go and change."""
        if not self._entries:
            return
        now = self._clock()
        for request, entry in [each for each in self._entries.items() if each[1].until <= now]:
            if request in self._entries:
                self.leave(request)
                member = entry.member
                self._count(member, Failure.QUEUE_TIMEOUT)
                request.give_up(entry.failure or Failure.QUEUE_TIMEOUT)
        self._admit()

    def _admit(self) -> None:
        """Let every waiting request go that has a member with room, oldest first. A line ends at its first
        that has none."""
        heads = [(next(iter(waiting.values())).number, line) for line, waiting in self._lines.items()]
        heapify(heads)
        while heads:
            _, line = heappop(heads)
            if line not in self._lines:  # an earlier request has ended those that waited here
                continue
            request, entry = next(iter(self._lines[line].items()))
            member = self._member_for(entry)
            if member is None and self._awaited(entry):
                continue
            self.leave(request)
            request.on_room(member, entry.failure, Turn(entry.number, entry.until - self._clock()))
            if waiting := self._lines.get(line):
                heappush(heads, (next(iter(waiting.values())).number, line))

    def _member_for(self, entry: _QueueEntry) -> Member | None:
        """Draw a member for a waiting request. It is final: a second draw might say that it has to wait."""
        self._snapshots.apply_batch()
        return reselect(
            entry.resolution,
            self._snapshots.current,
            self._in_flight,
            self._random_bits(),
            entry.tried,
            self._held_back,
            leases=self._leases,
        )

    def _awaited(self, entry: _QueueEntry) -> tuple[Member, ...]:
        return awaited(entry.resolution, self._snapshots.current, entry.tried, self._held_back)
