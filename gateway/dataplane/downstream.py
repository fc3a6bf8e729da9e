"""One client connection: finds where a request's head ends, hands it to an exchange, and feeds that its body.

One request at a time; what a client sends ahead waits, bounded. After a framing error nothing more is read.
Decides nothing about versions.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final, cast, final

from gateway.dataplane import own_reply
from gateway.dataplane.forwarding import Peer
from gateway.dataplane.http1 import HEAD_END, RequestReader
from gateway.dataplane.proxy import Exchange
from gateway.dataplane.recovery import Recovery
from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.core.message import Reply
    from gateway.dataplane.worker import Worker

NEVER: Final = float("inf")
TLS_HANDSHAKE: Final = 0x16
"""The first byte of TLS: a client that took this port for an encrypted one."""
MAX_AHEAD: Final = 64 * 1024
"""Bytes that may wait behind the current request before reading stops."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
MAX_REQUESTS: Final = 10_000
MAX_AGE: Final = 3600.0
"""After that many requests or seconds a connection is closed in good order, so that load spreads again."""
CLOSE_LINE: Final = b"Connection: close\r\n"
KEEP_LINE: Final = b"Connection: keep-alive\r\n"


@final
class ClientConnection(asyncio.Protocol):
    """One TCP connection from a client."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.context = worker.context
        self.transport: asyncio.Transport
        self.peer: Peer
        self.deadline = NEVER
        self.exchange: Recovery | None = None
        self.closing = False
        """Nothing further is read from it."""
        self._request = RequestReader()
        self._buffer = b""
        self._discard: Recovery | None = None
        self._requests = 0
        self._opened = self.context.now
        self._reading = True
        self._busy = False
        self.congested = False
        """It does not take what was written to it: no further request is begun, or replies would pile up
        here."""

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer = Peer(str(peer[0]), int(local[1]), "http", self.context.trusted)
        self.deadline = self.context.now + self.context.timeouts.client_head
        self.worker.welcome(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self.worker.farewell(self)
        if self.exchange is not None:
            self.exchange.on_client_gone()

    def eof_received(self) -> bool:
        """A client that has said all may still listen: the running exchange is finished, then the connection
        ends."""
        if self.exchange is not None and self.exchange.uploaded:
            self.closing = True
            return True
        return False

    @property
    def idle(self) -> bool:
        """Between two requests, nothing of the next one read yet."""
        return self.exchange is None and not self._buffer and self._discard is None

    def on_deadline(self) -> None:
        """Too slow with a head or a body, too slow to read, or idle for too long."""
        self.deadline = NEVER
        if self.exchange is not None:
            self.exchange.on_client_stalled()
        elif self.closing or self.congested:
            self.abort()
        elif self._buffer:
            self._turn_away(FramingError("timeout", 408))
        else:
            self.close()

    # -- reading

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        exchange = self.exchange
        if exchange is not None:
            if exchange.uploaded:
                self._wait(data)
                return
            self.deadline = self.context.now + self.context.timeouts.client_body_idle
            data = self._feed(exchange, data)
            if not data or self.closing:
                return
        self._buffer = self._buffer + data if self._buffer else data
        if not self._busy:
            self._read_on()

    def _read_on(self) -> None:
        """Read heads while there are any and no exchange is running. Not recursive: a refusal ends at
        once."""
        self._busy = True
        try:
            while self._buffer and self.exchange is None and not self.closing and not self.congested:
                if self._discard is not None:
                    self._discard_body()
                elif not self._read_head():
                    break
        finally:
            self._busy = False

    def _read_head(self) -> bool:
        """Start the exchange whose head is complete; False when it is not."""
        data, request, context = self._buffer, self._request, self.context
        table = context.request_names()
        try:
            if request.read_known(data, table, context.limits):
                self._buffer = b""
            else:
                head = self._cut_head(data)
                if head is None:
                    return False
                request.read(head, table, context.limits)
        except FramingError as error:
            self._turn_away(error)
            return False
        self._requests += 1
        self.deadline = NEVER
        exchange = self.exchange = Exchange(self, request)
        exchange.begin()
        if self._buffer and self.exchange is exchange and not exchange.uploaded:
            ahead, self._buffer = self._buffer, b""
            self._buffer = self._feed(exchange, ahead)
        return True

    def _cut_head(self, data: bytes) -> bytes | None:
        """The first head in `data`, the rest kept; None when it is not complete. Raises `FramingError`: too
        large."""
        limits = self.context.limits
        if data[0] == TLS_HANDSHAKE:  # it would wait for an answer that cannot come
            raise FramingError("tls")
        if data[:2] == b"\r\n":  # one empty line before a request is tolerated (RFC 9112 2.2)
            data = self._buffer = data[2:]
        end = data.find(HEAD_END) + len(HEAD_END)
        if len(HEAD_END) <= end <= limits.head:
            self._buffer = data[end:]
            return data[:end]
        one_line = b"\n" not in data[: limits.line + 2]
        if len(data) > limits.head:
            raise FramingError("head_too_large", 414 if one_line else 431)
        if len(data) > limits.line and one_line:
            raise FramingError("line_too_long", 414)
        if self._requests:
            self._await_head()
        return None

    def _await_head(self) -> None:
        """The first bytes of a further head are here: it gets the time that a first one gets, in all, not per
        byte."""
        if self._head_since != self._requests:
            self._head_since = self._requests
            self.deadline = self.context.now + self.context.timeouts.client_head

    _head_since = 0

    def _feed(self, exchange: Recovery, data: bytes) -> bytes:
        """Give the exchange its body; returns what stands behind it."""
        try:
            rest = exchange.on_request_body(data)
        except FramingError as error:
            self.context.metrics.client_error(error.reason)
            exchange.on_client_broke()
            return b""
        if exchange.uploaded and self.exchange is exchange:
            self.deadline = NEVER
        return rest

    def _discard_body(self) -> None:
        """Read over the rest of a body that nobody wants, so that the connection can be kept."""
        assert self._discard is not None
        data, self._buffer = self._buffer, b""
        try:
            self._buffer = self._discard.skip_body(data)
        except FramingError as error:
            self._turn_away(error)
            return
        if self._discard.uploaded:
            self._discard = None
            self.deadline = self.context.now + self.context.timeouts.client_idle

    def _wait(self, data: bytes) -> None:
        """Keep what a client sends ahead of its turn."""
        self._buffer += data
        if len(self._buffer) > MAX_AHEAD:
            self.pause_reading()

    def _turn_away(self, error: FramingError) -> None:
        """Answer what cannot be read, and close: nothing behind it can be trusted (hardening S17)."""
        self.context.metrics.client_error(error.reason)
        self.say(own_reply.plain(error.status), to_head=False, close=True)
        self.close()

    # -- writing

    def connection_line(self, *, close: bool) -> bytes:
        """The `Connection` line of a reply: none in the ordinary case of HTTP/1.1 that goes on."""
        if close:
            return CLOSE_LINE
        return b"" if self._request.minor else KEEP_LINE

    def must_close(self) -> bool:
        """Whether this reply is the last one here. While draining every reply says so, so that no client
        meets a closed connection with a request under way (hardening, finding 9)."""
        return (
            self._request.close
            or self.closing
            or self.context.draining
            or self._requests >= MAX_REQUESTS
            or self.context.now - self._opened > MAX_AGE
        )

    def say(self, reply: Reply, *, to_head: bool, close: bool) -> None:
        """Write a whole reply of our own."""
        data = own_reply.write(reply, to_head=to_head, connection=self.connection_line(close=close))
        self.context.send(self.transport, data)

    def finished(self, exchange: Recovery, *, keep: bool) -> None:
        """The exchange has ended and its reply was written whole. `keep`: the connection goes on."""
        self.exchange = None
        if not keep or self.closing:
            self.close()
            return
        if not self.congested:
            self.deadline = self.context.now + self.context.timeouts.client_idle
        if not exchange.uploaded:
            self._discard = exchange
        if not self._reading:
            self.resume_reading()
        if self._buffer and not self._busy:
            self._read_on()

    def close(self) -> None:
        """After what was written has gone out. A client that does not take it has no longer than any
        other."""
        self.closing = True
        self._buffer = b""
        self.deadline = self.context.now + self.context.timeouts.client_write_idle
        self.context.flush()
        self.transport.close()

    def abort(self) -> None:
        """At once and with a reset: the only honest end of a reply that cannot be finished. An orderly end
        would look like the reply's own where the end of the connection is its end."""
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
            self.exchange.pause_reply()

    def resume_writing(self) -> None:
        self.congested = False
        if self.exchange is not None:
            self.deadline = NEVER
            self.exchange.resume_reply()
        else:
            self.deadline = self.context.now + self.context.timeouts.client_idle
            if self._buffer and not self._busy:
                self._read_on()

    def pause_reading(self) -> None:
        """Until the other side takes more, no time runs against the client's sending."""
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()
            if self.exchange is not None and not self.exchange.uploaded:
                self.deadline = NEVER

    def resume_reading(self) -> None:
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()
            if self.exchange is not None and not self.exchange.uploaded:
                self.deadline = self.context.now + self.context.timeouts.client_body_idle
