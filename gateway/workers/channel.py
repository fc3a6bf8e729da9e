"""One end of the pair of sockets between parent and worker: messages behind their length.

Delivers each message to `on_message`, in order, and calls `on_closed` once when the other end is gone or says
what is no message. Knows no message; who is behind, and what is done about it, is the caller's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, Final, cast, final

from gateway.workers.pickling import dumps, loads

MAX_SIZE: Final = 256 << 20
"""Bytes of a message: a snapshot of 100,000 backends has some 50 MiB."""

_LENGTH: Final = Struct("!I")

_log = logging.getLogger("skewgate.workers")


@final
class Channel:
    """A connected, non-blocking socket, which belongs to this object from now on."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Any], None], on_closed: Callable[[], None]
    ) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._closed = False
        self._ended = asyncio.Event()

    async def open(self) -> None:
        """Messages are delivered from now on, in the running loop."""
        await asyncio.get_running_loop().create_unix_connection(lambda: _Ends(self), sock=self._sock)

    def send(self, message: object) -> None:
        """Send it behind all that was sent before. Never blocks; after the end nothing happens."""
        if self._transport is None or self._closed:
            return
        data = dumps(message)
        self._transport.write(_LENGTH.pack(len(data)) + data)

    @property
    def unsent(self) -> int:
        """Bytes that the other end has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send what was given, as far as the other end takes it, and deliver nothing more."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()
        else:
            self._sock.close()
            self._ended.set()

    async def closed(self, seconds: float) -> bool:
        """After `close`: wait until the other end has taken everything, or is gone. False: it takes
        longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    # --- called by the loop, through `_Ends`

    def opened(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._closed:
            transport.close()

    def received(self, data: bytes) -> None:
        found = self._received
        found += data
        start = 0
        while len(found) - start >= _LENGTH.size and not self._closed:
            (length,) = _LENGTH.unpack_from(found, start)
            if length > MAX_SIZE:
                self._broken("a message of %d bytes", length)
                return
            end = start + _LENGTH.size + length
            if len(found) < end:
                break
            message = bytes(found[start + _LENGTH.size : end])
            start = end
            self._deliver(message)
        del found[:start]

    def _deliver(self, data: bytes) -> None:
        try:
            message = loads(data)
        except Exception:  # noqa: BLE001 - whatever a wrong pickle raises
            _log.exception("what came is no message")
            self._broken("what is no message")
            return
        self._on_message(message)

    def _broken(self, what: str, *details: object) -> None:
        _log.error("the other end of a channel has sent " + what, *details)
        if self._transport is not None:
            self._transport.abort()

    def lost(self) -> None:
        self._transport = None
        self._ended.set()
        if not self._closed:
            self._closed = True
            self._on_closed()


@final
class _Ends(asyncio.Protocol):
    """Hands what the loop says to the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel.opened(cast(asyncio.Transport, transport))  # uvloop's has all its methods

    def data_received(self, data: bytes) -> None:
        self._channel.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.lost()
