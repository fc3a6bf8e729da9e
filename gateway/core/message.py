"""Request and reply heads as values, and the hygiene of header names that holds for every dialect.

Pure: reads no socket and decides nothing. What a head may hold at all is `dataplane.http1`; what a dialect's
headers mean is the dialect's. Header names are compared in lower case with `_` read as `-`, because WSGI,
ASGI and Rack servers fold both (hardening V4): a twin of a name that we own must not slip past us.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, final

from multidict import CIMultiDict, CIMultiDictProxy

Header: TypeAlias = tuple[str, str]
"""One header line: name in canonical spelling, value."""

METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "COPY", "LINK", "LOCK", "MKCOL", "MOVE"),
    *("PROPFIND", "PROPPATCH", "PURGE", "QUERY", "REPORT", "SEARCH", "UNLINK", "UNLOCK"),
)
"""What is proxied; CONNECT, TRACE and their like never reach a backend (hardening H6)."""

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
"""Names that speak of one hop only (RFC 9110 7.6.1, 11.7; `Proxy-Connection` and `HTTP2-Settings` by
practice)."""

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
"""Names by which one proxy tells the next about the client: written by the gateway, believed from trusted
peers only (hardening O11)."""

UNLISTABLE = frozenset({"host", "content-length", "transfer-encoding"})
"""Names that `Connection` must not list: removing them would change what the message is (hardening S16)."""


def fold(name: str) -> str:
    """The form in which names are compared: lower case, `_` as `-`."""
    return name.lower().replace("_", "-")


def render(headers: Iterable[Header]) -> bytes:
    """Header lines as bytes, each with its CRLF, without the empty line at the end."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")


class Request(Protocol):
    """The head of one request as the pure floors see it: the data plane's reader is one, `RequestHead`
    another."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str:
        """The target's path as text, escapes untouched."""

    @property
    def query(self) -> str: ...
    @property
    def apart(self) -> tuple[object, ...]:
        """What `fields` is made from: equal for equal fields, cheap to hash."""

    @property
    def fields(self) -> tuple[Header, ...]:
        """Those header lines that some dialect of the configuration reads or owns, in order, names folded."""


class RequestHead(NamedTuple):
    """A request head as a plain value."""

    method: str
    path: str
    query: str = ""
    fields: tuple[Header, ...] = ()

    @property
    def apart(self) -> tuple[object, ...]:
        return self.fields


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply made by the gateway. `Content-Length` is added where it is written."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    def with_headers(self, *more: Header) -> Reply:
        """The same reply with further header lines."""
        return Reply(self.status, (*self.headers, *more), self.body)


def as_mapping(fields: Iterable[Header]) -> CIMultiDictProxy[str]:
    """Header lines as the mapping that dialects read: names in any case, all lines kept, in order."""
    return CIMultiDictProxy(CIMultiDict(fields))


def all_values(headers: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Every value of `name` in order: from a multidict all lines, from a plain mapping the one."""
    getall = getattr(headers, "getall", None)
    if getall is not None:
        return tuple(getall(name, ()))
    value = headers.get(name)
    return () if value is None else (value,)
