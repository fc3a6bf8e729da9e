"""One connection to a backend: it carries one request after another and frames their responses.

It serves one attempt at a time. It goes back to its pool only after a response that ended exactly where its
framing said. Every broken or late response ends here, reported to the attempt as a `Failure`. Nothing
here depends on API versions.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from gateway.dataplane.bounded_reads import READ_SIZE, bound_reads
from gateway.dataplane.context import NEVER
from gateway.dataplane.failures import Failure
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.dataplane.http1.fields import BY_LENGTH, CHUNKED, NO_BODY, UNTIL_CLOSE
from gateway.dataplane.http1.heads import HEAD_END, MAX_RESPONSE_HEAD, ResponseHead, read_response_head
from gateway.dataplane.write_progress import WriteProgress, untaken
from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.dataplane.context import Context, Writer
    from gateway.dataplane.http1.names import NameTable
    from gateway.dataplane.request_body import RequestBody

READING_HEAD: Final = -1
"""A mode beside the framings of `http1.fields`: the response head is not complete yet."""
MAX_INTERIM: Final = 16
"""Most 1xx responses before the final one (threats B4)."""


class ResponseReceiver(Protocol):
    """An attempt, as its connection sees it."""

    def on_interim(self, response: ResponseHead) -> None:
        """An interim response: more will come."""

    def on_response(self, response: ResponseHead, piece: bytes, *, done: bool) -> None:
        """The head of the final response, and what has come of its content."""

    def on_response_body(self, piece: bytes, *, done: bool) -> None:
        """More content."""

    def on_failure(self, failure: Failure) -> None:
        """No whole response will come. The connection is closed."""

    def pause_request(self) -> None:
        """The backend takes no more of the request body."""

    def resume_request(self) -> None:
        """The backend takes more again."""


class ConnectionHome(Protocol):
    """The pool, as its connections see it."""

    context: Context
    closed: bool

    def on_connection_made(self, connection: BackendConnection, /) -> None:
        """The connection is open."""

    def on_idle(self, connection: BackendConnection, /) -> None:
        """The connection can carry the next request."""

    def on_connection_lost(self, connection: BackendConnection, /) -> None:
        """The connection is closed."""


@final
class BackendConnection(asyncio.Protocol):
    """One TCP connection to a backend."""

    def __init__(self, pool: ConnectionHome) -> None:
        self.pool = pool
        self.transport: asyncio.Transport
        self.deadline = NEVER
        self._receiver: ResponseReceiver | None = None
        """None while the connection is idle."""
        self._response: ResponseHead
        """The head of the last response."""
        self._table: NameTable
        self._request_body: RequestBody | None = None
        self._sending = False
        """A request with a body is being sent: the backend has not taken it whole."""
        self._written = 0
        """Bytes of that request."""
        self._progress = WriteProgress()
        self._paused = False
        """The client takes no more: nothing is read, and the backend has no deadline."""
        self._reads_bounded = False
        self._is_head_request = False
        self._mode = READING_HEAD
        """`READING_HEAD`, or the framing of the content that is being read."""
        self._remaining = 0
        self._decoder: ChunkedDecoder | None = None
        self._buffer = b""
        """The beginning of a head."""
        self._interim = 0
        self._poll: Callable[[int], list[tuple[int, int]]]
        """Asks the kernel whether anything can be read, the end of the connection included."""
        self.is_closing: Callable[[], bool]
        """Whether nothing can be written any more."""
        self._unsent = False
        """No byte of the request was written yet."""
        self.congested = False
        """The backend does not take what was written."""

    # -- lifetime

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has all its methods
        self.transport.set_write_buffer_limits(high=self.pool.context.limits.write_buffer)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._poll = poll.poll
        self.is_closing = self.transport.is_closing
        self.pool.on_connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.on_connection_lost(self)
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if self._unsent:
            receiver.on_failure(Failure.NOT_SENT)
        elif self._mode == UNTIL_CLOSE and exc is None:
            receiver.on_response_body(b"", done=True)
        elif self._mode == READING_HEAD:
            receiver.on_failure(Failure.BAD_REPLY if self._any_byte_received else Failure.NO_REPLY)
        else:
            receiver.on_failure(Failure.REPLY_CUT)

    def start(
        self,
        receiver: ResponseReceiver,
        table: NameTable,
        body: RequestBody | None,
        *,
        is_head_request: bool,
    ) -> None:
        """Begin an attempt: what arrives from now on is its response."""
        self._receiver = receiver
        self._table = table
        self._request_body = body
        self._is_head_request = is_head_request
        self._mode = READING_HEAD
        self._interim = 0
        self._paused = False
        self._unsent = True
        context = self.pool.context
        if body is None:
            self.deadline = context.now + context.timeouts.backend_head
        else:
            self._sending = True
            self._written = 0
            self._progress.restart()
            self.deadline = context.now  # look at the next tick

    def send(self, writer: Writer, data: bytes) -> None:
        """Write a part of a request that has a body. `writer`: this connection for the first part, which is
        looked at before it is written; its transport for the others."""
        self._written += len(data)
        self.pool.context.send(writer, data)

    def readable(self) -> bool:
        """Whether the backend has closed the connection or sent something, even if the event loop has not
        reported it yet. One system call."""
        return self.transport.is_closing() or bool(self._poll(0))

    def write(self, data: bytes) -> None:
        """Write the beginning of a request, unless there is anything to read: a response that nobody asked
        for would be taken for the response to this request (threats R-B5)."""
        if self._poll(0):
            self.transport.abort()
            return
        self._unsent = False
        self.transport.write(data)

    def _await_backend(self) -> None:
        """Set the deadline by what the backend has to do next: take the rest of the request, begin its
        response, or send more of it.

        While it takes something, however slowly, there is no time-out: `backend_head` runs from the end of
        the request (threats R-B2). While it has taken all that the client has sent, only the client is
        waited for.
        """
        context, body = self.pool.context, self._request_body
        now, timeouts = context.now, context.timeouts
        if self._sending and body is not None:
            left = untaken(self.transport)
            if left or not body.done:
                if not left:
                    self._progress.restart()
                self.deadline = self._progress.look(self._written - left, now, timeouts.backend_write_idle)
                return
            self._sending = False
        if self._paused:
            self.deadline = NEVER
        elif self._mode == READING_HEAD:
            self.deadline = now + timeouts.backend_head
        else:
            self.deadline = now + timeouts.backend_body_idle

    def abandon(self) -> None:
        """Close the connection at once. The attempt does not need the response any more."""
        self._receiver = None
        self.deadline = NEVER
        self.transport.abort()

    def close(self) -> None:
        """Close the connection, which carries no request."""
        self.deadline = NEVER
        self.transport.close()

    def on_deadline(self) -> None:
        """Nothing was taken or sent in time or, on an idle connection, no new request came."""
        if self._sending:
            self._await_backend()
            if self.deadline > self.pool.context.now:
                return
        receiver, self._receiver = self._receiver, None
        self.deadline = NEVER
        self.transport.abort()
        if receiver is not None:
            no_byte = self._mode == READING_HEAD and not self._any_byte_received
            receiver.on_failure(Failure.REPLY_TIMEOUT if no_byte else Failure.REPLY_STALLED)

    @property
    def _any_byte_received(self) -> bool:
        """Whether an interim response or part of a head has arrived. Valid until the head is complete."""
        return bool(self._buffer) or self._interim > 0

    # -- flow control: each side is read only as fast as the other side takes it

    def pause_reading(self) -> None:
        """Stop reading until the client takes more. The backend has no deadline meanwhile."""
        self._paused = True
        if not self._sending:
            self.deadline = NEVER
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._paused = False
        if not self._sending:
            self._await_backend()
        self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.congested = True
        if self._receiver is not None:
            self._receiver.pause_request()

    def resume_writing(self) -> None:
        self.congested = False
        if self._receiver is not None:
            self._receiver.resume_request()

    # -- the response

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None or self._unsent:  # bytes that answer no request (threats B5, R-B5)
            self.transport.abort()
            return
        try:
            if self._mode == READING_HEAD:
                self._read_head(receiver, data)
                return
            if not self._sending:
                context = self.pool.context
                self.deadline = context.now + context.timeouts.backend_body_idle
            piece, done, surplus = self._read_body(data)
        except FramingError:
            self._fail(Failure.BAD_REPLY if self._mode == READING_HEAD else Failure.REPLY_CUT)
            return
        if done:
            self._release(surplus=surplus)
        receiver.on_response_body(piece, done=done)

    def _read_head(self, receiver: ResponseReceiver, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        while True:
            end = data.find(HEAD_END) + len(HEAD_END)
            if end < len(HEAD_END):  # smaller than len(HEAD_END) if not found
                if len(data) > MAX_RESPONSE_HEAD:
                    raise FramingError("head_too_large")
                self._buffer = data
                return
            if end > MAX_RESPONSE_HEAD:
                raise FramingError("head_too_large")
            response = read_response_head(data[:end], self._table, is_head_request=self._is_head_request)
            data = data[end:]
            if response.status >= 200:
                break
            self._read_interim(receiver, response)
        self._response = response
        if response.framing == BY_LENGTH and len(data) == response.length:  # most responses: complete
            self._release(surplus=False)
            receiver.on_response(response, data, done=True)
        else:
            self._begin_content(receiver, response, data)

    def _read_interim(self, receiver: ResponseReceiver, response: ResponseHead) -> None:
        """Pass an interim response on (RFC 9110 15.2): any but `100 Continue`, which the gateway has sent
        itself, and `101`, which it has not asked for."""
        self._interim += 1
        if response.status == 101 or self._interim > MAX_INTERIM:
            raise FramingError("interim")
        if response.status != 100:
            receiver.on_interim(response)

    def _begin_content(self, receiver: ResponseReceiver, response: ResponseHead, data: bytes) -> None:
        """The head is complete, and the content is not, or more than that has come."""
        self._mode = framing = response.framing
        if framing == CHUNKED:
            self._decoder = ChunkedDecoder()
        self._remaining = response.length
        if not self._sending:
            self._await_backend()
        piece, done, surplus = self._read_body(data)
        if done:
            self._release(surplus=surplus)
        elif not self._reads_bounded and (framing != BY_LENGTH or self._remaining > READ_SIZE):
            self._reads_bounded = True
            bound_reads(self.transport, self, self.pool.context.read_buffer)
        receiver.on_response(response, piece, done=done)

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

    def _release(self, *, surplus: bool) -> None:
        """The response is complete: return to the pool, or close.

        Called before the attempt is told, so that the client's next request finds this connection idle.
        If the response came before the whole request was sent, the backend may read the rest of the body as
        another request, so the connection is closed (compare CVE-2025-4366, the same fault on the client
        side).
        """
        self._receiver = None
        self._mode = READING_HEAD
        self._decoder = None
        body = self._request_body
        self._sending = False
        if body is not None and self.transport.get_write_buffer_size() > 0:
            self.abandon()  # an orderly close would wait until the backend takes the rest
        elif surplus or self._response.close or (body is not None and not body.done):
            self.close()
        else:
            self.pool.on_idle(self)

    def _fail(self, failure: Failure) -> None:
        receiver, self._receiver = self._receiver, None
        self.deadline = NEVER
        self.transport.abort()
        if receiver is not None:
            receiver.on_failure(failure)
