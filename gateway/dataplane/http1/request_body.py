"""The body of a request on its way in: a small one is held whole, a larger one streams.

A held body is sent with `Content-Length` (old servers refuse chunked ones; semantics, Sending), and can be
sent again. A chunked body that outgrows the limit stays chunked. Reads and writes no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from gateway.dataplane.http1.chunked import LAST_CHUNK, ChunkedDecoder, encode_chunk
from gateway.dataplane.http1.fields import CHUNKED

if TYPE_CHECKING:
    from gateway.core.fleet.limits import Limits
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.telemetry.request_record import RequestRecord


SMALL_PIECE: Final = 1024
"""Bytes up to which pieces of a body are joined: it may come a byte at a time."""


@final
class HeldBodies:
    """Memory of all request bodies of one worker (threats R-B13): bodies held to be sent again, and received
    parts of streaming ones without a backend connection. `total`: bytes beyond which further bodies stream,
    and little of them is read before it can be sent."""

    def __init__(self, total: int) -> None:
        self._total = total
        self.on_full: Callable[[], None] | None = None
        self.size = 0
        """Bytes of request bodies that are held now."""
        self.was_full = False
        """Whether held bodies were more than the total, and not at most half of it at a tick since. `on_full`
        was called then; it visits every client, so it is not called for each body."""

    @property
    def full(self) -> bool:
        """Whether the held request bodies are more than their total."""
        return self.size > self._total

    def add(self, size: int) -> None:
        """Count further held bytes of a request body."""
        self.size += size
        if self.size > self._total and not self.was_full:
            self.was_full = True
            if self.on_full is not None:
                self.on_full()

    def tick(self) -> None:
        """Reset `was_full` when the held bodies take at most half of their total."""
        if self.size <= self._total // 2:
            self.was_full = False


@final
class RequestBody:
    """The body of one request."""

    def __init__(self, request: RequestHead, limits: Limits, held: HeldBodies) -> None:
        self.limits = limits
        self._held = held
        self._size = 0
        self._decoder = ChunkedDecoder() if request.framing == CHUNKED else None
        self._chunked = False
        """Whether the body is sent chunked: its length was unknown when its first byte was sent."""
        self._declared = request.length
        self._received = 0
        self._pieces: list[bytes] = []
        self._sent = False
        self.done = False
        self.too_large = request.length > limits.body
        self.streams = request.length > limits.replay_body
        """Whether the body is forwarded as it comes. It cannot be sent again once a part was sent."""

    @property
    def replayable(self) -> bool:
        """Whether everything that has come of the body is still held."""
        return not (self.streams and self._sent)

    def feed(self, data: bytes) -> bytes:
        """Take body bytes as they arrive; returns the bytes after the body. Raises `FramingError`."""
        piece, rest = self._split(data)
        self._received += len(piece)
        if piece:
            # Small ones are joined: each object costs as much as 33 bytes of content.
            if self._pieces and len(self._pieces[-1]) < SMALL_PIECE:
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)
            self._size += len(piece)
            self._held.add(len(piece))
        if self._decoder is not None:
            self.too_large = self._received > self.limits.body
            self.streams = self.streams or self._received > self.limits.replay_body
        if self._held.full:  # other bodies hold too much
            self.streams = True
        return rest

    def skip(self, data: bytes) -> bytes:
        """Discard body bytes as they arrive; returns the bytes after the body. Raises `FramingError`."""
        piece, rest = self._split(data)
        self._received += len(piece)
        return rest

    def framing_line(self) -> bytes:
        """Field line that frames the body for the backend. A small body that has come whole has a length,
        even if it came chunked: old servers refuse chunked ones."""
        if self._decoder is None:
            return b"Content-Length: %d\r\n" % self._declared
        self._chunked = not self.done or self._received > self.limits.replay_body
        if self._chunked:
            return b"Transfer-Encoding: chunked\r\n"
        return b"Content-Length: %d\r\n" % self._received

    def data_to_send(self) -> bytes:
        """Bytes to write to the backend now: a held body whole, of a streaming one the new part."""
        content = b"".join(self._pieces)
        if not self.streams:
            self._pieces = [content]
            return content
        self._sent = True
        self.release()
        if not self._chunked:
            return content
        return encode_chunk(content) + LAST_CHUNK if self.done else encode_chunk(content)

    def release(self) -> None:
        """Release the held bytes of the body."""
        self._pieces = []
        self._held.size -= self._size
        self._size = 0

    def end(self, record: RequestRecord) -> None:
        """Record how much of the body has come, and release what is held."""
        record.bytes_in += self._received
        self.release()

    def skippable(self) -> bool:
        """Whether the rest of the body is small enough to be discarded; else the connection is closed."""
        if self._decoder is not None:
            return self._received <= self.limits.replay_body
        return self._declared - self._received <= self.limits.replay_body

    def _split(self, data: bytes) -> tuple[bytes, bytes]:
        if self._decoder is not None:
            piece = self._decoder.feed(data)
            self.done = self._decoder.done
            return piece, self._decoder.rest
        left = self._declared - self._received
        self.done = len(data) >= left
        return data[:left], data[left:]
