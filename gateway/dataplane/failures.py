"""The one table: failure -> status, blame, whether another backend may be asked.

Everything that can go wrong between a request's complete head and its reply's last byte is a row. Retry
safety follows from how far the request got, never from the failure's cause (RFC 9110 9.2.2, hardening
Retries).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Blame(StrEnum):
    """Whose fault it is."""

    CLIENT = "client"
    BACKEND = "backend"


class Retry(StrEnum):
    """When the request may go to another backend."""

    ALWAYS = "always"
    """Nothing was sent, or nothing was executed."""
    IF_IDEMPOTENT = "if_idempotent"
    """It may have been executed: only methods for which twice is as good as once, and only with the body
    held."""
    NEVER = "never"


class Failure(StrEnum):
    """What went wrong; the access log's `error`, and the label `reason` of skewgate_retries_total."""

    CONNECT = "connect"
    CONNECT_TIMEOUT = "connect_timeout"
    NO_REPLY = "no_reply"
    REPLY_TIMEOUT = "reply_timeout"
    BAD_REPLY = "bad_reply"
    REPLY_CUT = "reply_cut"
    REPLY_STALLED = "reply_stalled"
    VERSION_REFUSED = "version"
    BODY_TOO_LARGE = "body_too_large"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"
    CLIENT_BROKE = "client_broke"


class Row(NamedTuple):
    """What follows from a failure."""

    status: int
    """What the client is told, when nothing was told yet; 0: the connection is aborted."""
    title: str
    sentence: str
    blame: Blame
    retry: Retry


FAILURES: Final[dict[Failure, Row]] = {
    Failure.CONNECT: Row(
        503,
        "Service Unavailable",
        "No connection could be made to a backend that serves the requested API version.",
        Blame.BACKEND,
        Retry.ALWAYS,
    ),
    Failure.CONNECT_TIMEOUT: Row(
        503,
        "Service Unavailable",
        "No connection could be made in time to a backend that serves the requested API version.",
        Blame.BACKEND,
        Retry.ALWAYS,
    ),
    Failure.NO_REPLY: Row(
        502,
        "Bad Gateway",
        "The backend closed the connection without a reply.",
        Blame.BACKEND,
        Retry.IF_IDEMPOTENT,
    ),
    Failure.REPLY_TIMEOUT: Row(
        504, "Gateway Timeout", "The backend did not reply in time.", Blame.BACKEND, Retry.IF_IDEMPOTENT
    ),
    Failure.BAD_REPLY: Row(
        502, "Bad Gateway", "The backend's reply was not valid HTTP.", Blame.BACKEND, Retry.NEVER
    ),
    Failure.REPLY_CUT: Row(
        502, "Bad Gateway", "The backend's reply was cut off.", Blame.BACKEND, Retry.NEVER
    ),
    Failure.REPLY_STALLED: Row(
        504, "Gateway Timeout", "The backend stopped in the middle of its reply.", Blame.BACKEND, Retry.NEVER
    ),
    Failure.VERSION_REFUSED: Row(
        503,
        "Service Unavailable",
        "No backend that serves the requested API version is available at the moment.",
        Blame.BACKEND,
        Retry.ALWAYS,
    ),
    Failure.BODY_TOO_LARGE: Row(
        413,
        "Payload Too Large",
        "The request body is larger than this gateway accepts.",
        Blame.CLIENT,
        Retry.NEVER,
    ),
    Failure.CLIENT_GONE: Row(0, "", "", Blame.CLIENT, Retry.NEVER),
    Failure.CLIENT_STALLED: Row(
        408, "Request Timeout", "The request body did not arrive in time.", Blame.CLIENT, Retry.NEVER
    ),
    Failure.CLIENT_BROKE: Row(
        400, "Bad Request", "The request body was not framed as HTTP requires.", Blame.CLIENT, Retry.NEVER
    ),
}

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT: Final = SAFE | {"PUT", "DELETE"}
"""RFC 9110 9.2.2."""


def may_retry(failure: Failure, method: str, *, body_held: bool) -> bool:
    """Whether the same request may be sent to another backend after this."""
    retry = FAILURES[failure].retry
    if not body_held or retry is Retry.NEVER:
        return False
    return retry is Retry.ALWAYS or method in IDEMPOTENT
