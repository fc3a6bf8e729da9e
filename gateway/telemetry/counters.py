"""The plain numbers behind the metrics: what was counted so far, in dicts and lists.

No formatting, no metric names (those are in `telemetry.collector`), no lock: one event loop writes and reads.
The sets of keys are closed here, so that no client and no backend can make them grow without bound
(threats O7). What is not configured any more is dropped, so that no number of reloads can either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from enum import StrEnum
from itertools import accumulate, product
from typing import Final, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Member
from gateway.core.fleet.ejection import EjectionReason
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.request_record import NO_BACKEND

OTHER: Final = "other"
"""The label value of everything that is not in the closed set."""

NO_SERVICE: Final = "none"
"""The label `service` of requests that no service matched."""

ANY_BACKEND: Final = "any"
"""The label `backend` of requests that a backend answered, where series by backend are switched off."""

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
    *("connect", "connect_timeout", "tls", "not_sent", "no_reply", "reply_timeout"),
    *("version", "version_unknown"),
)

HANDSHAKE_RESULTS: Final = (
    "full",  # a new session
    "resumed",  # a known session
    "closed",  # the client has left
    "timeout",  # timeouts.handshake
    "displaced",  # it had to yield to others (limits.handshakes)
    "plain_http",  # plain HTTP on a port for TLS
    "not_tls",  # neither TLS nor HTTP
    "oversized",  # more bytes than any handshake has
    "version",  # only versions of TLS that are too old
    "cipher",  # no common cipher
    "client_certificate",  # none where one is required, or one that is not valid
    "client_refused",  # the client has sent an alert: it does not trust the certificate, for example
    "protocol",  # anything else that breaks TLS
)
"""The label `result` of skewgate_tls_handshakes_total."""

QUEUE_REFUSALS: Final = ("queue_full", "queue_timeout")
"""The label `reason` of skewgate_queue_refused_total."""

OUT_OF_STEP: Final = ("surplus", "misplaced")
"""The label `reason` of skewgate_out_of_step_total."""

PROBE_FAILURES: Final = (
    "connect",  # no connection
    "tls",  # no TLS: the certificate is not valid, for example
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


ADMISSION_REASONS: Final = ("access", "client_concurrency", "client_rate", "overload")
"""The label `reason` of skewgate_requests_refused_total."""


_NO_EJECTIONS: Final = dict.fromkeys(EjectionReason, 0)
_NO_QUEUE_REFUSALS: Final = dict.fromkeys(QUEUE_REFUSALS, 0)
# Copied for each backend and service: a thousand new ones come in one reload.
_NO_PROBE_FAILURES: Final = dict.fromkeys(PROBE_FAILURES, 0)
_NO_NEGOTIATIONS: Final = dict.fromkeys(product(RequestedKind, NegotiationResult), 0)
_NO_RETRIES: Final = dict.fromkeys((*RETRY_REASONS, OTHER), 0)
_NO_REFUSALS: Final = dict.fromkeys(ADMISSION_REASONS, 0)
_NO_OFFER_CHANGES: Final = dict.fromkeys(product(("min", "max"), ("up", "down")), 0)


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

    __slots__ = (
        *(
            "certificate_expiry",
            "deferred",
            "durations",
            "ejections",
            "out_of_step",
            "probe_failures",
            "probes",
        ),
        *("queue_refused", "version_mismatches"),
    )

    def __init__(self) -> None:
        self.durations = Histogram()
        self.probes = Histogram()
        self.probe_failures = _NO_PROBE_FAILURES.copy()
        self.version_mismatches = 0
        self.deferred = 0
        self.ejections = _NO_EJECTIONS.copy()
        self.queue_refused = _NO_QUEUE_REFUSALS.copy()
        self.out_of_step = dict.fromkeys(OUT_OF_STEP, 0)
        self.certificate_expiry = 0.0
        """Of the certificate that it has shown to a probe, seconds since the epoch; 0: none was seen."""


class TunnelEnding(StrEnum):
    """How a tunnel has ended: the label `result` of skewgate_tunnels_total; but for `closed`, the `reason` in
    the access log, too."""

    CLOSED = "closed"
    """Both sides have sent everything."""
    CLIENT_GONE = "client_gone"
    BACKEND_GONE = "backend_gone"
    IDLE = "tunnel_idle"
    DRAINED = "drained"
    """Cut at the end of the drain time."""
    CERTIFICATE_EXPIRED = "certificate_expired"
    """The certificate of the client has expired."""


@final
class TunnelCounters:
    """What is counted of the upgrades of one service."""

    __slots__ = ("bytes_in", "bytes_out", "ended", "forwarded", "open", "removed")

    def __init__(self) -> None:
        self.forwarded = 0
        """Requests that asked a backend for an upgrade."""
        self.removed = 0
        """Requests whose upgrade the service does not allow."""
        self.open = 0
        self.ended = dict.fromkeys(TunnelEnding, 0)
        self.bytes_in = 0
        """From clients."""
        self.bytes_out = 0
        """To clients."""


@final
class ServiceCounters:
    """What is counted for one service."""

    __slots__ = (
        "_advertised",
        "_looked_at",
        "backends",
        "bytes_in",
        "bytes_out",
        "durations",
        "negotiations",
        "offer_changes",
        "refused",
        "requests",
        "retries",
        "retries_given_up",
        "served",
        "tunnels",
    )

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {(NO_BACKEND, 503): 0}
        """By (backend, status). Status 0: the client left before a response began."""
        self.durations = Histogram()
        self.bytes_in = 0
        """Of bodies, from clients."""
        self.bytes_out = 0
        """Of bodies, to clients."""
        self.negotiations = _NO_NEGOTIATIONS.copy()
        self.served: dict[str, int] = {OTHER: 0}
        self.backends: dict[str, BackendCounters] = {}
        self.retries = _NO_RETRIES.copy()
        self.retries_given_up = 0
        self.refused = _NO_REFUSALS.copy()
        self.offer_changes = _NO_OFFER_CHANGES.copy()
        self.tunnels = TunnelCounters()
        self._advertised = VersionSet()
        """Every version that a backend of the service advertised when `count_served` looked."""
        self._looked_at: ServiceView | None = None
        """The view from which `_advertised` is up to date."""

    def configure(self, names: Collection[str]) -> None:
        """Add the series of new backends, at zero, and drop those of removed ones. `names`: of all configured
        backends of the service."""
        for name in names:
            if name not in self.backends:
                self.backends[name] = BackendCounters()
                self.requests.setdefault((name, 200), 0)
        removed = self.backends.keys() - names
        if removed:
            for name in removed:
                del self.backends[name]
            for key in [key for key in self.requests if key[0] in removed]:
                del self.requests[key]

    def add_offer(self, offer: Offer, scheme: Scheme) -> None:
        """Add the series of the ends of an offer, at zero."""
        if offer.versions and len(self.served) < MAX_VERSIONS:
            for version in (offer.versions.lowest, offer.versions.highest):
                self.served.setdefault(scheme.format(version), 0)

    def count_request(self, backend: str, status: int, times: int = 1) -> None:
        """Count under a (backend, status) that may be new."""
        known = backend == NO_BACKEND or backend in self.backends
        key = (backend if known else OTHER, status if 100 <= status <= 599 else 0)
        self.requests[key] = self.requests.get(key, 0) + times

    def count_served(self, version: str, view: ServiceView | None) -> None:
        """Count a version that may be new. Only an advertised one gets a series of its own."""
        if version not in self.served and len(self.served) < MAX_VERSIONS and view is not None:
            parsed = view.service.dialect.scheme.parse(version)
            if parsed is not None and parsed in self._advertised_with(view):
                self.served[version] = 0
        self.served[version if version in self.served else OTHER] += 1

    def _advertised_with(self, view: ServiceView) -> VersionSet:
        """Every version that a backend of the service has advertised, up to `view`. Made here only, since
        hardly any request names a version that is new."""
        if view is not self._looked_at:
            self._looked_at = view
            advertised = advertised_by(view.pool.members)
            union = self._advertised | advertised
            self._advertised = union if len(union.ranges) <= MAX_VERSIONS else advertised
        return self._advertised


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
        self.handshakes = dict.fromkeys((*HANDSHAKE_RESULTS, OTHER), 0)
        self.certificate_reloads = {"success": 0, "failure": 0}
        self.admin_errors = dict.fromkeys(ADMIN_ERRORS, 0)
        self.reloads = {"success": 0, "failure": 0}
        self.last_reload_successful = True
        """The configuration was read, or this process would not run."""
        self.last_success_at = started_at
        self.lags: dict[str, Histogram] = {}


def advertised_by(members: Iterable[Member]) -> VersionSet:
    """Every version that one of `members` advertises, legacy ones included."""
    # Most backends advertise the same, and each set counts once.
    sets = {member.advertisement.versions for member in members if member.advertisement is not None}
    return VersionSet.of(part for versions in sets for part in versions.ranges)
