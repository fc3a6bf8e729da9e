"""The head of a response, from its status line to the empty line: the strict reader.

What two readers could read differently is refused (RFC 9112 6.3, threats). Our own grammar checks status
lines; llhttp checks field lines, and is no laxer (tests/dataplane compares both). Most heads are read by a
layout instead (`http1.layouts`), with the same result.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias, final

import httptools

from gateway.core.http.message import Header
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    HEAD_END,
    MIN_FIELD_SIZE,
    NO_BODY,
    OWS,
    TEXT,
    UNTIL_CLOSE,
    connection_options,
    listed_fields,
    normalized_fields,
    read_length,
    without_listed_fields,
)
from gateway.dataplane.http1.llhttp import check_head
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

MAX_RESPONSE_FIELDS: Final = 200
MAX_RESPONSE_HEAD: Final = 64 * 1024
BODILESS: Final = frozenset({204, 304})
"""Statuses whose responses have no content, whatever their fields say (RFC 9110 6.4.1)."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + TEXT.source + rb"))?")
_DATE: Final = re.compile(rb"\r\ndate:", re.IGNORECASE)


@final
class ResponseHead:
    """The head of one response, an immutable value."""

    status: int
    line: bytes
    """Status line for the client, without its CRLF: HTTP/1.1, and the reason phrase of the backend."""
    passthrough: bytes
    """Field lines that are forwarded as they came, each with the CRLF before it."""
    selected: tuple[bytes, ...]
    """Response fields that the dialect reads or owns: name, value, name, value. Part of cache keys."""
    framing: int
    """How the response's content ends: one of the constants of `fields`."""
    length: int
    """Bytes of the response's content; -1: unknown."""
    close: bool
    """Whether the backend will not use this connection again."""
    location: tuple[tuple[bytes, bytes], ...]
    """Fields `Location` and `Content-Location` of the response (name, value)."""
    has_date: bool
    """Whether `Date` is among the forwarded fields. If not, the gateway adds it (RFC 9110 6.6.1)."""
    request_id: bytes
    """First forwarded field whose name ends in `Request-Id` (`X-Openstack-Request-Id`,
    `X-Compute-Request-Id`, `X-Request-Id`). Empty: none, or nobody reads it (`NameTable.reads_ids`)."""
    size: int
    """Bytes of the response head as it came, the empty line included."""

    @property
    def selected_fields(self) -> tuple[Header, ...]:
        """Selected response fields with normalized names, as dialects read them."""
        return normalized_fields(self.selected)

    def with_content(self, length: int, passthrough: bytes) -> ResponseHead:
        """Copy of the response head for other content, of `length` bytes (-1: unknown), with its fields."""
        head = ResponseHead()
        head.status, head.line, head.close, head.size = self.status, self.line, self.close, self.size
        head.selected, head.location = self.selected, self.location
        head.passthrough = passthrough
        head.has_date, head.request_id = self.has_date, self.request_id
        head.length = length
        head.framing = BY_LENGTH if length >= 0 else self.framing
        return head


def read_response_head(head: bytes, table: NameTable, *, is_head_request: bool) -> ResponseHead:
    """Read a whole response head. Raises `FramingError` for whatever two readers could read differently."""
    end = head.find(b"\r")
    status, status_line, minor = read_status_line(head[:end])
    if len(head) > MIN_FIELD_SIZE * MAX_RESPONSE_FIELDS and head.count(b"\r\n") - 2 > MAX_RESPONSE_FIELDS:
        raise FramingError("too_many_headers")
    check_head(httptools.HttpResponseParser, head)
    response = ResponseHead()  # without arguments, which would double its cost
    response.status, response.line, response.size = status, status_line, len(head)
    location: tuple[tuple[bytes, bytes], ...] = ()
    selected: list[bytes] = []
    connection: list[bytes] = []
    length: bytes | None = None
    coding: bytes | None = None
    parts = table.pattern.split(head)
    for name, value in zip(parts[1::3], parts[2::3], strict=True):
        kind = table.kind(name)
        if kind == names.SELECTED:
            selected += (name, value)
        elif kind == names.LENGTH and length is None:
            length = value
        elif kind == names.CONNECTION:
            connection.append(value.strip(OWS))
        elif kind == names.LOCATION:
            location = (*location, (name, value.strip(OWS)))
        elif kind == names.CODING and coding is None:
            coding = value.strip(OWS).lower()
        elif kind != names.DROP:
            raise FramingError("transfer_encoding" if kind == names.CODING else "content_length")
    response.selected = tuple(selected)
    response.location = location
    options = connection_options(connection)
    response.close = "close" in options or (minor == 0 and "keep-alive" not in options)
    passthrough = b"".join(parts[::3])[end : -len(HEAD_END)]
    response.passthrough = without_listed_fields(passthrough, listed_fields(options, table))
    response.has_date = has_date(response.passthrough)
    response.request_id = _request_id_among(response.passthrough) if table.reads_ids else b""
    _set_framing(response, length, coding, is_head_request=is_head_request)
    return response


def _set_framing(
    response: ResponseHead, length: bytes | None, coding: bytes | None, *, is_head_request: bool
) -> None:
    """Set whether the response has a body, and how it ends (RFC 9112 6.3)."""
    response.length = read_length(length) if length is not None else -1
    if coding is not None and (length is not None or coding != b"chunked"):
        raise FramingError("transfer_encoding")
    if is_head_request or response.status < 200 or response.status in BODILESS:
        response.framing = NO_BODY
    elif length is not None:
        response.framing = BY_LENGTH if response.length else NO_BODY
    elif coding is not None:
        response.framing = CHUNKED
    else:
        response.framing = UNTIL_CLOSE
        response.close = True


def has_date(passthrough: bytes) -> bool:
    """Whether `Date` is one of these header field lines."""
    # `find` costs half of `in`, and most servers write `Date` in these letters.
    return passthrough.find(b"\r\nDate:") >= 0 or _DATE.search(passthrough) is not None


def is_request_id_name(name: bytes) -> bool:
    """Whether a field of this name, in lower case, has the id of the request to which it responds."""
    return name.endswith(b"request-id")


def _request_id_among(passthrough: bytes) -> bytes:
    for line in passthrough.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if is_request_id_name(name.lower()):
            return value.strip(OWS)
    return b""


StatusLine: TypeAlias = tuple[int, bytes, int]
"""Content of a status line: status, status line for the client, minor version of HTTP."""


def read_status_line(text: bytes) -> StatusLine:
    """Read a status line without its CRLF. Raises `FramingError`."""
    match = _STATUS_LINE.fullmatch(text)
    if match is None:
        raise FramingError("status_line")
    return int(match[2]), b"HTTP/1.1 %b %b" % (match[2], match[3] or b""), int(match[1])
