"""What all connections of one worker share: where to look things up, what to count in, whom to tell.

Holds no request and moves no byte. One object a worker, made by `worker`, passed to every connection.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias, final

from gateway.core.decision import RecallKey, Resolution
from gateway.core.fleet import Fact
from gateway.core.replying import Marking
from gateway.core.snapshot import ServiceView, SnapshotSource
from gateway.dataplane.budget import RetryBudget
from gateway.dataplane.metering import Meter
from gateway.dataplane.names import NameTable
from gateway.settings.model import Limits, Timeouts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.outcome import Outcome

Network: TypeAlias = IPv4Network | IPv6Network
MarkingKey: TypeAlias = tuple[Resolution, str, int, tuple[bytes, ...]]

TICK: Final = 0.25
"""Seconds between two looks at the deadlines. One coarse clock instead of a timer per request: a timer costs
about as much as parsing a head, and no limit here is so fine that a quarter of a second matters."""

REMEMBERED_MARKINGS: Final = 4096
REMEMBERED_MARKING: Final = 1024
"""Bytes of the lines of a reply that are worth remembering: a backend may send 64 KiB of another `Vary` each
time."""


@final
class Context:
    """Shared by all connections of a worker; touched by its loop only."""

    def __init__(
        self,
        *,
        limits: Limits,
        timeouts: Timeouts,
        trusted: tuple[Network, ...],
        snapshots: SnapshotSource,
        observe: Callable[[str, str, Fact], None],
        metrics: Metrics,
        record: Callable[[Outcome], None],
    ) -> None:
        self.limits = limits
        self.timeouts = timeouts
        self.trusted = trusted
        self.snapshots = snapshots
        self.observe = observe
        self.metrics = metrics
        self.record = record
        self.now = 0.0
        """Monotonic seconds, as of the last tick: for deadlines only."""
        self.draining = False
        self.load: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by member key."""
        self.in_flight: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by service."""
        self.budget = RetryBudget(self.in_flight)
        self.recall: dict[RecallKey, Resolution] = {}
        self.meter = Meter()
        self._loop = asyncio.get_running_loop()
        self._outbox: list[tuple[asyncio.Transport, bytes]] = []
        self.markings: dict[MarkingKey, Marking] = {}
        """What was made of equal replies before; filled by `remember`."""
        self._request_names = NameTable.for_requests(frozenset())
        self._reply_names: dict[str, tuple[ServiceView, NameTable]] = {}

    def send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Write `data` when everything that has arrived in this turn of the loop has been looked at.

        A write wakes the process at the other end, and waking one that sleeps costs more than all our own
        work on a request; written in a row they find it awake (measured: a third of the CPU per request under
        load).
        """
        outbox = self._outbox
        if not outbox:
            self._loop.call_soon(self.flush)
        outbox.append((transport, data))

    def flush(self) -> None:
        """Write what waits; also asked before a connection is closed, so that nothing said is lost."""
        outbox, self._outbox = self._outbox, []
        for transport, data in outbox:
            if not transport.is_closing():  # it may have been lost since; uvloop raises then, asyncio counts
                transport.write(data)

    def request_names(self) -> NameTable:
        """The table for request heads: what the current snapshot's dialects read or own is set apart."""
        table, apart = self._request_names, self.snapshots.current.owned
        if table.apart is not apart and table.apart != apart:
            table = self._request_names = NameTable.for_requests(apart)
        return table

    def reply_names(self, view: ServiceView) -> NameTable:
        """The table for reply heads of one service."""
        name = view.service.name
        held = self._reply_names.get(name)
        if held is None or held[0].service is not view.service:
            apart = view.service.dialect.owned_reply | {"vary"}
            held = self._reply_names[name] = (view, NameTable.for_replies(apart))
        return held[1]

    def remember(self, key: MarkingKey, marking: Marking) -> None:
        """Bounded in number and size: backends choose the keys."""
        if sum(map(len, key[3])) > REMEMBERED_MARKING:
            return
        if len(self.markings) >= REMEMBERED_MARKINGS:
            self.markings.clear()
        self.markings[key] = marking
