"""How long the gateway waits for the peers of one service, and how much it takes from them.

Final values: `settings` has filled in from the whole file what a service leaves out, so no request asks
twice. No rule is applied here. The defaults are those of `settings.model.limits`; a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

NO_TIMEOUT: Final = float("inf")
"""Of a time-out that is `off`."""


@final
@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The time-outs (seconds) and the limits of one service: what has a meaning once a request has one."""

    client_body_idle: float = 30.0
    client_write_idle: float = 60.0
    connect: float = 2.0
    backend_head: float = 30.0
    backend_body_idle: float = 60.0
    backend_write_idle: float = 30.0
    backend_idle: float = 15.0
    tunnel_idle: float = 3600.0
    body: int = 1024**3
    """Bytes, as the next three."""
    replay_body: int = 64 * 1024
    document: int = 256 * 1024
    write_buffer: int = 64 * 1024
    min_rate: int = 240
    """Bytes a second."""
    reuse_requests: int = 1000
    """Requests that one connection to a backend carries at most."""
    reuse_time: float = 300.0
    """Age at which a connection to a backend is not used for another request."""


DEFAULT_LIMITS: Final = ServiceLimits()
