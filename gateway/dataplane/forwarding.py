"""The lines by which a proxy tells the next one about the client: X-Forwarded-*, Via.

Written by us; what a client claims is believed only when its peer address is trusted (hardening O11). `Forwarded` is
never passed on: servers that read it ignore the rest (protocols 8), so two sets would be two truths.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, final

from gateway.errors import FramingError

if TYPE_CHECKING:
    from gateway.dataplane.context import Network
    from gateway.dataplane.http1 import RequestReader

PSEUDONYM: Final = b"skewgate"
VIA: Final = b"Via: 1.1 skewgate\r\n"
MAX_LOOPS: Final = 8
"""How often our own name may stand in `Via` before we call it a loop (508, hardening H9): nested gateways are legal."""
_REMEMBERED: Final = 16


@final
class Peer:
    """The other end of one client connection, as the next hop is told about it."""

    def __init__(self, address: str, port: int, scheme: str, trusted: tuple[Network, ...]) -> None:
        self.address = address
        self.scheme = scheme
        self._port = b"%d" % port
        self._trusted = trusted and _is_in(address, trusted)
        self._lines: dict[tuple[str, str], bytes] = {}

    def lines(self, request: RequestReader, prefix: str) -> bytes:
        """The header lines for this request. `prefix`: the path prefix that was taken off, or empty."""
        if request.via:
            return self._compose(request, prefix)
        if self._trusted and request.forwarded:
            return self._compose(request, prefix)
        key = (request.host, prefix)
        lines = self._lines.get(key)
        if lines is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            lines = self._lines[key] = self._compose(request, prefix)
        return lines

    def public(self, request: RequestReader, prefix: str) -> str:
        """Scheme, authority and prefix under which the client reached us: the base of every link it can follow."""
        claimed = self._claims(request)
        scheme = claimed.get("x-forwarded-proto", b"").decode("latin-1") or self.scheme
        host = claimed.get("x-forwarded-host", b"").decode("latin-1") or request.host
        outer = claimed.get("x-forwarded-prefix", b"").decode("latin-1").rstrip("/")
        return f"{scheme}://{host}{outer}{prefix}"

    def client(self, request: RequestReader) -> str:
        """The client's address, for the access log."""
        claimed = self._claims(request).get("x-forwarded-for")
        return claimed.split(b",")[0].strip().decode("latin-1") if claimed else self.address

    def _claims(self, request: RequestReader) -> dict[str, bytes]:
        """What a trusted peer says; several lines of one name are one list."""
        if not self._trusted:
            return {}
        claims: dict[str, bytes] = {}
        for name, value in request.forwarded:
            claims[name] = claims[name] + b", " + value if name in claims else value
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
        lines += [b"Via: %b\r\n" % value for value in request.via]
        if sum(value.lower().count(PSEUDONYM) for value in request.via) >= MAX_LOOPS:
            raise FramingError("loop", 508)
        return b"".join((*lines, VIA))


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:  # a unix socket has no address
        return False
    return any(parsed in network for network in networks)
