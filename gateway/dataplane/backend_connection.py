"""One connection to a backend: it carries one exchange after another and frames their responses.

It serves one exchange at a time. It goes back to its pool only after a response that ended exactly where its
framing said. Every broken or late response ends here, reported to the exchange as a `Failure`. Nothing
here depends on API versions.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Final, cast, final

from gateway.dataplane.context import NEVER
from gateway.dataplane.failures import Failure
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.dataplane.http1.fields import BY_LENGTH, CHUNKED, NO_BODY, UNTIL_CLOSE
from gateway.dataplane.http1.heads import HEAD_END, MAX_RESPONSE_HEAD, ResponseReader
from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.dataplane.backend_pool import BackendPool
    from gateway.dataplane.exchange import Exchange
    from gateway.dataplane.http1.names import NameTable

READING_HEAD: Final = -1
"""A mode beside the framings of `http1.fields`: the response head is not complete yet."""
MAX_INTERIM: Final = 16
"""Most 1xx responses accepted before the final one (threats B4). They are dropped, not forwarded: the gateway
sends `100 Continue` itself."""
_PEER_CLOSED: Final[int] = getattr(select, "POLLRDHUP", select.POLLIN)
"""The event of `select.poll` for a connection that the peer has closed."""


@final
class BackendConnection(asyncio.Protocol):
    """One TCP connection to a backend."""

    def __init__(self, pool: BackendPool) -> None:
        self.pool = pool
        self.transport: asyncio.Transport
        self.deadline = NEVER
        self._exchange: Exchange | None = None
        self._reader = ResponseReader()
        self._table: NameTable
        self._is_head_request = False
        self._mode = READING_HEAD
        """`READING_HEAD`, or the framing of the content that is being read."""
        self._remaining = 0
        self._decoder: ChunkedDecoder | None = None
        self._buffer = b""
        """The beginning of a head."""
        self._interim = 0
        self._close_poll: select.poll | None = None

    # -- lifetime

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has all its methods
        self.pool.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.on_connection_lost(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._mode == UNTIL_CLOSE and exc is None:
            exchange.on_response_body(b"", done=True)
        elif self._mode == READING_HEAD:
            exchange.on_failure(Failure.BAD_REPLY if self._any_byte_received else Failure.NO_REPLY)
        else:
            exchange.on_failure(Failure.REPLY_CUT)

    def start(self, exchange: Exchange, table: NameTable, *, is_head_request: bool) -> None:
        """Begin an exchange: what arrives from now on is its response."""
        self._exchange = exchange
        self._table = table
        self._is_head_request = is_head_request
        self._mode = READING_HEAD
        self._interim = 0
        context = self.pool.context
        self.deadline = context.now + context.timeouts.backend_head

    def abandon(self) -> None:
        """Close the connection at once. The exchange does not need the response any more."""
        self._exchange = None
        self.deadline = NEVER
        self.transport.abort()

    def on_deadline(self) -> None:
        """The head, more content or, on an idle connection, a new exchange did not come in time."""
        exchange, self._exchange = self._exchange, None
        self.deadline = NEVER
        self.transport.abort()
        if exchange is not None:
            no_byte = self._mode == READING_HEAD and not self._any_byte_received
            exchange.on_failure(Failure.REPLY_TIMEOUT if no_byte else Failure.REPLY_STALLED)

    @property
    def _any_byte_received(self) -> bool:
        """Whether an interim response or part of a head has arrived. Valid until the head is complete."""
        return bool(self._buffer) or self._interim > 0

    def peer_closed(self) -> bool:
        """Whether the backend has closed the connection, even if the event loop has not reported it yet.

        One system call.
        """
        if self._close_poll is None:
            self._close_poll = select.poll()
            self._close_poll.register(self.transport.get_extra_info("socket").fileno(), _PEER_CLOSED)
        return bool(self._close_poll.poll(0))

    # -- flow control: each side is read only as fast as the other side takes it

    def pause_reading(self) -> None:
        """Stop reading until the client takes more. The backend has no deadline meanwhile."""
        self.deadline = NEVER
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        context = self.pool.context
        self.deadline = context.now + context.timeouts.backend_body_idle
        self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.downstream.pause_reading()

    def resume_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.downstream.resume_reading()

    # -- the response

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # bytes that answer no request: do not reuse the connection (threats B5)
            self.transport.abort()
            return
        try:
            if self._mode == READING_HEAD:
                self._read_head(exchange, data)
                return
            context = self.pool.context
            self.deadline = context.now + context.timeouts.backend_body_idle
            piece, done, surplus = self._read_body(data)
        except FramingError:
            self._fail(Failure.BAD_REPLY if self._mode == READING_HEAD else Failure.REPLY_CUT)
            return
        if done:
            self._release(exchange, surplus=surplus)
        exchange.on_response_body(piece, done=done)

    def _read_head(self, exchange: Exchange, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        reader = self._reader
        while True:
            end = data.find(HEAD_END) + len(HEAD_END)
            if end < len(HEAD_END):  # smaller than len(HEAD_END) if not found
                if len(data) > MAX_RESPONSE_HEAD:
                    raise FramingError("head_too_large")
                self._buffer = data
                return
            if end > MAX_RESPONSE_HEAD:
                raise FramingError("head_too_large")
            reader.read(data[:end], self._table, is_head_request=self._is_head_request)
            data = data[end:]
            if reader.status >= 200:
                break
            self._interim += 1
            if reader.status == 101 or self._interim > MAX_INTERIM:
                raise FramingError("interim")
        framing = reader.framing
        if framing == BY_LENGTH and len(data) == reader.length:  # most responses: complete
            self._release(exchange, surplus=False)
            exchange.on_response(reader, data, done=True)
            return
        self._mode = framing
        if framing == CHUNKED:
            self._decoder = ChunkedDecoder()
        self._remaining = reader.length
        context = self.pool.context
        self.deadline = context.now + context.timeouts.backend_body_idle
        piece, done, surplus = self._read_body(data)
        if done:
            self._release(exchange, surplus=surplus)
        exchange.on_response(reader, piece, done=done)

    def _read_body(self, data: bytes) -> tuple[bytes, bool, bool]:
        """The content in `data`, whether it is complete, and whether bytes follow it."""
        mode = self._mode
        if mode == BY_LENGTH:
            left = self._remaining - len(data)
            if left > 0:
                self._remaining = left
                return data, False, False
            return (data, True, False) if left == 0 else (data[:left], True, True)
        if mode == NO_BODY:
            return b"", True, bool(data)
        if mode == CHUNKED:
            assert self._decoder is not None
            piece = self._decoder.feed(data)
            return piece, self._decoder.done, bool(self._decoder.rest)
        return data, False, False

    def _release(self, exchange: Exchange, *, surplus: bool) -> None:
        """The response is complete: return to the pool, or close.

        Called before the exchange is notified, so that the client's next request finds this connection idle.
        If the response came before the whole request was sent, the backend may read the rest of the body as
        another request, so the connection is closed (compare CVE-2025-4366, the same fault on the client
        side).
        """
        self._exchange = None
        self._mode = READING_HEAD
        self._decoder = None
        if surplus or self._reader.close or not exchange.body_received or self.pool.closed:
            self.deadline = NEVER
            self.transport.close()
        else:
            context = self.pool.context
            self.deadline = context.now + context.timeouts.backend_idle
            self.pool.idle.append(self)

    def _fail(self, failure: Failure) -> None:
        exchange, self._exchange = self._exchange, None
        self.deadline = NEVER
        self.transport.abort()
        if exchange is not None:
            exchange.on_failure(failure)
