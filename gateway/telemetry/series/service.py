"""The metric series of each service. They end when the service is removed from the configuration."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.request_record import NO_BACKEND
from gateway.telemetry.series.declaring import (
    OPEN,
    OTHER,
    SERVICE,
    Cell,
    Group,
    Key,
    Keys,
    UpTo,
    counter,
    gauge,
    histogram,
)

ANY_BACKEND: Final = "any"
"""Value of the label `backend` for requests answered by a backend if `metrics.per_backend` is off."""

MAX_VERSIONS: Final = 512
"""Limit of version labels per service, against backends that advertise 10^6 versions; 115 are known."""

MAX_EVIDENCE: Final = 8192
"""Number of keys of `OfGate.evidence` per service, from which on new versions count as `other`."""

DIRECTIONS: Final = ("in", "out")
"""Values of the label `direction`: from clients, to clients."""

RETRY_REASONS: Final = (
    *("connect", "connect_timeout", "tls", "not_sent", "no_reply", "reply_timeout"),
    *("version", "version_unknown"),
)
"""Values of the label `reason` of skewgate_retries_total: the failures (`local_responses.failures`) after
which a request may be sent again. Any other is `other`."""

ADMISSION_REASONS: Final = ("access", "client_concurrency", "client_rate", "overload")
"""Values of the label `reason` of skewgate_requests_refused_total."""


class TunnelEnding(StrEnum):
    """Ways in which a tunnel ends: `result` of skewgate_tunnels_total, and `reason` in the access log."""

    CLOSED = "closed"
    """Regular end of a tunnel: both sides have sent everything."""
    CLIENT_GONE = "client_gone"
    BACKEND_GONE = "backend_gone"
    IDLE = "tunnel_idle"
    DRAINED = "drained"
    """Tunnel cut at the end of the drain time."""
    CERTIFICATE_EXPIRED = "certificate_expired"
    """Tunnel cut because the certificate of the client has expired."""


class RequestKeys(Keys):
    """Rules for keys (status, backend) of finished requests: status 0 is none, `other` a removed backend."""

    def __init__(self) -> None:
        super().__init__({"code": OPEN, "backend": OPEN})
        self.at_zero = ((503, NO_BACKEND),)

    def admit(self, key: Any, cell: Cell, owner: Any) -> Key:  # noqa: ANN401 - `ServiceCounters`
        status, backend = key
        return status if 100 <= status <= 599 else 0, _counted_backend(backend, owner)

    def without_backend(self, key: Any) -> Key:  # noqa: ANN401 - as below
        status, backend = key
        return status, backend if backend == NO_BACKEND else ANY_BACKEND

    def texts(self, key: Any) -> tuple[str, ...]:  # noqa: ANN401 - (status, backend)
        status, backend = key
        return str(status) if status else "none", backend


class EvidenceKeys(Keys):
    """Rules for keys (backend, served version, whether 5xx): `other` a removed backend, or a version once
    there are too many keys."""

    def admit(self, key: Any, cell: Cell, owner: Any) -> Key:  # noqa: ANN401 - `ServiceCounters`
        backend, version, failed = key
        known = key in cell or len(cell) < MAX_EVIDENCE
        return _counted_backend(backend, owner), version if known else OTHER, failed


def _counted_backend(backend: str, owner: Any) -> str:  # noqa: ANN401 - `ServiceCounters`
    """Returns the name under which a backend counts: `other` if it is not configured any more."""
    return backend if backend == NO_BACKEND or backend in owner.backends else OTHER


def ends(versions: VersionSet, scheme: Scheme) -> tuple[str, str]:
    """Lowest and highest of `versions` as text; both are empty for the empty set."""
    return (scheme.format(versions.lowest), scheme.format(versions.highest)) if versions else ("", "")


class OfRequests(Group, level=SERVICE, anywhere=True):
    """Metric series of finished requests."""

    requests = counter(
        "Finished requests. Code `none`: the client left before a response began; backend `none`: the "
        "gateway made the response.",
        {"code": OPEN, "backend": OPEN},
        keys=RequestKeys(),
    )
    request_duration_seconds = histogram(
        "Time from the complete head of a request to the last byte of its response, or to the end of its "
        "tunnel."
    )
    body_bytes = counter(
        "Bytes of bodies: `in` of requests, until their responses end; `out` of responses. A tunnel counts "
        "all bytes after its heads when it has ended.",
        {"direction": DIRECTIONS},
    )


class OfService(Group, level=SERVICE):
    """Metric series that count what a service did with its requests."""

    negotiations = counter(
        "Requests by requested version and by the result of their negotiation.",
        {"requested": tuple(RequestedKind), "result": tuple(NegotiationResult)},
    )
    served_version = counter(
        "Requests by served version: the negotiated one, unless the response names another; `other`: a "
        "version that no backend has advertised, or that is not known.",
        {"version": UpTo(MAX_VERSIONS)},
    )
    deprecated_requests = counter("Requests served at a version whose end is announced (`lifecycle`).")
    bridged_requests = counter(
        "Requests executed at another version than the requested one (`bridge`), a later or an earlier one.",
        {"direction": ("lifted", "clamped")},
    )
    offer_changes = counter(
        "Moves of an end of the offer.",
        {"bound": ("min", "max"), "direction": ("up", "down")},
    )
    retries = counter(
        "Further attempts after a failed one, by reason; nearly always at another backend.",
        {"reason": (*RETRY_REASONS, OTHER)},
    )
    requests_refused = counter(
        "Requests refused because of their client or of the load, whatever version they asked for.",
        {"reason": ADMISSION_REASONS},
    )
    retries_given_up = counter(
        "Requests that could have been sent again, but waited too long for the retry budget."
    )
    upgrades = counter(
        "Requests with `Upgrade`: `forwarded` to a backend, or `removed` because the service does not allow "
        "the protocol.",
        {"result": ("forwarded", "removed")},
    )
    tunnels_open = gauge(
        "Open tunnels; they do not count as requests in flight of the service.",
        read=lambda it, now: now.report.tunnels_open.get(it.service.name, 0),
    )
    tunnels = counter(
        "Tunnels that have ended: `closed` by both sides, `client_gone`, `backend_gone`, `tunnel_idle`, "
        "`drained` at the end of a drain, or `certificate_expired`.",
        {"result": tuple(TunnelEnding)},
    )
    tunnel_bytes = counter(
        "Bytes in tunnels: `in` from clients, `out` to them.",
        {"direction": DIRECTIONS},
    )


class OfGate(Group, level=SERVICE):
    """Counts for the gate of `skewgate roll`, which no scrape shows: they would be too many series."""

    evidence = counter(
        "Requests by backend, served version (empty: none), and whether the response was 5xx.",
        keys=EvidenceKeys({"backend": OPEN, "version": OPEN, "failed": OPEN}),
    )


class OfOffers(Group, level=SERVICE):
    """Metric series of the present state of services."""

    requests_in_flight = gauge(
        "Requests whose response has not ended.",
        read=lambda it, now: now.report.in_flight_by_service.get(it.service.name, 0),
    )
    offer_info = gauge(
        "Range on offer; one series per service, always 1. Both ends are empty while nothing is offered.",
        {"min": OPEN, "max": OPEN},
        read=lambda it, now: {ends(it.offer.versions, it.service.dialect.scheme): 1},
    )
    sunset_timestamp_seconds = gauge(
        "Time at which the versions below `lifecycle.sunset.below` are to end.",
        read=lambda it, now: None if it.service.sunset is None else it.service.sunset.timestamp,
        sparse=True,
    )
    phase = gauge(
        "Phase of the upgrade: 1 for the present one, 0 for the others.",
        {"phase": tuple(Phase)},
        read=lambda it, now: {phase: it.offer.phase is phase for phase in Phase},
    )
    floor_suspended = gauge(
        "Whether the floor is suspended, because everything that could be on offer is beneath it.",
        read=lambda it, now: it.offer.suspended,
    )
    skew_releases = gauge(
        "Upgrade steps by which the newest release in service is too far ahead of the oldest (`skew`).",
        read=lambda it, now: it.skew and max(0, it.skew.releases - it.skew.supported),
        sparse=True,
    )
    offer_held = gauge(
        "Rule that holds the offer: 1 for that rule, 0 for the others; all 0 if nothing holds it.",
        {"rule": tuple(HeldRule)},
        read=lambda it, now: {rule: it.offer.held.rule is rule for rule in HeldRule},
    )
