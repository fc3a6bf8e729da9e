"""Who may use the admin listener: Host, Origin and token are checked before any handler runs (threats O6).

The check of Host stops a foreign page whose own name resolves to this address (DNS rebinding). The check of
Origin stops a foreign page that sends requests here. Token or certificate stop everybody else. No response
allows another origin to read it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection
from typing import Final, final

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.admin.connection import AdminConnection
from gateway.admin.responses import Handler
from gateway.settings.model.secret import Secret

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
OPEN: Final = frozenset({"/livez", "/readyz"})
"""Paths that need no token: what restarts a dead process, or sends requests to a ready one, must not need a
secret. `?verbose` does: it names services."""


@final
class Guard:
    """Decides which requests are refused. `hosts`: further names by which this listener may be addressed.
    `token`: the one in force, which a reload may change."""

    def __init__(
        self,
        hosts: Collection[str],
        token: Callable[[], Secret | None],
        *,
        by_certificate: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hosts = frozenset({*LOOPBACK, *(host.lower() for host in hosts)})
        self._token = token
        self._by_certificate = by_certificate
        """Whether certificates of clients are verified: then one stands for the token."""

    def refusal(self, request: web.Request) -> web.HTTPException | None:
        """The refusal of `request`; None: it may pass."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._authorities(request):
            return web.HTTPForbidden(text="the Host header does not name the admin listener")
        origins = request.headers.getall("Origin", [])
        scheme = "http" if _tls(request) is None else "https"
        if any(origin.lower() != f"{scheme}://{hosts[0].lower()}" for origin in origins):
            return web.HTTPForbidden(text="requests from pages of another origin are refused")
        if _is_open(request) or self.authorises(request):
            return None
        if self._token() is None:
            return web.HTTPForbidden(text="show the certificate of an operator in the TLS handshake")
        return web.HTTPUnauthorized(
            text="send the admin token as `Authorization: Bearer TOKEN`",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def authorises(self, request: web.Request) -> bool:
        """Whether a request may do everything. Without token and certificates, this listener is on loopback,
        or shows what everybody may see."""
        by_certificate = self._by_certificate()
        if by_certificate and _has_certificate(request):
            return True
        token = self._token()
        if token is None:
            return not by_certificate
        return _has_token(request, token)

    def _authorities(self, request: web.Request) -> set[str]:
        """Every Host that names the address on which this request came in; without a port only for the
        default one."""
        address = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not isinstance(address, tuple):
            return set()
        own, port = str(address[0]), int(address[1])
        names = {f"[{host}]" if ":" in host else host for host in {*self._hosts, own}}
        default = 80 if _tls(request) is None else 443
        return {f"{name}:{port}" for name in names} | (names if port == default else set())


def _is_open(request: web.Request) -> bool:
    return request.path in OPEN and "verbose" not in request.query


def _tls(request: web.Request) -> ssl.SSLObject | None:
    """Of the connection; None: it is plain."""
    found = request.get_extra_info("ssl_object")
    return found if isinstance(found, ssl.SSLObject) else None


def _has_certificate(request: web.Request) -> bool:
    """Whether the client has shown one. OpenSSL has verified it, or there would be no connection."""
    tls = _tls(request)
    return tls is not None and tls.getpeercert(binary_form=True) is not None


def _has_token(request: web.Request, token: Secret) -> bool:
    """Compares in constant time. Several Authorization fields count as none."""
    fields = request.headers.getall("Authorization", [])
    scheme, _, credentials = fields[0].partition(" ") if len(fields) == 1 else ("", "", "")
    return scheme.lower() == "bearer" and token.matches(credentials.strip())


def guard_requests(guard: Guard) -> Middleware:
    """The middleware that raises the refusals of `guard`, and marks the connection of an operator."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = guard.refusal(request)
        if refusal is not None:
            raise refusal
        if isinstance(request.protocol, AdminConnection) and guard.authorises(request):
            request.protocol.authorised = True
        return await handler(request)

    return check
