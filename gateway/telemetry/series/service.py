"""The series of each service. They end when the service is removed from the configuration."""

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
"""The label `backend` of requests that a backend answered, where series by backend are switched off."""

MAX_VERSIONS: Final = 512
"""Version labels per service; the longest known range has 115 versions. A backend that advertises 10^6 must
not create 10^6 labels."""

DIRECTIONS: Final = ("in", "out")
"""The label `direction` of bytes: from clients, and to them."""

RETRY_REASONS: Final = (
    *("connect", "connect_timeout", "tls", "not_sent", "no_reply", "reply_timeout"),
    *("version", "version_unknown"),
)
"""The label `reason` of skewgate_retries_total: the failures (`local_responses.failures`) after which a
request may be sent again. Any other is `other`."""

ADMISSION_REASONS: Final = ("access", "client_concurrency", "client_rate", "overload")
"""The label `reason` of skewgate_requests_refused_total."""


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


class RequestKeys(Keys):
    """Keys (status, backend) of finished requests. Status 0: the client left before a response began. A
    backend that is not configured any more is `other`."""

    def __init__(self) -> None:
        super().__init__({"code": OPEN, "backend": OPEN})
        self.at_zero = ((503, NO_BACKEND),)

    def admit(self, key: Any, cell: Cell, owner: Any) -> Key:  # noqa: ANN401 - `ServiceCounters`
        status, backend = key
        known = backend == NO_BACKEND or backend in owner.backends
        return status if 100 <= status <= 599 else 0, backend if known else OTHER

    def without_backend(self, key: Any) -> Key:  # noqa: ANN401 - as below
        status, backend = key
        return status, backend if backend == NO_BACKEND else ANY_BACKEND

    def texts(self, key: Any) -> tuple[str, ...]:  # noqa: ANN401 - (status, backend)
        status, backend = key
        return str(status) if status else "none", backend


def ends(versions: VersionSet, scheme: Scheme) -> tuple[str, str]:
    """Lowest and highest as text, both empty for the empty set."""
    return (scheme.format(versions.lowest), scheme.format(versions.highest)) if versions else ("", "")


class OfRequests(Group, level=SERVICE, anywhere=True):
    """Series of finished requests."""

    requests = counter(
        "Finished requests; code `none`: no response began, backend `none`: a local response.",
        {"code": OPEN, "backend": OPEN},
        page="finished requests",
        keys=RequestKeys(),
    )
    request_duration_seconds = histogram(
        "From the complete head of a request to the last byte of its response.",
        page="from the complete head of a request to the last byte of its response; of a tunnel to its end",
    )
    body_bytes = counter(
        "Bytes of bodies: of requests from clients (in), and of responses to them (out).",
        {"direction": DIRECTIONS},
        page=(
            "bytes of bodies: `in` of requests, until their responses end; `out` of responses. Of a "
            "tunnel everything after the heads, when it has ended"
        ),
    )


class OfService(Group, level=SERVICE):
    """Series of what services did with their requests."""

    negotiations = counter(
        "Requests by requested version and by the result of their negotiation.",
        {"requested": tuple(RequestedKind), "result": tuple(NegotiationResult)},
    )
    served_version = counter(
        "Requests by served version; `other`: no backend has advertised it, or it is not known.",
        {"version": UpTo(MAX_VERSIONS)},
        page=(
            "requests by the version at which they were served: the negotiated one, unless the response "
            "shows another"
        ),
    )
    offer_changes = counter(
        "How often an end of the offer moved.",
        {"bound": ("min", "max"), "direction": ("up", "down")},
    )
    retries = counter(
        "Requests sent on to another backend, by reason.",
        {"reason": (*RETRY_REASONS, OTHER)},
        page="further attempts after a failed one, by reason; nearly always on another backend",
    )
    requests_refused = counter(
        "Requests that were refused because of their client or of the load, by reason.",
        {"reason": ADMISSION_REASONS},
        page="requests that were refused because of their client or of the load, whatever they asked for",
    )
    retries_given_up = counter(
        "Requests that could have been sent again, but waited too long for the retry budget.",
    )
    upgrades = counter(
        "Requests with an upgrade: forwarded to a backend, or removed since the service does not allow it.",
        {"result": ("forwarded", "removed")},
        page=(
            "requests with `Upgrade`: `forwarded` to a backend, or `removed` because the service does not "
            "allow the protocol"
        ),
    )
    tunnels_open = gauge(
        "Tunnels that are open.",
        page="tunnels that are open; they are no requests in flight of the service",
        read=lambda it, now: now.report.tunnels_open.get(it.service.name, 0),
    )
    tunnels = counter(
        "Tunnels that have ended, by how.",
        {"result": tuple(TunnelEnding)},
        page=(
            "tunnels that have ended: `closed` by both sides, `client_gone`, `backend_gone`, "
            "`tunnel_idle`, `drained` at the end of a drain, or `certificate_expired`"
        ),
    )
    tunnel_bytes = counter(
        "Bytes in tunnels, from clients (in) and to them (out).",
        {"direction": DIRECTIONS},
        page="bytes in tunnels: `in` from clients, `out` to them",
    )


class OfOffers(Group, level=SERVICE, as_configured=True):
    """Series of the present state of services."""

    requests_in_flight = gauge(
        "Requests whose response has not ended.",
        read=lambda it, now: now.report.in_flight_by_service.get(it.service.name, 0),
    )
    offer_info = gauge(
        "The range that clients are shown; always 1. Both ends are empty while nothing is offered.",
        {"min": OPEN, "max": OPEN},
        page=(
            "the range that clients are shown; one series per service, always 1; both ends empty while "
            "nothing is offered"
        ),
        read=lambda it, now: {ends(it.offer.versions, it.service.dialect.scheme): 1},
    )
    phase = gauge(
        "The phase of the upgrade: 1 for the present one, 0 for the others.",
        {"phase": tuple(Phase)},
        read=lambda it, now: {phase: it.offer.phase is phase for phase in Phase},
    )
    offer_held = gauge(
        "The rule that holds the offer: 1 for that rule, 0 for the others; all 0 if none does.",
        {"rule": tuple(HeldRule)},
        page="the rule that holds the offer: 1 for that rule, 0 for the others; all 0 where none does",
        read=lambda it, now: {rule: it.offer.held.rule is rule for rule in HeldRule},
    )
