"""Who may ask the admin listener at all: Host, Origin and token are checked before any handler runs
(hardening O6).

Host stops a foreign page that made its own name point here (DNS rebinding), Origin one that merely sends
requests here, the token everybody else. No answer ever allows another origin to read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias, final

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.settings.secret import Secret

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
OPEN: Final = frozenset({"/livez"})
"""Paths that need no token: whoever restarts a dead process must not need a secret."""


@final
class Guard:
    """Says why a request is refused. `hosts`: further names under which this listener may be addressed."""

    def __init__(self, hosts: Collection[str], token: Secret | None) -> None:
        self._hosts = frozenset({*LOOPBACK, *(host.lower() for host in hosts)})
        self._token = token

    def refuse(self, request: web.Request) -> web.HTTPException | None:
        """None: it may pass."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._authorities(request):
            return web.HTTPForbidden(text="this is not the Host of the admin listener")
        origins = request.headers.getall("Origin", [])
        if any(origin.lower() != f"{request.scheme}://{hosts[0].lower()}" for origin in origins):
            return web.HTTPForbidden(text="requests from pages of another origin are refused")
        if self._token is None or request.path in OPEN or self._carries_token(request, self._token):
            return None
        return web.HTTPUnauthorized(
            text="send the admin token as `Authorization: Bearer TOKEN`",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _authorities(self, request: web.Request) -> set[str]:
        """Every Host that names the address on which this request came in; without port only where 80 is
        meant."""
        address = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not isinstance(address, tuple):
            return set()
        own, port = str(address[0]), int(address[1])
        names = {f"[{host}]" if ":" in host else host for host in {*self._hosts, own}}
        return {f"{name}:{port}" for name in names} | (names if port == 80 else set())

    def _carries_token(self, request: web.Request, token: Secret) -> bool:
        """Compared in constant time. Several Authorization lines are none."""
        lines = request.headers.getall("Authorization", [])
        scheme, _, given = lines[0].partition(" ") if len(lines) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and token.matches(given.strip())


def guarded(guard: Guard) -> Middleware:
    """The middleware that asks `guard` first."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = guard.refuse(request)
        if refusal is not None:
            raise refusal
        return await handler(request)

    return check
