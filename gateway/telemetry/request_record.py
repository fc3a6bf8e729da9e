"""The one record of what happened to a request, made by the data plane, read by metrics and access log.

Nothing here formats or counts. An exchange fills the record of its request and hands it out when the request
has ended. After that nobody changes it, so a reader may keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.decision.decision import NegotiationResult
    from gateway.core.dialect import RequestedKind

NO_BACKEND = "none"
"""The label `backend` of local responses."""


class ReceivedHead(Protocol):
    """What is read of a request head. It never changes."""

    @property
    def method(self) -> str: ...
    @property
    def target(self) -> bytes: ...
    @property
    def forwarded(self) -> Sequence[tuple[str, bytes]]:
        """The fields by which a proxy in front describes the client: normalized name, value."""


class SendingPeer(Protocol):
    """The other end of a client connection."""

    def client_address(self, request: ReceivedHead) -> str:
        """The address of the client that sent the request through this peer."""


class RequestRecord:
    """One request, from its complete head to the last byte of its response."""

    __slots__ = (
        *("service", "backend", "method", "status", "requested", "result", "version", "attempts"),
        *("seconds", "backend_seconds", "bytes_out", "reason", "request_id"),
        *("_head", "_peer"),
    )

    def __init__(self, head: ReceivedHead, peer: SendingPeer) -> None:
        self._head = head
        self._peer = peer
        self.service = ""
        """Empty: no service matched."""
        self.backend = NO_BACKEND
        """The backend that answered, or `NO_BACKEND`."""
        self.method = head.method
        self.status = 0
        """0: the client left before a response began."""
        self.requested: RequestedKind | None = None
        """None where nothing was negotiated."""
        self.result: NegotiationResult | None = None
        self.version = ""
        """The version at which it was served, canonical: the negotiated one, unless the response shows
        another. Of a refusal the version that was requested. Empty where there is none, or none is known."""
        self.attempts = 0
        """Backends tried."""
        self.seconds = 0.0
        """From the complete request head to the last byte of the response."""
        self.backend_seconds = -1.0
        """From the request's first byte to the backend until the head of its response; negative: no backend
        answered."""
        self.bytes_out = 0
        """Body bytes sent to the client."""
        self.reason = ""
        """Why it failed (a name of `dataplane.failures`); empty when it did not."""
        self.request_id = ""
        """The id that the backend got, in the form of the dialect; empty where there is none."""

    @property
    def target(self) -> str:
        """As received; escape it before showing it (threats O8)."""
        return self._head.target.decode("ascii")

    @property
    def client(self) -> str:
        """The peer's address, or the client's as a trusted proxy reports it."""
        return self._peer.client_address(self._head)
