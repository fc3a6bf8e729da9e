"""One exchange with one backend: connections that are kept and reused, and the reply's framing.

A connection serves one exchange at a time and goes back to its pool only after a reply that ended exactly
where it said. Every exception of sockets and parsers ends here, as a row of `failures`. Knows no version.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final, cast, final

from gateway.core.backend import Backend
from gateway.core.fleet import Unreached
from gateway.dataplane.chunked import ChunkedDecoder
from gateway.dataplane.failures import Failure
from gateway.dataplane.fields import BY_LENGTH, CHUNKED, NO_BODY, UNTIL_CLOSE
from gateway.dataplane.http1 import HEAD_END, MAX_REPLY_HEAD, ReplyReader
from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.dataplane.context import Context
    from gateway.dataplane.names import NameTable
    from gateway.dataplane.proxy import Exchange

HEAD: Final = -1
"""Beside the framings of `http1`: the reply's head is not complete yet."""
MAX_INTERIM: Final = 16
"""1xx replies before the final one; an endless row of them is an attack (hardening B4)."""
NEVER: Final = float("inf")
RESTED: Final = 1.0
"""Seconds of idleness after which a connection is looked at before it is used again."""
_HANG_UP: Final[int] = getattr(select, "POLLRDHUP", select.POLLIN)
_OUR_LACK: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_RESOLVER_LACK: Final = frozenset({socket.EAI_SYSTEM, socket.EAI_MEMORY})


@final
class BackendConnection(asyncio.Protocol):
    """One TCP connection to a backend."""

    def __init__(self, pool: BackendPool) -> None:
        self.pool = pool
        self.transport: asyncio.Transport
        self.deadline = NEVER
        self._exchange: Exchange | None = None
        self._reader = ReplyReader()
        self._table: NameTable
        self._to_head = False
        self._mode = HEAD
        self._left = 0
        self._decoder: ChunkedDecoder | None = None
        self._buffer = b""
        self._interim = 0
        self._ends: select.poll | None = None

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.pool.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if self._mode == UNTIL_CLOSE and exc is None:
            exchange.on_reply_body(b"", done=True)
        elif self._mode == HEAD:
            exchange.on_failure(Failure.BAD_REPLY if self._heard else Failure.NO_REPLY)
        else:
            exchange.on_failure(Failure.REPLY_CUT)

    def start(self, exchange: Exchange, table: NameTable, *, to_head: bool) -> None:
        """Begin an exchange: what arrives from now on is its reply."""
        self._exchange = exchange
        self._table = table
        self._to_head = to_head
        self._mode = HEAD
        self._interim = 0
        context = self.pool.context
        self.deadline = context.now + context.timeouts.backend_head

    def abandon(self) -> None:
        """The exchange has no more use for the reply: nothing further is read, the connection is not
        reused."""
        self._exchange = None
        self.deadline = NEVER
        self.transport.abort()

    def on_deadline(self) -> None:
        """Too long without a head, without a piece of body, or idle."""
        exchange, self._exchange = self._exchange, None
        self.deadline = NEVER
        self.transport.abort()
        if exchange is not None:
            nothing = self._mode == HEAD and not self._heard
            exchange.on_failure(Failure.REPLY_TIMEOUT if nothing else Failure.REPLY_STALLED)

    @property
    def _heard(self) -> bool:
        """Bytes of a reply whose head is not complete, or of an interim one, have arrived."""
        return bool(self._buffer) or self._interim > 0

    def hung_up(self) -> bool:
        """Whether the backend has closed it, although the loop has not come to look at that yet. One system
        call."""
        if self._ends is None:
            self._ends = select.poll()
            self._ends.register(self.transport.get_extra_info("socket").fileno(), _HANG_UP)
        return bool(self._ends.poll(0))

    # -- flow control: what the client does not take is not read, what the backend does not take is not read
    # either

    def pause_reading(self) -> None:
        """Until the client takes more, no time runs against the backend."""
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

    # -- the reply

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # nobody asked: not to be trusted again (hardening B5)
            self.transport.abort()
            return
        try:
            if self._mode == HEAD:
                self._read_head(exchange, data)
                return
            context = self.pool.context
            self.deadline = context.now + context.timeouts.backend_body_idle
            piece, done, surplus = self._read_body(data)
        except FramingError:
            self._break_off(Failure.BAD_REPLY if self._mode == HEAD else Failure.REPLY_CUT)
            return
        if done:
            self._release(exchange, surplus=surplus)
        exchange.on_reply_body(piece, done=done)

    def _read_head(self, exchange: Exchange, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        reader = self._reader
        while True:
            end = data.find(HEAD_END) + len(HEAD_END)
            if end < len(HEAD_END):
                if len(data) > MAX_REPLY_HEAD:
                    raise FramingError("head_too_large")
                self._buffer = data
                return
            if end > MAX_REPLY_HEAD:
                raise FramingError("head_too_large")
            reader.read(data[:end], self._table, to_head=self._to_head)
            data = data[end:]
            if reader.status >= 200:
                break
            self._interim += 1
            if reader.status == 101 or self._interim > MAX_INTERIM:
                raise FramingError("interim")
        framing = reader.framing
        if framing == BY_LENGTH and len(data) == reader.length:  # mostly: all in one
            self._release(exchange, surplus=False)
            exchange.on_reply(reader, data, done=True)
            return
        self._mode = framing
        if framing == CHUNKED:
            self._decoder = ChunkedDecoder()
        self._left = reader.length
        context = self.pool.context
        self.deadline = context.now + context.timeouts.backend_body_idle
        piece, done, surplus = self._read_body(data)
        if done:
            self._release(exchange, surplus=surplus)
        exchange.on_reply(reader, piece, done=done)

    def _read_body(self, data: bytes) -> tuple[bytes, bool, bool]:
        """The payload in `data`, whether the body ends with it, whether bytes stand behind the end."""
        mode = self._mode
        if mode == BY_LENGTH:
            left = self._left - len(data)
            if left > 0:
                self._left = left
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
        """Before the exchange hears of the end, so that the client's next request finds this connection idle.
        A backend that answered before it had the whole request may read the rest as another one
        (CVE-2025-4366): not reused."""
        self._exchange = None
        self._mode = HEAD
        self._decoder = None
        if surplus or self._reader.close or not exchange.uploaded or self.pool.closed:
            self.deadline = NEVER
            self.transport.close()
        else:
            context = self.pool.context
            self.deadline = context.now + context.timeouts.backend_idle
            self.pool.idle.append(self)

    def _break_off(self, failure: Failure) -> None:
        exchange, self._exchange = self._exchange, None
        self.deadline = NEVER
        self.transport.abort()
        if exchange is not None:
            exchange.on_failure(failure)


@final
class BackendPool:
    """All connections of one worker to one backend for one service."""

    def __init__(self, context: Context, service: str, backend: Backend) -> None:
        self.context = context
        self.service = service
        self.backend = backend
        self.idle: list[BackendConnection] = []
        self.connections: set[BackendConnection] = set()
        self.closed = False
        self._connecting: set[asyncio.Task[None]] = set()

    def take(self, *, sure: bool) -> BackendConnection | None:
        """The connection that was used last, since it is the least likely to have been closed; None: make
        one. `sure`: what is to be sent cannot be sent again, so it is worth a look whether the backend has
        just closed it; as is one that was idle for long, which backends end by their own clocks."""
        idle, context = self.idle, self.context
        long_ago = context.now + context.timeouts.backend_idle - RESTED
        while idle:
            connection = idle.pop()
            if connection.transport.is_closing():
                continue
            if (sure or connection.deadline < long_ago) and connection.hung_up():
                connection.transport.abort()
                continue
            return connection
        return None

    def connect(self, exchange: Exchange) -> None:
        """Make a connection and hand it to `exchange`, or tell it why there is none."""
        task = asyncio.get_running_loop().create_task(self._connect(exchange, monotonic()))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: Exchange, began: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.context.timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: BackendConnection(self), self.backend.host, self.backend.port
                )
        except TimeoutError:
            self._unreached(began)
            exchange.on_failure(Failure.CONNECT_TIMEOUT)
        except (OSError, UnicodeError) as error:  # refused, unreachable, no such name, no descriptor left
            if not _is_our_lack(error):
                self._unreached(began)
            exchange.on_failure(Failure.CONNECT)
        else:
            sock = connection.transport.get_extra_info("socket")
            if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if exchange.wants_connection:
                exchange.on_connection(connection)
            else:  # its client left meanwhile
                connection.deadline = self.context.now + self.context.timeouts.backend_idle
                self.idle.append(connection)

    def _unreached(self, began: float) -> None:
        """Tell what was found out; of a pool that was closed, nobody asks any more."""
        if not self.closed:
            self.context.observe(self.service, self.backend.name, Unreached(began))

    def forget(self, connection: BackendConnection) -> None:
        """It is closed."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def counts(self) -> tuple[int, int]:
        """Idle and active connections."""
        return len(self.idle), len(self.connections) - len(self.idle)

    def close(self) -> None:
        """Close what is idle now and the rest when its reply has ended."""
        self.closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close what is idle now."""
        for connection in self.idle:
            connection.transport.close()
        self.idle.clear()

    def abort(self) -> None:
        """Close everything at once."""
        self.closed = True
        for task in self._connecting:
            task.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()


def _is_our_lack(error: OSError | UnicodeError) -> bool:
    """No descriptor, port or memory was left here: that says nothing about the backend."""
    if isinstance(error, socket.gaierror):
        return error.errno in _RESOLVER_LACK
    return isinstance(error, OSError) and error.errno in _OUR_LACK
