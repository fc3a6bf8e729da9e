"""Stages of a request.

An exchange is in exactly one stage at any time. What a failure, a lost client or a late connection means
follows from the stage alone. docs/ARCHITECTURE.md has a picture of the transitions; tests check every step.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Stage(IntEnum):
    """Stage of a request. Small integers, because an exchange compares them many times."""

    DECIDING = 0
    """Stage of a request: its head is complete, and nothing is in flight yet."""
    ADMITTED = 1
    """Stage of a request: it is to be forwarded and counts as in flight. A member is sought."""
    READING_BODY = 2
    """Stage of a request: a member is selected; the rest of a held body is awaited before it is sent."""
    CONNECTING = 3
    """Stage of a request: a connection to the member is being made."""
    AWAITING_RESPONSE = 4
    """Stage of a request: its head was written to a backend. The client has no part of a final response."""
    RETRY_QUEUED = 5
    """Stage of a request: an attempt has failed, and the next one waits for the retry budget."""
    QUEUED = 6
    """Stage of a request: all members that are to get it are full; it waits until one has room."""
    RESPONDING = 7
    """Stage of a request: the response head was written to the client, so nothing can be sent again."""
    TUNNELLING = 8
    """Stage of a request: bytes pass both ways until the tunnel ends. It no longer counts as in flight."""
    ENDED = 9
    """Stage of a request: its record was handed out, and everything was given back."""


DECIDING: Final = Stage.DECIDING
ADMITTED: Final = Stage.ADMITTED
READING_BODY: Final = Stage.READING_BODY
CONNECTING: Final = Stage.CONNECTING
AWAITING_RESPONSE: Final = Stage.AWAITING_RESPONSE
RETRY_QUEUED: Final = Stage.RETRY_QUEUED
QUEUED: Final = Stage.QUEUED
RESPONDING: Final = Stage.RESPONDING
TUNNELLING: Final = Stage.TUNNELLING
ENDED: Final = Stage.ENDED
