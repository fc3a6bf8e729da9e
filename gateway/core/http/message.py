"""Request and response heads as values, and the rules for header names that hold for every dialect.

Nothing here reads a socket or decides anything: `dataplane.http1` checks what a head may hold, and the
dialects give headers a meaning. Header names are compared in lower case, and every character but letters
and digits is taken for `-`. Servers do so, too: WSGI, ASGI and Rack with `_`, PHP with `.` and others
(threats V4, R-A6). So an alias, which is another spelling of an owned name, must not reach a backend.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from multidict import CIMultiDict, CIMultiDictProxy

Header: TypeAlias = tuple[str, str]
"""Type of one header line: a pair of name, in canonical spelling, and value."""

METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "COPY", "LINK", "LOCK", "MKCOL", "MOVE"),
    *("PROPFIND", "PROPPATCH", "PURGE", "QUERY", "REPORT", "SEARCH", "UNLINK", "UNLOCK"),
)
"""HTTP methods that servers know. Others are proxied, too."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing (RFC 9110 9.2.1), of those that are proxied."""

NOT_PROXIED = ("CONNECT", "TRACE", "TRACK", "PRI")
"""Methods that never reach a backend: for proxies (threats H6), or of HTTP/2 (RFC 9113 3.4)."""

TCHAR = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
"""Pattern of a character of a token (`tchar`, RFC 9110 5.6.2)."""
MAX_METHOD = 32
"""Maximum characters of a method. The longest registered one has 17."""
METHOD = re.compile(f"{TCHAR}{{1,{MAX_METHOD}}}")
"""Pattern of a method, a token (RFC 9110 9.1)."""

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    }
)
"""Headers for one hop only (RFC 9110 7.6.1, 11.7; `Proxy-Connection` and `HTTP2-Settings` by practice)."""

FORWARDING = frozenset(
    {
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-prefix",
    }
)
"""Headers with which one proxy describes the client to the next. Only trusted peers may (threats O11)."""

HTTPOXY = frozenset({"proxy"})
"""Header that CGI hands to programs as `HTTP_PROXY`, which many take for the proxy of their own requests
(threats O11). No client has a use for it, so it is dropped from everybody."""

UNTRUSTED_HEADERS = (
    *("Forwarded", "X-Forwarded-*", "X-Real-IP", "True-Client-IP", "X-Client-IP", "Front-End-Https"),
    *("X-Original-*", "X-Rewrite-URL"),
    *("X-Host", "X-HTTP-Host-Override"),
    *("CF-Connecting-IP", "Fastly-Client-IP", "X-Cluster-Client-IP", "X-Envoy-External-Address"),
    *("X-Azure-ClientIP", "X-Azure-SocketIP"),
    *("Client-Cert", "Client-Cert-Chain", "X-Client-Cert*", "X-Client-Verify", "X-Client-DN", "X-SSL-*"),
    *("SSL-Client-*", "X-TLS-Client-*", "X-Amzn-Mtls-*", "X-ARR-ClientCert"),
    *("Remote-User", "X-Remote-User", "X-Auth-Request-*", "X-WebAuth-*"),
)
"""Headers with which a proxy in front describes the client, its address, its certificate or the original URL;
`*` at the end: every header that begins so. Peers that are not trusted cannot send them, unless the
configuration has another list (threats O11, R3-T8)."""

CLIENT_CERT = ("Client-Cert", "Client-Cert-Chain")
"""Headers of RFC 9440: servers take them for the verified certificate of the client. Only trusted peers may
send them, and nobody if the gateway writes them itself (RFC 9440 4)."""

UNLISTABLE = frozenset({"host", "content-length", "transfer-encoding"})
"""Headers that `Connection` must not list: removing them would change what the message is (threats S16)."""

HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
"""Pattern of the name of a dialect's header. In lower case such a name is its normalized form."""

_NO_LETTER_OR_DIGIT = re.compile(r"[^a-z0-9]")


def normalize_name(name: str) -> str:
    """The form in which header names are compared: lower case, all but letters and digits as `-`."""
    return _NO_LETTER_OR_DIGIT.sub("-", name.lower())


def normalize_pattern(pattern: str) -> str:
    """A header name, or the beginning of names with `*` after it, in the form in which names are compared."""
    beginning = pattern.removesuffix("*")
    return normalize_name(beginning) + pattern[len(beginning) :]


def method_of_text(text: str) -> str:
    """A method as people type it: known ones in capitals (on the wire case matters, RFC 9110 9.1)."""
    capitals = text.upper()
    return capitals if capitals in METHODS or capitals in NOT_PROXIED else text


def render(headers: Iterable[Header]) -> bytes:
    """Header lines as bytes, each with its CRLF, without the empty line at the end."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")


class Request(Protocol):
    """Request head as core and the dialects see it: of the data plane, or a `RequestHead`."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str:
        """The path of the request target as text, escapes untouched."""

    @property
    def query(self) -> str: ...
    @property
    def selected(self) -> tuple[object, ...]:
        """Cache key of the header `fields`: equal for equal fields, and cheap to hash."""

    @property
    def fields(self) -> tuple[Header, ...]:
        """The header lines that some dialect reads or owns, in order, with normalized names."""


class RequestHead(NamedTuple):
    """Request head as a plain tuple: method, path, query and header fields."""

    method: str
    path: str
    query: str = ""
    fields: tuple[Header, ...] = ()

    @property
    def selected(self) -> tuple[object, ...]:
        return self.fields


REASON_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Payload Too Large",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
}
"""The reason phrase of each registered status (RFC 9110 15), the same on every release of Python."""


@final
@dataclass(frozen=True, slots=True)
class Response:
    """A whole response made by the gateway. `Content-Length` is added where it is written."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    def with_headers(self, *more: Header) -> Response:
        """The same response with further header lines."""
        return Response(self.status, (*self.headers, *more), self.body)


def as_mapping(fields: Iterable[Header]) -> CIMultiDictProxy[str]:
    """Header lines as the mapping that dialects read: names in any case, all lines kept, in order."""
    return CIMultiDictProxy(CIMultiDict(fields))


def all_values(headers: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Every value of header `name` in order: all lines of a multidict, the one value of a plain mapping."""
    getall = getattr(headers, "getall", None)
    if getall is not None:
        return tuple(getall(name, ()))
    value = headers.get(name)
    return () if value is None else (value,)


def agreed_text(values: tuple[str, ...]) -> str:
    """The text that all lines of a header agree on; empty if they differ, or there is none."""
    return values[0] if values and values.count(values[0]) == len(values) else ""


_SEPARATORS: Final = re.escape("!#$%&'*+-.^_`|~")
"""Characters of a token (header name, method) besides letters and digits (RFC 9110 5.6.2)."""


def fields_named(normalized: Iterable[str]) -> re.Pattern[bytes]:
    """Pattern of every header field with one of these names or its aliases: the CRLF before it, (name),
    (value). A name with `*` at its end stands for every name that begins so."""
    return _pattern(tuple(sorted(normalized)))


@lru_cache(maxsize=64)  # services, reloads and both kinds of peer ask for the same few sets of names
def _pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    firsts = "".join(sorted({name[0] for name in names})).replace("-", _SEPARATORS)
    return re.compile(rf"\r\n(?=[{firsts}])({_any_of(list(names))}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


def _any_of(names: list[str]) -> str:
    """Pattern of any of `names` that shares common beginnings, so that each letter is compared about once. It
    costs half of a flat alternation on a head of ten fields, and heads are most of a proxy's work."""
    if "*" in names:
        return r"[^:\r]*"  # whatever the others are, they begin so too
    branches = []
    for first, group in groupby(names, key=lambda name: name[:1]):
        rests = [name[1:] for name in group]
        letter = f"[{_SEPARATORS}]" if first == "-" else first
        branches.append(letter + _any_of(rests) if first else "")
    # The longer branches first; the empty one last.
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(reversed(branches))})"


# --- protocols of `Upgrade` (RFC 9110 7.8); `dataplane.exchange.tunnel` switches to them ------------------

PROTOCOL_PATTERN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}(?:/[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64})?"
"""Pattern of a protocol in `Upgrade`, a name and perhaps a version: `websocket`, `SPDY/3.1`."""
_PROTOCOL = re.compile(PROTOCOL_PATTERN)
MAX_PROTOCOLS = 16
"""Most protocols that one request may name in `Upgrade`. Real clients name one."""

_CARRY_REQUESTS = frozenset({"h2", "h2c", "h3", "http", "https", "tls"})


def carries_requests(protocol: str) -> bool:
    """Whether HTTP requests follow in this protocol: they would bypass every rule here (threats H3)."""
    return protocol.partition("/")[0].lower() in _CARRY_REQUESTS


def read_protocols(values: Iterable[str]) -> tuple[str, ...]:
    """The protocols in the values of `Upgrade`, as they were written; none if one of them is malformed. A
    recipient may ignore the field then, and a backend might read it in another way."""
    items = [item.strip(" \t") for value in values for item in value.split(",")]
    names = tuple(item for item in items if item)
    valid = len(names) <= MAX_PROTOCOLS and all(_PROTOCOL.fullmatch(name) for name in names)
    return names if valid else ()


def allowed_protocols(asked: Iterable[str], allowed: Collection[str]) -> tuple[str, ...]:
    """The protocols in `asked`, from `Upgrade`, that a service tunnels. `allowed` is in lower case, since
    names are compared without regard to case. A protocol that carries requests is never one of them."""
    return tuple(name for name in asked if name.lower() in allowed and not carries_requests(name))
