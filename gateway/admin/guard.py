"""Who may use the admin listener: Host, Origin and token are checked before any handler runs (threats O6).

The check of Host stops a foreign page whose own name resolves to this address (DNS rebinding). The check of
Origin stops a foreign page that sends requests here. The token stops everybody else. No response allows
another origin to read it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, final

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.admin.connection import AdminConnection
from gateway.admin.responses import Handler
from gateway.settings.model.secret import Secret

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
OPEN: Final = frozenset({"/livez"})
"""Paths that need no token: what restarts a dead process must not need a secret."""


@final
class Guard:
    """Decides which requests are refused. `hosts`: further names by which this listener may be addressed."""

    def __init__(self, hosts: Collection[str], token: Secret | None) -> None:
        self._hosts = frozenset({*LOOPBACK, *(host.lower() for host in hosts)})
        self._token = token

    def refusal(self, request: web.Request) -> web.HTTPException | None:
        """The refusal of `request`; None: it may pass."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._authorities(request):
            return web.HTTPForbidden(text="the Host header does not name the admin listener")
        origins = request.headers.getall("Origin", [])
        if any(origin.lower() != f"{request.scheme}://{hosts[0].lower()}" for origin in origins):
            return web.HTTPForbidden(text="requests from pages of another origin are refused")
        if request.path in OPEN or self.authorises(request):
            return None
        return web.HTTPUnauthorized(
            text="send the admin token as `Authorization: Bearer TOKEN`",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def authorises(self, request: web.Request) -> bool:
        """Whether a request may do everything. Without a token, this listener is on loopback."""
        return self._token is None or _has_token(request, self._token)

    def _authorities(self, request: web.Request) -> set[str]:
        """Every Host that names the address on which this request came in; without a port only for port
        80."""
        address = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not isinstance(address, tuple):
            return set()
        own, port = str(address[0]), int(address[1])
        names = {f"[{host}]" if ":" in host else host for host in {*self._hosts, own}}
        return {f"{name}:{port}" for name in names} | (names if port == 80 else set())


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
