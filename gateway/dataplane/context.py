"""What all connections of one worker share: the configuration, the snapshot, counts, caches and callbacks.

`worker` makes one object and passes it to every connection. It holds no request and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from random import getrandbits
from time import monotonic
from typing import Final, Protocol, TypeAlias, final

from gateway.core.decision.decision import DecisionKey, Resolution
from gateway.core.decision.response import ResponseRewrite
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.fleet.fleet import Fact
from gateway.core.fleet.snapshot import ServiceView, Snapshot, SnapshotSource
from gateway.core.http.message import normalize_name
from gateway.dataplane.bounded_reads import READ_SIZE
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.known_documents import KnownDocuments
from gateway.dataplane.rate_limiter import RateLimiter
from gateway.dataplane.request_body import HeldBodies
from gateway.dataplane.request_ids import RequestIdSource
from gateway.dataplane.retry_budget import RetryBudget
from gateway.dataplane.rewritten_documents import RewrittenDocuments
from gateway.settings.model.document import Limits, Timeouts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord

Network: TypeAlias = IPv4Network | IPv6Network
ResponseCacheKey: TypeAlias = tuple[Resolution, str, int, tuple[bytes, ...]]

draw_bits: Final = partial(getrandbits, RANDOM_BITS)
"""The random bits for one choice among the members."""
NEVER: Final = float("inf")
"""The deadline of a connection that has none."""
SENT_AT_ONCE: Final = 16 * 1024
"""Bytes. So large a piece is written at once: its transport tells in the same call when too much waits, and
the other side is read no more in this turn (threats R-B1). uvloop reads up to 8 MiB in one turn otherwise."""
TICK: Final = 0.25
"""Seconds between two checks of all deadlines. There is one coarse clock and no timer per request: a timer
costs about as much as parsing a head, and for every deadline here a quarter of a second is fine enough."""

MAX_CACHED_RESPONSES: Final = 4096
MAX_CACHED_RESPONSE_SIZE: Final = 1024
"""Bytes of the selected fields of one cached response: a backend may send another `Vary` of 64 KiB each
time."""


class Writer(Protocol):
    """A transport, or what stands before one."""

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""

    def write(self, data: bytes, /) -> None:
        """Write `data`, as far as it cannot be written at once later."""


@final
class Context:
    """Shared by all connections of a worker; used in its event loop only."""

    def __init__(
        self,
        *,
        limits: Limits,
        timeouts: Timeouts,
        trusted: tuple[Network, ...],
        snapshots: SnapshotSource,
        observe: Callable[[str, str, Fact], None],
        metrics: Metrics,
        record: Callable[[RequestRecord], None],
        clock: Callable[[], float] = monotonic,
        random_bits: Callable[[], int] = draw_bits,
    ) -> None:
        self.limits = limits
        self.timeouts = timeouts
        self.trusted = trusted
        self.snapshots = snapshots
        self.observe = observe
        self.metrics = metrics
        self.record = record
        self.clock = clock
        """Monotonic seconds, by which facts are dated and durations measured."""
        self.random_bits = random_bits
        """As many as `selection.select` takes."""
        self.now = 0.0
        """Monotonic seconds, as of the last tick: for deadlines only."""
        self.draining = False
        self.in_flight_by_member: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by member key."""
        self.in_flight_by_service: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by service."""
        self.request_ids = RequestIdSource()
        self.held_bodies = HeldBodies()
        self.retry_budget = RetryBudget(self.in_flight_by_service)
        self.decision_cache: dict[DecisionKey, Resolution] = {}
        self.rate_limiter = RateLimiter()
        self.known_documents = KnownDocuments()
        self.rewritten_documents = RewrittenDocuments()
        self.read_buffer = bytearray(READ_SIZE)
        """For `bounded_reads`."""
        self._loop = asyncio.get_running_loop()
        self._outbox: list[tuple[Writer, bytes]] = []
        self.response_cache: dict[ResponseCacheKey, ResponseRewrite] = {}
        """The rewrite of a response head, by what it depends on; filled by `cache_response`."""
        self._configured: object = None
        """Of the snapshot from which the tables were made: each configuration has routes of its own."""
        self._request_names = self._trusted_request_names = NameTable.for_requests(frozenset())
        self._response_names: dict[str, tuple[ServiceView, NameTable]] = {}

    def send(self, writer: Writer, data: bytes) -> None:
        """Write `data` at the end of this turn of the event loop, after everything that has arrived was read.

        A write wakes the process at the other end, and waking a sleeping process costs more than all of the
        gateway's own work on a request. Several writes in a row find it awake. Measured under load: a third
        less CPU per request.
        """
        outbox = self._outbox
        if not outbox:
            self._loop.call_soon(self.flush)
        outbox.append((writer, data))
        if len(data) >= SENT_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write all data that waits. Called before a connection is closed too, so that none is lost."""
        outbox, self._outbox = self._outbox, []
        for writer, data in outbox:
            if not writer.is_closing():  # lost since: uvloop would raise, asyncio warn
                writer.write(data)

    def request_names(self, trusted: bool) -> NameTable:  # noqa: FBT001
        """The table for request heads of a peer that is trusted or not: it selects what the dialects of the
        current snapshot read or own. A new configuration is in force from the next head on."""
        snapshot = self.snapshots.current
        if self._configured is not snapshot.routes:
            self._make_request_names(snapshot)
        return self._trusted_request_names if trusted else self._request_names

    def _make_request_names(self, snapshot: Snapshot) -> None:
        selected, ids = snapshot.selected_names, _request_id_names(snapshot)
        self._configured = snapshot.routes
        self._trusted_request_names = NameTable.for_requests(selected, ids)
        self._request_names = NameTable.for_requests(selected, ids, snapshot.untrusted_headers)

    def response_names(self, view: ServiceView) -> NameTable:
        """The table for the response heads of one service."""
        name = view.service.name
        cached = self._response_names.get(name)
        if cached is None or cached[0].service is not view.service:
            selected = view.service.dialect.owned_response | {"vary"}
            cached = self._response_names[name] = (view, NameTable.for_responses(selected))
        return cached[1]

    def cache_response(self, key: ResponseCacheKey, rewrite: ResponseRewrite) -> None:
        """Keep `rewrite` for equal response heads. Bounded in number and size: backends choose the keys."""
        if sum(map(len, key[3])) > MAX_CACHED_RESPONSE_SIZE:
            return
        if len(self.response_cache) >= MAX_CACHED_RESPONSES:
            self.response_cache.clear()
        self.response_cache[key] = rewrite


def _request_id_names(snapshot: Snapshot) -> frozenset[str]:
    """The fields (normalized) in which the services of this configuration have request ids."""
    all_ids = (view.service.dialect.request_ids for view in snapshot.views.values())
    return frozenset(normalize_name(ids.request_header) for ids in all_ids if ids is not None)
