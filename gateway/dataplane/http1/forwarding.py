"""The fields that describe the client to the next hop: `X-Forwarded-*` and `Via`.

The gateway writes them. Values from the client are used only if its address is trusted (threats O11).
`Forwarded` is never sent: servers that read it ignore `X-Forwarded-*`, so the two could disagree.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from gateway.dataplane.http1.fields import HOST, PORT, read_lines

if TYPE_CHECKING:
    from gateway.core.clients import Clients, PossibleNames
    from gateway.core.fleet.admission import Access, IpAddress
    from gateway.core.fleet.backend import Backend
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.telemetry.request_record import ReceivedHead
    from gateway.tls.values import ClientCertificate

UNIX_PEER: Final = "unix:"
"""Address given for a client on a Unix socket, as in nginx."""
MAX_CACHED_LINES: Final = 4096
"""Maximum cached sets of forwarding lines: about one for each client address and name of the gateway."""
MAX_CACHED_SIZE: Final = 1024
"""Maximum bytes of a cached set with the received lines it depends on: all take about 10 MiB at most."""
NO_FIELDS: Final = b"\r\n\r\n"
"""Bytes with which the fields of no head begin."""
VIA: Final = b"Via: 1.1 skewgate\r\n"
_VALID_VALUES: Final = {
    "x-forwarded-proto": re.compile(rb"https?", re.IGNORECASE),
    "x-forwarded-host": HOST,
    "x-forwarded-port": re.compile(PORT),
    "x-forwarded-prefix": re.compile(rb"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+/?"),
}
"""Patterns of forwarding fields from a trusted peer whose values are forwarded and used in links."""
_ADDRESS_AND_PORT: Final = re.compile(
    r"\[([0-9A-Fa-f]*:[^\]]*)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}",
)
"""Pattern of an address with a port, or of an IPv6 address in brackets."""
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


class _Origin(NamedTuple):
    scheme: str
    host: str
    """Host to which the request went, with a port if the client wrote one; empty without `Host`."""
    port: str

    @property
    def authority(self) -> str:
        """Host and port for links; a default port only if the client wrote it."""
        name, written = _split_port(self.host)
        if self.port == written:
            return self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"


Network: TypeAlias = IPv4Network | IPv6Network
_LinesKey: TypeAlias = tuple[str, str, bool, str, str, bytes]


@final
class WrittenLines:
    """Forwarding lines for requests of one peer that have the same Host, path prefix and lines of other
    proxies. An immutable value, which connections share."""

    __slots__ = ("after_clients", "before_clients", "hops", "host", "prefix", "whole")

    def __init__(
        self, host: str, prefix: str, hops: bytes, before: bytes, after: bytes, *, trusted: bool
    ) -> None:
        """Set up the lines. `before`, `after`: the place where the `X-Forwarded-For` of a `trusted` peer is
        continued."""
        self.host = host
        self.prefix = prefix
        self.hops = hops
        self.whole = before + after
        """Lines for a request without an `X-Forwarded-For` to be continued."""
        self.before_clients, self.after_clients = (before, b", " + after) if trusted else (b"", b"")
        """Lines before and after the `X-Forwarded-For` that came; empty if the peer is not trusted."""


NOTHING_WRITTEN: Final = WrittenLines("", "", NO_FIELDS, b"", b"", trusted=False)
"""Forwarding lines of no request: none comes with such lines of other proxies."""


@final
class ForwardingLines:
    """Cache of forwarding lines for all connections of a worker. A client's requests to a Host share them."""

    def __init__(self) -> None:
        self._lines: dict[_LinesKey, WrittenLines] = {}

    def find(self, key: _LinesKey) -> WrittenLines | None:
        """Field lines cached under `key`, which has all that they depend on."""
        return self._lines.get(key)

    def keep(self, key: _LinesKey, lines: WrittenLines) -> None:
        """Cache field lines under `key`. The table is bounded, since clients choose what is in them."""
        if len(self._lines) >= MAX_CACHED_LINES:
            self._lines.clear()
        self._lines[key] = lines


@final
class _JudgedClient:
    """Names of the client at a connection, for requests that begin alike. Apart from `Peer`, because only
    files with `clients` need it, and memory is needed for thousands of connections."""

    __slots__ = ("clients", "fields", "name_without_headers", "names_by_headers", "plain_fields", "until")

    def __init__(self, clients: Clients, fields: bytes, possible: PossibleNames) -> None:
        self.clients = clients
        """Rules by which the client was judged."""
        self.fields, self.until = fields, len(fields)
        """Fields with which its requests begin, up to its User-Agent."""
        self.names_by_headers = possible if possible and possible[0][1] else []
        """Names that the client may have, in the order of the rules; empty: no header decides."""
        name, headers = possible[-1] if possible else ("", ())
        self.name_without_headers = "" if headers else name
        """Name of the client if its request has no header that a rule needs."""
        self.plain_fields: frozenset[str] = frozenset()
        """Names of the fields of a request without such a header. All requests of a layout share the set."""


@final
class Peer:
    """The other end of one client connection, as it is described to the next hop."""

    __slots__ = (
        "_access",
        "_ip",
        "_is_allowed",
        "_judged",
        "_shared",
        "_trusted_networks",
        "_written",
        "address",
        "certificate",
        "certificate_line",
        "expires_at",
        "is_trusted",
        "scheme",
    )

    def __init__(
        self,
        address: str,
        scheme: str,
        trusted: tuple[Network, ...],
        shared: ForwardingLines,
        *,
        trusted_socket: bool = False,
        certificate: ClientCertificate | None = None,
    ) -> None:
        """Describe a peer. `trusted_socket`: every peer on this Unix socket is trusted."""
        self.address = address
        self.scheme = scheme
        self._trusted_networks = trusted
        self._ip = _known_ip(address)
        self.certificate = certificate
        """Verified certificate of the client (mutual TLS)."""
        self.certificate_line = b"" if certificate is None else certificate.line
        """Field line with the client's certificate, if it is passed on."""
        self.expires_at = inf if certificate is None else certificate.not_after
        """Wall-clock seconds at which the client's certificate expires; infinite without one."""
        self.is_trusted = trusted_socket or _is_in(self._ip, trusted)
        """Whether the peer may say who the client is and what the original URL was."""
        self._access: Access | None = None
        """Access rules for which the cached answer about this peer (`_is_allowed`) was computed."""
        self._is_allowed = False
        self._shared = shared
        self._judged: _JudgedClient | None = None
        """Names of the client by the rules for clients; None: there are none, or no request has come."""
        self._written = NOTHING_WRITTEN
        """Field lines for the last request. Mostly the next one gets the same ones."""

    def lines(self, request: RequestHead, backend: Backend, prefix: str) -> bytes:
        """Field lines that the gateway writes for a backend: `Host`, and those about the client but
        `certificate_line`. A client without `Host` (HTTP/1.0) gets that of the backend. `prefix`: the removed
        path prefix, or empty."""
        lines = self._written
        if request.host != lines.host or request.hops != lines.hops or prefix != lines.prefix:
            lines = self._find_lines(request, backend, prefix)
        clients = request.forwarded_for
        if clients is None or not self.is_trusted:
            return lines.whole
        return b"".join((lines.before_clients, clients, lines.after_clients))

    def _find_lines(self, request: RequestHead, backend: Backend, prefix: str) -> WrittenLines:
        """Find or write the lines for a request that differs from the last one, and remember them."""
        if not request.host:
            return self._write_lines(request, backend.authority, prefix)
        key = (self.address, self.scheme, self.is_trusted, request.host, prefix, request.hops)
        lines = self._shared.find(key)
        if lines is None:
            lines = self._write_lines(request, request.host, prefix)
            if len(request.hops) + len(lines.whole) > MAX_CACHED_SIZE:
                return lines
            self._shared.keep(key, lines)
        self._written = lines
        return lines

    def public_base(self, request: RequestHead, prefix: str) -> str:
        """Base of every link that the client can follow: scheme, authority and path prefix of the gateway."""
        fields = self._trusted_fields(request)
        origin = self._origin(request, fields)
        outer = fields.get("x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
        return f"{origin.scheme}://{origin.authority}{outer}{prefix}"

    def client_address(self, request: ReceivedHead) -> str:
        """Address of the client for the access log: the rightmost one that is not a trusted peer. The client
        may have made up the addresses to the left of it."""
        if not self.is_trusted:
            return self.address
        return self._forwarded_client(request) or self.address

    def client_ip(self, request: ReceivedHead) -> IpAddress | None:
        """IP address of the client (`client_address`), or else of the peer. None for a Unix socket."""
        if not self.is_trusted:
            return self._ip
        return read_ip(self.client_address(request)) or self._ip

    def client_name(self, clients: Clients, request: RequestHead) -> str:
        """Name of the client that sent the request; empty: no rule matches."""
        judged, fields = self._judged, request.passthrough
        if judged is None or judged.clients is not clients or fields[: judged.until] != judged.fields:
            judged = self._judged = self._judge(clients, request)
        names = request.names
        if not judged.names_by_headers or names is judged.plain_fields:
            return judged.name_without_headers
        if names is not None and clients.headers.isdisjoint(names):
            judged.plain_fields = names
            return judged.name_without_headers
        chosen = iter(request.selected)
        selected = b"".join(b"\r\n%b: %b" % pair for pair in zip(chosen, chosen, strict=True))
        return clients.name_of(judged.names_by_headers, fields + selected)

    def _judge(self, clients: Clients, request: RequestHead) -> _JudgedClient:
        """Find the names that the client may have, and what tells its next request: all up to User-Agent."""
        fields, certificate, address = request.passthrough, self.certificate, self.client_ip(request)
        begins = fields.find(b"\r\nUser-Agent:")
        ends = fields.find(b"\r\n", begins + 2)
        is_client = not (self.is_trusted and clients.has_networks)  # else a proxy, of several clients
        tells = is_client and 0 <= begins < ends < MAX_CACHED_SIZE
        subject, names = ("", ()) if certificate is None else (certificate.subject, certificate.names)
        possible = clients.possible(request.user_agent, address, subject, names)
        return _JudgedClient(clients, fields[: ends + 2] if tells else NO_FIELDS, possible)

    def is_allowed(self, access: Access, request: ReceivedHead) -> bool:
        """Whether access rules allow the client. Cached per connection if the peer is itself the client."""
        if self.is_trusted:
            return self._forwarded_is_allowed(access, request)
        if self._access is not access:
            self._access, self._is_allowed = access, access.allows(self._ip)
        return self._is_allowed

    def _forwarded_is_allowed(self, access: Access, request: ReceivedHead) -> bool:
        """Whether access rules allow a trusted peer's client. The peer's address counts only if it forwards
        nobody: often allowed itself, it must not stand for a text that is no address (threats R3-T7)."""
        client = self._forwarded_client(request)
        # A proxy that names the peer of a Unix socket runs on the machine of its client.
        if client is None or client == UNIX_PEER:
            return access.allows(self._ip)
        address = read_ip(client)
        return address is not None and access.allows(address)

    def _forwarded_client(self, request: ReceivedHead) -> str | None:
        """Client named by a trusted peer, an address or not; empty if its `X-Forwarded-For` names none. None:
        there is no such field, or the peer is not trusted."""
        if not self.is_trusted:
            return None
        value = request.forwarded_for
        if value is None:
            return None
        # Empty elements say nothing (RFC 9110 5.6.1).
        hops = [hop for part in value.decode("latin-1").split(",") if (hop := part.strip())]
        trusted = self._trusted_networks
        outermost = hops[0] if hops else ""
        return next((hop for hop in reversed(hops) if not _is_in(read_ip(hop), trusted)), outermost)

    def _origin(self, request: RequestHead, fields: dict[str, bytes]) -> _Origin:
        """Server to which the client sent its request. `fields`: those of a trusted peer. The gateway's own
        port says nothing: the client may know another one (a port mapping, a proxy in front), and servers
        write `X-Forwarded-Port` into their links."""
        scheme = fields.get("x-forwarded-proto", b"").decode("latin-1").lower() or self.scheme
        host = fields.get("x-forwarded-host", b"").decode("latin-1") or request.host
        port = fields.get("x-forwarded-port", b"").decode("latin-1") or _split_port(host)[1]
        return _Origin(scheme, host, port or _DEFAULT_PORTS[scheme])

    def _trusted_fields(self, request: RequestHead) -> dict[str, bytes]:
        """Well-formed fields of a trusted peer about the client's URL; empty for others. Of a list the first
        item counts, which the proxy nearest to the client wrote. Several lines with one name are one list."""
        if not self.is_trusted:
            return {}
        fields: dict[str, bytes] = {}
        for name, value in read_lines(request.hops):
            fields[name] = fields[name] + b", " + value if name in fields else value
        for name, valid in _VALID_VALUES.items():
            first = fields.pop(name, b"").split(b",")[0].strip()
            if valid.fullmatch(first):
                fields[name] = first
        return fields

    def _write_lines(self, request: RequestHead, host: str, prefix: str) -> WrittenLines:
        """Write the lines for a request to `host`. Only `X-Forwarded-For` differs from client to client."""
        fields = self._trusted_fields(request)
        outer = fields.get("x-forwarded-prefix", b"").rstrip(b"/")
        origin = self._origin(request, fields)
        after = [
            b"%b\r\n" % self.address.encode(),
            b"X-Forwarded-Proto: %b\r\n" % fields.get("x-forwarded-proto", self.scheme.encode()),
        ]
        if origin.host:  # an empty one is a name to servers that write links
            after.append(b"X-Forwarded-Host: %b\r\n" % origin.host.encode())
        after.append(b"X-Forwarded-Port: %b\r\n" % origin.port.encode())
        if prefix or outer:
            after.append(b"X-Forwarded-Prefix: %b%b\r\n" % (outer, prefix.encode()))
        after += [b"Via: %b\r\n" % value for name, value in read_lines(request.hops) if name == "via"]
        after.append(VIA)
        before = b"Host: %b\r\nX-Forwarded-For: " % host.encode()
        return WrittenLines(
            request.host, prefix, request.hops, before, b"".join(after), trusted=self.is_trusted
        )


def described_peer(address: str) -> Peer:
    """The client of a request that is only described. `address`: its IP address; empty: not known."""
    return Peer(address, "http", (), ForwardingLines())


def _split_port(host: str) -> tuple[str, str]:
    """Name and port of a valid `Host`; the port may be empty (RFC 3986 3.2.3)."""
    name, colon, port = host.rpartition(":")
    return (host, "") if not colon or host[-1] == "]" else (name, port)


def read_ip(text: str) -> IpAddress | None:
    """Read an IP address; None: `text` is none. Some proxies write a port behind it. A socket for IPv4 and
    IPv6 shows IPv4 as IPv6 (`::ffff:10.0.0.1`); rules for it are written as IPv4."""
    with_port = _ADDRESS_AND_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1] or with_port[2]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


_known_ip = lru_cache(maxsize=1024)(read_ip)
"""The IP address of a peer: clients connect again. Reading it takes a tenth of a TLS handshake without
OpenSSL."""


def plain_address(address: str) -> str:
    """Address that a socket reports; IPv4 as such, even if the socket takes IPv6, too."""
    return address.removeprefix("::ffff:") if "." in address else address


def _is_in(address: IpAddress | None, networks: tuple[Network, ...]) -> bool:
    return address is not None and any(address in network for network in networks)
