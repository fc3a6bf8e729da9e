"""Reading HTTP/1.1 as it passes: where a message's head ends and where its body does.

What it does: `MessageReader` is fed the bytes of one direction of one connection and hands back each
head, once. It knows bodies only well enough to skip them.

Rules: independent of the gateway's own parser on purpose, or a mistake there would be invisible here. It
never changes, delays or drops a byte, and it does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and its header lines; names as they came, lookups without case."""

    start: str
    lines: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Every value of this header, in order."""
        return [value for known, value in self.lines if known.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The one value of this header, None without it; several are joined as HTTP reads them."""
        return ", ".join(self.all(name)) or None if self.all(name) else None

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        start, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(start, tuple((name, value.strip()) for name, _, value in pairs))


class MessageReader:
    """One direction of one connection.

    `bodiless` says of a head that no body follows whatever its headers claim (replies to HEAD, 1xx, 204,
    304); `until_close` that a head without any framing means "until the connection ends" (replies)."""

    def __init__(self, bodiless: Callable[[Head], bool], *, until_close: bool) -> None:
        self._bodiless = bodiless
        self._until_close = until_close
        self._held = b""
        self._skip: int | None = 0  # bytes of body still to come; None: all that follows
        self._chunked = False

    def feed(self, data: bytes) -> Iterator[Head]:
        """The heads that these bytes complete."""
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
        """Throw away what belongs to the body; True when the next bytes begin a head."""
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
        """Take one chunk-size line (or the trailer after the last one); False when it is not all there."""
        line, end, rest = self._held.partition(b"\r\n")
        if not end:
            return False
        size = int(line.split(b";")[0], 16)
        if size:
            self._held, self._skip = rest, size + 2
            return True
        # The last chunk: trailer lines up to an empty one.
        if rest.startswith(b"\r\n"):
            self._held = rest[2:]
        else:
            _, end, after = rest.partition(END_OF_HEAD)
            if not end:
                return False
            self._held = after
        self._chunked = False
        return True
