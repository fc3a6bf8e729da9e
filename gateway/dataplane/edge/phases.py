"""Phases of a client connection.

A connection is in exactly one phase at any time: what bytes, the end of the connection and a deadline mean
follows from it. docs/ARCHITECTURE.md has the table of transitions; tests check every step.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ClientPhase(IntEnum):
    """Phase of a client connection."""

    IDLE = 0
    """Phase of a client connection: no request is served, and no byte of the next one has come."""
    READING_HEAD = 1
    """Phase of a client connection: a part of a request head has come."""
    PIPELINED = 2
    """Phase of a client connection: the next request waits until the client takes earlier responses."""
    SERVING = 3
    """Phase of a client connection: an exchange of request and response is running."""
    DISCARDING = 4
    """Phase of a client connection: the response is written; the rest of the request body is dropped."""
    TUNNELLING = 5
    """Phase of a client connection: it is one end of a tunnel."""
    LINGERING = 6
    """Phase of a client connection: the last response is written; for a while, input is dropped."""
    CLOSING = 7
    """Phase of a client connection: it closes at once or when everything is written; nothing is read."""
    CLOSED = 8
    """Phase of a client connection: it has ended."""


IDLE: Final = ClientPhase.IDLE
READING_HEAD: Final = ClientPhase.READING_HEAD
PIPELINED: Final = ClientPhase.PIPELINED
SERVING: Final = ClientPhase.SERVING
DISCARDING: Final = ClientPhase.DISCARDING
TUNNELLING: Final = ClientPhase.TUNNELLING
LINGERING: Final = ClientPhase.LINGERING
CLOSING: Final = ClientPhase.CLOSING
CLOSED: Final = ClientPhase.CLOSED
