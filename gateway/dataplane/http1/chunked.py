"""The chunked transfer coding (RFC 9112 7.1): a strict decoder, and the encoder.

llhttp hides chunk extensions and cannot stop at the end of a message, so it is not used for bodies. Chunk
extensions and trailer fields are read, bounded and dropped (threats S7-S9, B9, B13). Pure.
"""

from __future__ import annotations

import re
from typing import Final, final

from gateway.errors import FramingError

LAST_CHUNK: Final = b"0\r\n\r\n"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})((?:[ \t]*;[\t !-~\x80-\xff]+)?)")
_MAX_SIZE_LINE: Final = 256
_MAX_OVERHEAD: Final = 16 * 1024
"""Bytes of chunk extensions and trailer section in one body."""

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILER: Final = 3


@final
class ChunkedDecoder:
    """Takes bytes as they arrive and gives the content; after the last chunk, the bytes after the body."""

    __slots__ = ("_buffer", "_overhead", "_remaining", "_state", "done", "rest")

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        """The bytes after the body: the next message, or garbage. Only valid when `done`."""
        self._buffer = b""
        self._remaining = 0
        self._overhead = 0
        self._state = _SIZE

    def feed(self, data: bytes) -> bytes:
        """The content in `data`. Raises `FramingError` for anything but exact chunked coding."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        content: list[bytes] = []
        position = 0
        while not self.done:
            if self._state == _DATA:
                piece = data[position : position + self._remaining]
                if not piece:
                    break
                content.append(piece)
                position += len(piece)
                self._remaining -= len(piece)
                if self._remaining == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                if len(data) - position < 2:
                    self._buffer_line(data[position:])
                    position = len(data)
                    break
                if data[position : position + 2] != b"\r\n":
                    raise FramingError("chunk")
                position += 2
                self._state = _SIZE
            else:
                end = data.find(b"\n", position)
                if end < 0:
                    self._buffer_line(data[position:])
                    position = len(data)
                    break
                self._read_line(data[position : end + 1])
                position = end + 1
        if self.done:
            self.rest = data[position:]
        return content[0] if len(content) == 1 else b"".join(content)

    def _buffer_line(self, part: bytes) -> None:
        """Keep the beginning of a line until its end arrives."""
        if len(part) > (_MAX_SIZE_LINE if self._state == _SIZE else _MAX_OVERHEAD):
            raise FramingError("chunk")
        self._buffer = part

    def _read_line(self, line: bytes) -> None:
        """Read the size line of a chunk, or a line of the trailer section, with its CRLF."""
        if line[-2:] != b"\r\n" or b"\r" in line[:-2] or b"\0" in line:
            raise FramingError("chunk")
        text = line[:-2]
        if self._state == _TRAILER:
            self._count_overhead(len(line))
            self.done = not text
            return
        match = _SIZE_LINE.fullmatch(text) if len(line) <= _MAX_SIZE_LINE else None
        if match is None:
            raise FramingError("chunk")
        self._count_overhead(len(match[2]))
        self._remaining = int(match[1], 16)
        self._state = _DATA if self._remaining else _TRAILER

    def _count_overhead(self, overhead: int) -> None:
        self._overhead += overhead
        if self._overhead > _MAX_OVERHEAD:
            raise FramingError("chunk_overhead")


def encode_chunk(content: bytes) -> bytes:
    """One chunk; empty for empty content, because a chunk of size 0 would end the body."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""
