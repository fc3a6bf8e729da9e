"""The plain numbers behind the metrics: what was counted so far, in dicts and lists.

No formatting, no metric names (those are in `telemetry.collector`), no lock: one event loop writes and reads.
The sets of keys are closed here, so that no client and no backend can make them grow without bound
(threats O7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.telemetry.request_record import NO_BACKEND

OTHER: Final = "other"
"""The label value of everything that is not in the closed set."""

NO_SERVICE: Final = "none"
"""The label `service` of requests that no service matched."""

BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets of all histograms, seconds: from a document on loopback to a slow power
action."""

MAX_VERSIONS: Final = 512
"""Version labels per service; the longest known range has 115 versions. A backend that advertises 10^6 must
not create 10^6 labels."""

MAX_CLIENT_ERROR_REASONS: Final = 64
"""Labels `reason` of client errors. They are constants of the data plane, a few dozen; the bound guards
against another text that is passed by mistake."""

RETRY_REASONS: Final = (
    *("connect", "connect_timeout", "not_sent", "no_reply", "reply_timeout"),
    *("version", "version_unknown"),
)

PROBE_FAILURES: Final = (
    "connect",  # no connection
    "timeout",
    "protocol",  # no valid HTTP, or cut off
    "redirect",
    "encoding",
    "too_large",
    "status",  # from here on: what dialects report
    "unauthorized",
    "document",
    "range",
    "steps",  # the dialect wanted too many requests
    "internal",  # a bug of the gateway
    OTHER,
)
"""The label `reason` of skewgate_probe_failures_total."""


INTERNAL: Final = "internal"
"""The reason of errors that a bug of the gateway caused."""

ADMIN_ERRORS: Final = (
    "body",  # incomplete, malformed or too large
    "forbidden",  # the wrong Host or Origin
    "head_too_large",
    INTERNAL,
    "malformed",  # not valid HTTP
    "timeout",  # a request or the reading of a response took too long
    "tls",  # TLS on a port without it
    "too_many_connections",
    "unauthorized",  # no token, or another one
)
"""The label `reason` of skewgate_admin_errors_total."""


@final
class Histogram:
    """Counts by bucket (the last one holds all above the last bound) and the sum of the values, seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


@final
class BackendCounters:
    """What is counted for one backend of one service."""

    __slots__ = ("deferred", "durations", "probe_failures", "probes", "version_mismatches")

    def __init__(self) -> None:
        self.durations = Histogram()
        self.probes = Histogram()
        self.probe_failures = dict.fromkeys(PROBE_FAILURES, 0)
        self.version_mismatches = 0
        self.deferred = 0


@final
class ServiceCounters:
    """What is counted for one service."""

    __slots__ = (
        "advertised",
        "backends",
        "durations",
        "negotiations",
        "offer_changes",
        "requests",
        "retries",
        "retries_given_up",
        "served",
    )

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {(NO_BACKEND, 503): 0}
        """By (backend, status). Status 0: the client left before a response began."""
        self.durations = Histogram()
        self.negotiations = {
            (requested, result): 0 for requested in RequestedKind for result in NegotiationResult
        }
        self.served: dict[str, int] = {OTHER: 0}
        self.backends: dict[str, BackendCounters] = {}
        self.retries = dict.fromkeys((*RETRY_REASONS, OTHER), 0)
        self.retries_given_up = 0
        self.offer_changes = dict.fromkeys(
            ((bound, direction) for bound in ("min", "max") for direction in ("up", "down")), 0
        )
        self.advertised = VersionSet()
        """Every version that a backend of the service has advertised since the start."""

    def add_series(self, view: ServiceView) -> None:
        """Add the series of everything that is configured and on offer, at zero."""
        for backend in view.service.backends:
            if backend.name not in self.backends:
                self.backends[backend.name] = BackendCounters()
                self.requests.setdefault((backend.name, 200), 0)
        advertised = advertised_by(view.pool.members)
        union = self.advertised | advertised
        self.advertised = union if len(union.ranges) <= MAX_VERSIONS else advertised
        if view.offer.versions and len(self.served) < MAX_VERSIONS:
            scheme = view.service.dialect.scheme
            for version in (view.offer.versions.lowest, view.offer.versions.highest):
                self.served.setdefault(scheme.format(version), 0)

    def count_request(self, backend: str, status: int) -> None:
        """Count under a (backend, status) that may be new."""
        known = backend == NO_BACKEND or backend in self.backends
        key = (backend if known else OTHER, status if 100 <= status <= 599 else 0)
        self.requests[key] = self.requests.get(key, 0) + 1

    def count_served(self, version: str, view: ServiceView | None) -> None:
        """Count a version that may be new. Only an advertised one gets a series of its own."""
        if version not in self.served and len(self.served) < MAX_VERSIONS and view is not None:
            parsed = view.service.dialect.scheme.parse(version)
            if parsed is not None and parsed in self.advertised:
                self.served[version] = 0
        self.served[version if version in self.served else OTHER] += 1


@final
class Counters:
    """All counts of one process."""

    def __init__(self, started_at: float) -> None:
        self.services: dict[str, ServiceCounters] = {}
        self.unrouted = ServiceCounters()
        """Requests that no service matched."""
        self.unconfigured = ServiceCounters()
        """Requests of services that are not configured any more."""
        self.client_errors: dict[str, int] = {OTHER: 0}
        self.admin_errors = dict.fromkeys(ADMIN_ERRORS, 0)
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload_successful = True
        """The configuration was read, or this process would not run."""
        self.last_success_at = started_at
        self.lags: dict[str, Histogram] = {}

    def add_series(self, snapshot: Snapshot) -> None:
        """Add the series of every configured service and backend, at zero."""
        for name, view in snapshot.views.items():
            self.services.setdefault(name, ServiceCounters()).add_series(view)


def advertised_by(members: Iterable[Member]) -> VersionSet:
    """Every version that one of `members` advertises, legacy ones included."""
    versions = VersionSet()
    for member in members:
        if member.advertisement is not None:
            versions |= member.advertisement.versions
    return versions
