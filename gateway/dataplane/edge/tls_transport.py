"""A transport for TLS between the socket's transport and a protocol. It is both: a protocol to the one, a
transport to the other.

    socket's transport -> data_received -> incoming bytes -> OpenSSL -> protocol.data_received
    protocol -> write -> OpenSSL -> outgoing bytes -> socket's transport

It differs from asyncio's own in what a proxy needs: the bytes before TLS were read by somebody else, a
half-closed connection may still be answered, closing waits for nobody, and it compiles. OpenSSL works on
memory, so nothing here blocks. Decides nothing about certificates.
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
"""Bytes of content that a record has at most (RFC 8446 5.1)."""
MAX_WITHOUT_CONTENT: Final = RECORD + 1024
"""Bytes from a client after which some must be content: more than a whole record (RFC 8446 5.2). OpenSSL
works off all other messages in one call: 256 KiB of key updates would hold the event loop for 0.4 s."""


@final
class TlsTransport:
    """TLS of one client connection, the server's side. An `asyncio.Transport` and an `asyncio.Protocol` by
    the methods that are called; it does not derive from these classes, so that it can be compiled."""

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
        """Called with a reason when the client breaks TLS after the handshake."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: asyncio.Protocol | None = None
        self._waiting = b""
        """What was read and is not decrypted, from `_taken` on."""
        self._taken = 0
        self._without_content = 0
        """Bytes that OpenSSL got since the last content."""
        self._is_1_3 = False
        """The version is TLS 1.3. Known at the end of the handshake."""
        self._paused = False
        self._reading = False
        """`_read` is running, perhaps further up the stack."""
        self._resumes = False
        """`_read` will run in this turn."""
        self._closing = False
        self._ended = False
        """The socket has ended. What has come before may still wait here."""
        self._eof = False
        """The client sends no more, and the protocol knows."""

    # -- the handshake: driven by `accept_phase`

    def feed(self, data: bytes) -> None:
        """Bytes of the socket, which `handshake` or `_read` will decrypt."""
        self._waiting = self._waiting[self._taken :] + data if self._waiting else data
        self._taken = 0

    def handshake(self) -> bool:
        """Go on with it; whether it is complete. Raises `ssl.SSLError`. What is to be sent is sent.

        In TLS 1.3 only session tickets are left in the end. They go with the first response: one write less.
        """
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if not self._take_some():
                    self._flush()
                    return False
            except ssl.SSLError:
                self._flush()  # the alert that says why
                raise
        self._without_content = 0
        self._is_1_3 = self.tls.version() == _TLS_1_3
        if not self._is_1_3:
            self._flush()
        return True

    def begin(self, protocol: asyncio.Protocol) -> None:
        """The handshake is complete: from here on `protocol` speaks."""
        self._raw.set_protocol(cast(asyncio.Protocol, self))
        self._protocol = protocol
        protocol.connection_made(cast(asyncio.Transport, self))
        self._read()

    # -- the socket's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Never called: the connection was made before."""

    def data_received(self, data: bytes) -> None:
        if self._eof or self._closing:  # what follows the end means nothing (RFC 8446 6.1), and is not kept
            return
        self.feed(data)
        if not self._reading and not self._paused:
            self._read()

    def eof_received(self) -> bool:
        """The client has closed its sending side, with or without saying so in TLS. What it has sent is
        framed by HTTP, so a cut shows there. What waits here is passed on before the end."""
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
        """Decrypt and pass on what is here, until the protocol does not want more."""
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
        """At most `READ_SIZE` bytes, and nothing if no whole record is here. Many records are passed on
        together: each call to the other side is a write there."""
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
            # Asking on in vain would raise an exception, which costs more than a record.
            if not incoming.pending and not self._take_some():
                break
        if self._outgoing.pending and not self._is_1_3:
            # In TLS 1.2 reading makes OpenSSL write nothing but the alert to a second ClientHello. The client
            # waits for that handshake (threats R3-V10).
            self._end_of_tls(pieces, broken=True)
            return b""
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take_some(self) -> bool:
        """Give OpenSSL the next bytes, about a record; False: none wait."""
        waiting, begin = self._waiting, self._taken
        end = begin + RECORD
        if not waiting:
            return False
        part = waiting[begin:end]
        self._incoming.write(part)
        self._without_content += len(part)
        if end < len(waiting):
            self._taken = end
        else:
            self._waiting, self._taken = b"", 0
        return True

    def _end_of_tls(self, pieces: list[bytes], *, broken: bool) -> None:
        """Pass on what came before, then tell the protocol, or break off."""
        self._pass_on(b"".join(pieces))
        if broken:
            self._break_off()
        else:
            self._on_eof()

    def _pass_on(self, data: bytes) -> None:
        if data and self._protocol is not None:
            self._protocol.data_received(data)

    def _on_eof(self) -> None:
        """Tell the protocol, which may keep the connection open for writing."""
        if self._eof or self._closing or self._protocol is None:
            return
        self._eof = True
        if not self._protocol.eof_received():
            self.close()

    def _break_off(self) -> None:
        """The client has broken TLS: it gets the alert, and the connection ends."""
        self._on_broken("tls_record")
        self._flush()
        self._closing = True
        self._raw.close()

    # -- the protocol calls: reading

    def pause_reading(self) -> None:
        """Pass on no more for now."""
        if not self._paused and not self._closing:
            self._paused = True
            if not self._eof and not self._ended:
                self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Pass on again; what is here already in a moment, not in this call."""
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
        """Whether what comes is passed on."""
        return not self._paused and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """From now on this one gets what is read. Bounded reads bound what is read from the socket."""
        if isinstance(protocol, BoundedReads):
            self._protocol = protocol.protocol
            bound_reads(self._raw, cast(asyncio.Protocol, self), protocol.buffer, protocol.reads_little)
        else:
            self._protocol = cast(asyncio.Protocol, protocol)

    # -- the protocol calls: writing

    def write(self, data: bytes) -> None:
        """Encrypt and write."""
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
        """TLS 1.3 can close one side alone, and a client of TLS 1.2 that has closed its own reads on."""
        return True

    def write_eof(self) -> None:
        """Say that nothing more is written."""
        if not self._closing:
            self._send_close_notify()
            self._raw.write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of encrypted bytes: everything is encrypted at once."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that wait."""
        return self._raw.get_write_buffer_size()

    # -- the end

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closing or self._raw.is_closing()

    def close(self) -> None:
        """Send what was written and the end of TLS, then close. The client's answer to that is not awaited
        (RFC 8446 6.1)."""
        if not self._closing:
            self._send_close_notify()
            self._closing = True
            self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._raw.abort()

    def _send_close_notify(self) -> None:
        with suppress(ssl.SSLError):  # the client has not said it, too; or TLS has failed before
            self.tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def get_extra_info(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Of the socket's transport; `ssl_object` is TLS itself."""
        return self.tls if name == "ssl_object" else self._raw.get_extra_info(name, default)
