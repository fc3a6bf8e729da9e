"""The table of failures: the status to respond, the side at fault, and whether another backend may be tried.

Everything that can go wrong between the complete head of a request and the last byte of its response is a
row. Whether a request is safe to send again follows from how far it got, never from the cause (RFC 9110
9.2.2, threats R1-R7). Only the table, and what follows from it: nothing is done here.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.core.decision.decision import Resolution
from gateway.core.decision.local_responses import NO_BACKEND_AVAILABLE, RETRY_AFTER
from gateway.core.dialect import GatewayError


class Side(StrEnum):
    """The side at fault."""

    CLIENT = "client"
    BACKEND = "backend"


class Resend(StrEnum):
    """When the request may be sent to another backend."""

    ALWAYS = "always"
    """Always: nothing was sent, or nothing was executed."""
    IF_IDEMPOTENT = "if_idempotent"
    """Only with an idempotent method, because it may have been executed."""
    IF_SAFE = "if_safe"
    """Only with a safe method, because it was executed."""
    NEVER = "never"


class Failure(StrEnum):
    """What went wrong: the `error` in the access log, and the label `reason` of skewgate_retries_total."""

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
    """What follows from one failure."""

    status: int
    """The status of the response, if none has begun; 0: none is written, since the client has gone."""
    title: str
    """The reason phrase."""
    detail: str
    """One fixed sentence for the client."""
    side: Side
    retry: Resend


FAILURES: Final[dict[Failure, FailureRule]] = {
    Failure.CONNECT: FailureRule(
        503,
        "Service Unavailable",
        "No connection could be made to a backend that serves the requested API version.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.CONNECT_TIMEOUT: FailureRule(
        503,
        "Service Unavailable",
        "No connection could be made in time to a backend that serves the requested API version.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.TLS: FailureRule(
        503,
        "Service Unavailable",
        "No TLS connection could be made to a backend that serves the requested API version.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.NOT_SENT: FailureRule(  # the backend talks before it has a request
        503,
        "Service Unavailable",
        "No connection to a backend that serves the requested API version could be used.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.NO_REPLY: FailureRule(
        502,
        "Bad Gateway",
        "The backend closed the connection without a reply.",
        Side.BACKEND,
        Resend.IF_IDEMPOTENT,
    ),
    Failure.REPLY_TIMEOUT: FailureRule(
        504, "Gateway Timeout", "The backend did not reply in time.", Side.BACKEND, Resend.IF_IDEMPOTENT
    ),
    Failure.BAD_REPLY: FailureRule(
        502, "Bad Gateway", "The backend's reply was not valid HTTP.", Side.BACKEND, Resend.NEVER
    ),
    Failure.MISPLACED: FailureRule(
        502,
        "Bad Gateway",
        "The backend sent the response to another request.",
        Side.BACKEND,
        Resend.NEVER,
    ),
    Failure.REPLY_CUT: FailureRule(
        502, "Bad Gateway", "The backend's reply was cut off.", Side.BACKEND, Resend.NEVER
    ),
    Failure.REPLY_STALLED: FailureRule(
        504, "Gateway Timeout", "The backend stopped in the middle of its reply.", Side.BACKEND, Resend.NEVER
    ),
    Failure.BAD_DOCUMENT: FailureRule(  # it could show this backend's own range
        502, "Bad Gateway", "The backend's discovery document cannot be read.", Side.BACKEND, Resend.NEVER
    ),
    Failure.OTHER_VERSION: FailureRule(  # a tunnel lasts
        502,
        "Bad Gateway",
        "The backend switched protocols at another API version than the negotiated one.",
        Side.BACKEND,
        Resend.NEVER,
    ),
    Failure.VERSION_REFUSED: FailureRule(
        503,
        "Service Unavailable",
        NO_BACKEND_AVAILABLE,
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.VERSION_UNKNOWN: FailureRule(  # waited too long for the retry budget
        503, "Service Unavailable", NO_BACKEND_AVAILABLE, Side.BACKEND, Resend.IF_SAFE
    ),
    Failure.QUEUE_FULL: FailureRule(
        503,
        "Service Unavailable",
        "All backends that serve the requested API version have as many requests as they take.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.QUEUE_TIMEOUT: FailureRule(
        503,
        "Service Unavailable",
        "No backend that serves the requested API version could take another request in time.",
        Side.BACKEND,
        Resend.ALWAYS,
    ),
    Failure.BODY_TOO_LARGE: FailureRule(
        413,
        "Payload Too Large",
        "The request body is larger than this gateway accepts.",
        Side.CLIENT,
        Resend.NEVER,
    ),
    Failure.CLIENT_GONE: FailureRule(0, "", "", Side.CLIENT, Resend.NEVER),
    Failure.CLIENT_STALLED: FailureRule(
        408, "Request Timeout", "The request body did not arrive in time.", Side.CLIENT, Resend.NEVER
    ),
    Failure.CLIENT_BROKE: FailureRule(
        400, "Bad Request", "The request body was not framed as HTTP requires.", Side.CLIENT, Resend.NEVER
    ),
}

NOT_CONNECTED: Final = frozenset(
    {
        *(Failure.CONNECT, Failure.CONNECT_TIMEOUT, Failure.TLS, Failure.NOT_SENT),
        *(Failure.QUEUE_FULL, Failure.QUEUE_TIMEOUT),
    }
)
"""Nothing was sent."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT: Final = SAFE | {"PUT", "DELETE"}
"""Methods that may be executed twice (RFC 9110 9.2.2)."""


def may_retry(failure: Failure, methods: Collection[str], *, body_held: bool) -> bool:
    """Whether the same request may be sent to another backend after `failure`.

    `methods`: every one that a backend may execute for it. `body_held`: the whole body that has come can be
    sent again. Without that it never is.
    """
    retry = FAILURES[failure].retry
    if not body_held or retry is Resend.NEVER:
        return False
    return retry is Resend.ALWAYS or (SAFE if retry is Resend.IF_SAFE else IDEMPOTENT).issuperset(methods)


def failure_error(failure: Failure, resolution: Resolution) -> GatewayError:
    """What the client is told of `failure`, before its dialect gives it a shape."""
    rule = FAILURES[failure]
    retry_after = RETRY_AFTER if rule.status == 503 else None
    return GatewayError(
        rule.status, rule.title, rule.detail, retry_after, resolution.offered, resolution.requested
    )
