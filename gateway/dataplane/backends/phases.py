"""Phases of a connection to a backend.

A connection is in exactly one phase at any time: what bytes, the end of the connection and a deadline mean
follows from it. docs/ARCHITECTURE.md has the table of transitions; tests check every step.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class BackendPhase(IntEnum):
    """Phase of a connection to a backend."""

    CONNECTING = 0
    """Phase of a backend connection: it is being made."""
    UNWANTED = 1
    """Phase of a backend connection: given up while being made. If it is made, it is closed at once."""
    IDLE = 2
    """Phase of a backend connection: it carries no request."""
    UNSENT = 3
    """Phase of a backend connection: it has a request of which no byte was written."""
    SENDING = 4
    """Phase of a backend connection: a request with a body may not be taken whole; no final head yet."""
    AWAITING_HEAD = 5
    """Phase of a backend connection: the request was taken whole; its final head is not complete."""
    READING_EARLY = 6
    """Phase of a backend connection: content comes before the request is known to be taken whole."""
    READING = 7
    """Phase of a backend connection: the content of a response is read."""
    FINISHED = 8
    """Phase of a backend connection: its end has completed the content, which was not cut off."""
    TUNNELLING = 9
    """Phase of a backend connection: it is one end of a tunnel."""
    CLOSING = 10
    """Phase of a backend connection: the gateway closes it, and drops whatever still comes."""
    CLOSED = 11
    """Phase of a backend connection: it has ended."""


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
