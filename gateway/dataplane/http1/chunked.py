"""The chunked transfer coding (RFC 9112 7.1): a strict decoder, and the encoder.

llhttp hides chunk extensions and cannot stop at the end of a message, so it is not used for bodies. Chunk
extensions and trailer fields are read, bounded and dropped (threats S7-S9, B9, B13). So is the overhead of
small chunks (threats R-B3). Runs of small chunks are read by regular expressions, not one by one in Python.
What is read does not depend on how the bytes were cut. Pure.
"""

from __future__ import annotations

import re
from typing import Final, final

from gateway.errors import FramingError

LAST_CHUNK: Final = b"0\r\n\r\n"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})((?:[ \t]*;[\t !-~\x80-\xff]+)?)\r\n")
_MAX_SIZE_LINE: Final = 256
_MAX_OVERHEAD: Final = 16 * 1024
"""Maximum bytes of chunk extensions and trailer section in one body."""
_MAX_EXCESS: Final = 256 * 1024
"""Maximum bytes of size lines and CRLFs in one body beyond twice the content of their chunks. Only chunks of
one or two bytes have such bytes: 87,381 chunks of one byte reach the limit. That is a day of a sender that
keeps its connection alive with a blank each second, and no stream of lines ever gets there."""
_FRAME: Final = len(b"\r\n\r\n")
"""Number of bytes in a chunk that are neither content nor digits of its size: two CRLFs."""
_EXCESS_OF_ONE: Final = 1 + _FRAME - 2 * 1
_EXCESS_OF_TWO: Final = 1 + _FRAME - 2 * 2

_SMALL_SIZES: Final = range(1, 16)
_ONE_BYTE_CHUNKS: Final = re.compile(rb"(?s:1\r\n.\r\n){2,}+")
_SMALL_CHUNKS: Final = re.compile(
    b"(?is:%b)++" % b"|".join(b"%x\r\n.{%d}\r\n" % (size, size) for size in _SMALL_SIZES)
)
_SMALL_CONTENT: Final = re.compile(
    b"(?is)[1-9a-f]\r\n(%b)\r\n" % b"|".join(b"(?<=%x\r\n).{%d}" % (size, size) for size in _SMALL_SIZES)
)
"""Pattern of each chunk's content in a run of small chunks (`_SMALL_CHUNKS`)."""

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILER: Final = 3
_INCOMPLETE: Final = -1


@final
class ChunkedDecoder:
    """Decodes chunked content as it arrives, up to the end of the body."""

    __slots__ = ("_buffer", "_excess", "_overhead", "_remaining", "_state", "done", "rest")

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        """Bytes after the chunked body: the next message, or garbage. Only valid when `done`."""
        self._buffer = b""
        self._remaining = 0
        self._overhead = 0
        self._excess = 0
        self._state = _SIZE

    def feed(self, data: bytes) -> bytes:
        """Decode the content in `data`. Raises `FramingError` for anything but exact chunked coding."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        content: list[bytes] = []
        position, end = 0, len(data)
        while position < end and not self.done:
            if self._state == _SIZE:
                after = self._read_chunks(data, position, content)
            elif self._state == _DATA:
                piece = data[position : position + self._remaining]
                content.append(piece)
                after = position + len(piece)
                self._remaining -= len(piece)
                if self._remaining == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                after = self._read_data_end(data, position)
            else:
                after = self._read_trailer_line(data, position)
            if after == _INCOMPLETE:
                self._buffer = data[position:]
                position = end
            else:
                position = after
        if self.done:
            self.rest = data[position:]
        return content[0] if len(content) == 1 else b"".join(content)

    # Each of these reads a part of `data` from `position`, and gives the position after it, or `_INCOMPLETE`.

    def _read_chunks(self, data: bytes, position: int, content: list[bytes]) -> int:
        """Read a run of whole small chunks, or one whole chunk, or a size line."""
        if data[position + 1 : position + 3] == b"\r\n":
            run = _ONE_BYTE_CHUNKS.match(data, position)
            if run is not None:
                ones = run[0][3::6]
                self._count_excess(_EXCESS_OF_ONE * len(ones))
                content.append(ones)
                return run.end()
            run = _SMALL_CHUNKS.match(data, position)
            if run is not None:
                pieces = _SMALL_CONTENT.findall(data, run.start(), run.end())
                sizes = list(map(len, pieces))
                self._count_excess(_EXCESS_OF_ONE * sizes.count(1) + _EXCESS_OF_TWO * sizes.count(2))
                content += pieces
                return run.end()
        line = _SIZE_LINE.match(data, position)
        after = line.end() if line is not None else len(data)
        if after - position > _MAX_SIZE_LINE or (line is None and b"\n" in data[position:]):
            raise FramingError("chunk")
        if line is None:
            return _INCOMPLETE
        digits, extension = line.groups()
        if extension:
            self._count_overhead(len(extension))
        size = int(digits, 16)
        if size == 0:
            self._state = _TRAILER
            return after
        excess = len(digits) + _FRAME - 2 * size
        if excess > 0:
            self._count_excess(excess)
        end = after + size
        if data[end : end + 2] == b"\r\n":
            content.append(data[after:end])
            return end + 2
        self._remaining = size
        self._state = _DATA
        return after

    def _read_data_end(self, data: bytes, position: int) -> int:
        end = data[position : position + 2]
        if len(end) < 2:
            return _INCOMPLETE
        if end != b"\r\n":
            raise FramingError("chunk")
        self._state = _SIZE
        return position + 2

    def _read_trailer_line(self, data: bytes, position: int) -> int:
        after = data.find(b"\n", position) + 1
        if not after:
            if len(data) - position > _MAX_OVERHEAD:
                raise FramingError("chunk")
            return _INCOMPLETE
        line = data[position:after]
        if line[-2:] != b"\r\n" or b"\r" in line[:-2] or b"\0" in line:
            raise FramingError("chunk")
        self._count_overhead(len(line))
        self.done = line == b"\r\n"
        return after

    def _count_overhead(self, overhead: int) -> None:
        self._overhead += overhead
        if self._overhead > _MAX_OVERHEAD:
            raise FramingError("chunk_overhead")

    def _count_excess(self, excess: int) -> None:
        # Never counted down by large chunks: then a run of chunks could not be counted at once.
        self._excess += excess
        if self._excess > _MAX_EXCESS:
            raise FramingError("chunk_overhead")


def encode_chunk(content: bytes) -> bytes:
    """Encode content as a chunk. Empty content gives nothing: a chunk of size 0 would end the body."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""
