"""The record of what happened to a request, filled by the data plane and read by metrics, logs and traces.

Nothing here formats or counts. An exchange fills the record of its request and hands it out when the request
has ended. It does not change after that, so a reader may keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.core.http.request_ids import is_plain_id
from gateway.telemetry.trace_context import RequestTrace, trace_digits

if TYPE_CHECKING:
    from gateway.core.decision.decision import NegotiationResult
    from gateway.core.dialect import RequestedKind
    from gateway.tls.values import ClientCertificate

NO_BACKEND = "none"
"""Value of the label `backend` for responses that the gateway made itself."""


class ReceivedHead(Protocol):
    """Interface to the head of a received request, which is immutable."""

    @property
    def method(self) -> str: ...
    @property
    def target(self) -> bytes: ...
    @property
    def host(self) -> str: ...
    @property
    def user_agent(self) -> bytes: ...
    @property
    def minor(self) -> int: ...
    @property
    def trace(self) -> bytes: ...
    @property
    def passthrough(self) -> bytes: ...
    @property
    def forwarded_for(self) -> bytes | None:
        """List of the client and its proxies that has come in `X-Forwarded-For`; None: no such field."""


class SendingPeer(Protocol):
    """Interface to the other end of a client connection: the client, or a proxy in front."""

    @property
    def scheme(self) -> str: ...
    @property
    def certificate(self) -> ClientCertificate | None:
        """Certificate of the client, verified in the handshake; None: it has shown none."""

    def client_address(self, request: ReceivedHead) -> str:
        """Returns the address of the client that sent the request through this peer."""


class RequestRecord:
    """Record of one request, from its complete head to the last byte of its response."""

    __slots__ = (
        *("service", "backend", "method", "status", "requested", "result", "version", "attempts"),
        "negotiated",
        *("seconds", "backend_seconds", "bytes_in", "bytes_out", "reason"),
        *("request_id", "response_id"),
        *("trace", "traceparent"),
        *("head", "peer", "client_name"),
    )

    def __init__(self, head: ReceivedHead, peer: SendingPeer) -> None:
        self.head = head
        self.peer = peer
        self.service = ""
        """Name of the service that the request matched; empty: none."""
        self.backend = NO_BACKEND
        """Name of the backend that answered the request, or `NO_BACKEND`."""
        self.client_name = ""
        """Name of the client from `clients`; empty: no entry matches."""
        self.method = head.method
        self.status = 0
        """Status of the response; 0: the client left before one began."""
        self.requested: RequestedKind | None = None
        """Kind of version that the request asked for; None: nothing was negotiated."""
        self.result: NegotiationResult | None = None
        self.version = ""
        """Canonical served version, or the requested version of a refusal; empty: none, or not known."""
        self.negotiated = ""
        """Negotiated version if the response names another one, or wrongly none; otherwise empty."""
        self.attempts = 0
        self.seconds = 0.0
        """Seconds from the complete request head to the last byte of the response."""
        self.backend_seconds = -1.0
        """Seconds from the first byte to the backend until its response's head; negative: no response."""
        self.bytes_in = 0
        """Body bytes that came from the client until the response ended."""
        self.bytes_out = 0
        self.reason = ""
        """Name of the request's failure (`dataplane.local_responses.failures`); empty: there was none."""
        self.request_id = ""
        """Request id that came with the request or that the gateway made; empty: there is none."""
        self.response_id = b""
        """Request id in the response as it came, well-formed or not; empty: none, or it was not read."""
        self.traceparent = b""
        """Trace context of the request; empty: the gateway does not trace, or has not decided yet."""
        self.trace: RequestTrace | None = None
        """Spans of the request, if the gateway traces and has sampled it."""

    @property
    def response_request_id(self) -> str:
        """Well-formed request id in the response; empty: there is none, or it was not read."""
        return self.response_id.decode() if is_plain_id(self.response_id) else ""

    @property
    def trace_id(self) -> str:
        """Trace id (W3C Trace Context), 32 hexadecimal digits; empty: there is none, or it was not read."""
        return trace_digits(self.traceparent or self.head.trace)

    @property
    def target(self) -> str:
        """Request target as received; escape it before showing it (threats O8)."""
        return self.head.target.decode("ascii")

    @property
    def client(self) -> str:
        """Address of the client: that of the connection, or the one that a trusted proxy reports."""
        return self.peer.client_address(self.head)
