"""The plain numbers behind the metrics: what was counted so far, in dicts and lists.

No formatting, no metric names (those are `telemetry.scrape`), no lock: one event loop writes and reads. The
key sets are closed here, so that no client and no backend can make them grow without bound (hardening O7).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, final

from gateway.core.backend import Member
from gateway.core.decision import Verdict
from gateway.core.dialect import AskKind
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.telemetry.outcome import NO_BACKEND

OTHER: Final = "other"
"""The label value of whatever is in no closed set."""

NO_SERVICE: Final = "none"
"""The label `service` of requests that no service matched."""

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of all histograms, seconds: from a document on loopback to a slow power action."""

MOST_VERSIONS: Final = 512
"""Version labels a service; the longest known range has 115. A backend that advertises 10^6 must not make
10^6."""

MOST_CODE_REASONS: Final = 64
"""Reasons of client errors: constants of the data plane, a few dozen. A guard against a text slipping in."""

RETRY_REASONS: Final = ("connect", "connect_timeout", "no_reply", "reply_timeout", "version")

PROBE_FAILURES: Final = (
    "connect",  # no connection
    "tls",  # a connection, but no agreement on TLS
    "timeout",
    "protocol",  # no valid HTTP, or cut off
    "redirect",
    "encoding",
    "too_large",
    "status",  # from here on: what dialects say
    "unauthorized",
    "document",
    "range",
    "steps",  # the dialect asked more than it may
    "internal",  # our own bug
    OTHER,
)
"""The label `reason` of skewgate_probe_failures_total."""


@final
class Histogram:
    """Observations by bucket (the last one holds all above the last bound) and their sum, seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


@final
class BackendTally:
    """What is counted for one backend of one service."""

    __slots__ = ("contradictions", "deferred", "durations", "probe_failures", "probes")

    def __init__(self) -> None:
        self.durations = Histogram()
        self.probes = Histogram()
        self.probe_failures = dict.fromkeys(PROBE_FAILURES, 0)
        self.contradictions = 0
        self.deferred = 0


@final
class Tally:
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
        """By (backend, status); status 0 is a client that left before anything was answered."""
        self.durations = Histogram()
        self.negotiations = {(ask, verdict): 0 for ask in AskKind for verdict in Verdict}
        self.served: dict[str, int] = {OTHER: 0}
        self.backends: dict[str, BackendTally] = {}
        self.retries = dict.fromkeys((*RETRY_REASONS, OTHER), 0)
        self.retries_given_up = 0
        self.offer_changes = dict.fromkeys(
            ((bound, direction) for bound in ("min", "max") for direction in ("up", "down")), 0
        )
        self.advertised = VersionSet()
        """Every version that a backend of the service has advertised since the start."""

    def enrol(self, view: ServiceView) -> None:
        """Make the series of all that is configured and on offer exist, at zero."""
        for backend in view.service.backends:
            if backend.name not in self.backends:
                self.backends[backend.name] = BackendTally()
                self.requests.setdefault((backend.name, 200), 0)
        now = advertised(view.pool.members)
        union = self.advertised | now
        self.advertised = union if len(union.ranges) <= MOST_VERSIONS else now
        if view.offer.versions and len(self.served) < MOST_VERSIONS:
            scheme = view.service.dialect.scheme
            for version in (view.offer.versions.lowest, view.offer.versions.highest):
                self.served.setdefault(scheme.format(version), 0)

    def count_request(self, backend: str, status: int) -> None:
        """Count under a (backend, status) that may be new."""
        known = backend == NO_BACKEND or backend in self.backends
        key = (backend if known else OTHER, status if 100 <= status <= 599 else 0)
        self.requests[key] = self.requests.get(key, 0) + 1

    def count_served(self, version: str, view: ServiceView | None) -> None:
        """Count a version that may be new: only one that was advertised gets a series of its own."""
        if version not in self.served and len(self.served) < MOST_VERSIONS and view is not None:
            read = view.service.dialect.scheme.parse(version)
            if read is not None and read in self.advertised:
                self.served[version] = 0
        self.served[version if version in self.served else OTHER] += 1


@final
class Book:
    """All counts of one process."""

    def __init__(self, started_at: float) -> None:
        self.services: dict[str, Tally] = {}
        self.unrouted = Tally()
        """Requests that no service matched."""
        self.strays = Tally()
        """Requests of a service that is not configured any more."""
        self.client_errors: dict[str, int] = {OTHER: 0}
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload_successful = True
        """The configuration was read, or this process would not run."""
        self.last_success_at = started_at
        self.lags: dict[str, Histogram] = {}

    def enrol(self, snapshot: Snapshot) -> None:
        """Make the series of every configured service and backend exist."""
        for name, view in snapshot.views.items():
            self.services.setdefault(name, Tally()).enrol(view)


def advertised(members: Iterable[Member]) -> VersionSet:
    """Every version in an advert of `members`, silent ones' included."""
    found = VersionSet()
    for member in members:
        if member.advert is not None:
            found |= member.advert.versions
    return found
