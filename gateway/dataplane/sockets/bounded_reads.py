"""Reads from a connection in pieces of at most `READ_SIZE`, or of `SMALL_READ_SIZE` while memory is short.

uvloop reads up to 256 kB at a time, and from up to a thousand connections in one iteration. One such piece
waits for each slow client of a large response, and for each request body without a backend connection
(threats R-B13). So a backend connection reads this way from its first large response on, a client connection
from the first time that held bodies fill their total. It costs a third of a microsecond or more for each
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast, final

READ_SIZE: Final = 64 * 1024
SMALL_READ_SIZE: Final = 2 * 1024
"""Bytes of a short read: nearly every request head fits, and a body's part before its backend connection."""


@final
class BoundedReads(asyncio.BufferedProtocol):
    """Protocol between a transport and its protocol that reads into a bounded buffer. `buffer`: at least one
    byte, shared by all connections of an event loop, because what was read is copied at once. `reads_little`:
    asked before each read."""

    __slots__ = ("buffer", "protocol", "reads_little")

    def __init__(
        self, protocol: asyncio.Protocol, buffer: bytearray, reads_little: Callable[[], bool] | None
    ) -> None:
        self.protocol = protocol
        self.buffer = buffer
        self.reads_little = reads_little

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        if self.reads_little is not None and self.reads_little():
            return memoryview(self.buffer)[:SMALL_READ_SIZE]
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.protocol.data_received(bytes(memoryview(self.buffer)[:nbytes]))

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


def read_to_the_end(transport: asyncio.Transport) -> None:
    """Make uvloop's TLS read no further while bytes are not passed on yet: otherwise it drops them when the
    connection ends. For a connection that was just made. `bound_reads` must not be called for it: the bytes
    would be dropped nevertheless."""
    cast(Any, transport).set_read_buffer_limits(high=1)


def bound_reads(
    transport: asyncio.Transport,
    protocol: asyncio.Protocol,
    buffer: bytearray,
    reads_little: Callable[[], bool] | None = None,
) -> None:
    """Bound a connection's reads: `protocol` gets at most as much at once as `buffer` holds, and at most
    `SMALL_READ_SIZE` while `reads_little` is true. Reading that goes on is started anew, because a loop
    chooses the kind of read then."""
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(BoundedReads(protocol, buffer, reads_little))
    if reading:
        transport.resume_reading()
