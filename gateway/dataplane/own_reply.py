"""Replies that the gateway makes itself, as bytes: refusals, answers, failures, and the short plain ones
before routing.

Values in, bytes out (and the date). What they say is the dialect's or `failures`'.
"""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from gateway.core.message import Reply, render

REASONS: Final = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Payload Too Large",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
}

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_PLAIN: Final = {
    400: "This request is not valid HTTP/1.1.",
    404: "No service is configured for this host and path.",
    405: "This method is not proxied.",
    408: "The request did not arrive in time.",
    413: "The request body is larger than this gateway accepts.",
    414: "The request line is too long.",
    417: "This expectation cannot be met.",
    431: "The request's header fields are too large.",
    501: "This transfer coding is not supported.",
    503: "This gateway has too many connections.",
    505: "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
    508: "This request has passed through this gateway too often.",
}


def plain(status: int) -> Reply:
    """An error before routing: no dialect has a say yet. A fixed sentence that echoes nothing."""
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    if status == 405:
        headers.append(("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
    return Reply(status, tuple(headers), (_PLAIN.get(status, REASONS.get(status, "Error")) + "\n").encode())


def write(reply: Reply, *, to_head: bool, connection: bytes) -> bytes:
    """The whole reply; `connection` is the line about it (or nothing). To HEAD the length is told, the body
    is not."""
    head = b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\nDate: %b\r\n%b\r\n" % (
        reply.status,
        REASONS.get(reply.status, "Unknown").encode(),
        render(reply.headers),
        len(reply.body),
        formatdate(usegmt=True).encode(),
        connection,
    )
    return head if to_head else head + reply.body
