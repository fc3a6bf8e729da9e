"""The one record of what happened to a request, filled by the data plane, read by metrics and access log.

Nothing here formats or counts. Not a copy: the data plane's exchange *is* the record (it derives from it), so
that telling about a request costs the hot path nothing.
"""

from __future__ import annotations

from gateway.core.decision import Verdict
from gateway.core.dialect import AskKind

NO_BACKEND = "none"
"""The label `backend` of replies that the gateway made itself."""


class Outcome:
    """One request, from its complete head to its last byte. Only valid while `record` is called with it."""

    service: str = ""
    """Empty: no service matched."""
    backend: str = NO_BACKEND
    """The backend that answered, or `NO_BACKEND`."""
    method: str = ""
    status: int = 0
    """0: the client left before anything was answered."""
    ask: AskKind | None = None
    """None where nothing was negotiated."""
    verdict: Verdict | None = None
    version: str = ""
    """The settled version, canonical; empty without one."""
    attempts: int = 0
    """Backends tried."""
    seconds: float = 0.0
    """From the complete request head to the reply's last byte."""
    backend_seconds: float = -1.0
    """From the request's first byte to the backend until its reply's head; negative: no backend answered."""
    bytes_out: int = 0
    """Body bytes sent to the client."""
    error: str = ""
    """Why it failed (`dataplane.failures` names), empty when it did not."""

    @property
    def target(self) -> str:
        """As received; escape before showing (hardening O8)."""
        return ""

    @property
    def client(self) -> str:
        """The peer's address, or what a trusted proxy says the client's is."""
        return ""
