"""Bodies in chunks: a strict decoder, because llhttp hides extensions and cannot stop at the end of a
message.

RFC 9112 7.1. Extensions and trailers are read, bounded and dropped (hardening S7-S9, B9, B13). Pure.
"""

from __future__ import annotations

import re
from typing import Final, final

from gateway.errors import FramingError

LAST_CHUNK: Final = b"0\r\n\r\n"
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})((?:[ \t]*;[\t !-~\x80-\xff]+)?)")
_MAX_SIZE_LINE: Final = 256
_MAX_OVERHEAD: Final = 16 * 1024
"""Bytes of extensions and trailers in one body."""

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILER: Final = 3


@final
class ChunkedDecoder:
    """Feed it what arrives; it gives the payload, and after the last chunk the bytes behind the message."""

    __slots__ = ("_buffer", "_left", "_overhead", "_state", "done", "rest")

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        """What came behind the message: the next request, or nonsense. Only valid when `done`."""
        self._buffer = b""
        self._left = 0
        self._overhead = 0
        self._state = _SIZE

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`. Raises `FramingError` for anything that is not exactly chunked."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        payload: list[bytes] = []
        at = 0
        while not self.done:
            if self._state == _DATA:
                piece = data[at : at + self._left]
                if not piece:
                    break
                payload.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                if len(data) - at < 2:
                    self._keep(data[at:])
                    at = len(data)
                    break
                if data[at : at + 2] != b"\r\n":
                    raise FramingError("chunk")
                at += 2
                self._state = _SIZE
            else:
                end = data.find(b"\n", at)
                if end < 0:
                    self._keep(data[at:])
                    at = len(data)
                    break
                self._line(data[at : end + 1])
                at = end + 1
        if self.done:
            self.rest = data[at:]
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _keep(self, tail: bytes) -> None:
        if len(tail) > (_MAX_SIZE_LINE if self._state == _SIZE else _MAX_OVERHEAD):
            raise FramingError("chunk")
        self._buffer = tail

    def _line(self, line: bytes) -> None:
        """A chunk's size line, or a line of the trailer section; both with their line end."""
        if line[-2:] != b"\r\n" or b"\r" in line[:-2] or b"\0" in line:
            raise FramingError("chunk")
        content = line[:-2]
        if self._state == _TRAILER:
            self._count(len(line))
            self.done = not content
            return
        match = _SIZE_LINE.fullmatch(content) if len(line) <= _MAX_SIZE_LINE else None
        if match is None:
            raise FramingError("chunk")
        self._count(len(match[2]))
        self._left = int(match[1], 16)
        self._state = _DATA if self._left else _TRAILER

    def _count(self, overhead: int) -> None:
        self._overhead += overhead
        if self._overhead > _MAX_OVERHEAD:
            raise FramingError("chunk_overhead")


def chunk(payload: bytes) -> bytes:
    """One chunk; empty for an empty payload, which would end the message."""
    return b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""
