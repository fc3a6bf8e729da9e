"""Finds the heads in a stream of HTTP/1.1 messages.

What it does: `MessageReader` gets the bytes of one direction of one connection and returns each head once. It
reads bodies only to skip them.

Rules: it is independent of the gateway's parser on purpose, because it must not share its mistakes. It never
changes, delays or drops a byte, and it does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and its field lines. Names are as they came, lookups ignore case."""

    start: str
    lines: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Every value of this field, in order."""
        return [value for known, value in self.lines if known.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The value of this field; several values are joined as in RFC 9110 5.2. None: it is missing."""
        return ", ".join(self.all(name)) or None if self.all(name) else None

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        start, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(start, tuple((name, value.strip()) for name, _, value in pairs))


class MessageReader:
    """One direction of one connection.

    `bodiless`: whether no body follows a head, whatever its fields say (responses to HEAD, 1xx, 204, 304).
    `until_close`: a head without framing has a body until the end of the connection (responses).
    """

    def __init__(self, bodiless: Callable[[Head], bool], *, until_close: bool) -> None:
        self._bodiless = bodiless
        self._until_close = until_close
        self._held = b""
        self._skip: int | None = 0  # bytes of the body that are still to come; None: all until the end
        self._chunked = False

    def feed(self, data: bytes) -> Iterator[Head]:
        """Return the heads that these bytes complete."""
        self._held += data
        while self._advance():
            raw, end, rest = self._held.partition(END_OF_HEAD)
            if not end:
                return
            self._held = rest
            head = Head.parse(raw.lstrip(b"\r\n"))
            self._expect_body_of(head)
            yield head

    def _expect_body_of(self, head: Head) -> None:
        coding = (head.get("Transfer-Encoding") or "").lower()
        length = head.get("Content-Length")
        self._skip, self._chunked = 0, False
        if self._bodiless(head):
            return
        if coding.endswith("chunked"):
            self._chunked = True
        elif length is not None:
            self._skip = int(length)
        elif self._until_close:
            self._skip = None

    def _advance(self) -> bool:
        """Drop the bytes of a body. True: the next bytes begin a head."""
        while True:
            if self._skip is None:
                self._held = b""
                return False
            gone = min(self._skip, len(self._held))
            self._held, self._skip = self._held[gone:], self._skip - gone
            if self._skip:
                return False
            if not self._chunked:
                return bool(self._held)
            if not self._read_chunk_size():
                return False

    def _read_chunk_size(self) -> bool:
        """Read one chunk-size line, or the trailer section after the last chunk. False: it is incomplete."""
        line, end, rest = self._held.partition(b"\r\n")
        if not end:
            return False
        size = int(line.split(b";")[0], 16)
        if size:
            self._held, self._skip = rest, size + 2
            return True
        # The last chunk: trailer fields up to an empty line.
        if rest.startswith(b"\r\n"):
            self._held = rest[2:]
        else:
            _, end, after = rest.partition(END_OF_HEAD)
            if not end:
                return False
            self._held = after
        self._chunked = False
        return True
