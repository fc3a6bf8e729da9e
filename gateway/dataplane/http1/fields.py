"""The field section of a head: which fields matter to the gateway, and how they frame the content.

The other fields are not parsed one by one: their bytes are forwarded unchanged. The grammar of the lines was
checked before, by `heads`. Nothing here depends on API versions or sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, final

from gateway.core.http.message import UNLISTABLE, Header, normalize_name
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

NO_BODY: Final = 0
BY_LENGTH: Final = 1
CHUNKED: Final = 2
UNTIL_CLOSE: Final = 3

OWS: Final = b" \t"
"""Optional whitespace (RFC 9110 5.6.3)."""
HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_MAX_LENGTH_DIGITS: Final = 18
"""Digits of a `Content-Length`: enough for any real body, and the number fits in 63 bits."""
_KNOWN_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"identity"})
PSEUDONYM: Final = b"skewgate"
"""The name of the gateway in `Via`, in lower case (RFC 9110 7.6.3)."""
MAX_LOOPS: Final = 8
"""A request whose `Via` contains the gateway's name this often is refused as a loop (508, threats H9). Fewer
times are legal: gateways may be nested."""
KEEP_ALIVE_VALUES: Final = [b"keep-alive"]
_KEEP_ALIVE_OPTIONS: Final = frozenset({"keep-alive"})


def is_host(text: bytes) -> bool:
    """Whether `text` is valid in `Host`: a name or address, perhaps a port; no userinfo, path or list."""
    return HOST.fullmatch(text) is not None


class FieldSection:
    """What the field sections of requests and responses have in common."""

    passthrough: bytes
    """The field lines that are forwarded as they came, each with its CRLF. Begins with the CRLF of the line
    before."""
    selected: tuple[bytes, ...]
    """The fields that some dialect reads or owns: name, value, name, value. Names keep their case; request
    values have no blanks around them. Part of cache keys."""
    framing: int
    """One of the four constants above."""
    length: int
    """Bytes of content; -1: unknown."""
    connection_options: frozenset[str]
    """The options in `Connection`, in lower case."""

    table: NameTable
    _length_value: bytes | None
    _coding_value: bytes | None
    _connection_values: list[bytes]

    def _select_fields(self, head: bytes, start: int, table: NameTable) -> Iterator[tuple[bytes, bytes]]:
        """Cut the fields that matter out of a checked head; gives their names and values.

        The field section starts with the CRLF at `start`.
        """
        self.table = table
        self._length_value = self._coding_value = None
        self._connection_values = []
        parts = table.pattern.split(head)
        self.passthrough = b"".join(parts[::3])[start:-2]
        return zip(parts[1::3], parts[2::3], strict=True)

    def _read_framing_field(self, kind: int, value: bytes) -> None:
        """Take the value of a field that frames messages, in either direction."""
        if kind == names.LENGTH:
            if self._length_value is not None:
                raise FramingError("content_length")
            self._length_value = value
        elif kind == names.CODING:
            if self._coding_value is not None:
                raise FramingError("transfer_encoding")
            self._coding_value = value.strip(OWS).lower()
        elif kind == names.CONNECTION:
            self._connection_values.append(value.strip(OWS))

    @property
    def selected_fields(self) -> tuple[Header, ...]:
        """The selected fields with normalized names, as dialects read them."""
        selected = self.selected
        return tuple(
            (name.decode().lower(), value.strip(OWS).decode("latin-1"))
            for name, value in zip(selected[::2], selected[1::2], strict=True)
        )

    def _read_length(self) -> int:
        """The length of the content in bytes.

        Signs, blanks inside, lists and non-ASCII digits are refused (threats S3, S4).
        """
        assert self._length_value is not None
        digits = self._length_value.rstrip(OWS)
        if not digits.isdigit() or len(digits) > _MAX_LENGTH_DIGITS:  # bytes.isdigit: ASCII only
            raise FramingError("content_length")
        return int(digits)

    def _remove_listed_fields(self) -> frozenset[str]:
        """Remove the fields that `Connection` lists; returns its options (RFC 9110 7.6.1).

        Raises `FramingError` if it lists a field that must not be removed.
        """
        if self._connection_values == KEEP_ALIVE_VALUES:
            return _KEEP_ALIVE_OPTIONS
        options = frozenset(
            item.strip().lower()
            for value in self._connection_values
            for item in value.decode("latin-1").split(",")
        )
        listed = {normalize_name(option) for option in options} - {"close", "keep-alive", "", "te", "upgrade"}
        if listed & UNLISTABLE or listed & self.table.selected:
            raise FramingError("connection_listed")
        if listed:
            lines = self.passthrough.split(b"\r\n")
            self.passthrough = b"\r\n".join(
                line
                for line in lines
                if normalize_name(line.partition(b":")[0].decode("latin-1")) not in listed
            )
        return options

    def remove_fields(self, pattern: re.Pattern[bytes]) -> None:
        """Remove the fields that `pattern` (`names.fields_named`) matches from those that are forwarded."""
        self.passthrough = pattern.sub(b"", self.passthrough)


@final
class RequestFieldSection(FieldSection):
    """The field section of a request. Requests of one connection whose field sections have the same
    bytes may share one object."""

    def __init__(self, field_section: bytes, table: NameTable) -> None:
        self.hosts: list[bytes] = []
        self.forwarded: list[tuple[str, bytes]] = []
        """Fields that describe the client (normalized name, value). They are used from trusted peers only."""
        self.request_ids: list[tuple[str, bytes, bytes]] = []
        """Fields in which some dialect has request ids (normalized name, name, value)."""
        self.via: list[bytes] = []
        self.expectation = b""
        """The value of `Expect`, in lower case; `?` for more than one."""
        self.upstream_fields_by_prefix: dict[str, bytes] = {}
        """The field lines for backends, by the removed path prefix; filled by `Peer.upstream_fields`."""
        selected: list[bytes] = []
        for name, value in self._select_fields(field_section, 0, table):
            kind = table[name]
            if kind == names.SELECTED:
                selected += (name, value.rstrip(OWS))  # in cache keys: no blanks
            elif kind == names.HOST:
                self.hosts.append(value.strip(OWS))
            elif kind == names.FORWARDED:
                self.forwarded.append((name.decode().lower(), value.strip(OWS)))
            elif kind == names.REQUEST_ID:
                self.request_ids.append((name.decode().lower(), name, value.strip(OWS)))
            elif kind == names.VIA:
                self.via.append(value.strip(OWS))
            elif kind == names.EXPECT:
                self.expectation = b"?" if self.expectation else value.strip(OWS).lower()
            else:
                self._read_framing_field(kind, value)
        self.selected = tuple(selected)
        self.connection_options = self._remove_listed_fields() if self._connection_values else frozenset()
        if (
            self.request_ids
            and self.connection_options
            and self.connection_options is not _KEEP_ALIVE_OPTIONS
        ):
            listed = frozenset(map(normalize_name, self.connection_options))
            self.request_ids = [one for one in self.request_ids if one[0] not in listed]
        self.closes = "close" in self.connection_options
        self._check()

    def request_id(self, name: str) -> str:
        """The value of the field `name` (normalized), if there is exactly one; else empty."""
        values = [value for found, _, value in self.request_ids if found == name]
        return values[0].decode("latin-1") if len(values) == 1 else ""

    def request_id_lines(self, but: str = "") -> bytes:
        """The fields with request ids, for services that have no ids, or none in these fields. Without the
        field `but` (normalized)."""
        others = [one for one in self.request_ids if one[0] != but]
        return b"".join([b"%b: %b\r\n" % (name, value) for _, name, value in others]) if others else b""

    def _check(self) -> None:
        """Check `Host`, `Via`, `Expect` and the framing (RFC 9112 6.3; threats S1, S2), and set `host`,
        `framing` and `length`. Raises `FramingError`."""
        if len(self.hosts) > 1 or (self.hosts and not is_host(self.hosts[0])):
            raise FramingError("host")
        self.host = self.hosts[0].decode() if self.hosts else ""
        self.framing, self.length = NO_BODY, 0
        if self._coding_value is not None:
            if self._length_value is not None:
                raise FramingError("smuggling")
            if self._coding_value != b"chunked":
                raise FramingError("transfer_encoding", 501 if self._coding_value in _KNOWN_CODINGS else 400)
            self.framing, self.length = CHUNKED, -1
        elif self._length_value is not None:
            self.length = self._read_length()
            self.framing = BY_LENGTH if self.length else NO_BODY
        if sum(value.lower().count(PSEUDONYM) for value in self.via) >= MAX_LOOPS:
            raise FramingError("loop", 508)
        if self.expectation and self.expectation != b"100-continue":
            raise FramingError("expect", 417)
