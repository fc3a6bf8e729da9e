"""A tunnel: two connections whose bytes pass on as they come, after a backend has switched protocols.

    client --- Upgrade: websocket ---> gateway --- the same, if the service allows it ---> backend
    client <-- 101 Switching Protocols --- gateway <--- 101 Switching Protocols ---------- backend
    client <========================= bytes, both ways, as they come ====================> backend

It begins with a 101 that the request has asked for. From then on neither connection is read as HTTP again.
Each side is read only as fast as the other one takes it. The end of one side's bytes is passed on, and the
other side may still send. `core.http.message` has the upgrades that a request may ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, cast, final

from gateway.core.http.message import allowed_protocols, read_protocols
from gateway.dataplane.context import OpenTunnel
from gateway.dataplane.exchange.heads import compose_downstream_head
from gateway.dataplane.exchange.retries import Retries
from gateway.dataplane.sockets.bounded_reads import bound_reads
from gateway.dataplane.sockets.tcp import reset, untaken
from gateway.telemetry.series.service import OfService, TunnelEnding

if TYPE_CHECKING:
    import asyncio

    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.dataplane.backends.connection import BackendConnection
    from gateway.dataplane.context import Context
    from gateway.dataplane.exchange.downstream import Downstream
    from gateway.dataplane.http1.request_body import RequestBody
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.http1.response_head import ResponseHead
    from gateway.telemetry.request_record import RequestRecord

CONNECTION_LINE: Final = b"Connection: Upgrade\r\n"
"""`Connection` line of a 101, which names the protocol in `Upgrade` (RFC 9110 7.8)."""


class TunnelOwner:
    """Interface of an exchange, as its upgrade and its tunnel use it."""

    __slots__ = ()

    context: Context
    downstream: Downstream
    request: RequestHead
    record: RequestRecord
    body: RequestBody | None
    resolution: Resolution

    def end(self, reason: str) -> None:
        """End the exchange; `reason` is empty if both sides have ended the tunnel."""
        raise NotImplementedError


# -- before it: what is asked, and what is answered


def request_upgrade(owner: TunnelOwner) -> tuple[RequestHead, Retries | None]:
    """The upgrade request as a backend gets it, with the protocols that its service allows (none for a
    document), and its retries. Without protocols it is an ordinary request (None). An upgrade is sent on a
    new connection, and again only if nothing was sent or executed: a backend may have switched, and its
    client would wait for another one's answer."""
    request, resolution = owner.request, owner.resolution
    metrics, service = owner.context.metrics, owner.record.service
    allowed = () if resolution.rewrites_document else resolution.view.service.upgrade
    protocols = allowed_protocols(request.upgrade, allowed)
    if not protocols:
        metrics.count(OfService.upgrades, "removed", service=service)
        return request.with_upgrade(()), None
    metrics.count(OfService.upgrades, "forwarded", service=service)
    retries = Retries()
    retries.new_connection_only = retries.only_if_not_executed = True
    return request.with_upgrade(protocols), retries


def agreed_protocol(head: bytes, asked: tuple[str, ...], allowed: Collection[str]) -> str:
    """Protocol to which a 101 switches, if the request has asked for it (RFC 9110 7.8); else empty. `head`:
    as it came, already checked. Any other 101 must not start an unread passing of bytes (threats H5)."""
    upgrade: list[str] = []
    options: set[str] = set()
    start, *lines = head.decode("latin-1").split("\r\n")
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "upgrade":
            upgrade.append(value)
        elif name.lower() == "connection":
            options.update(option.strip(" \t").lower() for option in value.split(","))
    protocols = read_protocols(upgrade)
    if not start.startswith("HTTP/1.1 ") or "upgrade" not in options or len(protocols) != 1:
        return ""
    may_be = {name.lower() for name in allowed_protocols(asked, allowed)}
    return protocols[0] if protocols[0].lower() in may_be else ""


def switched_head(response: ResponseHead, rewrite: ResponseRewrite, protocol: str) -> bytes:
    """Head of a 101 for the client."""
    return compose_downstream_head(
        response,
        rewrite,
        location=b"",
        framing=f"Upgrade: {protocol}\r\n".encode("ascii"),
        connection=CONNECTION_LINE,
        piece=b"",
    )


# -- the tunnel


@final
class TunnelEnd:
    """A connection of a tunnel. Has the methods of `asyncio.Protocol`; not derived, so that it compiles."""

    def __init__(
        self,
        tunnel: Tunnel,
        transport: asyncio.Transport,
        connection_lost: Callable[[Exception | None], None],
        gone: TunnelEnding,
    ) -> None:
        self._tunnel = tunnel
        self._connection_lost = connection_lost
        """Callback of the former protocol for the connection's end: its owner counts it until then."""
        self._error: Exception | None = None
        self.transport = transport
        self.other: TunnelEnd
        self.gone = gone
        """Reason with which the tunnel ends if the connection on this side of it breaks."""
        self.bytes_in = 0
        self.is_finished = False
        """Whether the peer on this side of the tunnel sends nothing more."""
        self.is_lost = False

    def attach(self, buffer: bytearray, *, reading: bool) -> None:
        """Pass this connection's bytes to the tunnel. `reading`: whether the other side takes more now."""
        protocol = cast("asyncio.Protocol", self)
        if self.is_finished or self.transport.get_extra_info("sslcontext") is not None:
            self.transport.set_protocol(protocol)  # TLS backends are read in another way (`read_to_the_end`)
        else:
            bound_reads(self.transport, protocol, buffer)
        if reading:
            self.resume_reading()
        else:
            self.pause_reading()

    # -- what the transport reports

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self._tunnel.on_bytes(self, len(data))
        self.other.write(data)

    def eof_received(self) -> bool:
        """Note that this side of the tunnel sends nothing more; True: keep it open, as the other side may."""
        self.is_finished = True
        self._tunnel.on_finished(self)
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        self.other.pause_reading()

    def resume_writing(self) -> None:
        self.other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._error = exc
        self._tunnel.on_lost(self, exc)

    # -- what the other end and the tunnel ask for

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def pause_reading(self) -> None:
        if not self.is_finished and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        # After the end of its bytes, the loop of asyncio would report that end once more.
        if not self.is_finished and not self.transport.is_closing():
            self.transport.resume_reading()

    def release(self) -> None:
        """Report the end of this connection of the tunnel to its former protocol, and so to its owner."""
        self._connection_lost(self._error)


@final
class Tunnel(OpenTunnel):
    """A running tunnel, in `Context.tunnels` from `begin` to its end."""

    def __init__(self, owner: TunnelOwner, connection: BackendConnection) -> None:
        context, downstream = owner.context, owner.downstream
        self._owner = owner
        self._client = TunnelEnd(
            self, downstream.transport, downstream.connection_lost, TunnelEnding.CLIENT_GONE
        )
        self._upstream = TunnelEnd(
            self, connection.transport, connection.connection_lost, TunnelEnding.BACKEND_GONE
        )
        self._client.other, self._upstream.other = self._upstream, self._client
        service = owner.record.service
        self._bytes: dict[str, int] = context.metrics.cell(OfService.tunnel_bytes, service)
        self._idle = owner.resolution.timeouts.tunnel_idle
        super().__init__(service, context.now + self._idle, downstream.peer.expires_at)
        self._untaken = 0
        """Bytes of the tunnel that waited for slow readers at the last deadline."""
        self._closing = False
        """Whether both sides of the tunnel have sent everything. What waits is still written."""
        self._ending = TunnelEnding.CLOSED
        self._ended = False

    def begin(self, connection: BackendConnection, head: bytes, rest: bytes) -> None:
        """Write the 101 (`head`, for the client) and what came with it (`rest`). What the client has sent
        behind its request was held until now, and is sent on."""
        context, client, upstream = self._owner.context, self._client, self._upstream
        context.tunnels.add(self)
        if self._owner.body is not None:
            self._owner.body.release()
        client_congested, upstream_congested = self._owner.downstream.congested, connection.congested
        held, finished = self._owner.downstream.hand_over()
        connection.hand_over()
        context.flush()  # the end of the request, and responses before this one
        for end in (client, upstream):
            end.transport.set_write_buffer_limits(high=self._owner.resolution.limits.write_buffer)
        client.is_finished = finished
        client.attach(context.read_buffer, reading=not upstream_congested)
        upstream.attach(context.read_buffer, reading=not client_congested)
        client.write(head)
        if rest:
            upstream.data_received(rest)
        if held:
            client.data_received(held)
        if finished:
            self.on_finished(client)

    # -- what the two ends report

    def on_bytes(self, end: TunnelEnd, size: int) -> None:
        """Count bytes received from one side of the tunnel."""
        self.deadline = self._owner.context.now + self._idle
        if end is self._client:
            self._bytes["in"] += size
        else:
            self._bytes["out"] += size

    def on_finished(self, end: TunnelEnd) -> None:
        """Pass the end of one side's bytes on. The other side may still send, as after a half-close between
        the two, except over TLS to a backend, which ends as a whole."""
        self.deadline = self._owner.context.now + self._idle
        other = end.other
        if other.is_finished or not other.transport.can_write_eof():
            self._close()
        elif not other.transport.is_closing():
            other.transport.write_eof()

    def on_lost(self, end: TunnelEnd, error: Exception | None) -> None:
        """Handle the end of one connection of the tunnel."""
        if self._ended:
            end.release()
            return
        if error is not None:
            self._ending = end.gone
        if self._closing or (error is None and end.is_finished):
            self._close()  # what waits for the other side is still written
            if end.other.is_lost:
                self._end(self._ending)
        else:
            reset(end.other.transport)
            self._end(end.gone)

    # -- the end

    def on_deadline(self) -> None:
        """End the tunnel, unless a slow reader has taken something meanwhile."""
        waiting = untaken(self._client.transport) + untaken(self._upstream.transport)
        if waiting and waiting != self._untaken:
            self._untaken = waiting
            self.deadline = self._owner.context.now + self._idle
        else:
            self.cut(TunnelEnding.IDLE)

    def cut(self, ending: TunnelEnding) -> None:
        """End the tunnel at once, with a reset: an orderly close would look like the end of what is sent."""
        for end in (self._client, self._upstream):
            if not end.is_lost:
                reset(end.transport)
        self._end(ending)

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._idle = min(self._idle, self._owner.resolution.timeouts.client_write_idle)
            self.deadline = self._owner.context.now + self._idle
        for end in (self._client, self._upstream):
            if not end.transport.is_closing():
                end.transport.close()

    def _end(self, ending: TunnelEnding) -> None:
        """Count the tunnel, hand out its request record, and give both connections back to their owners."""
        self._ended = True
        owner = self._owner
        owner.context.tunnels.discard(self)
        owner.context.metrics.count(OfService.tunnels, ending, service=self.service)
        owner.record.bytes_in = self._client.bytes_in
        owner.record.bytes_out = self._upstream.bytes_in
        owner.end("" if ending is TunnelEnding.CLOSED else ending.value)
        for end in (self._client, self._upstream):
            if end.is_lost:
                end.release()
