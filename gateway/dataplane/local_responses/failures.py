"""The table of failures: the status to respond, the side at fault, and whether another backend may be tried.

Everything that can go wrong between the complete head of a request and the last byte of its response is a
row. Whether a request is safe to send again follows from how far it got, never from the cause (RFC 9110
9.2.2, threats R1-R7). Only the table, and what follows from it: nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.core.decision.local_responses import NO_BACKEND_AVAILABLE, RETRY_AFTER
from gateway.core.dialect import GatewayError, RequestedVersion
from gateway.core.http.message import SAFE_METHODS
from gateway.core.versions.ranges import VersionSet


class Resend(StrEnum):
    """Condition under which a failed request may be sent to another backend."""

    ALWAYS = "always"
    """Resend with any method: nothing was sent, or nothing was executed."""
    IF_IDEMPOTENT = "if_idempotent"
    """Resend only with an idempotent method, because the request may have been executed."""
    IF_SAFE = "if_safe"
    """Resend only with a safe method, because the request was executed."""
    NEVER = "never"


class Failure(StrEnum):
    """Kind of failure: the `error` in the access log, and the label `reason` of skewgate_retries_total."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS = "tls"
    NOT_SENT = "not_sent"
    NO_REPLY = "no_reply"
    REPLY_TIMEOUT = "reply_timeout"
    BAD_REPLY = "bad_reply"
    MISPLACED = "misplaced"
    REPLY_CUT = "reply_cut"
    REPLY_STALLED = "reply_stalled"
    BAD_DOCUMENT = "bad_document"
    OTHER_VERSION = "other_version"
    VERSION_REFUSED = "version"
    VERSION_UNKNOWN = "version_unknown"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    BODY_TOO_LARGE = "body_too_large"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    CLIENT_BROKE = "client_broke"


class FailureRule(NamedTuple):
    """Consequences of one kind of failure: status, error type, retry, sentence."""

    status: int
    """Status of the response to the client, if none has begun; 0: none is written, as the client has gone."""
    error_type: str
    """Registered error type (RFC 9209 2.3) that the response to the client shows."""
    retry: Resend
    detail: str
    """Fixed sentence that tells the client of the failure."""

    @property
    def is_of_client(self) -> bool:
        """Whether the client is at fault: the status is below 500, or 0 because it has gone."""
        return self.status < 500


FAILURES: Final[dict[Failure, FailureRule]] = {
    Failure.CONNECT: FailureRule(
        503,
        "connection_refused",
        Resend.ALWAYS,
        "No connection could be made to a backend that serves the requested API version.",
    ),
    Failure.CONNECT_TIMEOUT: FailureRule(
        503,
        "connection_timeout",
        Resend.ALWAYS,
        "No connection could be made in time to a backend that serves the requested API version.",
    ),
    Failure.TLS: FailureRule(
        503,
        "tls_protocol_error",
        Resend.ALWAYS,
        "No TLS connection could be made to a backend that serves the requested API version.",
    ),
    Failure.NOT_SENT: FailureRule(  # the backend has sent something before it got a request
        503,
        "connection_terminated",
        Resend.ALWAYS,
        "No connection to a backend that serves the requested API version could be used.",
    ),
    Failure.NO_REPLY: FailureRule(
        502,
        "connection_terminated",
        Resend.IF_IDEMPOTENT,
        "The backend closed the connection without a response.",
    ),
    Failure.REPLY_TIMEOUT: FailureRule(
        504, "http_response_timeout", Resend.IF_IDEMPOTENT, "The backend did not respond in time."
    ),
    Failure.BAD_REPLY: FailureRule(
        502, "http_protocol_error", Resend.NEVER, "The backend's response was not valid HTTP."
    ),
    Failure.MISPLACED: FailureRule(
        502,
        "http_protocol_error",
        Resend.NEVER,
        "The backend sent the response to another request.",
    ),
    Failure.REPLY_CUT: FailureRule(
        502, "http_response_incomplete", Resend.NEVER, "The backend's response was cut off."
    ),
    Failure.REPLY_STALLED: FailureRule(
        504,
        "connection_read_timeout",
        Resend.NEVER,
        "The backend stopped in the middle of its response.",
    ),
    Failure.BAD_DOCUMENT: FailureRule(  # it could show this backend's own range
        502,
        "http_protocol_error",
        Resend.NEVER,
        "The backend's discovery document cannot be read.",
    ),
    Failure.OTHER_VERSION: FailureRule(  # a tunnel lasts
        502,
        "http_protocol_error",
        Resend.NEVER,
        "The backend switched protocols at another API version than the negotiated one.",
    ),
    Failure.VERSION_REFUSED: FailureRule(503, "destination_unavailable", Resend.ALWAYS, NO_BACKEND_AVAILABLE),
    Failure.VERSION_UNKNOWN: FailureRule(  # waited too long for the retry budget
        503, "destination_unavailable", Resend.IF_SAFE, NO_BACKEND_AVAILABLE
    ),
    Failure.QUEUE_FULL: FailureRule(
        503,
        "connection_limit_reached",
        Resend.ALWAYS,
        "All backends that serve the requested API version are busy.",
    ),
    Failure.QUEUE_TIMEOUT: FailureRule(
        503,
        "connection_limit_reached",
        Resend.ALWAYS,
        "No backend that serves the requested API version could take another request in time.",
    ),
    Failure.BODY_TOO_LARGE: FailureRule(
        413,
        "http_request_error",
        Resend.NEVER,
        "The request body is larger than this gateway accepts.",
    ),
    Failure.CLIENT_GONE: FailureRule(0, "", Resend.NEVER, ""),
    Failure.CLIENT_STALLED: FailureRule(
        408, "http_request_error", Resend.NEVER, "The request body did not arrive in time."
    ),
    Failure.CLIENT_BROKE: FailureRule(
        400,
        "http_request_error",
        Resend.NEVER,
        "The request body was not framed as HTTP requires.",
    ),
}

NOT_CONNECTED: Final = frozenset(
    {
        Failure.CONNECT,
        Failure.CONNECT_TIMEOUT,
        Failure.TLS,
        Failure.NOT_SENT,
        Failure.QUEUE_FULL,
        Failure.QUEUE_TIMEOUT,
    }
)
"""Failures with which nothing was sent to a backend."""
IDEMPOTENT: Final = SAFE_METHODS | {"PUT", "DELETE"}
"""Methods that may be executed twice (RFC 9110 9.2.2)."""


def may_retry(failure: Failure, methods: Collection[str], *, body_held: bool) -> bool:
    """Whether the request may be sent to another backend after `failure`. `methods`: every one that a backend
    may execute for it. `body_held`: whether all that has come of the body can be sent again; needed in any
    case."""
    retry = FAILURES[failure].retry
    if not body_held or retry is Resend.NEVER:
        return False
    repeatable = SAFE_METHODS if retry is Resend.IF_SAFE else IDEMPOTENT
    return retry is Resend.ALWAYS or repeatable.issuperset(methods)


def failure_error(
    failure: Failure, offered: VersionSet | None, requested: RequestedVersion | None = None
) -> GatewayError:
    """Error for the client after `failure`, before its dialect gives it a form."""
    rule = FAILURES[failure]
    retry_after = RETRY_AFTER if rule.status == 503 else None
    return GatewayError(
        rule.status,
        rule.detail,
        retry_after=retry_after,
        offered=offered,
        requested=requested,
    )
