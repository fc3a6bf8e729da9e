"""What the clients and the backends of the load agree on: paths, fields, sizes and durations.

Rules: values only. Every body is derived from the identity of its request, so that no two are equal.
"""

from __future__ import annotations

import hashlib
from typing import Final

DIGEST: Final = "X-Load-Digest"
"""Field with the SHA-256 of the body, in hex."""

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


def pieces(ident: str) -> list[bytes]:
    """The body of a request, in pieces."""
    return [
        (hashlib.sha256(f"{ident}/{index}".encode()).digest() * (PIECE // 32))[:PIECE]
        for index in range(PIECES)
    ]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
