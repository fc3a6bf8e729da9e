"""What the load's clients and backends agree on: paths, headers, sizes and how long things take.

Rules: values only. A body is made from its request's identity, so that none can be mistaken for another.
"""

from __future__ import annotations

import hashlib
from typing import Final

DIGEST: Final = "X-Load-Digest"
"""Header with the SHA-256 of the body that follows, in hex."""

_IDENT: Final = "load="

V1: Final = "/v1"
NODES: Final = "/v1/nodes"
SLOW: Final = "/v1/slow"
"""Takes effect at once and is answered after `DELAY`: what a killed backend has in hand."""
IMAGE: Final = "/v1/image"
"""Uploaded by PUT and POST, downloaded by GET."""

DELAY: Final = 0.15
"""Seconds."""

PIECE: Final = 16 * 1024
PIECES: Final = 16
"""256 KiB, four times what the gateway holds of a body (`limits.replay_body`)."""
BETWEEN: Final = 0.01
"""Seconds between two pieces of a body that streams."""


def target(path: str, ident: str) -> str:
    """What a request is sent to. Its identity stands in the query, so that access logs show it, too."""
    return f"{path}?{_IDENT}{ident}"


def ident_of(target: str) -> str:
    """The identity of a request; empty for a probe, which has none."""
    _, _, query = target.partition("?")
    return query.removeprefix(_IDENT)


def pieces(ident: str) -> list[bytes]:
    """The body that goes with a request, in pieces."""
    return [
        (hashlib.sha256(f"{ident}/{index}".encode()).digest() * (PIECE // 32))[:PIECE]
        for index in range(PIECES)
    ]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
