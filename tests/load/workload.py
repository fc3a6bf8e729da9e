"""What the clients and the backends of the load agree on: paths, fields, sizes and durations.

Rules: values only. Every body is derived from the identity of its request, so that no two are equal.
"""

from __future__ import annotations

import hashlib
from typing import Final

DIGEST: Final = "X-Load-Digest"
"""Field with the SHA-256 of the body, in hex."""

ANSWERED: Final = "X-Load-Answered"
"""Field with the identity of the request that a response belongs to."""

# The paths of slow peers. The rate in bytes a second is the last segment.
LARGE: Final = "/v1/large"
"""GET returns a large body at once."""
SLOW_IMAGE: Final = "/v1/slow-image"
"""GET returns a body at this rate."""
SLOW_INTAKE: Final = "/v1/slow-intake"
"""PUT takes a body at this rate."""
DRIPPED: Final = "/v1/dripped"
"""The head of the response comes byte by byte."""

SLOW_SECONDS: Final = 6.0
"""Seconds in which a slow peer is slow: three times as long as the gateway waits while nothing moves."""
PIECES_A_SECOND: Final = 10
LARGE_PIECES: Final = 256
"""4 MiB: more than the buffers of two sockets."""

_IDENT: Final = "load="

V1: Final = "/v1"
NODES: Final = "/v1/nodes"
SLOW: Final = "/v1/slow"
"""Takes effect at once. The response follows after `DELAY`, so that a killed backend has work in progress."""
IMAGE: Final = "/v1/image"
"""PUT and POST store an image, GET returns one."""

DELAY: Final = 0.15
"""Seconds."""

PIECE: Final = 16 * 1024
PIECES: Final = 16
"""256 KiB, four times what the gateway keeps of a body (`limits.replay_body`)."""
BETWEEN: Final = 0.01
"""Seconds between two pieces of a streamed body."""


def target(path: str, ident: str) -> str:
    """The target of a request. The query contains its identity, so that access logs show it too."""
    return f"{path}?{_IDENT}{ident}"


def ident_of(target: str) -> str:
    """The identity of a request; empty for a probe."""
    _, _, query = target.partition("?")
    return query.removeprefix(_IDENT)


def pieces(ident: str, size: int = PIECE, count: int = PIECES) -> list[bytes]:
    """The body of a request, in `count` pieces of `size` bytes."""
    return [
        (hashlib.sha256(f"{ident}/{index}".encode()).digest() * (size // 32 + 1))[:size]
        for index in range(count)
    ]


def rate_of(path: str) -> int:
    """The rate in bytes a second, which is the last segment of a slow path."""
    return int(path.rpartition("/")[2])


def slow_pieces(ident: str, rate: int) -> list[bytes]:
    """A body that lasts `SLOW_SECONDS` at this rate, in the pieces of a tenth of a second."""
    return pieces(ident, rate // PIECES_A_SECOND, round(SLOW_SECONDS * PIECES_A_SECOND))


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
