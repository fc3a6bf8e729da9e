"""The field section of a head: which fields matter to the gateway, and how they frame the content.

The other fields are not parsed one by one: their bytes are forwarded unchanged. The grammar of the lines was
checked before, by `heads`. Nothing here depends on API versions or sockets.
"""

from __future__ import annotations

import re
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
_NAME: Final = rb"[A-Za-z0-9._~!$&'()*+;=-]"
HOST: Final = re.compile(
    b"(?:%b{1,255}" % _NAME
    + b"|(?:%b|%%[89A-Fa-f][0-9A-Fa-f]){1,255}" % _NAME
    + rb"|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{0,5})?"
)
"""Host and port (RFC 3986 3.2.2), of at most 255 characters and five digits. Percent-encoding is for UTF-8
alone, as that RFC asks of those who write it: an encoded `.` or `/` is another name to a reader that decodes
it. A comma makes a list of two Hosts to readers that join lines (RFC 9110 5.3). No character here needs an
escape in JSON. Names without an escape are most, so they are tried first."""
_MAX_LENGTH_DIGITS: Final = 18
"""Digits of a `Content-Length`: enough for any real body, and the number fits in 63 bits."""
_KNOWN_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"identity"})
PSEUDONYM: Final = b"skewgate"
"""The name of the gateway in `Via`, in lower case (RFC 9110 7.6.3)."""
MAX_LOOPS: Final = 8
"""A request whose `Via` contains the gateway's name this often is refused as a loop (508, threats H9). Fewer
times are legal: gateways may be nested."""
KEEP_ALIVE_VALUES: Final = [b"keep-alive"]
KEEP_ALIVE_OPTIONS: Final = frozenset({"keep-alive"})
NO_OPTIONS: Final[frozenset[str]] = frozenset()


def is_host(text: bytes) -> bool:
    """Whether `text` is valid in `Host`: a name or address, perhaps a port; no userinfo, path or list."""
    return HOST.fullmatch(text) is not None


@final
class RequestFieldSection:
    """The field section of a request: a value. Requests of one connection whose field sections have the same
    bytes share one object."""

    __slots__ = (
        "closes",
        "connection_options",
        "expectation",
        "forwarded",
        "framing",
        "host",
        "length",
        "max_forwards",
        "passthrough",
        "request_ids",
        "selected",
        "table",
        "via",
    )

    passthrough: bytes
    """The field lines that are forwarded as they came, each with its CRLF. Begins with the CRLF of the line
    before."""
    selected: tuple[bytes, ...]
    """The fields that some dialect reads or owns: name, value, name, value. Names keep their case; values
    have no blanks around them. Part of cache keys."""
    framing: int
    """One of the constants above, but `UNTIL_CLOSE`."""
    length: int
    """Bytes of content; -1: unknown."""
    host: str
    """As it came; empty if there is none."""
    connection_options: frozenset[str]
    """The options in `Connection`, in lower case."""
    forwarded: list[tuple[str, bytes]]
    """Fields that describe the client (normalized name, value). They are used from trusted peers only."""
    request_ids: list[tuple[str, bytes, bytes]]
    """Fields in which some dialect has request ids (normalized name, name, value)."""
    via: list[bytes]
    max_forwards: list[tuple[bytes, bytes]]
    """The fields `Max-Forwards` (name, value). What they mean depends on the method."""
    expectation: bytes
    """The value of `Expect`, in lower case."""

    def __init__(self, field_section: bytes, table: NameTable) -> None:
        """Cut the fields that matter out of a checked field section. Raises `FramingError`."""
        selected: list[bytes] = []
        hosts: list[bytes] = []
        lengths: list[bytes] = []
        codings: list[bytes] = []
        connection: list[bytes] = []
        self.table = table
        self.expectation = b""
        self.forwarded, self.request_ids, self.via, self.max_forwards = [], [], [], []
        parts = table.pattern.split(field_section)
        for name, value in zip(parts[1::3], parts[2::3], strict=True):
            kind = table[name]
            if kind == names.SELECTED:
                selected += (name, value.rstrip(OWS))  # in cache keys: no blanks
            elif kind == names.HOST:
                hosts.append(value.strip(OWS))
            elif kind == names.CONNECTION:
                connection.append(value.strip(OWS))
            elif kind == names.LENGTH:
                lengths.append(value)
            elif kind == names.CODING:
                codings.append(value.strip(OWS).lower())
            elif kind == names.EXPECT:
                self.expectation = b"?" if self.expectation else value.strip(OWS).lower()
            elif kind != names.DROP:
                self._keep(kind, name, value.strip(OWS))
        self.selected = tuple(selected)
        self.passthrough = b"".join(parts[::3])[:-2]
        self.connection_options = NO_OPTIONS
        if connection:
            self._remove_listed_fields(connection)
        self.closes = "close" in self.connection_options
        self._check(hosts, lengths, codings)

    @property
    def selected_fields(self) -> tuple[Header, ...]:
        """The selected fields with normalized names, as dialects read them."""
        return normalized_fields(self.selected)

    def request_id(self, name: str) -> str:
        """The value of the field `name` (normalized), if there is exactly one; else empty."""
        values = [value for found, _, value in self.request_ids if found == name]
        return values[0].decode("latin-1") if len(values) == 1 else ""

    def request_id_lines(self, but: str = "") -> bytes:
        """The fields with request ids, for services that have no ids, or none in these fields. Without the
        field `but` (normalized)."""
        others = [one for one in self.request_ids if one[0] != but]
        return b"".join([b"%b: %b\r\n" % (name, value) for _, name, value in others]) if others else b""

    def _keep(self, kind: int, name: bytes, value: bytes) -> None:
        """Keep a field that is not forwarded as it came."""
        if kind == names.FORWARDED:
            self.forwarded.append((name.decode().lower(), value))
        elif kind == names.REQUEST_ID:
            self.request_ids.append((name.decode().lower(), name, value))
        elif kind == names.VIA:
            self.via.append(value)
        elif kind == names.MAX_FORWARDS:
            self.max_forwards.append((name, value))

    def _remove_listed_fields(self, connection: list[bytes]) -> None:
        """Read the values of `Connection`, and remove the fields that they list."""
        options, self.passthrough = without_listed_fields(self.passthrough, connection, self.table)
        self.connection_options = options
        if options is not KEEP_ALIVE_OPTIONS and (self.request_ids or self.max_forwards):
            listed = frozenset(map(normalize_name, options))
            self.request_ids = [one for one in self.request_ids if one[0] not in listed]
            if "max-forwards" in listed:
                self.max_forwards = []

    def _check(self, hosts: list[bytes], lengths: list[bytes], codings: list[bytes]) -> None:
        """Check `Host`, `Via`, `Expect` and the framing (RFC 9112 6.3; threats S1, S2), and set `host`,
        `framing` and `length`. Raises `FramingError`."""
        if len(lengths) > 1:
            raise FramingError("content_length")
        if len(codings) > 1:
            raise FramingError("transfer_encoding")
        if len(hosts) > 1 or (hosts and not is_host(hosts[0])):
            raise FramingError("host")
        self.host = hosts[0].decode() if hosts else ""
        self.framing, self.length = NO_BODY, 0
        if codings:
            if lengths:
                raise FramingError("smuggling")
            if codings[0] != b"chunked":
                raise FramingError("transfer_encoding", 501 if codings[0] in _KNOWN_CODINGS else 400)
            self.framing, self.length = CHUNKED, -1
        elif lengths:
            self.length = read_length(lengths[0])
            self.framing = BY_LENGTH if self.length else NO_BODY
        if self.via and sum(value.lower().count(PSEUDONYM) for value in self.via) >= MAX_LOOPS:
            raise FramingError("loop", 508)
        if self.expectation and self.expectation != b"100-continue":
            raise FramingError("expect", 417)


def read_length(value: bytes) -> int:
    """The length of the content in bytes, from a value of `Content-Length`.

    Signs, blanks inside, lists and non-ASCII digits are refused (threats S3, S4).
    """
    digits = value.rstrip(OWS)
    if not digits.isdigit() or len(digits) > _MAX_LENGTH_DIGITS:  # bytes.isdigit: ASCII only
        raise FramingError("content_length")
    return int(digits)


def normalized_fields(selected: tuple[bytes, ...]) -> tuple[Header, ...]:
    """Selected fields (name, value, name, value) with normalized names, as dialects read them."""
    return tuple(
        (name.decode().lower(), value.strip(OWS).decode("latin-1"))
        for name, value in zip(selected[::2], selected[1::2], strict=True)
    )


def without_listed_fields(
    passthrough: bytes, connection: list[bytes], table: NameTable
) -> tuple[frozenset[str], bytes]:
    """The options that the values of `Connection` list, and `passthrough` without the fields that they name
    (RFC 9110 7.6.1).

    Raises `FramingError` if they list a field that must not be removed.
    """
    if connection == KEEP_ALIVE_VALUES:
        return KEEP_ALIVE_OPTIONS, passthrough
    options = frozenset(
        item.strip().lower() for value in connection for item in value.decode("latin-1").split(",")
    )
    listed = {normalize_name(option) for option in options} - {"close", "keep-alive", "", "te", "upgrade"}
    if listed & UNLISTABLE or listed & table.selected:
        raise FramingError("connection_listed")
    if listed:
        lines = passthrough.split(b"\r\n")
        passthrough = b"\r\n".join(
            line for line in lines if normalize_name(line.partition(b":")[0].decode("latin-1")) not in listed
        )
    return options, passthrough
