"""The one record of what happened to a request, filled by the data plane, read by metrics and access log.

Nothing here formats or counts. It is not a copy: the data plane's exchange derives from it and *is* the
record, so that reporting about a request costs the hot path nothing.
"""

from __future__ import annotations

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind

NO_BACKEND = "none"
"""The label `backend` of local responses."""


class RequestRecord:
    """One request, from its complete head to the last byte of its response. Valid only during the call of
    `record` that is given it."""

    service: str = ""
    """Empty: no service matched."""
    backend: str = NO_BACKEND
    """The backend that answered, or `NO_BACKEND`."""
    method: str = ""
    status: int = 0
    """0: the client left before a response began."""
    requested: RequestedKind | None = None
    """None where nothing was negotiated."""
    result: NegotiationResult | None = None
    version: str = ""
    """The version at which it was served, canonical: the negotiated one, unless the response shows another.
    Of a refusal the version that was requested. Empty where there is none, or none is known."""
    attempts: int = 0
    """Backends tried."""
    seconds: float = 0.0
    """From the complete request head to the last byte of the response."""
    backend_seconds: float = -1.0
    """From the request's first byte to the backend until the head of its response; negative: no backend
    answered."""
    bytes_out: int = 0
    """Body bytes sent to the client."""
    reason: str = ""
    """Why it failed (a name of `dataplane.failures`); empty when it did not."""
    request_id: str = ""
    """The id that the backend got, in the form of the dialect; empty where there is none."""

    @property
    def target(self) -> str:
        """As received; escape it before showing it (threats O8)."""
        return ""

    @property
    def client(self) -> str:
        """The peer's address, or the client's as a trusted proxy reports it."""
        return ""
