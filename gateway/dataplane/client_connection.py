"""One client connection: finds the end of each request head, and passes head and body to an exchange.

It serves one request at a time. Pipelined requests wait in a bounded buffer. After a framing error nothing
more is read. Decides nothing about versions.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final, cast, final

from gateway.dataplane import local_response
from gateway.dataplane.context import NEVER
from gateway.dataplane.exchange import Exchange
from gateway.dataplane.forwarding import Peer
from gateway.dataplane.http1.heads import HEAD_END, RequestReader
from gateway.dataplane.recovery import BaseExchange
from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.core.http.message import Response
    from gateway.dataplane.worker import Worker

TLS_HANDSHAKE: Final = 0x16
"""The first byte of TLS, from a client that takes this port for an encrypted one."""
MAX_PIPELINED: Final = 64 * 1024
"""Bytes that may wait after the current request before reading stops."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket sends a reset."""
MAX_REQUESTS: Final = 10_000
MAX_AGE: Final = 3600.0
"""Seconds. The response to request number `MAX_REQUESTS`, or the next one after `MAX_AGE` seconds, has
`Connection: close`, so that clients reconnect, perhaps to another gateway."""
CLOSE_LINE: Final = b"Connection: close\r\n"
KEEP_ALIVE_LINE: Final = b"Connection: keep-alive\r\n"


@final
class ClientConnection(asyncio.Protocol):
    """One TCP connection from a client."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.context = worker.context
        self.transport: asyncio.Transport
        self.peer: Peer
        self.deadline = NEVER
        self.exchange: BaseExchange | None = None
        self.closing = False
        """Nothing more is read from the client."""
        self._request = RequestReader()
        self._buffer = b""
        self._discarding: BaseExchange | None = None
        """The exchange that has ended while the rest of its request body is still to be discarded."""
        self._requests = 0
        self._opened = self.context.now
        self._reading = True
        self._reading_heads = False
        """`_read_heads` is running, perhaps further up the stack."""
        self._head_deadline_of = 0
        """The number of requests that came before the head whose deadline was set last."""
        self.congested = False
        """The client does not take what was written. No further request begins, so that responses do not
        pile up here."""

    # -- lifetime

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has all its methods
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = Peer(str(peer[0]), "http", self.context.trusted)
        self.deadline = self.context.now + self.context.timeouts.client_head
        self.worker.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self.worker.client_disconnected(self)
        if self.exchange is not None:
            self.exchange.on_client_gone()

    def eof_received(self) -> bool:
        """The client has closed its sending side and may still read: finish the exchange, then close."""
        if self.exchange is not None and self.exchange.body_received:
            self.closing = True
            return True
        return False

    @property
    def idle(self) -> bool:
        """Between two requests, and no byte of the next one has come."""
        return self.exchange is None and not self._buffer and self._discarding is None

    def on_deadline(self) -> None:
        """The rest of a head or body, or the next request, did not come in time, or the client did not
        read in time."""
        self.deadline = NEVER
        if self.exchange is not None:
            self.exchange.on_client_stalled()
        elif self.closing or self.congested:
            self.abort()
        elif self._buffer:
            self._reject(FramingError("timeout", 408))
        else:
            self.close()

    # -- reading

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        exchange = self.exchange
        if exchange is not None:
            if exchange.body_received:
                self._buffer_pipelined(data)
                return
            self.deadline = self.context.now + self.context.timeouts.client_body_idle
            data = self._feed_body(exchange, data)
            if not data or self.closing:
                return
        self._buffer = self._buffer + data if self._buffer else data
        if not self._reading_heads:
            self._read_heads()

    def _read_heads(self) -> None:
        """Read heads while there are any and no exchange is running.

        A loop and not a recursion: a local response ends its exchange at once, and the next head may be here.
        """
        self._reading_heads = True
        try:
            while self._buffer and self.exchange is None and not self.closing and not self.congested:
                if self._discarding is not None:
                    self._discard_body()
                elif not self._read_head():
                    break
        finally:
            self._reading_heads = False

    def _read_head(self) -> bool:
        """Stop 1: begin an exchange if its head is complete; False if not."""
        data, request, context = self._buffer, self._request, self.context
        table = context.request_names(self.peer.is_trusted)
        try:
            if request.read_cached(data, table, context.limits):
                self._buffer = b""
            else:
                head = self._cut_head(data)
                if head is None:
                    return False
                request.read(head, table, context.limits)
        except FramingError as error:
            self._reject(error)
            return False
        self._requests += 1
        self.deadline = NEVER
        exchange = self.exchange = Exchange(self, request)
        exchange.begin()
        if self._buffer and self.exchange is exchange and not exchange.body_received:
            data, self._buffer = self._buffer, b""
            self._buffer = self._feed_body(exchange, data)
        return True

    def _cut_head(self, data: bytes) -> bytes | None:
        """The first head in `data`; None if it is not complete. The rest stays in the buffer.

        Raises `FramingError` for TLS and for a head that is too large.
        """
        limits = self.context.limits
        if (
            data[0] == TLS_HANDSHAKE
        ):  # otherwise the client would wait for a TLS handshake until the head deadline
            raise FramingError("tls")
        if data[:2] == b"\r\n":  # RFC 9112 2.2: skip one empty line before a request
            data = self._buffer = data[2:]
        end = data.find(HEAD_END) + len(HEAD_END)  # smaller than len(HEAD_END) if not found
        if len(HEAD_END) <= end <= limits.head:
            self._buffer = data[end:]
            return data[:end]
        one_line = b"\n" not in data[: limits.line + 2]
        if len(data) > limits.head:
            raise FramingError("head_too_large", 414 if one_line else 431)
        if len(data) > limits.line and one_line:
            raise FramingError("line_too_long", 414)
        if self._requests:
            self._start_head_deadline()
        return None

    def _start_head_deadline(self) -> None:
        """The first bytes of a further head have come. It has the same time as a first one: for the whole
        head, not per byte."""
        if self._head_deadline_of != self._requests:
            self._head_deadline_of = self._requests
            self.deadline = self.context.now + self.context.timeouts.client_head

    def _feed_body(self, exchange: BaseExchange, data: bytes) -> bytes:
        """Pass `data` to the exchange as request body; returns the bytes after the body."""
        try:
            rest = exchange.on_request_body(data)
        except FramingError as error:
            self.context.metrics.client_error(error.reason)
            exchange.on_malformed_body()
            return b""
        if exchange.body_received and self.exchange is exchange:
            self.deadline = NEVER
        return rest

    def _discard_body(self) -> None:
        """Discard the rest of a request body that is not needed, so that the connection can be kept.

        Whatever is wrong with it, the connection is only closed (threats R-A16): its request has a response,
        and the client would take another one for that to its next request.
        """
        assert self._discarding is not None
        data, self._buffer = self._buffer, b""
        try:
            rest = self._discarding.skip_body(data)
        except FramingError as error:
            self.context.metrics.client_error(error.reason)
            self.close()
            return
        if not self._discarding.body_skippable:
            self.close()
        elif self._discarding.body_received:
            self._buffer, self._discarding = rest, None
            self.deadline = self.context.now + self.context.timeouts.client_idle

    def _buffer_pipelined(self, data: bytes) -> None:
        """Keep pipelined requests until it is their turn."""
        self._buffer += data
        if len(self._buffer) > MAX_PIPELINED:
            self.pause_reading()

    def _reject(self, error: FramingError) -> None:
        """Respond to a broken request and close: nothing after it can be trusted (threats S17)."""
        self.context.metrics.client_error(error.reason)
        self.respond(local_response.plain_error(error.status), is_head_request=False, close=True)
        self.close()

    # -- writing

    def connection_line(self, *, close: bool) -> bytes:
        """The `Connection` line of a response; empty for a connection of HTTP/1.1 that stays open."""
        if close:
            return CLOSE_LINE
        return b"" if self._request.minor else KEEP_ALIVE_LINE

    def must_close(self) -> bool:
        """Whether this response is the last one on this connection.

        While the gateway drains, every response has `Connection: close`. Then no client sends a request into
        a connection that is being closed (threats E1).
        """
        return (
            self._request.close
            or self.closing
            or self.context.draining
            or self._requests >= MAX_REQUESTS
            or self.context.now - self._opened > MAX_AGE
        )

    def respond(self, response: Response, *, is_head_request: bool, close: bool) -> None:
        """Write a whole local response."""
        data = local_response.encode(
            response, is_head_request=is_head_request, connection=self.connection_line(close=close)
        )
        self.context.send(self.transport, data)

    def exchange_ended(self, exchange: BaseExchange, *, keep: bool) -> None:
        """The exchange has ended. `keep`: its response was written whole and the connection stays open;
        otherwise close it."""
        self.exchange = None
        if not keep or self.closing:
            self.close()
            return
        if not self.congested:
            self.deadline = self.context.now + self.context.timeouts.client_idle
        if not exchange.body_received:
            self._discarding = exchange
        if not self._reading:
            self.resume_reading()
        if self._buffer and not self._reading_heads:
            self._read_heads()

    def close(self) -> None:
        """Close after everything that was written is sent, or after `timeouts.client_write_idle`."""
        self.closing = True
        self._buffer = b""
        self.deadline = self.context.now + self.context.timeouts.client_write_idle
        self.context.flush()
        self.transport.close()

    def abort(self) -> None:
        """Close at once, with a reset: the only correct end of a response that cannot be completed. Where the
        end of the connection ends the response, an orderly close would look like a complete response."""
        self.closing = True
        self.exchange = None
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    # -- flow control

    def pause_writing(self) -> None:
        self.congested = True
        self.deadline = self.context.now + self.context.timeouts.client_write_idle
        if self.exchange is not None:
            self.exchange.pause_response()

    def resume_writing(self) -> None:
        self.congested = False
        if self.exchange is not None:
            self.deadline = NEVER
            self.exchange.resume_response()
        else:
            self.deadline = self.context.now + self.context.timeouts.client_idle
            if self._buffer and not self._reading_heads:
                self._read_heads()

    def pause_reading(self) -> None:
        """Stop reading until the backend takes more or the next request begins. The client has no deadline
        for its body meanwhile."""
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()
            if self.exchange is not None and not self.exchange.body_received:
                self.deadline = NEVER

    def resume_reading(self) -> None:
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()
            if self.exchange is not None and not self.exchange.body_received:
                self.deadline = self.context.now + self.context.timeouts.client_body_idle
