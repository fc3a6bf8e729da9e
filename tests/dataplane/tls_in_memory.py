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
class ClientTls:
    """The client's end of TLS: it is given all that the gateway has written, and asked for what it sends."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._taken = 0

    def handshake(self, written: bytes) -> bool:
        """Go on with the handshake; whether it is complete on this side."""
        self._take(written)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _take(self, written: bytes) -> None:
        self._incoming.write(written[self._taken :])
        self._taken = len(written)

    def records(self) -> bytes:
        """What it has encrypted since this was last asked."""
        return self._outgoing.read()

    def send(self, data: bytes) -> None:
        """Encrypt this."""
        self._tls.write(data)

    def end(self) -> None:
        """Encrypt its close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()

    def received(self, written: bytes) -> tuple[bytes, bool]:
        """All content from the gateway, and whether its close_notify has come. To be asked once."""
        self._take(written)
        data = b""
        while True:
            try:
                piece = self._tls.read(MOST)
            except ssl.SSLWantReadError:
                return data, False
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                return data, True
            data += piece


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
        self._tls = ClientTls(client)
        self.sent = b""
        """Content so far."""
        self.has_ended = False
        complete = ready = False
        while not (complete and ready):
            if not ready and (ready := self._tls.handshake(self.socket.written)):
                early(self)
            if not complete:
                self.transport.feed(self.records())
                complete = self.transport.handshake()
        self.transport.begin(protocol)

    def records(self) -> bytes:
        """What it has encrypted since this was last asked."""
        return self._tls.records()

    def send(self, size: int) -> None:
        """Encrypt so many bytes of content."""
        begin = len(self.sent) % len(CONTENT)
        piece = (CONTENT + CONTENT)[begin : begin + size]
        self.sent += piece
        self._tls.send(piece)

    def end(self) -> None:
        """Encrypt its close_notify."""
        self._tls.end()
        self.has_ended = True

    def received(self) -> tuple[bytes, bool]:
        """All content from the gateway, and whether its close_notify has come. To be asked once."""
        return self._tls.received(self.socket.written)
