"""Rules for single fields of a head: how they frame the content, and what `Host` and `Connection` say.

Both the strict readers and the layouts use them. Nothing here reads a whole head, or depends on API versions
or sockets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.core.http.message import UNLISTABLE, Header, normalize_name
from gateway.core.http.patterns import span
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

NO_BODY: Final = 0
BY_LENGTH: Final = 1
CHUNKED: Final = 2
UNTIL_CLOSE: Final = 3

HEAD_END: Final = b"\r\n\r\n"
OWS: Final = b" \t"
"""Optional whitespace (RFC 9110 5.6.3)."""
TEXT: Final = span(rb"[\t\x20-\x7e\x80-\xff]")
"""Pattern of a field value (RFC 9110 5.5)."""
MIN_FIELD_SIZE: Final = 4
"""Size of the shortest field line (`a:` and CRLF): shorter heads need no counting of lines."""
PORT: Final = rb"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[0-5]?[0-9]{1,4})"
"""Pattern of a port from 0 to 65535, of at most five digits: servers that make a URL of a higher one fail."""
_NAME: Final = rb"[A-Za-z0-9._~!$&'()*+;=-]"
HOST: Final = re.compile(
    b"(?:%b{1,255}" % _NAME
    + b"|(?:%b|%%[89A-Fa-f][0-9A-Fa-f]){1,255}" % _NAME
    + rb"|\[[0-9A-Fa-f:.]{2,45}\])(?::%b?)?" % PORT
)
"""Pattern of host and port (RFC 3986 3.2.2): a name of at most 255 characters; a colon alone means no port.
Percent-encoding is for UTF-8 alone, as that RFC asks of writers: an encoded `.` or `/` is another name to a
reader that decodes it. A comma makes a list of two Hosts to readers that join lines (RFC 9110 5.3). No
character here needs an escape in JSON. Names without an escape are most, so they are tried first."""
MAX_LENGTH_DIGITS: Final = 18
"""Maximum digits of a `Content-Length`: enough for any real body, and the number fits in 63 bits."""
KNOWN_CODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"identity"})
PSEUDONYM: Final = b"skewgate"
"""Name of the gateway in `Via`, in lower case (RFC 9110 7.6.3)."""
MAX_LOOPS: Final = 8
"""Number of the gateway's names in `Via` that make a loop (508, threats H9). Gateways may be nested."""
_KEEP_ALIVE_VALUES: Final = [b"keep-alive"]
KEEP_ALIVE_OPTIONS: Final = frozenset({"keep-alive"})
NO_OPTIONS: Final[frozenset[str]] = frozenset()
_LISTS_NO_FIELD: Final = frozenset({"close", "keep-alive", "", "te", "upgrade"})
"""Normalized options of `Connection` that do not name a field which would else be forwarded."""


def is_host(text: bytes) -> bool:
    """Whether `text` is valid in `Host`: a name or address, perhaps a port; no userinfo, path or list."""
    return HOST.fullmatch(text) is not None


def read_lines(lines: bytes) -> list[tuple[str, bytes]]:
    """Fields (name in lower case, value) of whole field lines, each with the CRLF before it."""
    pairs = (line.partition(b":") for line in lines.split(b"\r\n")[1:])
    return [(name.decode().lower(), value.strip(OWS)) for name, _, value in pairs]


def is_loop(hops: bytes) -> bool:
    """Whether a request with these lines of other proxies (`RequestHead.hops`) has passed this gateway too
    often."""
    lines = hops.lower()
    if lines.count(PSEUDONYM) < MAX_LOOPS:  # as of nearly every request
        return False
    return sum(value.count(PSEUDONYM) for name, value in read_lines(lines) if name == "via") >= MAX_LOOPS


def read_length(value: bytes) -> int:
    """Read `Content-Length`. Signs, blanks inside, lists, non-ASCII digits are refused (threats S3, S4)."""
    digits = value.rstrip(OWS)
    if not digits.isdigit() or len(digits) > MAX_LENGTH_DIGITS:  # bytes.isdigit: ASCII only
        raise FramingError("content_length")
    return int(digits)


def normalized_fields(selected: tuple[bytes, ...]) -> tuple[Header, ...]:
    """Selected header fields (name, value, name, value) with normalized names, as dialects read them."""
    return tuple(
        (name.decode().lower(), value.strip(OWS).decode("latin-1"))
        for name, value in zip(selected[::2], selected[1::2], strict=True)
    )


def connection_options(values: Sequence[bytes]) -> frozenset[str]:
    """Options in the values of `Connection`, in lower case."""
    if not values:
        return NO_OPTIONS
    if values == _KEEP_ALIVE_VALUES:
        return KEEP_ALIVE_OPTIONS
    return frozenset(item.strip().lower() for value in values for item in value.decode("latin-1").split(","))


def listed_fields(options: frozenset[str], table: NameTable) -> frozenset[str]:
    """Normalized names of the fields that `Connection` lists, which are not passed on (RFC 9110 7.6.1).
    Raises `FramingError` if one of them must not be removed."""
    if options <= KEEP_ALIVE_OPTIONS:
        return NO_OPTIONS
    listed = frozenset(map(normalize_name, options)) - _LISTS_NO_FIELD
    if listed & UNLISTABLE or listed & table.selected:
        raise FramingError("connection_listed")
    return listed


def without_listed_fields(passthrough: bytes, listed: frozenset[str]) -> bytes:
    """Header field lines (`passthrough`) without those that `listed` names."""
    if not listed:
        return passthrough
    lines = passthrough.split(b"\r\n")
    return b"\r\n".join(
        line for line in lines if normalize_name(line.partition(b":")[0].decode("latin-1")) not in listed
    )
