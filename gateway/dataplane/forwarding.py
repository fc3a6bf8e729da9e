"""The fields that describe the client to the next hop: `X-Forwarded-*` and `Via`.

The gateway writes them. Values from the client are used only if its address is trusted (threats O11).
`Forwarded` is never sent: servers that read it ignore `X-Forwarded-*`, so the two could disagree (threats
O11).
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gateway.dataplane.http1.fields import HOST, NO_BODY
from gateway.dataplane.http1.heads import MAX_CACHED_SECTION_SIZE

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend
    from gateway.dataplane.context import Network
    from gateway.dataplane.http1.fields import RequestFieldSection
    from gateway.dataplane.http1.heads import RequestHead
    from gateway.telemetry.request_record import ReceivedHead

MAX_CACHED_HOSTS: Final = 8
"""Names under which one client connection reaches the gateway: clients use one."""
VIA: Final = b"Via: 1.1 skewgate\r\n"
_VALID_VALUES: Final = {
    "x-forwarded-proto": re.compile(rb"https?", re.IGNORECASE),
    "x-forwarded-host": HOST,
    "x-forwarded-port": re.compile(rb"[0-9]{1,5}"),
    "x-forwarded-prefix": re.compile(rb"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+/?"),
}
"""What a value from a trusted peer must match to be forwarded and to be used in links: trusted values can be
malformed."""
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


class _Origin(NamedTuple):
    """What a client wrote before the path of its request: its server, as it knows it."""

    scheme: str
    host: str
    """A name or address, with a port where the client wrote one; empty for HTTP/1.0 without `Host`."""
    port: str

    @property
    def authority(self) -> str:
        """The host with this port, for links."""
        name, written = _split_port(self.host)
        if self.port == written:
            return self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"


@final
class Peer:
    """The other end of one client connection, as it is described to the next hop."""

    def __init__(self, address: str, scheme: str, trusted: tuple[Network, ...]) -> None:
        self.address = address
        self.scheme = scheme
        self._trusted_networks = trusted
        self.is_trusted = _is_in(address, trusted)
        """Whether it may say who the client is, and what the original URL was."""
        self._lines: dict[tuple[str, str], bytes] = {}
        """The lines about this client by Host and removed prefix, where nothing else enters."""
        self._last_section: RequestFieldSection | None = None
        self._last_prefix = ""
        self._last_upstream_fields = b""
        """What `upstream_fields` gave last. Most clients send the same field section again and again."""

    def upstream_fields(self, request: RequestHead, backend: Backend, prefix: str) -> bytes:
        """The field lines for a backend that are the same for every request with this field section: the
        passthrough fields, `Host`, and the lines about the client.

        A client without `Host` (HTTP/1.0) gets that of the backend. `prefix`: the path prefix that was
        removed, or empty. Begins with the CRLF of the line before.
        """
        section = request.field_section
        if section is self._last_section and prefix == self._last_prefix and section.host == request.host:
            return self._last_upstream_fields
        host = b"Host: %b\r\n" % (request.host or backend.authority).encode()
        lines = section.passthrough + host + self._forwarding_lines(request, prefix)
        if section.max_forwards:  # what is sent depends on the method
            return lines + request.max_forwards_lines()
        if (
            section.framing == NO_BODY  # otherwise no other request has this field section
            and len(section.passthrough) <= MAX_CACHED_SECTION_SIZE
            and section.host
            and section.host == request.host
        ):
            self._last_section, self._last_prefix, self._last_upstream_fields = section, prefix, lines
        return lines

    def public_base(self, request: RequestHead, prefix: str) -> str:
        """The scheme, authority and path prefix by which the client reached the gateway: the base of every
        link that it can follow."""
        fields = self._trusted_fields(request)
        origin = self._origin(request, fields)
        outer = fields.get("x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
        return f"{origin.scheme}://{origin.authority}{outer}{prefix}"

    def client_address(self, request: ReceivedHead) -> str:
        """The address of the client, for the access log: the rightmost one that is not a trusted peer.

        The client may have made up the addresses to the left of it.
        """
        addresses = self._trusted_fields(request).get("x-forwarded-for")
        if not addresses:
            return self.address
        hops = [hop.strip() for hop in addresses.decode("latin-1").split(",")]
        return next((hop for hop in reversed(hops) if not _is_in(hop, self._trusted_networks)), hops[0])

    def _origin(self, request: RequestHead, fields: dict[str, bytes]) -> _Origin:
        """Where the client sent its request. `fields`: those of a trusted peer.

        The gateway's own port says nothing: the client may know another one (a port mapping, a proxy in
        front). Servers that believe `X-Forwarded-Port` write it into their links.
        """
        scheme = fields.get("x-forwarded-proto", b"").decode("latin-1").lower() or self.scheme
        host = fields.get("x-forwarded-host", b"").decode("latin-1") or request.host
        port = fields.get("x-forwarded-port", b"").decode("latin-1") or _split_port(host)[1]
        return _Origin(scheme, host, port or _DEFAULT_PORTS[scheme])

    def _trusted_fields(self, request: ReceivedHead) -> dict[str, bytes]:
        """The well-formed fields of a trusted peer; empty for other peers.

        Of a list the first item counts, which the proxy nearest to the client wrote. Several lines with one
        name are one list. `X-Forwarded-For` is kept whole.
        """
        if not self.is_trusted:
            return {}
        fields: dict[str, bytes] = {}
        for name, value in request.forwarded:
            fields[name] = fields[name] + b", " + value if name in fields else value
        for name, valid in _VALID_VALUES.items():
            first = fields.pop(name, b"").split(b",")[0].strip()
            if valid.fullmatch(first):
                fields[name] = first
        return fields

    def _forwarding_lines(self, request: RequestHead, prefix: str) -> bytes:
        """`X-Forwarded-*` and `Via`. Of a client that is not trusted they are the same for every request to
        one Host."""
        if self.is_trusted or request.field_section.via:
            return self._new_forwarding_lines(request, prefix)
        lines = self._lines.get((request.host, prefix))
        if lines is None:
            if len(self._lines) >= MAX_CACHED_HOSTS:
                self._lines.clear()
            lines = self._lines[request.host, prefix] = self._new_forwarding_lines(request, prefix)
        return lines

    def _new_forwarding_lines(self, request: RequestHead, prefix: str) -> bytes:
        fields = self._trusted_fields(request)
        address = self.address.encode()
        before = fields.get("x-forwarded-for")
        outer = fields.get("x-forwarded-prefix", b"").rstrip(b"/")
        origin = self._origin(request, fields)
        lines = [
            b"X-Forwarded-For: %b\r\n" % (before + b", " + address if before else address),
            b"X-Forwarded-Proto: %b\r\n" % fields.get("x-forwarded-proto", self.scheme.encode()),
            b"X-Forwarded-Host: %b\r\n" % origin.host.encode(),
            b"X-Forwarded-Port: %b\r\n" % origin.port.encode(),
        ]
        if prefix or outer:
            lines.append(b"X-Forwarded-Prefix: %b%b\r\n" % (outer, prefix.encode()))
        lines += [b"Via: %b\r\n" % value for value in request.field_section.via]
        return b"".join((*lines, VIA))


def _split_port(host: str) -> tuple[str, str]:
    """A valid `Host` as name and port; the port is empty if there is none (RFC 3986 3.2.3: a colon alone
    means none)."""
    name, colon, port = host.rpartition(":")
    return (host, "") if not colon or host[-1] == "]" else (name, port)


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:  # a unix socket has no address
        return False
    return any(parsed in network for network in networks)
