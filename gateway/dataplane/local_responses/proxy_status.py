"""Reasons for local responses, a closed set, and the `Proxy-Status` line of each.

    reason -> the access log (`reason`), and `details` of the line
    reason -> the registered error type of RFC 9209 2.3, `error` of the line

The line distinguishes a 503 of the gateway from one of the API, which passes on with its own lines only.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final

from gateway.core.decision.decision import NegotiationResult, Resolution
from gateway.dataplane.local_responses.failures import FAILURES


class LocalReason(StrEnum):
    """Reason for an answer without a backend. See also `Failure`, and `errors.CLIENT_ERROR_REASONS`."""

    NO_SERVICE = "no_service"
    BELOW_MIN = "below_min"
    ABOVE_MAX = "above_max"
    MALFORMED = "malformed"
    BROWNOUT = "brownout"
    OPERATION = "operation"
    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    LOCAL_DOCUMENT = "local_document"
    KNOWN_DOCUMENT = "known_document"
    MAX_FORWARDS = "max_forwards"
    MAINTENANCE = "maintenance"
    ACCESS = "access"
    CLIENT_RATE = "client_rate"
    CLIENT_CONCURRENCY = "client_concurrency"
    OVERLOAD = "overload"


_REFUSALS: Final = (LocalReason.BELOW_MIN, LocalReason.ABOVE_MAX, LocalReason.MALFORMED, LocalReason.BROWNOUT)
_OF_RESULT: Final = {NegotiationResult(each): each for each in _REFUSALS}


def local_reason(resolution: Resolution, status: int, result: NegotiationResult | None = None) -> LocalReason:
    """Reason for the response to a decision that needs no backend. `result`: of a refusal."""
    if resolution.view.service.maintenance is not None:
        return LocalReason.MAINTENANCE
    if resolution.missing_operation is not None:
        return LocalReason.OPERATION
    if result is not None or status == 503:
        return LocalReason.UNAVAILABLE if result is None else _OF_RESULT.get(result, LocalReason.UNAVAILABLE)
    return LocalReason.THROTTLED if status == 429 else LocalReason.LOCAL_DOCUMENT


_CLIENT: Final = "http_request_error"
_DENIED: Final = "http_request_denied"
_LOCAL: Final = "proxy_internal_response"
_UNAVAILABLE: Final = "destination_unavailable"

ERROR_TYPES: Final[dict[str, str]] = {
    LocalReason.NO_SERVICE: "destination_not_found",
    LocalReason.BELOW_MIN: _CLIENT,
    LocalReason.ABOVE_MAX: _CLIENT,
    LocalReason.MALFORMED: _CLIENT,
    LocalReason.BROWNOUT: _DENIED,
    LocalReason.OPERATION: _CLIENT,
    LocalReason.UNAVAILABLE: _UNAVAILABLE,
    LocalReason.THROTTLED: _DENIED,
    LocalReason.LOCAL_DOCUMENT: _LOCAL,
    LocalReason.KNOWN_DOCUMENT: _UNAVAILABLE,  # else a backend would have given it
    LocalReason.MAX_FORWARDS: _LOCAL,
    LocalReason.MAINTENANCE: _LOCAL,
    LocalReason.ACCESS: _DENIED,
    LocalReason.CLIENT_RATE: _DENIED,
    LocalReason.CLIENT_CONCURRENCY: _DENIED,
    LocalReason.OVERLOAD: _LOCAL,
    **{failure: rule.error_type for failure, rule in FAILURES.items() if rule.error_type},
}
"""Registered RFC 9209 error type by reason. `Failure.CLIENT_GONE` has none: nobody gets its response."""


def _line(error: str, reason: str) -> bytes:
    """`Proxy-Status` line, without `next-hop`: clients must not see addresses of the inside (threats O12)."""
    return f'Proxy-Status: skewgate; error={error}; details="{reason}"\r\n'.encode()


_LINES: Final = {reason: _line(error, reason) for reason, error in ERROR_TYPES.items()}


def proxy_status_line(reason: str, status: int) -> bytes:
    """`Proxy-Status` line of a local response. `status` is for invalid HTTP: its RFC 9209 type is for 4xx."""
    return _LINES.get(reason) or _line_of_invalid_request(reason, server_error=status >= 500)


@lru_cache(maxsize=128)
def _line_of_invalid_request(reason: str, *, server_error: bool) -> bytes:
    if reason == "loop":
        return _line("proxy_loop_detected", reason)
    return _line(_LOCAL if server_error else _CLIENT, reason)
