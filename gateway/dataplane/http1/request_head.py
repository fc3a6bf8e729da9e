"""The head of a request, from its request line to the empty line: the strict reader.

Our own grammar checks every line, and llhttp reads the head as well. A head that two readers could read
differently is refused: bare CR or LF, folded lines, control bytes, two Hosts, any length or coding with two
meanings (RFC 9112 6.3, threats S1-S19). Most heads are read by a layout instead (`http1.layouts`), with the
same result.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Final, final
from urllib.parse import unquote_to_bytes

import httptools

from gateway.core.fleet.limits import Limits
from gateway.core.http.message import (
    MAX_METHOD,
    METHODS,
    NOT_PROXIED,
    TCHAR,
    Header,
    read_protocols,
)
from gateway.core.http.patterns import group, literal, span
from gateway.dataplane.http1 import names
from gateway.dataplane.http1.fields import (
    BY_LENGTH,
    CHUNKED,
    HEAD_END,
    KNOWN_CODINGS,
    MIN_FIELD_SIZE,
    NO_BODY,
    OWS,
    TEXT,
    connection_options,
    is_host,
    is_loop,
    listed_fields,
    normalized_fields,
    read_length,
    without_listed_fields,
)
from gateway.dataplane.http1.llhttp import check_head
from gateway.dataplane.http1.names import NameTable
from gateway.errors import CLIENT_ERROR_REASONS, FramingError
from gateway.telemetry.trace_context import trace_of

KNOWN_METHODS: Final = {name.encode(): name for name in METHODS}
"""Methods that servers know, by their bytes in a request line."""
_NOT_PROXIED: Final = frozenset(name.encode() for name in NOT_PROXIED)

_MAX_FORWARDS_DIGITS: Final = 9
MAX_FORWARDS: Final = 10**_MAX_FORWARDS_DIGITS - 1
"""Highest `Max-Forwards` that is sent on."""

_ALLOWED_BYTES: Final = bytes({0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)})
_TCHAR: Final = TCHAR.encode()
_FIELDS: Final = b"(?:" + _TCHAR + b"++:" + TEXT.source + rb"\r\n)*+\r\n"
"""Pattern of field lines of a token, a colon and text, up to the empty line. It never backtracks."""
_FIELD_SECTION: Final = re.compile(rb"\r\n" + _FIELDS)
_METHOD: Final = span(_TCHAR, 1, MAX_METHOD)
_METHOD_GROUP: Final = group(_METHOD) + literal(b" ")
_TARGET: Final = rb"[!\"$-\[\]-~]"
"""Pattern of a byte in a target, without `#` and `\\`: some servers cut at `#`, or read `\\` as `/`."""
_VERSION: Final = literal(b" HTTP/1.") + group(span(rb"[01]", 1, 1))
_REQUEST_LINE: Final = re.compile(
    (_METHOD_GROUP + group(span(_TARGET, 1)) + _VERSION + literal(b"\r\n")).source
)
ORIGIN_LINE: Final = _METHOD_GROUP + group(literal(b"/") + span(_TARGET)) + _VERSION
"""Pattern of a request line whose target is in origin form, as nearly all are."""
_ANY_REQUEST_LINE: Final = re.compile(_METHOD.source + rb" ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_KNOWN_LINE: Final = b"POST / HTTP/1.1"
"""Request line that llhttp gets in place of one with a method that it does not know."""
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]*)(.*)")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})|%2[fF]|%5[cC]|%[01][0-9A-Fa-f]|%7[fF]")
"""Pattern of a `%` without two hex digits, or an encoded slash, backslash or control byte (threats P1-P6)."""
_SLASH: Final = 0x2F


@final
class RequestHead:
    """The head of one request (`core.http.message.Request`), an immutable value."""

    __slots__ = (
        "close",
        "expects_continue",
        "forwarded_for",
        "framing",
        "hops",
        "host",
        "length",
        "max_forwards",
        "method",
        "minor",
        "names",
        "passthrough",
        "path",
        "query",
        "request_ids",
        "selected",
        "size",
        "target",
        "trace",
        "upgrade",
    )

    method: str
    target: bytes
    """Request target in origin form, or `*`."""
    path: str
    query: str
    host: str
    """`Host` as the client wrote it; empty only in HTTP/1.0."""
    minor: int
    """Minor version of HTTP: 0 or 1."""
    close: bool
    """Whether the client will not use this connection again."""
    framing: int
    """How the request's content ends: one of the constants of `fields`, but `UNTIL_CLOSE`."""
    length: int
    """Bytes of the request's content; -1: unknown."""
    expects_continue: bool
    """Whether the client waits for `100 Continue` before it sends its body."""
    selected: tuple[bytes, ...]
    """Request fields that some dialect reads or owns: name, value, name, value. Names keep their case; values
    have no blanks around them. Part of cache keys."""
    passthrough: bytes
    """Field lines that are forwarded as they came, each with the CRLF before it."""
    names: frozenset[str] | None
    """Normalized names of all fields in `selected` and `passthrough`; None: nobody has listed them."""
    request_ids: tuple[tuple[str, bytes, bytes], ...]
    """Fields with request ids, of some dialect or `X-Request-Id` (normalized name, name, value)."""
    trace: bytes
    """W3C Trace Context of the fields (`trace_of`). Empty if nobody reads it (`NameTable.reads_ids`)."""
    hops: bytes
    """Field lines of other proxies, as they came, each with the CRLF before it. `X-Forwarded-For` is none of
    them, so requests that came the same way have the same lines."""
    forwarded_for: bytes | None
    """List in `X-Forwarded-For`; None: no such field. It says who the client is if the peer is trusted."""
    max_forwards: tuple[tuple[bytes, bytes], ...]
    """Fields `Max-Forwards` (name, value). Their meaning depends on the method."""
    upgrade: tuple[str, ...]
    """Protocols to which the client would switch, if `Connection` lists the field (RFC 9110 7.8)."""
    size: int
    """Bytes of the request head as it came, the empty line included."""

    @property
    def fields(self) -> tuple[Header, ...]:
        """Selected request fields with normalized names (`core.http.message.Request`)."""
        return normalized_fields(self.selected)

    def request_id(self, name: str) -> str:
        """Value of the request-id field `name` (normalized), if there is exactly one; else empty."""
        value = b""
        for found, _, each in self.request_ids:
            if found == name:
                if value:
                    return ""
                value = each
        return value.decode("latin-1")

    def has_request_id(self, name: str) -> bool:
        """Whether the request-id field `name` (normalized) has come, whatever its value."""
        return any(found == name for found, _, _ in self.request_ids)

    def request_id_lines(self, but: Container[str] = ()) -> bytes:
        """Field lines of the request ids as they came, without those that `but` names (normalized)."""
        lines = b""
        for normalized, name, value in self.request_ids:
            if normalized not in but:
                lines += b"%b: %b\r\n" % (name, value)
        return lines

    @property
    def user_agent(self) -> bytes:
        """First `User-Agent` with the blanks around it, or empty. Only the log reads it."""
        fields = self.passthrough
        _, name, value = fields.partition(b"\r\nUser-Agent:")  # `find` and slices take half as much again
        if not name:
            start = fields.lower().find(b"\r\nuser-agent:")
            if start < 0:
                return b""
            value = fields[start + 13 :]
        return value.partition(b"\r\n")[0]

    @property
    def forwards_left(self) -> int | None:
        """Number of times that this request may still be forwarded; None: no limit. That is `Max-Forwards` of
        OPTIONS; a recipient may ignore it in other methods (RFC 9110 7.6.2). What is no number cannot be
        counted down."""
        fields = self.max_forwards
        if self.method != "OPTIONS" or len(fields) != 1 or not fields[0][1].isdigit():
            return None
        digits = fields[0][1].lstrip(b"0")
        return int(digits or b"0") if len(digits) <= _MAX_FORWARDS_DIGITS else MAX_FORWARDS + 1

    def max_forwards_lines(self) -> bytes:
        """Field lines `Max-Forwards` for the next hop."""
        left = self.forwards_left
        if left is not None:
            return b"Max-Forwards: %d\r\n" % min(left - 1, MAX_FORWARDS)
        return b"".join([b"%b: %b\r\n" % field for field in self.max_forwards])

    def with_upgrade(self, protocols: tuple[str, ...]) -> RequestHead:
        """Copy of the request that asks its backend for an upgrade to exactly these protocols."""
        head = RequestHead()
        head.method, head.target, head.path, head.query = self.method, self.target, self.path, self.query
        head.host, head.minor, head.close, head.size = self.host, self.minor, self.close, self.size
        head.framing, head.length, head.expects_continue = self.framing, self.length, self.expects_continue
        head.selected, head.request_ids, head.trace = self.selected, self.request_ids, self.trace
        head.hops, head.forwarded_for, head.max_forwards = self.hops, self.forwarded_for, self.max_forwards
        head.upgrade, head.passthrough, head.names = protocols, self.passthrough, None
        if protocols:
            lines = f"\r\nConnection: Upgrade\r\nUpgrade: {', '.join(protocols)}"
            head.passthrough += lines.encode("ascii")
        return head

    def set_target(self, target: bytes) -> None:
        """Set the request target while the head is made. Raises `FramingError`."""
        if target[0] != _SLASH:
            self.host, target = _read_target_form(target, self)
        self.set_origin_target(target)

    def set_origin_target(self, target: bytes) -> None:
        """Set a request target in origin form, or `*`, while the head is made. Raises `FramingError`."""
        self.target = target
        path, _, self.query = target.decode().partition("?")
        if "%" in path or "/." in path:
            _check_path(path.encode())
        self.path = path


def read_request_head(head: bytes, table: NameTable, limits: Limits) -> RequestHead:
    """Read a whole request head with its empty line. Raises `FramingError` with the status to respond."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise _request_line_error(head)
    end = line.end() - 2
    if end > limits.line:
        raise FramingError("line_too_long", 414)
    method, target, minor = line.groups()
    section = head[end:]
    if method in KNOWN_METHODS:
        _check_field_section(head, section, limits)
    else:
        _check_unknown_method(method)
        _check_field_section(_KNOWN_LINE + section, section, limits)
    request = RequestHead()
    request.method = method.decode()
    request.size, request.names = len(head), None
    request.minor = int(minor)
    _set_fields(request, section, table)
    request.set_target(target)
    return request


def _check_field_section(head: bytes, section: bytes, limits: Limits) -> None:
    """Check the lines of a field section, by our grammar and by llhttp. Raises `FramingError`."""
    if not _FIELD_SECTION.fullmatch(section):
        raise FramingError(_field_section_error(head))
    if len(section) > limits.line and any(len(line) > limits.line for line in section.split(b"\r\n")):
        raise FramingError("line_too_long", 431)
    if len(section) > MIN_FIELD_SIZE * limits.headers and section.count(b"\r\n") - 2 > limits.headers:
        raise FramingError("too_many_headers", 431)
    check_head(httptools.HttpRequestParser, head)


def _set_fields(request: RequestHead, section: bytes, table: NameTable) -> None:
    """Set the request's fields from a checked field section. Raises `FramingError`."""
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    parts = table.pattern.split(section)
    for name, value in zip(parts[1::3], parts[2::3], strict=True):
        found.setdefault(table.kind(name), []).append((name, value.strip(OWS)))
    options = connection_options([value for _, value in found.get(names.CONNECTION, ())])
    listed = listed_fields(options, table)
    request.passthrough = without_listed_fields(b"".join(parts[::3])[: -len(HEAD_END)], listed)
    request.trace = trace_of(request.passthrough) if table.reads_ids else b""
    request.selected = tuple(part for field in found.get(names.SELECTED, ()) for part in field)
    hops = request.hops = b"".join(table.hop_lines.findall(section)) if names.HOP in found else b""
    forwarded_for = [value for _, value in found.get(names.FORWARDED_FOR, ())]
    request.forwarded_for = b", ".join(forwarded_for) if forwarded_for else None
    ids = ((name.decode().lower(), name, value) for name, value in found.get(names.REQUEST_ID, ()))
    request.request_ids = tuple(one for one in ids if one[0] not in listed)
    request.max_forwards = () if "max-forwards" in listed else tuple(found.get(names.MAX_FORWARDS, ()))
    request.close = "close" in options if request.minor else "keep-alive" not in options
    upgrade = found.get(names.UPGRADE, ()) if request.minor and "upgrade" in options else ()
    request.upgrade = read_protocols(value.decode("latin-1") for _, value in upgrade)
    _set_framing(request, found)
    expected = [value.lower() for _, value in found.get(names.EXPECT, ()) if value]
    if is_loop(hops):
        raise FramingError("loop", 508)
    if expected and expected != [b"100-continue"]:
        raise FramingError("expect", 417)
    request.expects_continue = bool(expected) and request.minor == 1 and request.framing != NO_BODY
    if request.minor and not request.host:
        raise FramingError("host")
    if not request.minor and request.framing == CHUNKED:
        raise FramingError("smuggling")  # HTTP/1.0 has no codings, so readers would differ (threats S6)


def _set_framing(request: RequestHead, found: dict[int, list[tuple[bytes, bytes]]]) -> None:
    """Check `Host` and the framing of a request (RFC 9112 6.3; threats S1, S2). Raises `FramingError`."""
    hosts, lengths = found.get(names.HOST, []), found.get(names.LENGTH, [])
    codings = [value.lower() for _, value in found.get(names.CODING, ())]
    if len(lengths) > 1:
        raise FramingError("content_length")
    if len(codings) > 1:
        raise FramingError("transfer_encoding")
    if len(hosts) > 1 or (hosts and not is_host(hosts[0][1])):
        raise FramingError("host")
    request.host = hosts[0][1].decode() if hosts else ""
    request.framing, request.length = NO_BODY, 0
    if codings:
        if lengths:
            raise FramingError("smuggling")
        if codings[0] != b"chunked":
            raise FramingError("transfer_encoding", 501 if codings[0] in KNOWN_CODINGS else 400)
        request.framing, request.length = CHUNKED, -1
    elif lengths:
        request.length = read_length(lengths[0][1])
        request.framing = BY_LENGTH if request.length else NO_BODY


def _read_target_form(target: bytes, head: RequestHead) -> tuple[str, bytes]:
    """Host, and target in origin form (or `*` for OPTIONS), of a target in another form. The authority of an
    absolute form replaces `Host` (RFC 9112 3.2.2)."""
    if target == b"*" and head.method == "OPTIONS":
        return head.host, target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not is_host(absolute[1]):
        raise FramingError("target")
    return absolute[1].decode(), absolute[2] if absolute[2][:1] == b"/" else b"/" + absolute[2]


def _request_line_error(head: bytes) -> FramingError:
    """Error for a refused request line, with the status to respond."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return FramingError("request_line")
    if line[2] != b"1" or line[3] not in b"01":
        return FramingError("http_version", 505)
    return FramingError("target")  # one with `#` or a backslash


def _check_unknown_method(method: bytes) -> None:
    """Check a method that servers do not know. Raises `FramingError` for one that is not proxied. Methods are
    case-sensitive (RFC 9110 9.1), but many frameworks compare them in capitals. A known one in other letters
    would be that method to them, and another one here."""
    if method in _NOT_PROXIED:
        raise FramingError("method", 405)
    capitals = method.upper()
    if capitals in KNOWN_METHODS or capitals in _NOT_PROXIED:
        raise FramingError("method")


def _field_section_error(head: bytes) -> str:
    """Why our grammar refuses a field section: a label `reason` of skewgate_client_errors_total."""
    if b"\r\n " in head or b"\r\n\t" in head:
        return "folded_line"
    ends = head.count(b"\r\n")
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        return "line_end"
    if head.translate(None, _ALLOWED_BYTES):
        return "control_byte"
    return "header_name"


def read_described(
    method: str, target: str, headers: Iterable[Header], table: NameTable, limits: Limits
) -> RequestHead:
    """Read a request, given in parts, as a client connection would, for explanations. `target` and `headers`
    are ASCII without control bytes. Without `Host` it is a request of HTTP/1.0. Raises `FramingError`."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    minor = int(any(line[:5].lower() == "host:" for line in lines))
    head = f"{method} {target} HTTP/1.{minor}\r\n{''.join(lines)}\r\n"
    return read_request_head(head.encode("latin-1"), table, limits)


def refusal_sentence(refusal: FramingError) -> str:
    """Sentence with status and reason for a request that is refused before its service is known."""
    reason = refusal.detail or CLIENT_ERROR_REASONS.get(refusal.reason, refusal.reason)
    return f"refused with {refusal.status}: {reason}"


def _check_path(path: bytes) -> None:
    """Check a path with escapes or dots. Raises `FramingError` for an ambiguous one (threats P1-P6)."""
    if escape := _BAD_ESCAPE.search(path):
        raise FramingError("path", detail=f"the path contains the escape `{escape[0].decode()}`")
    decoded = unquote_to_bytes(path)
    try:
        decoded.decode("utf-8")
    except UnicodeDecodeError:
        raise FramingError("path", detail="the path is not UTF-8") from None
    for segment in decoded.split(b"/"):
        if (name := segment.split(b";", 1)[0]) in (b".", b".."):
            raise FramingError("path", detail=f"the path contains `{name.decode()}`")
