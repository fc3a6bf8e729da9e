"""One client connection: finds the end of each request head, and passes head and body to an exchange.

It serves one request at a time. Pipelined requests wait in a bounded buffer. After a framing error nothing
more is read. It decides nothing about versions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from gateway.dataplane.context import NEVER
from gateway.dataplane.edge.phases import (
    CLOSED,
    CLOSING,
    DISCARDING,
    IDLE,
    LINGERING,
    PIPELINED,
    READING_HEAD,
    SERVING,
    TUNNELLING,
    ClientPhase,
)
from gateway.dataplane.exchange.downstream import Downstream
from gateway.dataplane.exchange.exchange import Exchange
from gateway.dataplane.exchange.stages import READING_BODY
from gateway.dataplane.http1.fields import HEAD_END
from gateway.dataplane.http1.forwarding import Peer
from gateway.dataplane.local_responses.answers import CLOSE_LINE, encode, plain_error
from gateway.dataplane.local_responses.failures import Failure
from gateway.dataplane.sockets.bounded_reads import bound_reads
from gateway.dataplane.sockets.progress import ReceiveRate, WriteProgress
from gateway.dataplane.sockets.tcp import reset, untaken
from gateway.errors import FramingError
from gateway.telemetry.series.process import OfProcess

if TYPE_CHECKING:
    from gateway.core.fleet.timeouts import Timeouts
    from gateway.dataplane.backends.pools import ConnectionPools
    from gateway.dataplane.context import Context
    from gateway.dataplane.http1.request_body import RequestBody

TLS_HANDSHAKE: Final = 0x16
"""First byte of TLS, from a client that takes this port for an encrypted one."""
MAX_PIPELINED: Final = 64 * 1024
"""Maximum bytes of pipelined requests that wait before reading from the client stops."""
MAX_REQUESTS: Final = 10_000
MAX_AGE: Final = 3600.0
"""Age in seconds from which a client connection ends with its next response, as from `MAX_REQUESTS` on."""
LINGER: Final = 5.0
"""Seconds for which data from a refused client is read and dropped. If the connection were closed with bytes
unread, or while more come, it would be reset and the refusal lost (RFC 9112 9.6)."""
MAX_LINGER: Final = 4 * 1024 * 1024
"""Maximum bytes dropped after a refusal. A client that sends more does not do so by mistake."""
_ENDING: Final = (LINGERING, CLOSING, CLOSED)
"""Phases of a client connection in which no further request begins."""


class ClientHome(Protocol):
    """Interface of the worker for its client connections."""

    context: Context
    pools: ConnectionPools

    def client_connected(self, client: ClientConnection, /) -> None:
        """Register a new client connection."""

    def client_proven(self, client: ClientConnection, /) -> None:
        """Note that a client has sent a whole request head."""

    def client_disconnected(self, client: ClientConnection, /) -> None:
        """Forget a client whose connection is closed."""


@final
class ClientConnection(Downstream):
    """A connection from a client. Has the methods of `asyncio.Protocol`; not derived, so that it compiles."""

    __slots__ = (
        "_body_paused",
        "_buffer",
        "_discarding",
        "_empty_line_before",
        "_half_closed",
        "_head_deadline",
        "_head_received",
        "_known_peer",
        "_linger_left",
        "_progress",
        "_reading",
        "_reading_heads",
        "_reads_bounded",
        "_receive_rate",
        "_timeouts",
        "_write_buffer",
        "congested",
        "context",
        "deadline",
        "exchange",
        "opened",
        "peer",
        "phase",
        "pools",
        "requests",
        "transport",
        "worker",
    )

    def __init__(self, worker: ClientHome, peer: Peer | None = None) -> None:
        """Set up a client connection of `worker`. `peer`: if it is known before the connection is made."""
        self.worker = worker
        context = self.context = worker.context
        self.pools = worker.pools
        self.phase: ClientPhase = IDLE
        self.transport: asyncio.Transport
        self._known_peer = peer
        self.peer: Peer
        self.opened = context.now
        self.deadline = NEVER
        self.exchange: Exchange | None = None
        self.requests = 0
        self.subtotal = None
        # Reading
        self._buffer = b""
        self._receive_rate = ReceiveRate(context.min_rate_grace)
        self._empty_line_before = -1
        """Number of requests read when an empty line was last skipped: one may stand before each request."""
        self._head_deadline = NEVER
        self._head_received = 0
        self._discarding: RequestBody | None = None
        self._linger_left = 0
        self._half_closed = False
        """Whether the client has closed its sending side. What it has sent is still answered."""
        self._reading = True
        self._body_paused = False
        self._reading_heads = False
        self._reads_bounded = False
        # Writing
        self._timeouts = context.timeouts
        """Time-outs for what is still written after the last exchange: those of its service."""
        self._write_buffer = context.limits.write_buffer
        self._progress = WriteProgress()
        self.congested = False
        """Whether the client does not take what was written. No further request begins then."""

    # -- lifetime

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport has all its methods
        self.transport.set_write_buffer_limits(high=self._write_buffer)
        self.peer = self._known_peer or self.context.peer_at(transport)
        self.deadline = self._head_deadline = self.context.now + self.context.timeouts.client_head
        self.worker.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase = CLOSED
        self.worker.client_disconnected(self)
        if self.exchange is not None:
            self.exchange.end(Failure.CLIENT_GONE)

    def eof_received(self) -> bool:
        """Handle the client's half-close: answer what has come whole, as it may still read, then close."""
        exchange = self.exchange
        if exchange is None:
            self._half_closed = self.congested and bool(self._buffer)
        else:
            self._half_closed = exchange.body_received
        if not self._half_closed:
            self.context.flush()  # the transport closes now, and a response may wait here
        return self._half_closed

    def _has_expired(self) -> bool:
        """Whether the client's certificate has expired (threats R3-T2)."""
        return self.peer.expires_at <= self.context.wall_clock()

    def on_expired(self) -> None:
        """Close an idle connection whose certificate has expired. A request in flight gets its response."""
        if self.exchange is None and self.phase not in _ENDING:
            self.close()

    def on_deadline(self) -> None:
        """Handle the connection's deadline: the client has not sent, or not read, what it had to in time."""
        phase, exchange = self.phase, self.exchange
        if phase is LINGERING:
            self.close()
            return
        if self.congested or phase is CLOSING:
            self._await_taking()
            if self.deadline > self.context.now:
                return
        self.deadline = NEVER
        if exchange is not None:
            exchange.on_failure(Failure.CLIENT_STALLED)
        elif self.congested or phase is CLOSING:
            self.abort()
        elif phase is READING_HEAD:
            self.reject(FramingError("timeout", 408))
        else:
            self.close()

    # -- reading

    def data_received(self, data: bytes) -> None:
        if self.phase is not IDLE:
            data = self._receive_meanwhile(data)
            if not data:
                return
        self._buffer = self._buffer + data if self._buffer else data
        if not self._reading_heads:
            self._read_heads()
        if self._buffer and self._holds_enough():
            self._stop_reading()

    def _receive_meanwhile(self, data: bytes) -> bytes:
        """Take bytes from the client while the connection is not idle; returns those of the next request."""
        exchange = self.exchange
        if self.phase is LINGERING:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self.close()
        elif exchange is not None and not exchange.body_received:
            data = self._feed_body(exchange, data)
        return b"" if self._is_ending() else data

    def _is_ending(self) -> bool:
        """Whether no further request begins on this connection. A method for the same reason as `_serves`."""
        return self.phase in _ENDING

    def _holds_enough(self) -> bool:
        """Whether so many pipelined bytes wait that reading must stop: otherwise a client that reads no
        responses would fill the memory. An incomplete head is refused by `limits.head` before that."""
        return len(self._buffer) > max(MAX_PIPELINED, self.context.limits.head)

    def _read_heads(self) -> None:
        """Read request heads while there are any and no exchange is running. Not a recursion: a local
        response ends its exchange at once, and the next head may be here."""
        self._reading_heads = True
        try:
            while self._buffer and not self.congested:
                phase = self.phase
                if phase is IDLE or phase is READING_HEAD or phase is PIPELINED:
                    if not self._read_head():
                        break
                elif phase is DISCARDING:
                    self._discard_body()
                else:
                    break
        finally:
            self._reading_heads = False
        if self._buffer and self.phase is IDLE:
            self.phase = PIPELINED
        if self._half_closed:  # nothing more will come: what is incomplete ends
            exchange = self.exchange
            if exchange is not None:
                if not exchange.body_received:
                    exchange.end(Failure.CLIENT_GONE)
            elif not self.congested and self.phase not in _ENDING:
                self.close()

    def _read_head(self) -> bool:
        """Begin an exchange if the next request head is complete (stop 1 of 8); False if not."""
        data = self._buffer
        reader = self.context.request_reader(self.peer.is_trusted)
        try:
            request = reader.read_known(data)
            if request is not None:
                self._buffer = data[request.size :]
            else:
                head = self._cut_head(data)
                if head is None:
                    return False
                request = reader.read(head)
        except FramingError as error:
            self.reject(error)
            return False
        self.phase = SERVING
        self.requests += 1
        if self.requests == 1:
            self.worker.client_proven(self)
        self.deadline = NEVER
        exchange = self.exchange = Exchange(self, request)
        exchange.begin()
        if self._buffer and self._serves(exchange) and not exchange.body_received:
            data, self._buffer = self._buffer, b""
            self._buffer = self._feed_body(exchange, data)
        return True

    def _serves(self, exchange: Exchange) -> bool:
        """Whether `exchange` has not ended. A method, because type checkers and compiled code assume that
        `self.exchange` is unchanged after an assignment, whatever was called since."""
        return self.exchange is exchange

    def _cut_head(self, data: bytes) -> bytes | None:
        """First request head in `data`; None if it is incomplete. The rest stays in the buffer."""
        limits = self.context.limits
        if data[0] == TLS_HANDSHAKE:  # else the client would wait for a handshake until the head deadline
            raise FramingError("tls")
        if data[:2] == b"\r\n" and self._empty_line_before != self.requests:
            # RFC 9112 2.2: skip one empty line before a request, however it arrives
            self._empty_line_before = self.requests
            data = self._buffer = data[2:]
            if not data:
                if self.phase is not IDLE:  # the first byte of the line may have begun a head
                    self.phase = IDLE
                    if self.requests:
                        self.deadline = self.context.now + self.context.timeouts.client_idle
                return None
        end = data.find(HEAD_END) + len(HEAD_END)  # smaller than len(HEAD_END) if not found
        if len(HEAD_END) <= end <= limits.head:
            self._buffer = data[end:]
            return data[:end]
        longest_line = limits.line + len(b"\r\n")  # of which a part may still have to come
        one_line = b"\n" not in data[:longest_line]
        if len(data) >= longest_line and one_line:
            raise FramingError("line_too_long", 414)
        if len(data) > limits.head:
            raise FramingError("head_too_large", 414 if one_line else 431)
        if data.count(b"\n") != data.count(b"\r\n"):  # the client may wait for a response to this
            raise FramingError("line_end")
        self._await_head(len(data))
        return None

    def _await_head(self, received: int) -> None:
        """Set the deadline of an incomplete request head: `client_head` for all, and the minimum rate."""
        context = self.context
        if self.phase is not READING_HEAD:
            self.phase = READING_HEAD
            self._head_received = 0
            self._receive_rate.begin(context.now)
            if self.requests:  # the time for the first one runs since the connection was made
                self._head_deadline = context.now + context.timeouts.client_head
        self._receive_rate.add(received - self._head_received)
        self._head_received = received
        self.deadline = min(self._head_deadline, self._receive_rate.deadline(context.limits.min_rate))

    def await_body(self) -> None:
        """Begin to wait for a request body, within its time-out and at the minimum rate."""
        self._receive_rate.begin(self.context.now)
        if not self._reading:
            self._receive_rate.pause(self.context.now)
        self._set_deadline()

    def _set_deadline(self) -> None:
        """Set the client's deadline by what it has to do next: take what was written, or send more of its
        body. There is none while the gateway itself does not read."""
        exchange = self.exchange
        if self.congested:
            self._await_taking()
        elif exchange is not None and (body := exchange.body) and not body.done and self._reading:
            idle_deadline = self.context.now + timeouts_of(exchange).client_body_idle
            self.deadline = min(idle_deadline, self._receive_rate.deadline(body.limits.min_rate))
        else:
            self.deadline = NEVER

    def _feed_body(self, exchange: Exchange, data: bytes) -> bytes:
        self._receive_rate.add(len(data))
        self._set_deadline()
        try:
            rest = exchange.on_request_body(data)
        except FramingError as error:
            self.context.metrics.count(OfProcess.client_errors, error.reason)
            exchange.on_failure(Failure.CLIENT_BROKE)
            return b""
        if exchange.body_received and self._serves(exchange):
            self._set_deadline()
        return rest

    def _discard_body(self) -> None:
        """Discard the rest of an unneeded request body, so that the connection can be kept. An error in it
        only closes the connection (threats R-A16): its request has a response already, and the client would
        take another one for the response to its next request."""
        assert self._discarding is not None
        data, self._buffer = self._buffer, b""
        try:
            rest = self._discarding.skip(data)
        except FramingError as error:
            self.context.metrics.count(OfProcess.client_errors, error.reason)
            self._linger()
            return
        if not self._discarding.skippable():
            self._linger()
        elif self._discarding.done:
            self.phase = IDLE
            self._buffer, self._discarding = rest, None
            self.deadline = self.context.now + self.context.timeouts.client_idle

    def reject(self, error: FramingError) -> None:
        """Refuse a broken request and end the connection: nothing after it can be trusted (threats S17)."""
        self.refuse(error)
        self._linger()

    def refuse(self, error: FramingError) -> None:
        """Write an error response that says why the connection ends. The caller closes it."""
        self.context.metrics.count(OfProcess.client_errors, error.reason)
        response = plain_error(error.status, error.reason)
        refusal = encode(response, error.reason, is_head_request=False, connection=CLOSE_LINE)
        self.context.send(self.transport, refusal)

    def hand_over(self) -> tuple[bytes, bool]:
        self.phase = TUNNELLING
        data, self._buffer = self._buffer, b""
        self.deadline = NEVER
        self._reads_bounded = True  # a tunnel reads in its own way
        return data, self._half_closed

    # -- writing

    def must_close(self) -> bool:
        """Whether this response is the last one on this connection. While the gateway drains every response
        is, so that no client sends a request into a connection that is being closed (threats E1)."""
        return (
            (self._half_closed and not self._buffer)
            or self.context.draining
            or self.requests >= MAX_REQUESTS
            or self.context.now - self.opened > MAX_AGE
            or (self.peer.certificate is not None and self._has_expired())
        )

    def exchange_ended(self, *, keep: bool) -> None:
        exchange, self.exchange = self.exchange, None
        assert exchange is not None
        self._body_paused = False
        if not keep or (self.peer.certificate is not None and self._has_expired()):
            if self.phase not in _ENDING:
                self._timeouts = timeouts_of(exchange)
                if exchange.body_received and not self._buffer:
                    self.close()
                else:  # more may be on its way, which must not reset the response
                    self._linger()
            return
        if not self.congested:
            self.deadline = self.context.now + self.context.timeouts.client_idle
        else:
            self._timeouts = timeouts_of(exchange)
        body = exchange.body
        if body is None or body.done:
            self.phase = IDLE
        else:
            self.phase = DISCARDING
            self._discarding = body
        if self._buffer or self._half_closed or not self._reading:
            self._read_on()

    def bound_writes(self, size: int) -> None:
        if size != self._write_buffer:
            self._write_buffer = size
            self.transport.set_write_buffer_limits(high=size)

    def _read_on(self) -> None:
        """Read the request heads that wait, and more from the client if few are left."""
        if (self._buffer or self._half_closed) and not self._reading_heads:
            self._read_heads()
        self._read_more()

    def close(self) -> None:
        """Close the client connection when all is sent, or after `timeouts.client_write_idle`."""
        if self.phase in (CLOSING, CLOSED):
            return
        self.phase = CLOSING
        self._buffer = b""
        self.context.flush()
        self._progress.restart()
        self._await_taking()
        self.transport.close()

    def _linger(self) -> None:
        """Drop what the client still sends, until it closes or for `LINGER`, then close (threats R3-V11)."""
        self.context.flush()
        if self._half_closed or self.transport.is_closing() or not self.transport.can_write_eof():
            self.close()
            return
        self.phase = LINGERING
        self._buffer = b""
        self.deadline = self.context.now + LINGER
        self._linger_left = MAX_LINGER
        self.transport.write_eof()
        self.resume_reading()

    def abort(self) -> None:
        """Close the connection at once with a reset, the only correct end of an incomplete response: if the
        end of the connection ends the response, an orderly close would look like a complete one."""
        if self.phase not in (CLOSING, CLOSED):
            self.phase = CLOSING
        reset(self.transport)

    # -- flow control

    def _await_taking(self) -> None:
        """Set the deadline for the client to take more. A slow reader has no time limit: the time-out is for
        one that takes nothing (threats R-B1)."""
        if self.phase is LINGERING:  # it has its own deadline
            return
        timeouts = self._timeouts if self.exchange is None else timeouts_of(self.exchange)
        taken = -untaken(self.transport)  # nothing more is written meanwhile
        self.deadline = self._progress.next_check(taken, self.context.now, timeouts.client_write_idle)

    def pause_writing(self) -> None:
        self.congested = True
        self._progress.restart()
        self._await_taking()
        if self.exchange is not None:
            self.exchange.pause_response()

    def resume_writing(self) -> None:
        self.congested = False
        if self.exchange is not None:
            self._set_deadline()
            self.exchange.resume_response()
        elif self.phase not in _ENDING:
            self.deadline = self.context.now + self.context.timeouts.client_idle
            self._read_on()

    def pause_reading(self) -> None:
        """Stop reading the request body until the backend takes more. It has no deadline meanwhile."""
        self._body_paused = True
        self._stop_reading()

    def resume_reading(self) -> None:
        self._body_paused = False
        self._read_more()

    def bound_reads(self) -> None:
        """Read this client in small pieces while held request bodies exceed their total."""
        if self._reads_bounded or self._half_closed or self.transport.is_closing():
            return
        self._reads_bounded = True
        protocol = cast(asyncio.Protocol, self)
        bound_reads(self.transport, protocol, self.context.read_buffer, self._reads_little)

    def _reads_little(self) -> bool:
        """Whether held request bodies exceed their total, and what comes next may be held as well."""
        exchange = self.exchange
        return self.context.held_bodies.full and (exchange is None or exchange.stage is READING_BODY)

    def _stop_reading(self) -> None:
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()
            if self.exchange is not None and not self.exchange.body_received:
                self._receive_rate.pause(self.context.now)
                self._set_deadline()

    def _read_more(self) -> None:
        """Read from the client again if nothing speaks against it. After its half-close nothing comes."""
        if (
            self._reading
            or self._body_paused
            or self._half_closed
            or self._holds_enough()
            or self.transport.is_closing()
        ):
            return
        self._reading = True
        self.transport.resume_reading()
        if self.exchange is not None and not self.exchange.body_received:
            self._receive_rate.resume(self.context.now)
            self._set_deadline()


def timeouts_of(exchange: Exchange) -> Timeouts:
    """Time-outs of the service of an exchange; without a service those of the whole configuration."""
    return exchange.resolution.timeouts if exchange.record.service else exchange.context.timeouts
