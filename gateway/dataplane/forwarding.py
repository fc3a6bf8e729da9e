"""The lines by which a proxy tells the next one about the client: X-Forwarded-*, Via.

Written by us; what a client claims is believed only when its peer address is trusted (hardening O11).
`Forwarded` is never passed on: servers that read it ignore the rest (protocols 8), so two sets would be two
truths.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, final

from gateway.dataplane.fields import HOST

if TYPE_CHECKING:
    from gateway.core.backend import Backend
    from gateway.dataplane.context import Network
    from gateway.dataplane.http1 import RequestReader

VIA: Final = b"Via: 1.1 skewgate\r\n"
_USABLE: Final = {
    "x-forwarded-proto": re.compile(rb"https?", re.IGNORECASE),
    "x-forwarded-host": HOST,
    "x-forwarded-port": re.compile(rb"[0-9]{1,5}"),
    "x-forwarded-prefix": re.compile(rb"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+/?"),
}
"""What a claim must look like to be passed on and to stand in links; trusted is not the same as
well-formed."""


@final
class Peer:
    """The other end of one client connection, as the next hop is told about it."""

    def __init__(self, address: str, port: int, scheme: str, trusted: tuple[Network, ...]) -> None:
        self.address = address
        self.scheme = scheme
        self._port = b"%d" % port
        self._networks = trusted
        self._trusted = _is_in(address, trusted)

    def tail(self, request: RequestReader, backend: Backend, prefix: str) -> bytes:
        """The part of a head to a backend that is the same for every request with this block of fields: what
        is kept of it, Host, and the lines about the client. A client that names no host (HTTP/1.0) gets the
        backend's; `prefix`: the path prefix that was taken off, or empty."""
        block = request.block
        told = block.told
        tail = told.get(prefix)
        if tail is None or block.host != request.host or not block.host:
            host = b"Host: %b\r\n" % (request.host or backend.authority).encode()
            tail = block.kept + host + self._compose(request, prefix)
            if block.host and block.host == request.host:
                told[prefix] = tail
        return tail

    def public(self, request: RequestReader, prefix: str) -> str:
        """Scheme, authority and prefix under which the client reached us: the base of every link it can
        follow."""
        claimed = self._claims(request)
        scheme = claimed.get("x-forwarded-proto", b"").decode("latin-1").lower() or self.scheme
        host = claimed.get("x-forwarded-host", b"").decode("latin-1") or request.host
        outer = claimed.get("x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
        return f"{scheme}://{host}{outer}{prefix}"

    def client(self, request: RequestReader) -> str:
        """The client's address, for the access log: read from the right, the first that no trusted peer has.
        What stands left of it is that client's invention."""
        claimed = self._claims(request).get("x-forwarded-for")
        if not claimed:
            return self.address
        hops = [hop.strip() for hop in claimed.decode("latin-1").split(",")]
        return next((hop for hop in reversed(hops) if not _is_in(hop, self._networks)), hops[0])

    def _claims(self, request: RequestReader) -> dict[str, bytes]:
        """What a trusted peer says, as far as it can be used. Of a list the first item counts, which the
        proxy nearest to the client wrote; several lines of one name are one list. X-Forwarded-For stays
        whole."""
        if not self._trusted:
            return {}
        claims: dict[str, bytes] = {}
        for name, value in request.block.forwarded:
            claims[name] = claims[name] + b", " + value if name in claims else value
        for name, usable in _USABLE.items():
            first = claims.pop(name, b"").split(b",")[0].strip()
            if usable.fullmatch(first):
                claims[name] = first
        return claims

    def _compose(self, request: RequestReader, prefix: str) -> bytes:
        claims = self._claims(request)
        address = self.address.encode()
        before = claims.get("x-forwarded-for")
        outer = claims.get("x-forwarded-prefix", b"").rstrip(b"/")
        lines = [
            b"X-Forwarded-For: %b\r\n" % (before + b", " + address if before else address),
            b"X-Forwarded-Proto: %b\r\n" % claims.get("x-forwarded-proto", self.scheme.encode()),
            b"X-Forwarded-Host: %b\r\n" % claims.get("x-forwarded-host", request.host.encode()),
            b"X-Forwarded-Port: %b\r\n" % claims.get("x-forwarded-port", self._port),
        ]
        if prefix or outer:
            lines.append(b"X-Forwarded-Prefix: %b%b\r\n" % (outer, prefix.encode()))
        lines += [b"Via: %b\r\n" % value for value in request.block.via]
        return b"".join((*lines, VIA))


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:  # a unix socket has no address
        return False
    return any(parsed in network for network in networks)
