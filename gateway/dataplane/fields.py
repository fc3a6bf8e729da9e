"""The block of fields in a head: which of them matter to us, and what they say about the body and the
connection.

Fields that mean nothing to us are never looked at one by one: they stay the run of bytes in which they came.
What a block may hold at all is `http1`'s grammar, checked before; nothing here knows a version or a socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, final

from gateway.core.message import UNLISTABLE, Header, fold
from gateway.dataplane import names
from gateway.dataplane.names import NameTable
from gateway.errors import FramingError

NO_BODY: Final = 0
BY_LENGTH: Final = 1
CHUNKED: Final = 2
UNTIL_CLOSE: Final = 3

BLANKS: Final = b" \t"
HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_MOST_DIGITS: Final = 18
"""Of a length; more than any machine holds, less than a 64-bit integer."""
_KNOWN_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"identity"})
PSEUDONYM: Final = b"skewgate"
MAX_LOOPS: Final = 8
"""How often our own name may stand in `Via` before we call it a loop (508, hardening H9): nested gateways are
legal."""
KEEP_ALIVE: Final = [b"keep-alive"]
_KEEPS: Final = frozenset({"keep-alive"})


def is_host(text: bytes) -> bool:
    """Whether this can stand in Host: a name or address, perhaps a port; no userinfo, path or list."""
    return HOST.fullmatch(text) is not None


class Fields:
    """What the blocks of requests and replies have in common."""

    kept: bytes
    """Fields that go on as they came, each with its CRLF; begins with the CRLF of the line before."""
    apart: tuple[bytes, ...]
    """Those set apart for a dialect: name, value, name, value, as they came. Equal for equal fields: a
    key."""
    framing: int
    length: int
    """Of the body, in bytes; -1: not told."""
    tokens: frozenset[str]
    """What `Connection` says, in lower case."""

    table: NameTable
    _length: bytes | None
    _coding: bytes | None
    _listed: list[bytes]

    def _cut(self, head: bytes, start: int, table: NameTable) -> Iterator[tuple[bytes, bytes]]:
        """Cut the fields that matter out of a clean head, whose block of fields starts with the CRLF at
        `start`; gives their names and values."""
        self.table = table
        self._length = self._coding = None
        self._listed = []
        parts = table.pattern.split(head)
        self.kept = b"".join(parts[::3])[start:-2]
        return zip(parts[1::3], parts[2::3], strict=True)

    def _common(self, kind: int, value: bytes) -> None:
        """The fields that frame a message, in either direction."""
        if kind == names.LENGTH:
            if self._length is not None:
                raise FramingError("content_length")
            self._length = value
        elif kind == names.CODING:
            if self._coding is not None:
                raise FramingError("transfer_encoding")
            self._coding = value.strip(BLANKS).lower()
        elif kind == names.CONNECTION:
            self._listed.append(value.strip(BLANKS))

    @property
    def pairs(self) -> tuple[Header, ...]:
        """The fields set apart, names folded: what dialects read."""
        apart = self.apart
        return tuple(
            (fold(name.decode()), value.strip(BLANKS).decode("latin-1"))
            for name, value in zip(apart[::2], apart[1::2], strict=True)
        )

    def _read_length(self) -> int:
        """The body's length in bytes. Sign, blanks, lists and non-ASCII digits are refused (hardening S3,
        S4)."""
        assert self._length is not None
        digits = self._length.rstrip(BLANKS)
        if not digits.isdigit() or len(digits) > _MOST_DIGITS:  # of bytes, so ASCII digits only
            raise FramingError("content_length")
        return int(digits)

    def _take_off_listed(self) -> frozenset[str]:
        """Remove the fields that `Connection` names; gives its tokens (RFC 9110 7.6.1)."""
        if self._listed == KEEP_ALIVE:
            return _KEEPS
        tokens = frozenset(
            item.strip().lower() for value in self._listed for item in value.decode("latin-1").split(",")
        )
        others = {fold(token) for token in tokens} - {"close", "keep-alive", "", "te", "upgrade"}
        if others & UNLISTABLE or others & self.table.apart:
            raise FramingError("connection_listed")
        if others:
            lines = self.kept.split(b"\r\n")
            self.kept = b"\r\n".join(
                line for line in lines if fold(line.partition(b":")[0].decode("latin-1")) not in others
            )
        return tokens

    def drop(self, fields: re.Pattern[bytes]) -> None:
        """Take these fields (`names.fields_named`) off those that go on."""
        self.kept = fields.sub(b"", self.kept)


@final
class RequestFields(Fields):
    """The fields of one request; the same for every request whose block is the same to the byte."""

    def __init__(self, block: bytes, table: NameTable) -> None:
        self.hosts: list[bytes] = []
        self.forwarded: list[tuple[str, bytes]] = []
        """Fields that speak of the client (folded name, value), to be believed from trusted peers only."""
        self.via: list[bytes] = []
        self.expects = b""
        self.told: dict[str, bytes] = {}
        """What goes to a backend for this block, by the prefix taken off (`forwarding.Peer.tail`)."""
        apart: list[bytes] = []
        for name, value in self._cut(block, 0, table):
            kind = table[name]
            if kind == names.APART:
                apart += (name, value.rstrip(BLANKS))  # a key: blanks would make it long and say nothing
            elif kind == names.HOST:
                self.hosts.append(value.strip(BLANKS))
            elif kind == names.FORWARDED:
                self.forwarded.append((fold(name.decode()), value.strip(BLANKS)))
            elif kind == names.VIA:
                self.via.append(value.strip(BLANKS))
            elif kind == names.EXPECT:
                self.expects = b"?" if self.expects else value.strip(BLANKS).lower()
            else:
                self._common(kind, value)
        self.apart = tuple(apart)
        self.tokens = self._take_off_listed() if self._listed else frozenset()
        self.closes = "close" in self.tokens
        self._frame()

    def _frame(self) -> None:
        """Whether a body follows, and how it ends (RFC 9112 6.3; hardening S1, S2)."""
        if len(self.hosts) > 1 or (self.hosts and not is_host(self.hosts[0])):
            raise FramingError("host")
        self.host = self.hosts[0].decode() if self.hosts else ""
        self.framing, self.length = NO_BODY, 0
        if self._coding is not None:
            if self._length is not None:
                raise FramingError("smuggling")
            if self._coding != b"chunked":
                raise FramingError("transfer_encoding", 501 if self._coding in _KNOWN_CODINGS else 400)
            self.framing, self.length = CHUNKED, -1
        elif self._length is not None:
            self.length = self._read_length()
            self.framing = BY_LENGTH if self.length else NO_BODY
        if sum(value.lower().count(PSEUDONYM) for value in self.via) >= MAX_LOOPS:
            raise FramingError("loop", 508)
        if self.expects and self.expects != b"100-continue":
            raise FramingError("expect", 417)
