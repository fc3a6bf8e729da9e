"""Connections to the admin listener: how many there are at once, and how long a client may take.

    accepted --(head)--> head --(head)--> body --(body)--> handler -> response --(response)--> idle
                          ^                                                                     |
                          +------------------------------(idle)---------------------------------+

In brackets: the deadline of `Deadlines` that bounds the step. A connection is authorised once `guard` has let
a request of it pass. The others are closed after one response, and they go first when there are too many: 400
connections that never send a request cannot keep an operator out (threats R-B7). Idle ones of operators go
next, or forgotten ones would. aiohttp parses and answers; nothing here reads a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import time
from typing import Any, Final, NamedTuple, Protocol, cast, final

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from gateway.admin.error_log import ErrorLog
from gateway.admin.responses import AdminResponse, AdminStream, error_bytes, error_response

MAX_HEAD: Final = 16 * 1024
"""Bytes of one head, and of the requests that a client sends ahead of a response."""

MAX_LINE: Final = 8190
MAX_FIELDS: Final = 100
LINGERING_TIME: Final = 1.0
"""Seconds in which the rest of a body is read after its response: a client that still sends would lose it."""

NEVER: Final = 1e9
END: Final = b"\r\n\r\n"
BLANK: Final = b"\r\n"
"""What may come before a head and is no part of it."""

CONTINUE: Final = "100-continue"
"""The only expectation that there is."""

TLS_HANDSHAKE: Final = b"\x16"
"""The first byte of a client that expects TLS."""

_COUNTED: Final = {
    401: "unauthorized",
    403: "forbidden",
    413: "body",
    417: "malformed",
    429: "unauthorized",  # a wrong token, after many others
}
"""Reasons by the status of the response; other refusals are answers to an operator."""

_ARGUMENTS: Final[dict[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,  # commands are short: an encoded body is refused as malformed
    "keepalive_timeout": NEVER,  # this module has deadlines of its own
    "lingering_time": LINGERING_TIME,
    "max_line_size": MAX_LINE,
    "max_field_size": MAX_LINE,
    "max_headers": MAX_FIELDS,
}


MAX_TURNED_AWAY: Final = 8
"""Connections that are on their way to being told over TLS that there are too many."""


class Connected(Protocol):
    """A connection, as it is counted: before a TLS handshake, or after."""

    authorised: bool

    @property
    def idle(self) -> bool:
        """Whether closing it now loses nothing."""

    def turn_away(self) -> None:
        """Close it because there are too many."""

    def turn_away_later(self) -> None:
        """The same for the newest one: it is told why, if necessary after its handshake."""

    def abort(self) -> None:
        """Close it at once."""


class Deadlines(NamedTuple):
    """Seconds that a client may take; what they are for is in `site`."""

    head: float
    body: float
    response: float
    idle: float


@final
class Connections:
    """All open connections of the admin listener, and what they share. Those that are not authorised are in
    the order in which they came, the others in the order of their last responses."""

    def __init__(
        self,
        limit: int,
        deadlines: Deadlines,
        errors: ErrorLog,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self.deadlines = deadlines
        self.errors = errors
        self.wall_clock = wall_clock
        """Seconds since the epoch, by which certificates of operators expire."""
        self._limit = limit
        self._open: dict[Connected, None] = {}
        self._turned_away: set[Connected] = set()

    @property
    def use(self) -> tuple[int, int]:
        """How many are open, and how many may be."""
        return len(self._open), self._limit

    def add(self, connection: Connected) -> None:
        """A client has connected. Over the limit one goes: the oldest that is not authorised, else the
        longest idle. The new one goes only if all others are in the middle of a request."""
        others = tuple(self._open)
        self._open[connection] = None
        if len(self._open) > self._limit:
            strangers = (other for other in others if not other.authorised)
            idle = (other for other in others if other.idle)
            leaving = next(strangers, None) or next(idle, connection)
            del self._open[leaving]
            if leaving is not connection or len(self._turned_away) >= MAX_TURNED_AWAY:
                leaving.turn_away()
            else:
                self._turned_away.add(connection)
                connection.turn_away_later()

    def responded(self, connection: Connected) -> None:
        """A response has ended: all other authorised connections that are idle are so for a longer time."""
        if connection.authorised and connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: Connected) -> None:
        """A connection is closed."""
        self._open.pop(connection, None)
        self._turned_away.discard(connection)

    def abort(self) -> None:
        """Close them all at once."""
        for connection in (*self._open, *self._turned_away):
            connection.abort()


@final
class AdminConnection(web.RequestHandler):
    """One connection. It has two timers: one for what the client sends, and one for what it should read.

    Two private names of aiohttp are used: requests begin and end in `_handle_request`, and `_messages` shows
    an error of the parser.
    """

    __slots__ = (
        "_ahead",
        "_begun",
        "_connections",
        "_head_bytes",
        "_head_complete",
        "_last_bytes",
        "_receive_timer",
        "_request",
        "_send_timer",
        "_socket",
        "_used",
        "authorised",
        "expires_at",
        "is_one_too_many",
        "is_stream",
    )

    def __init__(
        self, server: web.Server, connections: Connections, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(server, loop=loop, **_ARGUMENTS)
        self.authorised = False
        """Whether `guard` has let a request pass."""
        self.is_one_too_many = False
        """Set before `connection_made`: it is told so, and counts no more."""
        self.is_stream = False
        """The response under way has no end: its deadline is for what waits to be sent, not for all of it."""
        self.expires_at = inf
        """Wall-clock seconds at which the operator's certificate expires. Set before `connection_made`."""
        self._connections = connections
        self._socket: asyncio.Transport | None = None
        """As `transport`, but until the connection is lost."""
        self._receive_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._used = False
        """Whether a request has come."""
        self._request: web.BaseRequest | None = None
        """The request under way."""
        self._head_bytes = 0
        """Bytes of the head that comes in, as far as they came after the last response."""
        self._head_complete = False
        self._begun = False
        """The last bytes before the last response may be the beginning of a head."""
        self._ahead = 0
        """Bytes that came behind the request under way, and behind others that were answered since then."""
        self._last_bytes = b""

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        super().connection_made(transport)
        self._receive_head_within(self._connections.deadlines.head)
        if self.is_one_too_many:
            self.turn_away()
        else:
            self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._socket = None
        for timer in (self._receive_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        self._connections.remove(self)
        super().connection_lost(exc)

    @property
    def has_expired(self) -> bool:
        """Whether the certificate of the operator has expired since the handshake (threats R3-T2)."""
        return self.expires_at <= self._connections.wall_clock()

    @property
    def idle(self) -> bool:
        """Whether closing it now loses nothing: no request has begun, and the last response is sent."""
        begun = self._request is not None or self._head_bytes > 0 or len(self._messages) > 0
        return not begun and (self._socket is None or self._socket.get_write_buffer_size() == 0)

    def turn_away(self) -> None:
        """Close it because there are too many. A client that has had no response learns why."""
        if self._used:
            self._connections.errors.count("too_many_connections")
            self.abort()
        else:
            self._refuse("too_many_connections", 503)

    def turn_away_later(self) -> None:
        """The same: it can be told now."""
        self.turn_away()

    def abort(self) -> None:
        """Close it at once, whatever is under way."""
        if self._socket is not None:
            self._socket.abort()

    # --- what comes in

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return  # it is being closed
        if not self._used and not self._head_bytes and data.startswith(TLS_HANDSHAKE):
            self._refuse("tls", 400)
        elif self._request is None and not self._head_complete and not self._begun:
            self._head_received(data)
        elif self._request is not None and self._request.content.is_eof():
            self._received_ahead(data)
        else:
            self._rest_received(data)

    def _head_received(self, data: bytes) -> None:
        """Bytes of a head, from its first one. aiohttp bounds its lines, this bounds them all together."""
        before, carried = self._head_bytes, self._last_bytes if self._head_bytes else b""
        head = carried + data if before else data.lstrip(BLANK)
        if head and not before:
            self._receive_head_within(self._connections.deadlines.head)
        self._head_bytes += len(data) if head else 0
        end = head.find(END)
        self._head_complete = end >= 0
        # What follows the end in the same read is a body or another request, and no part of this head.
        size = before + end + len(END) - len(carried) if self._head_complete else self._head_bytes
        if size > MAX_HEAD:
            self._refuse("head_too_large", 431)
            return
        self._pass_on(data)
        if self._head_complete:
            behind = len(head) - end - len(END)
            self._came_ahead(behind - sum(payload.total_bytes for _, payload in self._messages))

    def _rest_received(self, data: bytes) -> None:
        """Bytes of a body, or of a head whose beginning came before the last response."""
        if self._request is None and self._head_bytes and not self._head_complete:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._refuse("head_too_large", 431)
                return
        self._pass_on(data)
        request = self._request
        if request is not None and self._messages and not request.content.is_eof():
            # Behind a body that is not complete there can only be an error of the parser. aiohttp would let
            # the handler wait for the rest.
            self._refuse("body", 400)

    def _received_ahead(self, data: bytes) -> None:
        """Bytes behind the request under way."""
        if self._came_ahead(len(data)):
            self._pass_on(data)

    def _came_ahead(self, number: int) -> bool:
        """Whether so many bytes more may come before their time: a few requests are kept, more close the
        connection after the response."""
        before, self._ahead = self._ahead, self._ahead + number
        if before <= MAX_HEAD < self._ahead:
            self._connections.errors.count("head_too_large")
            self.close()
        return self._ahead <= MAX_HEAD

    def _pass_on(self, data: bytes) -> None:
        self._last_bytes = (self._last_bytes + data)[-len(END) :]
        super().data_received(data)

    def _refuse(self, reason: str, status: int) -> None:
        """Answer what has not become a request, and close the connection."""
        self._connections.errors.count(reason)
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write(error_bytes(status))
        self.force_close()
        self._send_within(self._connections.deadlines.response)

    # --- a request

    async def start(self) -> None:
        """All requests of the connection, one after the other."""
        try:
            await super().start()
        except Exception:  # noqa: BLE001 - whatever it is, it comes from bytes that never became a request
            # aiohttp's parser lets through what is no URL, such as "CONNECT \n:".
            self._refuse("malformed", 400)

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        """From the complete head to the end of the response."""
        self._used, self._request = True, request
        self._head_bytes, self._head_complete, self._begun = 0, False, False
        self._receive_within(NEVER if request.content.is_eof() else self._connections.deadlines.body)
        if request.headers.get(hdrs.EXPECT, CONTINUE).lower() != CONTINUE:
            # aiohttp would quote it, and fail with a traceback if it is not UTF-8.
            request_handler = _refuse_expectation
        try:
            return await super()._handle_request(request, start_time, request_handler)
        finally:
            self._response_ended(request)

    def _response_ended(self, request: web.BaseRequest) -> None:
        """From now on the client is idle, goes on with a head, or sends the rest of a body for nothing."""
        self._request = None
        if not self.writing_paused:
            self._stop_send_timer()
        self._connections.responded(self)
        has_body_left = not request.content.is_eof()
        self._begun = has_body_left or not self._last_bytes.endswith(END)
        if not self._begun and not self._messages:
            self._ahead = 0
        # What came ahead is, at most, the beginning of the next head.
        self._head_bytes = self._ahead if self._begun and not has_body_left else 0
        deadlines = self._connections.deadlines
        self._receive_head_within(deadlines.head if self._begun else deadlines.idle)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response. One that aiohttp has made itself would repeat the request and name aiohttp."""
        if not isinstance(resp, AdminResponse | AdminStream):
            resp = error_response(resp.status)
        if (reason := _COUNTED.get(resp.status)) is not None:
            self._connections.errors.count(reason)
        if not self.authorised or self.has_expired or not request.content.is_eof():
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to what is not valid HTTP, and to a bug. Never with the text of `exc` or `message`."""
        has_left = self.transport is None and not request.content.is_eof()
        if has_left or isinstance(exc, ConnectionError) or request.writer.output_size > 0:
            raise ConnectionError("nobody is there for a response, or it has begun")
        status = self._count(exc)
        response = error_response(status)
        response.force_close()
        response.headers[hdrs.CONNECTION] = "close"  # aiohttp leaves it out where the version is not known
        return response

    def log_exception(self, *args: object, **kw: object) -> None:
        """What aiohttp would log with a traceback."""
        self._count(kw.get("exc_info"))

    def _count(self, error: object) -> int:
        """Count what the client did wrong, or a bug; the status that says so."""
        errors = self._connections.errors
        match error:
            case LineTooLong():
                errors.count("head_too_large")
                return 431
            case HttpProcessingError():
                errors.count("malformed")
                return 400
            case web.RequestPayloadError():
                errors.count("body")
                return 400
            case _:
                errors.bug(error if isinstance(error, BaseException) else None)
                return 500

    # --- deadlines

    def _receive_within(self, seconds: float) -> None:
        """What the client has to send next must have come by then."""
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None
        if seconds < NEVER and self._socket is not None:
            self._receive_timer = self._loop.call_later(seconds, self._receive_deadline)

    def _receive_head_within(self, seconds: float) -> None:
        """The same while no request is under way: not after the certificate of the operator has expired."""
        left = self.expires_at - self._connections.wall_clock()
        self._receive_within(max(0.0, min(seconds, left)))

    def _receive_deadline(self) -> None:
        if self._request is not None and self._request.content.is_eof():
            return  # the body is complete, and the handler takes its time
        if self._request is not None or self._head_bytes:
            self._refuse("timeout", 408)
            return
        if not self._used:
            self._connections.errors.count("timeout")
        self.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_within(self._connections.deadlines.response)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._request is None or self.is_stream:
            self._stop_send_timer()

    def _stop_send_timer(self) -> None:
        """Not while a response is under way that ends: a client that takes one piece after the other, each
        just in time, would keep a scrape for ever."""
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _send_within(self, seconds: float) -> None:
        """What waits to be sent must have been taken by then."""
        if self._send_timer is None and self._socket is not None:
            self._send_timer = self._loop.call_later(seconds, self._send_deadline)

    def _send_deadline(self) -> None:
        self._connections.errors.count("timeout")
        self.abort()


async def _refuse_expectation(_: web.BaseRequest) -> web.StreamResponse:
    return error_response(417)
