"""One connection to a backend: it carries one request after another and frames their responses.

It serves one attempt at a time, and goes back to its pool only after a response that ended exactly where its
framing said. A broken or late response is reported to the attempt as a `Failure`. Nothing here depends on API
versions.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast, final

from gateway.core.fleet.connections import DEFAULT_REUSE
from gateway.dataplane.backends.phases import (
    AWAITING_HEAD,
    CLOSED,
    CLOSING,
    CONNECTING,
    FINISHED,
    IDLE,
    READING,
    READING_EARLY,
    SENDING,
    TUNNELLING,
    UNSENT,
    UNWANTED,
    BackendPhase,
)
from gateway.dataplane.context import NEVER
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.dataplane.http1.fields import BY_LENGTH, CHUNKED, HEAD_END, NO_BODY, UNTIL_CLOSE
from gateway.dataplane.http1.response_head import MAX_RESPONSE_HEAD, ResponseHead
from gateway.dataplane.local_responses.failures import Failure
from gateway.dataplane.sockets.bounded_reads import READ_SIZE, bound_reads, read_to_the_end
from gateway.dataplane.sockets.progress import WriteProgress
from gateway.dataplane.sockets.tcp import QuickAck, unread, untaken
from gateway.errors import FramingError
from gateway.tls.client import has_ended, keep_session, refused_by_peer

if TYPE_CHECKING:
    from gateway.core.fleet.service import Service
    from gateway.dataplane.context import Context
    from gateway.dataplane.http1.head_readers import ResponseReader
    from gateway.dataplane.http1.request_body import RequestBody
    from gateway.dataplane.http1.request_ids import SentIds

BODY_UNREAD: Final = frozenset({400, 411, 413, 415, 501})
"""Response statuses after which some servers read the unread body as a request (threats R3-T1)."""
END: Final[int] = getattr(select, "POLLRDHUP", 0)
"""Poll event: the backend has closed its side, even if there is something to read before. Only Linux has it;
others report only that both sides are closed."""
MAX_INTERIM: Final = 16
"""Maximum number of 1xx responses before the final one (threats B4)."""


class ResponseReceiver:
    """Interface through which a backend connection and its pool report to the attempt of a request."""

    __slots__ = ()

    ended: bool
    """Whether the attempt needs no connection and no response any more."""

    def on_connection(self, connection: BackendConnection) -> None:
        """Handle a backend connection that was just made for this attempt."""
        raise NotImplementedError

    def is_misplaced(self, response: ResponseHead, sent_ids: SentIds) -> bool:
        """Whether a response is for an earlier request of its backend connection (`sent_ids`)."""
        raise NotImplementedError

    def on_interim(self, response: ResponseHead) -> None:
        """Handle an interim (1xx) response of the backend."""
        raise NotImplementedError

    def on_switch(self, response: ResponseHead, head: bytes, rest: bytes) -> Failure | None:
        """Handle a 101: the backend has switched protocols. `head`: as it came; `rest`: what came behind it.
        Returns why there is no tunnel, for example because the request did not ask for one."""
        raise NotImplementedError

    def on_response(self, response: ResponseHead, piece: bytes, *, done: bool) -> None:
        """Handle the head of the final response and the first piece of its content."""
        raise NotImplementedError

    def on_response_body(self, piece: bytes, *, done: bool) -> None:
        """Handle a further piece of the response's content."""
        raise NotImplementedError

    def on_failure(self, failure: Failure) -> None:
        """Handle the failure of the attempt: no whole response will come, and its connection is closed."""
        raise NotImplementedError

    def pause_request(self) -> None:
        """Stop reading the request body from the client: the backend takes no more."""
        raise NotImplementedError

    def resume_request(self) -> None:
        """Read the request body from the client again: the backend takes more."""
        raise NotImplementedError


class ConnectionHome:
    """Interface of a connection pool, as its backend connections use it."""

    context: Context
    closed: bool
    id_mark: bytes
    """Mark in every request id that this worker makes."""

    def on_out_of_step(self, reason: str) -> None:
        """Note that the connection is, or soon will be, out of step: bytes have come that answer no request
        (`surplus`), or a response for an earlier one (`misplaced`)."""
        raise NotImplementedError

    def on_connection_made(self, connection: BackendConnection, /) -> None:
        """Add an open backend connection to the pool."""
        raise NotImplementedError

    def on_idle(self, connection: BackendConnection, /) -> None:
        """Take a backend connection back into the pool, for the next request."""
        raise NotImplementedError

    def discard_idle(self, connection: BackendConnection, /) -> None:
        """Remove a backend connection from the idle ones, if it is one of them."""
        raise NotImplementedError

    def on_connection_lost(self, connection: BackendConnection, /) -> None:
        """Remove a closed backend connection from the pool."""
        raise NotImplementedError

    def on_refused(self, error: BaseException | None, /) -> None:
        """Note that the backend does not accept the gateway's client certificate, or the lack of one."""
        raise NotImplementedError


@final
class BackendConnection:
    """A connection to a backend. Has the methods of `asyncio.Protocol`; not derived, so that it compiles."""

    __slots__ = (
        "_buffer",
        "_decoder",
        "_framing",
        "_interim",
        "_is_head_request",
        "_is_tls",
        "_last_response",
        "_paused",
        "_poll",
        "_progress",
        "_quick_ack",
        "_reader",
        "_reads_bounded",
        "_receiver",
        "_remaining",
        "_request_body",
        "_tickets_due",
        "_write_buffer",
        "_written",
        "congested",
        "deadline",
        "is_closing",
        "made_at",
        "phase",
        "pool",
        "requests",
        "reuse",
        "sent_ids",
        "timeouts",
        "transport",
    )

    def __init__(self, pool: ConnectionHome) -> None:
        self.pool = pool
        self.phase: BackendPhase = CONNECTING
        self.transport: asyncio.Transport
        self.made_at = pool.context.now
        """Time at which the gateway began to make this backend connection, by the worker's coarse clock."""
        self.deadline = NEVER
        self.timeouts = pool.context.timeouts
        """Time-outs of the service of the last request on this connection. `reuse` is of the same service."""
        self.reuse = DEFAULT_REUSE
        self.requests = 0
        """Number of requests that this backend connection has carried, the present one included."""
        self.sent_ids: SentIds = []
        self._poll: Callable[[int], list[tuple[int, int]]]
        """Asks the kernel whether the backend has sent anything, the end of the connection included."""
        self.is_closing: Callable[[], bool]
        """Whether the backend connection is closing: nothing can be written to it any more."""
        self._is_tls = False
        self._tickets_due = False
        """Whether bytes to read are most likely TLS session tickets: a TLS 1.3 handshake was just made."""
        self._quick_ack: QuickAck | None = None
        # Of the request
        self._receiver: ResponseReceiver | None = None
        self._request_body: RequestBody | None = None
        self._is_head_request = False
        self._written = 0
        """Bytes of the present request written so far, counted if it has a body."""
        self._progress = WriteProgress()
        self._write_buffer = pool.context.limits.write_buffer
        self.congested = False
        """Whether the write buffer is over its limit: the backend does not take what was written."""
        # Of its response
        self._reader: ResponseReader
        self._buffer = b""
        self._interim = 0
        self._framing = NO_BODY
        self._remaining = 0
        self._decoder: ChunkedDecoder | None = None
        self._paused = False
        """Whether reading from the backend is paused until the client takes more. It has no deadline then."""
        self._reads_bounded = False
        self._last_response = False

    # -- lifetime

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport has all its methods
        self.transport.set_write_buffer_limits(high=self._write_buffer)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._poll = poll.poll
        self.is_closing = self.transport.is_closing
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        if self._is_tls:
            self._tickets_due = transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            self._reads_bounded = True
            read_to_the_end(self.transport)
        self.pool.on_connection_made(self)
        if self.phase is UNWANTED:
            self.transport.abort()
        else:
            self.phase = IDLE

    def connection_lost(self, exc: Exception | None) -> None:
        phase, self.phase = self.phase, CLOSED
        self.pool.on_connection_lost(self)
        if self._quick_ack is not None:
            self._quick_ack.end()
        refused = False
        if self._is_tls:
            keep_session(self.transport)
            # In TLS 1.3 the handshake has seemed complete before. The backend has executed nothing.
            refused = self._tickets_due and refused_by_peer(exc)
            if refused:
                self.pool.on_refused(exc)
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if phase is UNSENT or refused:
            receiver.on_failure(Failure.NOT_SENT)
        elif phase is FINISHED:
            receiver.on_response_body(b"", done=True)
        elif phase is SENDING or phase is AWAITING_HEAD:
            receiver.on_failure(Failure.BAD_REPLY if self._any_byte_received else Failure.NO_REPLY)
        else:
            receiver.on_failure(Failure.REPLY_CUT)

    def give_up(self) -> None:
        """Close the backend connection, open or still being made: no attempt waits for it any more."""
        if self.phase is IDLE:
            self.abandon()
        else:
            self.phase = UNWANTED

    def start(
        self,
        receiver: ResponseReceiver,
        reader: ResponseReader,
        service: Service,
        body: RequestBody | None,
        *,
        is_head_request: bool,
    ) -> None:
        """Begin an attempt on this backend connection: its request is sent next, and its response read."""
        self.phase = UNSENT
        self._receiver = receiver
        self._reader = reader
        self.timeouts = timeouts = service.timeouts
        self.reuse = service.reuse
        self._request_body = body
        self._is_head_request = is_head_request
        self._interim = 0
        self.requests += 1
        self.deadline = self.pool.context.now + timeouts.backend_head
        if body is not None:
            write_buffer = service.limits.write_buffer
            if write_buffer != self._write_buffer:
                self._write_buffer = write_buffer
                self.transport.set_write_buffer_limits(high=write_buffer)
            self._written = 0
            self._progress.restart()

    def send(self, data: bytes) -> None:
        """Send the head of a request that has a body, with the part of the body that has come."""
        self._written += len(data)
        self.pool.context.send(self, data)

    def send_more(self, data: bytes) -> None:
        """Write a further part of the request body at once. A response that came before is an early one."""
        if self.phase is UNSENT or self.transport.is_closing():
            return
        if self.readable():
            self.use_once()
        self._written += len(data)
        self.transport.write(data)

    def readable(self) -> bool:
        """Whether the backend has closed or sent something, even if the event loop has not reported it."""
        return self.transport.is_closing() or (bool(self._poll(0)) and not self._has_tickets_only())

    def _has_tickets_only(self) -> bool:
        """Whether the backend can only have sent TLS session tickets. They look like other data, but no
        earlier request was sent that they could answer."""
        if not self._tickets_due:
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), END)
        return not poll.poll(0)

    def write(self, data: bytes) -> None:
        """Write the beginning of a request, unless there is anything to read: an unrequested response would
        be taken for the response to this request (threats R-B5)."""
        if self._poll(0) and not self._has_tickets_only():
            if self.requests > 1:
                self.note_surplus()
            if not self._tickets_due or self._paused:
                self.transport.abort()
            return  # a backend that refuses the gateway sends the reason, which is read next
        if self._request_body is None:
            self.phase = AWAITING_HEAD
        else:
            self.phase = SENDING
            self.deadline = self.pool.context.now  # check at the next tick
        self.transport.write(data)

    def note_surplus(self) -> None:
        """Report to the pool if the backend has sent bytes that answer no request. Unknown over TLS."""
        sock = self.transport.get_extra_info("socket")
        if not self._is_tls and sock is not None and unread(sock.fileno()):
            self.pool.on_out_of_step("surplus")

    def acknowledge(self) -> None:
        """Make the backend send what its kernel holds back until the last response is acknowledged."""
        if self._quick_ack is None:
            self._quick_ack = QuickAck(self.transport)
        self._quick_ack.send()

    def _await_taking(self) -> None:
        """Set the deadline for the backend to take more of the request.

        While it takes something, however slowly, there is no time-out. While it has taken all that the client
        has sent, only the client is waited for. `backend_head` runs from the end of the request (threats
        R-B2).
        """
        left, body = untaken(self.transport), self._request_body
        if left or (body is not None and not body.done):
            if not left:
                self._progress.restart()
            taken, idle = self._written - left, self.timeouts.backend_write_idle
            self.deadline = self._progress.next_check(taken, self.pool.context.now, idle)
        else:
            self.phase = AWAITING_HEAD if self.phase is SENDING else READING
            self._await_response()

    def _await_response(self) -> None:
        now, timeouts = self.pool.context.now, self.timeouts
        if self._paused:
            self.deadline = NEVER
        elif self.phase is READING:
            self.deadline = now + timeouts.backend_body_idle
        else:
            self.deadline = now + timeouts.backend_head

    @property
    def _is_sending(self) -> bool:
        """Whether the backend may not have taken the whole request yet, for which the deadline is then."""
        return self.phase is SENDING or self.phase is READING_EARLY

    @property
    def _reads_head(self) -> bool:
        """Whether the backend connection has a request, and no content of its response has come."""
        return self.phase in (UNSENT, SENDING, AWAITING_HEAD)

    def _leave(self) -> ResponseReceiver | None:
        """Begin to close the backend connection; returns the attempt that waits for a response."""
        receiver, self._receiver = self._receiver, None
        self.phase = CLOSING
        self.deadline = NEVER
        return receiver

    def abandon(self) -> None:
        """Close the backend connection at once: its response is not needed any more."""
        self._leave()
        self.transport.abort()

    def close(self) -> None:
        """Close a backend connection that carries no request."""
        self._leave()
        self.transport.close()

    def on_deadline(self) -> None:
        """Fail the attempt: the backend took or sent nothing in time. An idle connection just closes."""
        if self.phase is IDLE:
            self.pool.discard_idle(self)  # now: what is closing must not be taken for the next request
            self.close()
            return
        if self._is_sending:
            self._await_taking()
            if self.deadline > self.pool.context.now:
                return
        no_byte = self._reads_head and not self._any_byte_received
        self._fail(Failure.REPLY_TIMEOUT if no_byte else Failure.REPLY_STALLED)

    @property
    def _any_byte_received(self) -> bool:
        """Whether the backend has begun to respond: an interim response or part of a head has come."""
        return bool(self._buffer) or self._interim > 0

    # -- flow control: each side is read only as fast as the other side takes it

    def pause_reading(self) -> None:
        """Stop reading from the backend until the client takes more. It has no deadline meanwhile."""
        self._paused = True
        if not self._is_sending:
            self.deadline = NEVER
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the backend again: the client takes more."""
        self._paused = False
        if not self._is_sending:
            self._await_response()
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

    def eof_received(self) -> bool:
        """Let the transport close: the backend sends no more, which completes its response or cuts it off."""
        reads = self.phase is READING or self.phase is READING_EARLY
        if reads and self._framing == UNTIL_CLOSE and (not self._is_tls or has_ended(self.transport)):
            self.phase = FINISHED
        return False

    def data_received(self, data: bytes) -> None:
        phase, receiver = self.phase, self._receiver
        if receiver is None or phase is UNSENT:  # bytes that answer no request (threats B5, R-B5)
            if self.requests:
                self.pool.on_out_of_step("surplus")
            self.transport.abort()
            return
        try:
            if phase is AWAITING_HEAD or phase is SENDING:
                self._read_head(receiver, data)
                return
            if phase is READING:
                self.deadline = self.pool.context.now + self.timeouts.backend_body_idle
            piece, done, surplus = self._read_body(data)
        except FramingError:
            self._fail(Failure.BAD_REPLY if self._reads_head else Failure.REPLY_CUT)
            return
        if done:
            self._release(surplus=surplus)
        receiver.on_response_body(piece, done=done)

    def _read_head(self, receiver: ResponseReceiver, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        while True:
            response = self._reader.read_known(data, self._is_head_request)
            if response is None:
                head = self._cut_head(data)
                if head is None:
                    return
                response = self._reader.read(head, is_head_request=self._is_head_request)
            if response.passthrough.find(self.pool.id_mark) >= 0 and self._is_misplaced(receiver, response):
                return
            if response.status >= 200:
                break
            if response.status == 101:
                self._switch(receiver, response, data)
                return
            data = data[response.size :]
            self._read_interim(receiver, response)
        data = data[response.size :]
        body = self._request_body
        if response.close or (body is not None and (not body.done or response.status in BODY_UNREAD)):
            self._last_response = True
        if response.framing == BY_LENGTH and len(data) == response.length:  # most responses: complete
            self._release(surplus=False)
            receiver.on_response(response, data, done=True)
        else:
            self._begin_content(receiver, response, data)

    def _is_misplaced(self, receiver: ResponseReceiver, response: ResponseHead) -> bool:
        """Whether a response is for an earlier request, by the gateway's id in it. Then the attempt fails."""
        if not receiver.is_misplaced(response, self.sent_ids):
            return False
        self.pool.on_out_of_step("misplaced")
        self._fail(Failure.MISPLACED)
        return True

    def _cut_head(self, data: bytes) -> bytes | None:
        end = data.find(HEAD_END)
        size = len(data) if end < 0 else end + len(HEAD_END)
        if size > MAX_RESPONSE_HEAD:
            raise FramingError("head_too_large")
        if end < 0:
            self._buffer = data
            return None
        return data[:size]

    def _read_interim(self, receiver: ResponseReceiver, response: ResponseHead) -> None:
        """Pass on an interim response (RFC 9110 15.2). `100 Continue` was already sent by the gateway."""
        self._interim += 1
        if self._interim > MAX_INTERIM:
            raise FramingError("interim")
        if response.status != 100:
            receiver.on_interim(response)

    def _switch(self, receiver: ResponseReceiver, response: ResponseHead, data: bytes) -> None:
        """Handle a switch of protocols (RFC 9110 15.2.2), which cannot come before the end of the request."""
        body, size = self._request_body, response.size
        if body is not None and not body.done:
            raise FramingError("switch")
        failure = receiver.on_switch(response, data[:size], data[size:])
        if failure is not None:
            self._fail(failure)

    def hand_over(self) -> None:
        """Give the backend connection to a tunnel: no response is read from it any more."""
        self.phase = TUNNELLING
        self._receiver = None
        self.deadline = NEVER

    def use_once(self) -> None:
        """Close the backend connection after this response: what it takes further bytes for is uncertain."""
        self._last_response = True

    def _begin_content(self, receiver: ResponseReceiver, response: ResponseHead, data: bytes) -> None:
        self._framing = framing = response.framing
        if framing == CHUNKED:
            self._decoder = ChunkedDecoder()
        self._remaining = response.length
        if self.phase is SENDING:
            self.phase = READING_EARLY
        else:
            self.phase = READING
            self._await_response()
        piece, done, surplus = self._read_body(data)
        if done:
            self._release(surplus=surplus)
        elif not self._reads_bounded and (framing != BY_LENGTH or self._remaining > READ_SIZE):
            self._reads_bounded = True
            bound_reads(self.transport, cast(asyncio.Protocol, self), self.pool.context.read_buffer)
        receiver.on_response(response, piece, done=done)

    def _read_body(self, data: bytes) -> tuple[bytes, bool, bool]:
        """Response content in `data`, whether it is complete, and whether bytes follow it."""
        framing = self._framing
        if framing == BY_LENGTH:
            left = self._remaining - len(data)
            if left > 0:
                self._remaining = left
                return data, False, False
            return (data, True, False) if left == 0 else (data[:left], True, True)
        if framing == NO_BODY:
            return b"", True, bool(data)
        if framing == CHUNKED:
            assert self._decoder is not None
            piece = self._decoder.feed(data)
            return piece, self._decoder.done, bool(self._decoder.rest)
        return data, False, False

    def _release(self, *, surplus: bool) -> None:
        """Return the connection to the pool, or close it: the response is complete.

        Called before the attempt is told, so that the client's next request finds this connection idle. If
        the response came before the whole request was sent, the backend may read the rest of the body as
        another request, so the connection is closed (compare CVE-2025-4366, the same fault on the client
        side).
        """
        self.phase = IDLE
        self._receiver = None
        self._decoder = None
        self._tickets_due = False
        body = self._request_body
        if surplus:
            self.pool.on_out_of_step("surplus")
        if body is not None and untaken(self.transport):
            self.abandon()  # an orderly close would wait until the backend takes the rest
        elif surplus or self._last_response or self._paused:
            self.close()  # paused by what came before the response
        else:
            if body is not None:
                self.acknowledge()
            self.pool.on_idle(self)

    def _fail(self, failure: Failure) -> None:
        receiver = self._leave()
        self.transport.abort()
        if receiver is not None:
            receiver.on_failure(failure)
