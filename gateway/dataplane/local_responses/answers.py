"""Local responses: refusals, documents of the gateway, failures and plain errors, each with its reason, as
bytes.

Nothing is sent or counted here: the exchange and the connections write what is made. After routing the
dialect writes the content.
"""

from __future__ import annotations

from email.utils import formatdate
from functools import lru_cache
from time import monotonic
from typing import Final, NamedTuple, final

from gateway.core.decision.decision import Answer, NegotiationResult, Refuse, Resolution, Unrouted
from gateway.core.decision.local_responses import error_response, unavailable
from gateway.core.http.message import REASON_PHRASES, Response, render
from gateway.dataplane.local_responses.failures import FAILURES, Failure, failure_error
from gateway.dataplane.local_responses.proxy_status import LocalReason, local_reason, proxy_status_line

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE_LINE: Final = b"Connection: close\r\n"
KEEP_ALIVE_LINE: Final = b"Connection: keep-alive\r\n"

_ALLOW: Final = ("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")

_PLAIN_DETAILS: Final = {
    400: "This request is not valid HTTP/1.1.",
    404: "No service is configured for this host and path.",
    405: "This method is not proxied.",
    408: "The request did not arrive in time.",
    413: "The request body is larger than this gateway accepts.",
    414: "The request line is too long.",
    417: "This expectation cannot be met.",
    431: "The request's header fields are too large.",
    501: "This transfer coding is not supported.",
    503: "This gateway is overloaded.",
    505: "This gateway supports HTTP/1.1 and HTTP/1.0 only.",
    508: "This request is in a loop: it has passed through this gateway too often.",
}
_DETAILS_OF_REASON: Final = {
    "plain_http": "This port speaks TLS: use https:// here.",
    "tls": "This port speaks plain HTTP, not TLS: use http:// here.",
}


@final
class LocalAnswer(NamedTuple):
    """A local response, with its reason."""

    response: Response
    reason: str
    """Reason for the response: a `Failure` or a `LocalReason`."""
    closes: bool = False
    """Whether the client connection ends with this response."""
    result: NegotiationResult | None = None
    """Result of the version negotiation, if there was any; None: that of the decision."""
    version: str | None = None
    """Version that the response shows; None: that of the decision."""


OPTIONS_ENDS_HERE: Final = LocalAnswer(Response(200, (_ALLOW,)), LocalReason.MAX_FORWARDS)
"""Answer to OPTIONS that is not to be forwarded again (`Max-Forwards: 0`, RFC 9110 7.6.2)."""


def answer_of(decision: Refuse | Answer | Unrouted) -> LocalAnswer:
    """Local response for a decision that needs no backend."""
    match decision:
        case Unrouted():
            return LocalAnswer(plain_error(404), LocalReason.NO_SERVICE)
        case Answer(resolution, response):
            return LocalAnswer(response, local_reason(resolution, response.status))
        case Refuse(resolution, response, result):
            return LocalAnswer(response, local_reason(resolution, response.status, result))


def no_document(resolution: Resolution) -> LocalAnswer:
    """Local response for a discovery document that no backend may give and that is not cached."""
    response = unavailable(resolution.view, resolution.requested)
    return LocalAnswer(response, LocalReason.UNAVAILABLE)


def answer_to_failure(failure: Failure, resolution: Resolution) -> LocalAnswer:
    """Local response to `failure` by `FAILURES`, in the error format of the dialect."""
    response = error_response(
        resolution.view, failure_error(failure, resolution.offered, resolution.requested)
    )
    closes = FAILURES[failure].is_of_client
    response = response.with_headers(*resolution.bridged_header)  # it may have been executed
    return LocalAnswer(response, failure, closes, NegotiationResult.UNAVAILABLE)


def plain_error(status: int, reason: str = "") -> Response:
    """Error response before routing, when there is no dialect: one fixed sentence that echoes nothing."""
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    if status == 405:
        headers.append(_ALLOW)
    details = _DETAILS_OF_REASON.get(reason) or _PLAIN_DETAILS.get(status)
    return Response(
        status, tuple(headers), ((details or REASON_PHRASES.get(status, "Error")) + "\n").encode()
    )


def encode(response: Response, reason: str, *, is_head_request: bool, connection: bytes) -> bytes:
    """Bytes of a whole response. `reason`: for `Proxy-Status`. `connection`: the `Connection` line, or empty.
    A response to HEAD has the length of the body but no body."""
    head = b"HTTP/1.1 %d %b\r\n%b%bContent-Length: %d\r\n%b%b\r\n" % (
        response.status,
        REASON_PHRASES.get(response.status, "Unknown").encode(),
        render(response.headers),
        proxy_status_line(reason, response.status),
        len(response.body),
        date_line(),
        connection,
    )
    return head if is_head_request else head + response.body


def connection_line(minor: int, *, close: bool) -> bytes:
    """`Connection` line of a response to a request of this minor version of HTTP, or empty."""
    if close:
        return CLOSE_LINE
    return b"" if minor else KEEP_ALIVE_LINE


def date_line() -> bytes:
    """Field line `Date`, at most a second old."""
    return _date_line(int(monotonic()))


@lru_cache(maxsize=1)
def _date_line(_second: int) -> bytes:
    """Field line `Date`, cached for a second: making it costs more than the rest of a head."""
    return b"Date: %b\r\n" % formatdate(usegmt=True).encode()
