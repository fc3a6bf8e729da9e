"""State shared by all connections of one worker: configuration, snapshot, counts, caches and callbacks.

`worker` makes one `Context` and passes it to every connection. It holds no request and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import getrandbits
from time import monotonic
from typing import Final, Protocol, TypeAlias, final

from gateway.core.decision.decision import DecisionKey, Resolution
from gateway.core.decision.response import ResponseRewrite
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.fleet.fleet import Fact
from gateway.core.fleet.lifecycle import ANNOUNCED
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView, Snapshot, SnapshotSource
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.http.message import CLIENT_CERT
from gateway.core.http.request_ids import OPENSTACK_IDS, PLAIN_IDS
from gateway.dataplane.backends.ejection import (
    Ejections,
    MemberFailures,
    OnEjection,
    ReportedFailures,
    untold,
)
from gateway.dataplane.backends.queue import RequestQueue
from gateway.dataplane.documents.cached import CachedDocuments
from gateway.dataplane.documents.rewrite_cache import RewriteCache
from gateway.dataplane.http1.forwarding import UNIX_PEER, ForwardingLines, Network, Peer, plain_address
from gateway.dataplane.http1.head_readers import LayoutBudget, RequestReader, ResponseReader
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_body import HeldBodies
from gateway.dataplane.http1.request_ids import RequestIdSource
from gateway.dataplane.limits.admission import Admission
from gateway.dataplane.limits.rate_limiter import RateLimiter
from gateway.dataplane.limits.refusals import Refusals
from gateway.dataplane.limits.retry_budget import RetryBudget
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.limits.shedding import Shedder
from gateway.dataplane.sockets.bounded_reads import READ_SIZE
from gateway.dataplane.sockets.progress import MIN_RATE_GRACE
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.series.service import TunnelEnding
from gateway.telemetry.tracing import Tracing
from gateway.telemetry.usage import UsageCounter
from gateway.tls.client import ClientContexts
from gateway.tls.values import wall_clock

ResponseCacheKey: TypeAlias = tuple[Resolution, str, int, tuple[bytes, ...]]

draw_bits: Final = partial(getrandbits, RANDOM_BITS)
"""Draws the random bits for one choice among the members."""
NEVER: Final = float("inf")
"""Deadline of a connection that has none: infinity."""
SENT_AT_ONCE: Final = 16 * 1024
"""Bytes from which data to send is written at once: the transport then reports in the same call when too much
waits, and the other side is read no more in this loop iteration (threats R-B1), in which uvloop would read up
to 8 MiB."""
TICK: Final = 0.25
"""Seconds between two checks of all deadlines. One coarse clock replaces a timer per request: a timer costs
about as much as parsing a head, and a quarter of a second is fine enough for every deadline here."""

MAX_CACHED_RESPONSES: Final = 4096
MAX_CACHED_RESPONSE_SIZE: Final = 1024
"""Maximum bytes of the selected fields of a cached response: a backend may send a new `Vary` each time."""


class Writer(Protocol):
    """Target of `Context.send`: a transport, or a connection in front of one."""

    def is_closing(self) -> bool:
        """Whether the connection that is written to is closing: nothing can be written any more."""

    def write(self, data: bytes, /) -> None:
        """Write `data` now or, as far as that is not possible, later."""


class OpenTunnel:
    """Interface of a running tunnel (`tunnel`), as its worker uses it."""

    def __init__(self, service: str, deadline: float, expires_at: float) -> None:
        self.service = service
        self.deadline = deadline
        self.expires_at = expires_at
        """Wall-clock seconds at which the certificate of the tunnel's client expires."""

    def on_deadline(self) -> None:
        """Handle the tunnel's deadline: no byte has passed for too long."""
        raise NotImplementedError

    def cut(self, ending: TunnelEnding) -> None:
        """End the tunnel at once."""
        raise NotImplementedError


@final
class Context:
    """State shared by all connections of a worker, used in its event loop only. It has slots, because CPython
    is slower to find the methods of an object with more than thirty attributes and no slots."""

    __slots__ = (
        "_configured",
        "_loop",
        "_outbox",
        "_reads_ids",
        "_request_reader",
        "_response_readers",
        "_trusted_request_reader",
        "admission",
        "cached_documents",
        "client_contexts",
        "clock",
        "decision_cache",
        "draining",
        "ejections",
        "forwarding_lines",
        "held_back",
        "held_bodies",
        "in_flight_by_member",
        "in_flight_by_service",
        "leases",
        "limits",
        "metrics",
        "min_rate_grace",
        "now",
        "observe",
        "random_bits",
        "rate_limiter",
        "read_buffer",
        "record",
        "refusals",
        "request_ids",
        "request_layouts",
        "request_queue",
        "response_cache",
        "response_layouts",
        "retry_budget",
        "rewrite_cache",
        "snapshots",
        "timeouts",
        "tracing",
        "trusted",
        "tunnels",
        "usage",
        "wall_clock",
        "wall_time",
        "writes_client_cert",
    )

    def __init__(  # noqa: PLR0915 - it only assigns
        self,
        *,
        limits: Limits,
        timeouts: Timeouts,
        trusted: Sequence[Network],
        snapshots: SnapshotSource,
        observe: Callable[[str, str, Fact], None],
        metrics: Metrics,
        record: Callable[[RequestRecord], None],
        clock: Callable[[], float] = monotonic,
        random_bits: Callable[[], int] = draw_bits,
        on_ejection: OnEjection = untold,
        client_contexts: ClientContexts | None = None,
        tracing: Tracing | None = None,
        reads_ids: bool = True,
        shared: SharedLimits | None = None,
        usage: UsageCounter | None = None,
    ) -> None:
        self.limits = limits
        self.timeouts = timeouts
        """Time-outs for requests that have no service (yet)."""
        self.trusted = tuple(trusted)
        self.snapshots = snapshots
        self.observe = observe
        """Takes a fact (service, backend, fact) into the batch that is applied at the end of the event-loop
        iteration, or when `SnapshotSource.apply_batch` is called."""
        self.metrics = metrics
        self.record = record
        self.clock = clock
        """Returns monotonic seconds, by which facts are dated and durations measured."""
        self.wall_clock: Callable[[], float] = wall_clock  # by which certificates of clients expire
        self.random_bits = random_bits
        """Returns the random bits for one choice among members (`selection.select`)."""
        self.now = clock()
        """Time of the worker's last tick, in monotonic seconds: the coarse clock, for deadlines only."""
        self.wall_time = self.wall_clock()
        """Time of the worker's last tick, in seconds since the epoch: for what begins or ends on a day."""
        self.min_rate_grace = MIN_RATE_GRACE
        self.draining = False
        self.in_flight_by_member: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by member key."""
        self.in_flight_by_service: defaultdict[str, int] = defaultdict(int)
        """Requests in flight by service."""
        self.request_ids = RequestIdSource()
        self.tracing = tracing
        """Tracing of requests; None: the gateway takes no part in traces, whose headers pass unchanged."""
        self.usage = usage
        """Counter of clients and the versions that they use; None: usage is not recorded."""
        self.held_bodies = HeldBodies(limits.replay_total)
        self.leases = None if shared is None else shared.leases
        """Number of this worker's leases by key (`selection.is_full`); None with a single worker."""
        self.retry_budget = RetryBudget(self.in_flight_by_service, shared)
        self.ejections: MemberFailures = (
            Ejections(snapshots, metrics, clock, on_ejection)
            if shared is None
            else ReportedFailures(snapshots, shared)
        )
        self.held_back = self.ejections.held_back
        """Reduced shares of requests, by key of the ejected or re-entering member (`selection.select`)."""
        self.request_queue = RequestQueue(
            snapshots, self.in_flight_by_member, self.held_back, metrics, clock, random_bits, shared=shared
        )
        self.decision_cache: dict[DecisionKey, Resolution] = {}
        self.admission = Admission(Shedder(limits.shed_lag), metrics, shared)
        self.read_buffer = bytearray(READ_SIZE)
        """Read buffer shared by all connections with bounded reads (`bounded_reads`)."""
        self.tunnels: set[OpenTunnel] = set()
        self.client_contexts = client_contexts or ClientContexts()
        """OpenSSL contexts for TLS to backends."""
        self._loop = asyncio.get_running_loop()
        self._outbox: list[tuple[Writer, bytes]] = []
        self.response_cache: dict[ResponseCacheKey, ResponseRewrite] = {}
        """Cached rewrites of response heads, by all that they depend on; filled by `cache_response`."""
        self._configured: object = None
        """Routes for which the header readers were made: each configuration has its own object."""
        self.writes_client_cert = False
        """Whether some listener passes client certificates on to backends."""
        self._reads_ids = reads_ids
        self.request_layouts, self.response_layouts = LayoutBudget(), LayoutBudget()
        self._request_reader = self._trusted_request_reader = self._new_request_reader(frozenset())
        self._response_readers: dict[frozenset[str] | Service, ResponseReader] = {}
        """Response readers by owned field names: services with the same ones share a reader. One with a
        `lifecycle` has its own."""
        self.forwarding_lines = ForwardingLines()
        self.rate_limiter = RateLimiter()
        self.refusals = Refusals()
        self.cached_documents = CachedDocuments()
        self.rewrite_cache = RewriteCache()

    def send(self, writer: Writer, data: bytes) -> None:
        """Write `data` at the end of this loop iteration, after everything that has arrived was read. A write
        wakes the process at the other end, which costs more than all of the gateway's own work on a request;
        several writes in a row find it awake. Measured under load: a third less CPU per request."""
        outbox = self._outbox
        if not outbox:
            self._loop.call_soon(self.flush)
        outbox.append((writer, data))
        if len(data) >= SENT_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write all data that `send` has put off; also before a connection is closed, so nothing is lost."""
        outbox, self._outbox = self._outbox, []
        for writer, data in outbox:
            if not writer.is_closing():  # closed since: uvloop would raise, asyncio warn
                writer.write(data)

    def peer_at(self, transport: asyncio.BaseTransport) -> Peer:
        """Describe the client at the other end of a connection without TLS and PROXY header."""
        peername = transport.get_extra_info("peername")
        address = plain_address(str(peername[0])) if peername else UNIX_PEER
        return Peer(address, "http", self.trusted, self.forwarding_lines)

    def request_reader(self, trusted: bool) -> RequestReader:  # noqa: FBT001
        """Reader of request heads, for trusted peers or others. It selects the fields that the dialects of
        the current snapshot read or own; a new configuration applies from the next head on."""
        snapshot = self.snapshots.current
        if self._configured is not snapshot.routes:
            self._make_request_readers(snapshot)
        return self._trusted_request_reader if trusted else self._request_reader

    def _make_request_readers(self, snapshot: Snapshot) -> None:
        selected, ids = snapshot.selected_names, _request_id_names(snapshot)
        self._configured = snapshot.routes
        self.admission.configure(view.service for view in snapshot.views.values())
        self._response_readers.clear()
        written = CLIENT_CERT if self.writes_client_cert else ()
        self._trusted_request_reader = self._new_request_reader(selected, ids, written)
        dropped = (*snapshot.untrusted_headers, *CLIENT_CERT)
        self._request_reader = self._new_request_reader(selected, ids, dropped)

    def _new_request_reader(
        self, selected: frozenset[str], ids: frozenset[str] = frozenset(), dropped: Iterable[str] = ()
    ) -> RequestReader:
        table = NameTable.for_requests(selected, ids, dropped)
        table.reads_ids = self._reads_ids
        return RequestReader(table, self.limits, self.request_layouts)

    def response_reader(self, view: ServiceView) -> ResponseReader:
        """Reader of the response heads of one service."""
        service = view.service
        owned = service.dialect.owned_response
        key = owned if service.lifecycle is None else service
        reader = self._response_readers.get(key)
        if reader is None:
            more = {"vary"} if service.lifecycle is None else {"vary", *ANNOUNCED}
            table = NameTable.for_responses(owned | more)
            table.reads_ids = self._reads_ids
            reader = self._response_readers[key] = ResponseReader(table, self.response_layouts)
        return reader

    def cache_response(self, key: ResponseCacheKey, rewrite: ResponseRewrite) -> None:
        """Cache the rewrite for equal response heads. Bounded, since backends choose the keys."""
        if sum(map(len, key[3])) > MAX_CACHED_RESPONSE_SIZE:
            return
        if len(self.response_cache) >= MAX_CACHED_RESPONSES:
            self.response_cache.clear()
        self.response_cache[key] = rewrite


def _request_id_names(snapshot: Snapshot) -> frozenset[str]:
    """Normalized names of the fields in which a request may carry its id."""
    own = {view.service.dialect.request_ids.normalized_header for view in snapshot.views.values()}
    return frozenset({PLAIN_IDS.normalized_header, OPENSTACK_IDS.normalized_header, *own})
