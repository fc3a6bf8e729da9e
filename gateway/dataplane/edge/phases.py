"""Phases of a client connection, and the transitions between them.

A connection is in exactly one phase at any time: what bytes, the end of the connection and a deadline mean
follows from it. docs/ARCHITECTURE.md has the table; a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ClientPhase(IntEnum):
    """Phase of a client connection."""

    IDLE = 0
    """No request is served, and no byte of the next one has come."""
    READING_HEAD = 1
    """A part of a request head has come."""
    PIPELINED = 2
    """Bytes of the next request wait until the client takes the responses before it."""
    SERVING = 3
    """An exchange is running."""
    DISCARDING = 4
    """The response is written. The rest of the request body is still coming, and is dropped."""
    TUNNELLING = 5
    """The connection is one end of a tunnel."""
    LINGERING = 6
    """A refusal and the end are written. What the client still sends is dropped for a while."""
    CLOSING = 7
    """The connection closes when everything is written, or at once. Nothing is read any more."""
    CLOSED = 8
    """The connection has ended."""


IDLE: Final = ClientPhase.IDLE
READING_HEAD: Final = ClientPhase.READING_HEAD
PIPELINED: Final = ClientPhase.PIPELINED
SERVING: Final = ClientPhase.SERVING
DISCARDING: Final = ClientPhase.DISCARDING
TUNNELLING: Final = ClientPhase.TUNNELLING
LINGERING: Final = ClientPhase.LINGERING
CLOSING: Final = ClientPhase.CLOSING
CLOSED: Final = ClientPhase.CLOSED

TRANSITIONS: Final[dict[ClientPhase, frozenset[ClientPhase]]] = {
    IDLE: frozenset({READING_HEAD, PIPELINED, SERVING, LINGERING, CLOSING, CLOSED}),
    READING_HEAD: frozenset({IDLE, SERVING, LINGERING, CLOSING, CLOSED}),
    PIPELINED: frozenset({IDLE, READING_HEAD, SERVING, LINGERING, CLOSING, CLOSED}),
    SERVING: frozenset({IDLE, DISCARDING, TUNNELLING, LINGERING, CLOSING, CLOSED}),
    DISCARDING: frozenset({IDLE, LINGERING, CLOSING, CLOSED}),
    TUNNELLING: frozenset({CLOSING}),
    LINGERING: frozenset({CLOSING, CLOSED}),
    CLOSING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}
"""Phases that may follow each phase."""
