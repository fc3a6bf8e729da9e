"""Connections to the admin listener, and the limits of their number and time.

    socket --> TLS, where it is spoken --> AdminConnection --> aiohttp's protocol --> handler
                                           AdminConnection <-- aiohttp's protocol <-- response

A connection is authorised once `guard` has let a request of it pass. Others are closed after one response,
and are the first to be closed when there are too many, so that 400 silent ones cannot keep an operator out
(threats R-B7). Idle ones of operators are next. aiohttp parses and responds; this module only finds the end
of each request, and uses no private name of aiohttp (decision 0053).
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import time
from typing import Any, Final, cast, final

from aiohttp import web

from gateway.admin.responses import Handler, error_bytes
from gateway.dataplane.edge.tls_transport import TlsTransport
from gateway.dataplane.http1.chunked import ChunkedDecoder
from gateway.errors import FramingError
from gateway.runtime.timer import Timer
from gateway.telemetry.series.process import INTERNAL
from gateway.tls.server import ServerCertificates

HEAD_TIME: Final = 5.0
"""Maximum seconds for a TLS handshake, to the first byte of a request head, and from there to its end."""

BODY_TIME: Final = 5.0
"""Maximum seconds from the end of a request's head to the end of its body: a command has some 30 bytes."""

RESPONSE_TIME: Final = 30.0
"""Maximum seconds for a client to read a response: Prometheus gives up a scrape after 10 by default."""

IDLE_TIME: Final = 25.0
"""Seconds for which an authorised connection is kept for its next request. Scrapes every 15 s keep theirs. It
is not a usual scrape interval, so that a request rarely meets a connection that closes."""

MAX_HEAD: Final = 16 * 1024
"""Maximum bytes of a request head, and of the requests that a client sends ahead of a response."""

MAX_LINE: Final = 8190
MAX_HANDSHAKE: Final = 64 * 1024
"""Maximum bytes of a TLS handshake (a chain has some 10 KiB), and of received data before reading pauses."""

LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about errors of the listener, and between two tracebacks."""

GATHER: Final = 0.25
"""Seconds for which the first log line about errors waits for more of them."""

MAX_TURNED_AWAY: Final = 8
"""Maximum excess connections whose handshake goes on so that they get an error response."""

END: Final = b"\r\n\r\n"
BLANK: Final = b"\r\n"
"""Line ends that may come before a request head."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
TLS_HANDSHAKE: Final = b"\x16"

_log = logging.getLogger("skewgate.admin")

_FRAMING: Final = re.compile(rb"(?i)\r\n(content-length|transfer-encoding|expect):[ \t]*(.*?)[ \t]*(?=\r\n)")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")

_COUNTED: Final = {
    401: "unauthorized",
    403: "forbidden",
    413: "body",
    429: "unauthorized",  # a wrong token, after many others
}
"""Values of the label `reason` of counted error responses, by status. Other statuses are not counted."""

PROTOCOL_ARGUMENTS: Final[dict[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,  # commands are short: an encoded body is refused as malformed
    "keepalive_timeout": 1e9,  # connections have deadlines of their own
    "lingering_time": 1.0,  # the rest of a body is read: a client that still sends would lose its response
    "logger": logging.Logger("aiohttp", level=logging.CRITICAL),  # noqa: LOG001 - `ErrorLog` has all errors
    "max_field_size": MAX_LINE,
    "max_headers": 100,
    "max_line_size": MAX_LINE,
}
"""Arguments of aiohttp's `web.Server`, which makes the protocols behind admin connections."""


@final
class ErrorLog:
    """Counter and log of the listener's errors, with one line a minute: unauthorised clients cause most of
    them, and the log must not grow with what they send (threats R-B7). `count_error` is called with the
    reason of each, one of `series.process.ADMIN_ERRORS`, never with text of a client."""

    def __init__(self, count_error: Callable[[str], None]) -> None:
        self._count_error = count_error
        self._not_logged: Counter[str] = Counter()
        self._logged_at = float("-inf")
        self._traceback_at = float("-inf")
        self._timer = Timer()

    def count(self, reason: str) -> None:
        """Counts one error of the listener, which is logged soon, together with others."""
        self._count_error(reason)
        self._not_logged[reason] += 1
        if not self._timer.is_set:
            since_line = asyncio.get_running_loop().time() - self._logged_at
            self._timer.set(max(GATHER, LOG_INTERVAL - since_line), self._write_line)

    def bug(self, error: BaseException | None) -> None:
        """Logs an exception that no client should be able to cause, with at most one traceback a minute."""
        now = asyncio.get_running_loop().time()
        if now >= self._traceback_at + LOG_INTERVAL:
            self._traceback_at = now
            _log.error(
                "a request to the admin listener failed because of a bug in the gateway", exc_info=error
            )

    def close(self) -> None:
        """Logs the listener's errors that are not in the log yet."""
        if self._timer.is_set:
            self._timer.cancel()
            self._write_line()

    def _write_line(self) -> None:
        self._logged_at = asyncio.get_running_loop().time()
        _log.warning(
            "the admin listener refused or closed %d requests and connections: %s "
            "(counted in skewgate_admin_errors_total)",
            self._not_logged.total(),
            ", ".join(f"{reason} {count}" for reason, count in sorted(self._not_logged.items())),
        )
        self._not_logged.clear()


@final
@dataclass(kw_only=True)
class Connections:
    """All open connections of an admin listener, and what they share."""

    limit: int
    errors: ErrorLog
    server: web.Server
    certificates: ServerCertificates | None
    """Certificates of the listener; None: clients speak plain HTTP."""
    wall_clock: Callable[[], float] = time
    """Returns seconds since the epoch, which decide whether certificates of operators have expired."""
    handshake_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock for one TLS handshake step per event-loop iteration: an RSA signature takes a millisecond."""
    open: dict[AdminConnection, None] = field(default_factory=dict)
    """Open connections: unauthorised ones in order of arrival, others in that of their last responses."""
    turned_away: set[AdminConnection] = field(default_factory=set)

    def add(self, connection: AdminConnection) -> None:
        """Adds a new connection. Over the limit one is closed: the oldest that is not authorised, or the
        longest idle. The new one is closed only if all others are in the middle of a request."""
        others = tuple(self.open)
        self.open[connection] = None
        if len(self.open) > self.limit:
            strangers = (other for other in others if not other.authorised)
            idle = (other for other in others if other.idle)
            leaving = next(strangers, None) or next(idle, connection)
            del self.open[leaving]
            if leaving is connection and len(self.turned_away) < MAX_TURNED_AWAY:
                self.turned_away.add(connection)
                connection.is_one_too_many = True
            else:
                leaving.turn_away()

    def responded(self, connection: AdminConnection) -> None:
        """Moves an authorised connection whose response has ended to the end of `open`."""
        if connection.authorised and connection in self.open:
            del self.open[connection]
            self.open[connection] = None

    def remove(self, connection: AdminConnection) -> None:
        self.open.pop(connection, None)
        self.turned_away.discard(connection)

    def abort(self) -> None:
        for connection in (*self.open, *self.turned_away):
            connection.abort()


class _InvalidRequest(Exception):
    """Error for received bytes that are no valid request. Arguments as for `AdminConnection._refuse`."""


@final
class AdminConnection(asyncio.Protocol, asyncio.Transport):
    """One connection to the admin listener: the protocol of its socket, or of TLS, and the transport of
    aiohttp's protocol. One coroutine, `_serve`, forwards the requests one at a time."""

    def __init__(self, shared: Connections) -> None:
        super().__init__()
        self.authorised = False
        """Whether `guard` has let a request of this connection pass."""
        self.is_one_too_many = False
        """Whether the client gets an error at the end of its handshake because of too many connections."""
        self.is_stream = False
        """Whether the response in progress has no end; then its deadline is for unsent data only."""
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | TlsTransport
        """Transport to the client: that of the socket, and after a handshake that of TLS."""
        self._tls: TlsTransport | None = None
        self._http: web.RequestHandler | None = None
        """aiohttp's protocol behind this connection; None before the end of the handshake."""
        self._serving: asyncio.Task[None] | None = None
        self._expires_at = inf
        """Wall-clock seconds at which the operator's certificate expires."""
        self._received = b""
        """Received bytes that are not forwarded to aiohttp yet."""
        self._has_received = asyncio.Event()
        self._head = b""
        """Head of the request that is arriving, or of the one in progress."""
        self._request: web.Request | None = None
        self._has_begun = asyncio.Event()
        """Event that is set when a handler has got the request."""
        self._has_responded = asyncio.Event()
        self._read_timer = Timer()
        self._is_used = False
        """Whether any request of this connection has reached a handler."""
        self._is_answered = False
        """Whether bytes of the response in progress have been written."""
        self._is_closed = False

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts serving a new connection, or takes its TLS transport after a handshake."""
        self._transport = cast(asyncio.Transport, transport)
        if self._serving is None:
            self._serving = self._loop.create_task(self._serve())
            self._shared.add(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._has_received.set()
        if len(self._received) > MAX_HANDSHAKE:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()
        self._begin_read_timer()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()
        # Not during a response that ends: a client that reads each piece just in time would keep a scrape
        # for ever.
        if self.is_stream or (self._request is None and not self._is_closed):
            self._read_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tls is not None and self._http is None and not self._is_closed:
            self._count("tls")
        self._end()
        self._read_timer.cancel()
        self._shared.remove(self)
        if self._http is not None:
            self._http.connection_lost(exc)

    async def _serve(self) -> None:
        try:
            async with asyncio.timeout(HEAD_TIME):
                await self._shake_hands()
            if self.is_one_too_many:
                raise _InvalidRequest("too_many_connections", 503)
            self._http = self._shared.server()
            self._http.connection_made(self)
            patience = HEAD_TIME
            while True:
                await self._receive_head(patience)
                async with asyncio.timeout(BODY_TIME):
                    await self._pass_on(self._http)
                    await self._has_begun.wait()
                await self._has_responded.wait()
                self._has_begun.clear()
                self._has_responded.clear()
                patience = IDLE_TIME
        except _InvalidRequest as refusal:
            self._refuse(*refusal.args)
        except ssl.SSLError:
            self._count("tls")
            self.close()
        except TimeoutError:
            if self._head:
                self._refuse("timeout", 408)
            else:
                if not self._is_used:
                    self._count("timeout")
                self.abort()
        except Exception as error:  # noqa: BLE001 - nobody awaits this task
            self._fail(error)

    async def _more(self) -> bytes:
        """Waits for bytes from the client, and returns all that have arrived."""
        while not self._received:
            self._has_received.clear()
            await self._has_received.wait()
        return self._take()

    def _take(self) -> bytes:
        data, self._received = self._received, b""
        if len(data) > MAX_HANDSHAKE:
            self._transport.resume_reading()
        return data

    async def _shake_hands(self) -> None:
        """Does the TLS handshake, if the listener has certificates. OpenSSL verifies the client certificate;
        its expiry is compared here with the clock by which the connection will end."""
        certificates, raw, size = self._shared.certificates, cast(asyncio.Transport, self._transport), 0
        is_complete = certificates is None
        while certificates is not None and not is_complete:
            data = await self._more()
            if not size and not data.startswith(TLS_HANDSHAKE):
                raise _InvalidRequest("tls", 400, "this port speaks TLS: use https")
            size += len(data)
            if size > MAX_HANDSHAKE:
                raise ssl.SSLError("the handshake is too long")
            async with self._shared.handshake_turn:
                await asyncio.sleep(0)
                if self._tls is None:
                    self._tls = TlsTransport(
                        raw, certificates.context, self._loop, lambda _: self._count("tls")
                    )
                self._tls.feed(data)
                is_complete = self._tls.handshake()
        if certificates is not None and self._tls is not None:
            self._tls.feed(self._take())
            self._transport = self._tls
            certificate = certificates.client_certificate(self._tls.tls)
            self._expires_at = inf if certificate is None else certificate.not_after
            if self.has_expired:
                raise ssl.SSLError("the certificate has expired")
            self._tls.begin(self)

    async def _receive_head(self, patience: float) -> None:
        """Receives a request head, whose first byte must arrive within `patience` seconds."""
        async with asyncio.timeout(self._until_expiry(patience)) as deadline:
            while not self._head:
                self._head = (await self._more()).lstrip(BLANK)
            if not self._head[:1].isalpha():
                raise _InvalidRequest("tls" if self._head.startswith(TLS_HANDSHAKE) else "malformed", 400)
            deadline.reschedule(self._loop.time() + self._until_expiry(HEAD_TIME))
            while END not in self._head and len(self._head) <= MAX_HEAD:
                self._head += await self._more()
        # Bytes after the end in the same read are a body or another request.
        head, _, self._received = self._head.partition(END)
        self._head = head + END
        if len(self._head) > MAX_HEAD or any(len(line) > MAX_LINE for line in head.split(b"\r\n")):
            raise _InvalidRequest("head_too_large", 431)

    async def _pass_on(self, http: web.RequestHandler) -> None:
        """Forwards the head and the body of a request to aiohttp, which refuses what is ambiguous."""
        fields = {name.lower(): value for name, value in _FRAMING.findall(self._head)}
        length = fields.get(b"content-length", b"0")
        if fields.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise _InvalidRequest("malformed", 417)  # aiohttp would quote it
        # aiohttp fails at some targets of CONNECT, which nobody needs here.
        if not _LENGTH.fullmatch(length) or self._head.startswith(b"CONNECT"):
            raise _InvalidRequest("malformed", 400)
        http.data_received(self._head)
        chunks = ChunkedDecoder() if b"transfer-encoding" in fields else None
        left = int(length) if chunks is None else 0
        while left > 0 or (chunks is not None and not chunks.done):
            data = await self._more()
            if chunks is not None:
                try:
                    chunks.feed(data)
                except FramingError:
                    raise _InvalidRequest("body", 400) from None
            self._received = data[left:] if chunks is None else chunks.rest
            http.data_received(data[: len(data) - len(self._received)])
            left -= len(data)

    async def respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Calls the handler of a request on this connection and sends its response."""
        self._request, self._is_used, self.is_stream = request, True, False
        self._has_begun.set()
        try:
            response = await handler(request)
            if reason := _COUNTED.get(response.status):
                self._count(reason)
            if not self.authorised or self.has_expired or not request.content.is_eof():
                response.force_close()
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            self.close()
            raise
        except web.RequestPayloadError:
            self._refuse("body", 400)
            raise ConnectionAbortedError from None
        except Exception as error:
            self._fail(error)
            raise ConnectionAbortedError from error
        self._request = None
        if self._http is not None and not self._http.writing_paused:
            self._read_timer.cancel()
        self._shared.responded(self)
        if response.keep_alive:  # or the rest of its body may be among `_received`, and aiohttp reads it
            if len(self._received) > MAX_HEAD:
                self._count("head_too_large")
                self.close()
            else:
                self._head, self._is_answered = b"", False
                self._has_responded.set()
        return response

    @property
    def has_expired(self) -> bool:
        """Whether the certificate of the operator has expired since the handshake (threats R3-T2)."""
        return self._expires_at <= self._shared.wall_clock()

    def _until_expiry(self, seconds: float) -> float:
        """Returns the timeout `seconds`, shortened if the operator's certificate expires before."""
        return max(0.0, min(seconds, self._expires_at - self._shared.wall_clock()))

    # --- called by aiohttp's protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends a part of a response. aiohttp's own response to a malformed head names aiohttp and repeats
        the head, so the client gets a fixed one in its place."""
        if self._is_closed:
            return
        if self._request is None and data != CONTINUE:
            self._refuse("malformed", 400)
        else:
            self._is_answered = self._request is not None
            self._transport.write(bytes(data))

    def close(self) -> None:
        """Closes the connection once the client has read what is written, which has a deadline."""
        if not self._is_closed:
            self._end()
            self._transport.close()
            self._begin_read_timer()

    def abort(self) -> None:
        """Closes the connection at once, whatever is in progress."""
        self._end()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        return self._transport.get_extra_info(name, default)

    @property
    def idle(self) -> bool:
        """Whether closing this connection loses nothing: no request has begun, the last response is sent."""
        return not self._head and not self._received and self._transport.get_write_buffer_size() == 0

    def turn_away(self) -> None:
        """Closes an excess connection, with an error response if none was sent before."""
        if self._http is not None and not self._is_used:
            self._refuse("too_many_connections", 503)
        else:
            self._count("too_many_connections")
            self.abort()

    def _refuse(self, reason: str, status: int, sentence: str = "") -> None:
        self._count(reason)
        if not self._is_answered and not self._is_closed:
            self._transport.write(error_bytes(status, sentence))
        self.close()

    def _fail(self, bug: Exception) -> None:
        self._shared.errors.bug(bug)
        self._refuse(INTERNAL, 500)

    def _count(self, reason: str) -> None:
        self._shared.errors.count(reason)

    def _end(self) -> None:
        self._is_closed = True
        if self._serving is not None:
            self._serving.cancel()

    def _begin_read_timer(self) -> None:
        """Sets the deadline by which the client must have read what waits to be sent."""
        if not self._read_timer.is_set:
            self._read_timer.set(RESPONSE_TIME, self._cut_off)

    def _cut_off(self) -> None:
        self._count("timeout")
        self.abort()


@web.middleware
async def on_connections(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost middleware, by which a connection sees when a request begins and when its response ends."""
    connection = request.transport
    if isinstance(connection, AdminConnection):
        return await connection.respond(request, handler)
    return await handler(request)
