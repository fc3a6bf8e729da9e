"""The one record of what happened to a request, made by the data plane, read by metrics and access log.

Nothing here formats or counts. An exchange fills the record of its request and hands it out when the request
has ended. After that nobody changes it, so a reader may keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gateway.core.http.request_ids import PLAIN_IDS
from gateway.telemetry.trace_context import RequestTrace, trace_digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.decision.decision import NegotiationResult
    from gateway.core.dialect import RequestedKind
    from gateway.tls.values import ClientCertificate

NO_BACKEND = "none"
"""The label `backend` of local responses."""

_is_id: Final = PLAIN_IDS.form.fullmatch


class ReceivedHead(Protocol):
    """What is read of a request head. It never changes."""

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
    def forwarded(self) -> Sequence[tuple[str, bytes]]:
        """The fields by which a proxy in front describes the client: normalized name, value."""


class SendingPeer(Protocol):
    """The other end of a client connection."""

    @property
    def scheme(self) -> str: ...
    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's own, verified in the handshake."""

    def client_address(self, request: ReceivedHead) -> str:
        """The address of the client that sent the request through this peer."""


class RequestRecord:
    """One request, from its complete head to the last byte of its response."""

    __slots__ = (
        *("service", "backend", "method", "status", "requested", "result", "version", "attempts"),
        "negotiated",
        *("seconds", "backend_seconds", "bytes_in", "bytes_out", "reason"),
        *("request_id", "response_id"),
        *("trace", "traceparent"),
        *("head", "peer"),
    )

    def __init__(self, head: ReceivedHead, peer: SendingPeer) -> None:
        self.head = head
        self.peer = peer
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
        self.negotiated = ""
        """The negotiated version where the response shows another one, or none though it must; else empty."""
        self.attempts = 0
        """Backends tried."""
        self.seconds = 0.0
        """From the complete request head to the last byte of the response."""
        self.backend_seconds = -1.0
        """From the request's first byte to the backend until the head of its response; negative: no backend
        answered."""
        self.bytes_in = 0
        """Body bytes that came from the client, until the response ended."""
        self.bytes_out = 0
        """Body bytes sent to the client."""
        self.reason = ""
        """Why it failed (a name of `dataplane.local_responses.failures`); empty when it did not."""
        self.request_id = ""
        """The id that came with the request, or the one that was made; empty where there is none."""
        self.response_id = b""
        """The request id that the response carries, as it came, well-formed or not. Empty: it carries none,
        or nobody reads it."""
        self.traceparent = b""
        """To which trace it belongs. Empty: the gateway does not trace, or has not looked yet."""
        self.trace: RequestTrace | None = None
        """The spans of the request, while the gateway traces and has sampled it."""

    @property
    def response_request_id(self) -> str:
        """The id that the response carries: the backend's own, or `request_id` in a response of the gateway.
        Empty where it carries none, no well-formed one, or nobody reads it."""
        text = self.response_id.decode("latin-1")
        return text if _is_id(text) else ""

    @response_request_id.setter
    def response_request_id(self, request_id: str) -> None:
        self.response_id = request_id.encode()

    @property
    def trace_id(self) -> str:
        """The id of its trace (W3C Trace Context): 32 hexadecimal digits; empty: it belongs to none, or
        nobody reads them."""
        return trace_digits(self.traceparent or self.head.trace)

    @property
    def target(self) -> str:
        """As received; escape it before showing it (threats O8)."""
        return self.head.target.decode("ascii")

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's own, if it has shown one in TLS."""
        return self.peer.certificate

    @property
    def client(self) -> str:
        """The peer's address, or the client's as a trusted proxy reports it."""
        return self.peer.client_address(self.head)
