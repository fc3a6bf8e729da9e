"""Admission: whether a request is served at all, decided once its service is known.

    access        is its client's address allowed?                               403   access
    shedding      can the event loop keep up with it? (`shedding`)               503   overload
    concurrency   has its client fewer requests in flight than it may have?      429   client_concurrency
    rate          has its client a token left? (`client_limiter`)                429   client_rate

In this order: a client that is not allowed learns nothing else, and a shed request costs no token. A refusal
has the dialect's form, is made once for equal requests, and never reaches a backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gateway.core.decision.local_responses import RETRY_AFTER, error_response
from gateway.core.dialect import GatewayError
from gateway.core.fleet.admission import NO_CLIENT_LIMITS
from gateway.dataplane.limits.client_limiter import ClientLimiter, CountedRequest, client_key
from gateway.dataplane.limits.shedding import YOUNG, Shedder
from gateway.dataplane.local_responses.answers import LocalAnswer
from gateway.dataplane.local_responses.proxy_status import LocalReason
from gateway.telemetry.series.service import OfService

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.dialect import RequestedVersion
    from gateway.core.fleet.service import Service
    from gateway.core.fleet.snapshot import ServiceView
    from gateway.core.http.message import Response
    from gateway.dataplane.http1.forwarding import Peer
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.limits.sharing import SharedLimits
    from gateway.telemetry.metrics import Metrics
    from gateway.telemetry.request_record import RequestRecord

MAX_CACHED_RESPONSES: Final = 512
MAX_CACHED_VERSION_SIZE: Final = 64
"""Maximum characters of a requested version in a cached refusal: errors may repeat it, clients choose it."""

_ERRORS: Final = {
    LocalReason.ACCESS: (403, "Requests from this address are not allowed."),
    LocalReason.OVERLOAD: (503, "The gateway is overloaded."),
    LocalReason.CLIENT_CONCURRENCY: (429, "This client has too many requests in flight."),
    LocalReason.CLIENT_RATE: (429, "This client sends too many requests."),
}
_BUSY_RETRY_AFTER: Final = 1
"""Seconds in `Retry-After` for a client with too many requests: nobody knows when one will end."""


_ResponseKey: TypeAlias = "tuple[str, LocalReason, int | None, RequestedVersion | None]"


@final
class Admission:
    """Admission rules of all services of a worker, and what their clients have used. Counts each refusal."""

    __slots__ = ("_has_rules", "_metrics", "_responses", "_shared", "checks", "limiters", "shed", "shedder")

    def __init__(self, shedder: Shedder, metrics: Metrics, shared: SharedLimits | None = None) -> None:
        self._shared = shared
        self.checks = False
        """Whether `admit` must be called for each request: some service has rules, or requests are shed."""
        self.shedder = shedder
        self._has_rules = False
        self.shed = 0
        """Number of requests shed since the last log line about it."""
        self._metrics = metrics
        self.limiters: dict[str, ClientLimiter] = {}
        """Client limiters by service."""
        self._responses: dict[_ResponseKey, tuple[ServiceView, Response]] = {}

    def configure(self, services: Iterable[Service]) -> None:
        """Apply a new configuration to admission. What clients have used of a service that stays is kept."""
        before, self.limiters = self.limiters, {}
        any_access = False
        for service in services:
            any_access = any_access or service.access is not None
            if service.client_limits != NO_CLIENT_LIMITS:
                limiter = before.get(service.name)
                if limiter is None:
                    limiter = ClientLimiter(service.client_limits, self._shared)
                limiter.configure(service.client_limits)
                self.limiters[service.name] = limiter
        self._has_rules = any_access or bool(self.limiters)
        self._update()

    def observe_lag(self, lag: float, now: float) -> None:
        """Adjust load shedding to a tick that was late by `lag`."""
        if self.shedder.observe(lag, now):
            self._update()

    @property
    def refuses_connections(self) -> bool:
        """Whether new client connections are closed at once, before they cost anything else."""
        return self.shedder.level >= YOUNG

    def _update(self) -> None:
        self.checks = self._has_rules or self.shedder.level > 0

    def admit(
        self,
        resolution: Resolution,
        peer: Peer,
        opened: float,
        request: RequestHead,
        record: RequestRecord,
        now: float,
    ) -> LocalAnswer | CountedRequest | None:
        """Refusal of a request by these rules, or what counts it while it is in flight; None: nothing counts
        it. `opened`: when its connection was made, by the coarse clock. `now`: by the exact one."""
        service = resolution.view.service
        if service.access is not None and not peer.is_allowed(service.access, request):
            return self._refuse(resolution, record, LocalReason.ACCESS)
        if service.maintenance is not None:
            return None  # it is answered already
        if self.shedder.level and self.shedder.sheds(opened):
            self.shed += 1
            closes = opened >= self.shedder.since
            return self._refuse(resolution, record, LocalReason.OVERLOAD, RETRY_AFTER, closes=closes)
        limiter = self.limiters.get(service.name)
        if limiter is None:
            return None
        address = peer.client_ip(request)
        if address is None:
            return None
        client = client_key(address)
        if not limiter.has_room(client):
            return self._refuse(resolution, record, LocalReason.CLIENT_CONCURRENCY, _BUSY_RETRY_AFTER)
        wait = limiter.wait(client, now)
        if wait > 0.0:
            return self._refuse(resolution, record, LocalReason.CLIENT_RATE, ceil(wait))
        return limiter.hold(client)

    def _refuse(
        self,
        resolution: Resolution,
        record: RequestRecord,
        reason: LocalReason,
        retry_after: int | None = None,
        *,
        closes: bool = False,
    ) -> LocalAnswer:
        record.requested, record.result, record.version = None, None, ""  # nothing was negotiated
        self._metrics.count(OfService.requests_refused, reason, service=resolution.service)
        view, requested = resolution.view, resolution.requested
        key = (resolution.service, reason, retry_after, requested)
        made = self._responses.get(key)
        if made is not None and made[0] is view:
            return LocalAnswer(made[1], reason, closes)
        status, detail = _ERRORS[reason]
        error = GatewayError(
            status,
            detail,
            retry_after=retry_after,
            offered=resolution.offered,
            requested=requested,
        )
        response = error_response(view, error)
        if requested is None or len(requested.text) <= MAX_CACHED_VERSION_SIZE:
            if len(self._responses) >= MAX_CACHED_RESPONSES:
                self._responses.clear()
            self._responses[key] = view, response
        return LocalAnswer(response, reason, closes)
