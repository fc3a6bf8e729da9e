"""Phases of a connection to a backend, and the transitions between them.

A connection is in exactly one phase at any time: what bytes, the end of the connection and a deadline mean
follows from it. docs/ARCHITECTURE.md has the table; a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class BackendPhase(IntEnum):
    """Phase of a connection to a backend."""

    CONNECTING = 0
    """The connection is being made."""
    UNWANTED = 1
    """The connection was given up while being made. If it is made nevertheless, it is closed at once."""
    IDLE = 2
    """The connection carries no request."""
    UNSENT = 3
    """The connection has a request, of which no byte was written."""
    SENDING = 4
    """A request with a body is written, and not known to be taken whole. No final head has come."""
    AWAITING_HEAD = 5
    """The backend has the whole request. The final head of its response is not complete."""
    READING_EARLY = 6
    """Content is read that came before the backend is known to have taken the whole request."""
    READING = 7
    """Content is read."""
    FINISHED = 8
    """The backend has ended content that lasts until the end of the connection: it was not cut off."""
    TUNNELLING = 9
    """The connection is one end of a tunnel."""
    CLOSING = 10
    """The gateway closes the connection. Whatever still comes is dropped."""
    CLOSED = 11
    """The connection has ended."""


CONNECTING: Final = BackendPhase.CONNECTING
UNWANTED: Final = BackendPhase.UNWANTED
IDLE: Final = BackendPhase.IDLE
UNSENT: Final = BackendPhase.UNSENT
SENDING: Final = BackendPhase.SENDING
AWAITING_HEAD: Final = BackendPhase.AWAITING_HEAD
READING_EARLY: Final = BackendPhase.READING_EARLY
READING: Final = BackendPhase.READING
FINISHED: Final = BackendPhase.FINISHED
TUNNELLING: Final = BackendPhase.TUNNELLING
CLOSING: Final = BackendPhase.CLOSING
CLOSED: Final = BackendPhase.CLOSED

TRANSITIONS: Final[dict[BackendPhase, frozenset[BackendPhase]]] = {
    CONNECTING: frozenset({UNWANTED, IDLE}),
    UNWANTED: frozenset({CLOSED}),
    IDLE: frozenset({UNSENT, CLOSING, CLOSED}),
    UNSENT: frozenset({SENDING, AWAITING_HEAD, CLOSING, CLOSED}),
    SENDING: frozenset({AWAITING_HEAD, READING_EARLY, IDLE, TUNNELLING, CLOSING, CLOSED}),
    AWAITING_HEAD: frozenset({READING, IDLE, TUNNELLING, CLOSING, CLOSED}),
    READING_EARLY: frozenset({READING, FINISHED, IDLE, CLOSING, CLOSED}),
    READING: frozenset({FINISHED, IDLE, CLOSING, CLOSED}),
    FINISHED: frozenset({CLOSING, CLOSED}),
    TUNNELLING: frozenset({CLOSING}),
    CLOSING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}
"""Phases that may follow each phase."""
