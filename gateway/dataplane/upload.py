"""A request's body on its way in: small ones are held whole, larger ones stream.

Held bodies are sent with `Content-Length` (old servers refuse chunked ones, protocols real-servers 12) and
can be sent again; a chunked body that outgrows the limit stays chunked. Moves no byte itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from gateway.dataplane.chunked import LAST_CHUNK, ChunkedDecoder, chunk
from gateway.dataplane.fields import CHUNKED

if TYPE_CHECKING:
    from gateway.dataplane.fields import RequestFields


class BodyLimits(Protocol):
    """Bytes of a body that is accepted at all, and of one that is held."""

    @property
    def body(self) -> int: ...
    @property
    def replay_body(self) -> int: ...


@final
class Upload:
    """One request's body."""

    def __init__(self, block: RequestFields, limits: BodyLimits) -> None:
        self._limits = limits
        self._decoder = ChunkedDecoder() if block.framing == CHUNKED else None
        self._declared = block.length
        self._seen = 0
        self._pieces: list[bytes] = []
        self._taken = False
        self.done = False
        self.too_large = block.length > limits.body
        self.streams = block.length > limits.replay_body
        """True: it is passed on as it comes, and cannot be sent twice once some of it was taken."""

    @property
    def held(self) -> bool:
        """Whether all of it that has come is still here."""
        return not (self.streams and self._taken)

    def feed(self, data: bytes) -> bytes:
        """Take what arrived; returns what stands behind the body. Raises `FramingError`."""
        piece, rest = self._cut(data)
        self._seen += len(piece)
        if piece:
            self._pieces.append(piece)
        if self._decoder is not None:
            self.too_large = self._seen > self._limits.body
            # Once it is complete within the limit, its length is known and it need not stream.
            self.streams = self.streams or self._seen > self._limits.replay_body
        return rest

    def skip(self, data: bytes) -> bytes:
        """Read over what arrived; returns what stands behind the body. Raises `FramingError`."""
        piece, rest = self._cut(data)
        self._seen += len(piece)
        return rest

    def framing_line(self) -> bytes:
        """The header line that frames it towards the backend."""
        if self._decoder is None:
            return b"Content-Length: %d\r\n" % self._declared
        if self.streams:
            return b"Transfer-Encoding: chunked\r\n"
        return b"Content-Length: %d\r\n" % self._seen

    def take(self) -> bytes:
        """What is to be written to the backend now: of a held body all, of a streaming one what is new."""
        payload = b"".join(self._pieces)
        if not self.streams:
            self._pieces = [payload]
            return payload
        self._taken = True
        self._pieces = []
        if self._decoder is None:
            return payload
        return chunk(payload) + LAST_CHUNK if self.done else chunk(payload)

    def skippable(self) -> bool:
        """Whether the rest is small enough to be read over rather than closing the connection."""
        if self._decoder is not None:
            return self._seen <= self._limits.replay_body
        return self._declared - self._seen <= self._limits.replay_body

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """The body's part of `data`, and the rest."""
        if self._decoder is not None:
            piece = self._decoder.feed(data)
            self.done = self._decoder.done
            return piece, self._decoder.rest
        left = self._declared - self._seen
        self.done = len(data) >= left
        return data[:left], data[left:]
