"""What is told about names and sources of backends: plain values."""

from __future__ import annotations

from typing import NamedTuple


class SourceReport(NamedTuple):
    """What one source of backends has said."""

    service: str
    source: str
    listed: int
    """Backends that it lists."""
    unlisted: int
    """Those that it lists no more, and that stay: half of them are leaving already, or they were restored and
    nothing was listed yet."""
    leaving: int
    answers: int
    failures: int
    """Looks without a list: failed, refused or empty."""
    answered_at: float | None
    """Wall-clock seconds; None: never."""
    error: str | None


class NameReport(NamedTuple):
    """What is known of one host name."""

    host: str
    found_at: float | None
    """Wall-clock seconds of the last lookup that found addresses; None: none has."""
    failures: int
    error: str | None
