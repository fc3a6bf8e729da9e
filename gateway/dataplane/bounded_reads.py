"""Reads from a connection in pieces of at most `READ_SIZE`.

uvloop reads up to 256 kB at a time. Of a large response that a slow client takes, one such piece waits for
each client (threats R-B13). A connection reads this way from its first large response on, and not before: it
costs a third of a microsecond for each read. Knows nothing about what it reads.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

READ_SIZE: Final = 64 * 1024


@final
class BoundedReads(asyncio.BufferedProtocol):
    """Stands between a transport and its protocol. `buffer`: at least one byte, shared by all connections of
    an event loop, because what was read is copied at once."""

    def __init__(self, protocol: asyncio.Protocol, buffer: bytearray) -> None:
        self._protocol = protocol
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def bound_reads(transport: asyncio.Transport, protocol: asyncio.Protocol, buffer: bytearray) -> None:
    """From now on `protocol` gets at most as much at once as `buffer` holds.

    A loop chooses the kind of read when reading starts, so reading that goes on is started anew.
    """
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(BoundedReads(protocol, buffer))
    if reading:
        transport.resume_reading()
