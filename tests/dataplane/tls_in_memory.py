"""A TLS client and a `TlsTransport` without sockets: each step is a call, and each cut of bytes a choice."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Final, cast, final

from gateway.dataplane.edge.tls_transport import TlsTransport

MOST: Final = 1 << 20
"""Bytes of a read that takes everything."""
CONTENT: Final = b"".join(number.to_bytes(4, "big") for number in range(1 << 16))
"""What a client sends, again and again. No two parts of it are alike."""


@final
class Socket(asyncio.Transport):
    """The transport of the gateway's socket. It writes to `written`, and reads what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol
        self.written = b""
        self.ended = self.closed = False
        """Whether the gateway has closed its sending side; the whole connection."""
        self.reads = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def read(self, data: bytes) -> None:
        """Read this, as the loop would."""
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            while data:
                buffer = memoryview(self.protocol.get_buffer(len(data)))
                size = min(len(buffer), len(data))
                buffer[:size], data = data[:size], data[size:]
                self.protocol.buffer_updated(size)
        else:
            cast(asyncio.Protocol, self.protocol).data_received(data)

    def read_end(self) -> None:
        """Read the end of what the client sends."""
        if not cast(asyncio.Protocol, self.protocol).eof_received():
            self.closed = True

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended
        assert not self.closed
        self.written += bytes(data)

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@final
class TlsClient:
    """A client whose handshake with a `TlsTransport` is complete, and what it sends.

    `early`: is called when the client may send, before the gateway has all of its handshake.
    """

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        protocol: asyncio.Protocol,
        early: Callable[[TlsClient], None] = lambda _: None,
    ) -> None:
        self.socket, self.broken = Socket(), list[str]()
        """`broken`: the reasons for which the gateway has broken off."""
        self.transport = TlsTransport(self.socket, server, asyncio.get_running_loop(), self.broken.append)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._taken = 0
        self.sent = b""
        """Content so far."""
        self.has_ended = False
        complete = ready = False
        while not complete:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                if not ready:
                    early(self)
                ready = True
            self.transport.feed(self.records())
            complete = self.transport.handshake()
            self._take()
        while not ready:
            self._tls.do_handshake()
            ready = True
        self.transport.begin(protocol)

    def _take(self) -> None:
        self._incoming.write(self.socket.written[self._taken :])
        self._taken = len(self.socket.written)

    def records(self) -> bytes:
        """What it has encrypted since this was last asked."""
        return self._outgoing.read()

    def send(self, size: int) -> None:
        """Encrypt so many bytes of content."""
        begin = len(self.sent) % len(CONTENT)
        piece = (CONTENT + CONTENT)[begin : begin + size]
        self.sent += piece
        self._tls.write(piece)

    def end(self) -> None:
        """Encrypt its close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self.has_ended = True

    def received(self) -> tuple[bytes, bool]:
        """All content from the gateway, and whether its close_notify has come. To be asked once."""
        self._take()
        pieces = []
        while True:
            try:
                pieces.append(self._tls.read(MOST))
            except ssl.SSLWantReadError:
                return b"".join(pieces), False
            except ssl.SSLZeroReturnError:
                return b"".join(pieces), True
            if not pieces[-1]:
                return b"".join(pieces), True
