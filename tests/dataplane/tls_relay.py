"""TLS in front of clients that have none: what a test does with a plain socket reaches a gateway over TLS, on
any event loop.

    client of a test -- TCP --> relay (a thread) -- TLS --> gateway

It keeps what matters at the ends: it holds little and reads only what is taken, the end of one side is
close_notify and FIN there, a reset is a reset. An end without close_notify is a reset too: data may be lost.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Final, final

from tests.kit.networks import LOOPBACK, RESET

PIECE: Final = 16 * 1024
SMALL: Final = 4096
"""Bytes of the buffers on the way to a client that has small ones: together they hold little, too."""


@final
class TlsRelay:
    """Relays the connections that `connect` makes, each in a thread, until `close`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._threads: list[threading.Thread] = []
        self._wake, self._closed = socket.socketpair()
        """The second one can be read when all is to end."""

    def connect(self, address: tuple[str, int], small_buffer: int) -> socket.socket:
        """A plain socket that is connected to `address` over TLS, as `Listener.relay` has it."""
        with socket.create_server((LOOPBACK, 0)) as listener:
            client = socket.socket()
            if small_buffer:
                for sock in (client, listener):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            client.connect(listener.getsockname())
            plain, _ = listener.accept()
        raw = socket.socket()
        if small_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        raw.connect(address)
        relayed = _Relayed(plain, raw, self._context, self._closed)
        self._threads.append(threading.Thread(target=relayed.run, daemon=True))
        self._threads[-1].start()
        client.setblocking(False)
        return client

    def close(self) -> None:
        """End all threads. Blocks."""
        self._wake.close()
        for thread in self._threads:
            thread.join(5)
        self._closed.close()
        assert not any(thread.is_alive() for thread in self._threads)


@final
class _Relayed:
    """One connection."""

    def __init__(
        self, plain: socket.socket, raw: socket.socket, context: ssl.SSLContext, closed: socket.socket
    ) -> None:
        self._plain, self._raw, self._closed = plain, raw, closed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._ready = False
        """The handshake is complete."""
        self._to_raw = b""
        self._to_plain = b""
        self._plain_ended = self._raw_ended = False
        self._told_plain = self._told_raw = False
        """That no more comes from the other side."""

    def run(self) -> None:
        with self._plain, self._raw:
            for sock in (self._plain, self._raw):
                sock.setblocking(False)
            try:
                while not (self._told_plain and self._told_raw):
                    if not self._turn():
                        break
            except (OSError, ssl.SSLError):
                for sock in (self._plain, self._raw):
                    with contextlib.suppress(OSError):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _turn(self) -> bool:
        """Wait for something and do it; False at the end of the test."""
        self._advance()
        reading = [self._closed]
        if not self._to_plain and not self._raw_ended:
            reading.append(self._raw)
        if self._ready and not self._to_raw and not self._plain_ended:
            reading.append(self._plain)
        writing = [sock for sock, data in ((self._raw, self._to_raw), (self._plain, self._to_plain)) if data]
        readable, writable, _ = select.select(reading, writing, [])
        if self._closed in readable:
            return False
        if self._raw in readable:
            data = self._raw.recv(PIECE)
            if not data:
                raise ssl.SSLError("no close_notify")
            self._incoming.write(data)
        if self._plain in readable:
            data = self._plain.recv(PIECE)
            if data:
                self._tls.write(data)
            else:
                self._plain_ended = True
        if self._raw in writable:
            self._to_raw = self._to_raw[self._raw.send(self._to_raw) :]
        if self._plain in writable:
            self._to_plain = self._to_plain[self._plain.send(self._to_plain) :]
        return True

    def _advance(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            if not self._ready:
                self._tls.do_handshake()
                self._ready = True
            while not self._raw_ended and len(self._to_plain) < PIECE:
                try:
                    data = self._tls.read(PIECE)
                except ssl.SSLZeroReturnError:
                    data = b""
                self._to_plain += data
                self._raw_ended = not data
        if self._plain_ended and not self._told_raw and not self._to_raw:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        self._to_raw += self._outgoing.read()
        if self._plain_ended and not self._to_raw and not self._told_raw:
            self._told_raw = True
            self._raw.shutdown(socket.SHUT_WR)
        if self._raw_ended and not self._to_plain and not self._told_plain:
            self._told_plain = True
            self._plain.shutdown(socket.SHUT_WR)
