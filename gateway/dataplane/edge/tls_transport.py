"""TLS of a client connection, as a transport between the socket's transport and a protocol.

    socket's transport -> data_received -> incoming bytes -> OpenSSL -> protocol.data_received
    protocol -> write -> OpenSSL -> outgoing bytes -> socket's transport

Unlike asyncio's own it can begin with bytes that were read before, answers a half-closed connection, closes
without waiting for the peer, and compiles. OpenSSL works in memory, so nothing here blocks. This module
decides nothing about certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast, final

from gateway.dataplane.sockets.bounded_reads import READ_SIZE, BoundedReads, bound_reads

if TYPE_CHECKING:
    from collections.abc import Callable

_TLS_1_3: Final = "TLSv1.3"
RECORD: Final = 16 * 1024
"""Maximum bytes of content in a TLS record (RFC 8446 5.1)."""
MAX_WITHOUT_CONTENT: Final = RECORD + 1024
"""Maximum bytes from a TLS client without any content: more than a whole record (RFC 8446 5.2). OpenSSL
processes all other messages in one call: 256 KiB of key updates would block the event loop for 0.4 s."""


@final
class TlsTransport:
    """The server's side of TLS on one client connection. Has the methods of `asyncio.Transport` and
    `asyncio.Protocol`; not derived, so that it compiles."""

    def __init__(
        self,
        raw: asyncio.Transport,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        on_broken: Callable[[str], None],
    ) -> None:
        self._raw = raw
        self._loop = loop
        self._on_broken = on_broken
        """Callback, with a reason, for a client that violates TLS after the handshake."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: asyncio.Protocol | None = None
        self._waiting = b""
        """Encrypted bytes that were read; those from `_taken` on were not given to OpenSSL yet."""
        self._taken = 0
        self._without_content = 0
        """Encrypted bytes given to OpenSSL since it last gave content."""
        self._is_1_3 = False
        self._paused = False
        self._reading = False
        self._resumes = False
        self._closing = False
        self._wrote_eof = False
        """Whether the sending side was closed: nothing can be written any more, not even by OpenSSL."""
        self._ended = False
        """Whether the socket has ended: the client sends no more. Earlier bytes may still wait here."""
        self._eof = False
        """Whether the protocol was told that the client sends no more."""

    # -- the handshake: driven by `accept_phase`

    def feed(self, data: bytes) -> None:
        """Add encrypted bytes from the socket, for `handshake` or `_read`."""
        self._waiting = self._waiting[self._taken :] + data if self._waiting else data
        self._taken = 0

    def handshake(self) -> bool:
        """Go on with the TLS handshake and send answers; whether it is complete. Raises `ssl.SSLError`.
        Session tickets, left at the end by TLS 1.3, are sent with the first response: one write less."""
        self._take_some()  # first: what OpenSSL raises when it wants more costs as much as a read
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if not self._take_some():
                    self._flush()
                    return False
            except ssl.SSLError:
                self._flush()  # the alert
                raise
        self._without_content = 0
        self._is_1_3 = self.tls.version() == _TLS_1_3
        if not self._is_1_3:
            self._flush()
        return True

    def begin(self, protocol: asyncio.Protocol) -> None:
        """Give the TLS connection to `protocol`: the handshake is complete."""
        self._raw.set_protocol(cast(asyncio.Protocol, self))
        self._protocol = protocol
        protocol.connection_made(cast(asyncio.Transport, self))
        if self._waiting or self._incoming.pending:
            self._read()

    # -- the socket's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Never called: the socket's connection was made before TLS began."""

    def data_received(self, data: bytes) -> None:
        if self._eof or self._closing:  # bytes after the end are ignored (RFC 8446 6.1)
            return
        self.feed(data)
        if not self._reading and not self._paused:
            self._read()

    def eof_received(self) -> bool:
        """Pass the bytes that wait here to the protocol, then the end. The client has closed its sending
        side, with or without saying so in TLS: HTTP framing shows whether its message was cut."""
        self._ended = True
        if not self._reading and not self._paused:
            self._read()
        return not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = self._eof = True
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # -- reading

    def _read(self) -> None:
        self._reading = True
        try:
            while not self._paused and not self._closing and not self._eof:
                data = self._decrypt()
                if not data:
                    if self._ended:
                        self._on_eof()
                    break
                self._pass_on(data)
        finally:
            self._reading = False
        if self._outgoing.pending > RECORD:  # answers of TLS itself, to a client that asks for many
            self._flush()

    def _decrypt(self) -> bytes:
        """Decrypt at most `READ_SIZE` bytes; empty if there is no whole record. Records are passed on
        together, because each call is a write on the other side."""
        read, incoming = self.tls.read, self._incoming
        pieces: list[bytes] = []
        size = 0
        self._take_some()
        while size < READ_SIZE:
            try:
                piece = read(RECORD)
            except ssl.SSLWantReadError:
                if self._without_content > MAX_WITHOUT_CONTENT:
                    self._end_of_tls(pieces, broken=True)
                    return b""
                if not self._take_some():
                    break
                continue
            except ssl.SSLZeroReturnError:  # its end, after ours: before ours, `read` gives an empty piece
                piece = b""
            except ssl.SSLError:
                self._end_of_tls(pieces, broken=True)
                return b""
            if not piece:
                self._end_of_tls(pieces, broken=False)
                return b""
            self._without_content = 0
            pieces.append(piece)
            size += len(piece)
            # A read without data would raise an exception, which costs more than a record.
            if not incoming.pending and not self._take_some():
                break
        if self._outgoing.pending and not self._is_1_3:
            # In TLS 1.2 reading makes OpenSSL write nothing but the alert to a second ClientHello. The client
            # waits for that handshake (threats R3-V10).
            self._end_of_tls(pieces, broken=True)
            return b""
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take_some(self) -> bool:
        """Give OpenSSL the next encrypted bytes, about a record; False if none wait."""
        waiting = self._waiting
        if not waiting:
            return False
        begin = self._taken
        end = begin + RECORD
        part = waiting[begin:end]
        self._incoming.write(part)
        self._without_content += len(part)
        if end < len(waiting):
            self._taken = end
        else:
            self._waiting, self._taken = b"", 0
        return True

    def _end_of_tls(self, pieces: list[bytes], *, broken: bool) -> None:
        self._pass_on(b"".join(pieces))
        if broken:
            self._break_off()
        else:
            self._on_eof()

    def _pass_on(self, data: bytes) -> None:
        if data and self._protocol is not None:
            self._protocol.data_received(data)

    def _on_eof(self) -> None:
        """Tell the protocol that the client sends no more. It may keep the connection open for writing."""
        if self._eof or self._closing or self._protocol is None:
            return
        self._eof = True
        if not self._protocol.eof_received():
            self.close()

    def _break_off(self) -> None:
        """Send the TLS alert and close: the client has violated TLS."""
        self._on_broken("tls_record")
        self._flush()
        self._closing = True
        self._raw.close()

    # -- the protocol calls: reading

    def pause_reading(self) -> None:
        """Stop passing decrypted bytes to the protocol."""
        if not self._paused and not self._closing:
            self._paused = True
            if not self._eof and not self._ended:
                self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Pass decrypted bytes to the protocol again, waiting ones not within this call."""
        if not self._paused or self._closing:
            return
        self._paused = False
        if not self._ended:
            self._raw.resume_reading()
        if not self._resumes and not self._reading:
            self._resumes = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resumes = False
        if not self._reading and not self._paused and not self._closing:
            self._read()

    def is_reading(self) -> bool:
        """Whether decrypted bytes are passed to the protocol."""
        return not self._paused and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass decrypted bytes to another protocol from now on. Bounded reads limit reads from the socket."""
        if isinstance(protocol, BoundedReads):
            self._protocol = protocol.protocol
            bound_reads(self._raw, cast(asyncio.Protocol, self), protocol.buffer, protocol.reads_little)
        else:
            self._protocol = cast(asyncio.Protocol, protocol)

    # -- the protocol calls: writing

    def write(self, data: bytes) -> None:
        """Encrypt `data` and write it to the client."""
        if self._closing:
            return
        write = self.tls.write
        try:
            if len(data) <= RECORD:
                if data:
                    write(data)
            else:  # a record at a time, each of which is written whole: `_outgoing` takes everything
                for start in range(0, len(data), RECORD):
                    write(data[start : start + RECORD])
        except ssl.SSLError:  # it was closed for writing
            self._break_off()
            return
        self._raw.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        """Whether one side can close alone: always True. A TLS 1.2 client, too, reads on after its close."""
        return True

    def write_eof(self) -> None:
        """Close the sending side: announce to the client that nothing more is written."""
        if not self._closing:
            self._send_close_notify()
            self._wrote_eof = True
            self._raw.write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the write buffer, in encrypted bytes: everything is encrypted at once."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Number of encrypted bytes that wait to be sent to the client."""
        return self._raw.get_write_buffer_size()

    # -- the end

    def is_closing(self) -> bool:
        """Whether the TLS connection is closing: nothing can be written any more."""
        return self._closing or self._raw.is_closing()

    def close(self) -> None:
        """Send what was written and close_notify, then close without awaiting the client's (RFC 8446 6.1)."""
        if not self._closing:
            self._send_close_notify()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        """Close the TLS connection at once, without close_notify."""
        self._closing = True
        self._raw.abort()

    def _send_close_notify(self) -> None:
        # OpenSSL reads here, too, and takes a whole record of content for a fatal error. But a client sends
        # until it hears of this close (RFC 8446 6.1), and its bytes are read on: they wait outside.
        unread = self._incoming.read()
        self._waiting = unread + self._waiting[self._taken :]
        self._taken = 0
        self._without_content -= len(unread)
        with suppress(ssl.SSLError):  # the client has not sent its own, or TLS has failed before
            self.tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            data = self._outgoing.read()
            # OpenSSL answers key updates even after its close_notify. Those answers are dropped.
            if not self._wrote_eof and not self._raw.is_closing():
                self._raw.write(data)

    def get_extra_info(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Information of the socket's transport, by `name`; `ssl_object` is OpenSSL's object."""
        return self.tls if name == "ssl_object" else self._raw.get_extra_info(name, default)
