"""Access to the admin listener: Host, Origin and token are checked before any handler runs (threats O6).

The check of Host stops a foreign page whose own name resolves to this address (DNS rebinding). Health checks
are exempt from it: HAProxy sends no Host, and others send the name that they were given (threats R3-V0). The
check of Origin stops a foreign page that sends requests here. Token or certificate stop everybody else. No
response allows another origin to read it. Below `/ui/` the cookie of a session replaces the token, and a
browser without one is sent to the sign-in page.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final, final

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from gateway.admin.connection import AdminConnection
from gateway.admin.context import AdminAccess
from gateway.admin.responses import Handler
from gateway.admin.ui.access import (
    CALLER,
    SIGN_IN,
    Caller,
    is_open_page,
    is_page,
    session_id_of,
    sign_in_path,
    tls_of,
    wants_page,
)
from gateway.admin.ui.sessions import Proof, Session, Sessions, proof_of_certificate, proof_of_token
from gateway.dataplane.limits.rate_limiter import TokenBuckets
from gateway.keys.secrets import Secret

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
OPEN: Final = frozenset({"/livez", "/readyz"})
"""Paths that need neither a token nor a known Host: supervisors and load balancers must not need a secret,
and get one word. `?verbose` needs both: it names services."""

AT_ONCE: Final = 10
"""Number of wrong tokens at once that get 401: operators mistype, and paste the wrong line."""

PER_SECOND: Final = 5.0
"""Number of further wrong tokens a second that get 401, after `AT_ONCE`; all others get 429."""

TOO_MANY: Final = "wrong token, after too many wrong tokens: try again in a moment"


@final
class WrongTokens:
    """Rate limit for wrong tokens, in the form of the operations page and in the field Authorization together
    (threats R3-T5), and for all clients together: behind a proxy they have one address.

    Only tokens that were compared and are wrong count. A right one is always accepted, so nobody can lock
    operators out. The limit does not make guessing harder, which is up to the length of the token: it slows
    down clients with an outdated token. `clock` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bucket = TokenBuckets(PER_SECOND, AT_ONCE)

    def add(self) -> int:
        """Counts one wrong token. Returns 0, or the seconds for `Retry-After` if it exceeds the limit."""
        return ceil(self._bucket.take("", self._clock()))


@final
class Guard:
    """Checks of requests to the admin listener. `sessions` are those of the operations page."""

    def __init__(
        self,
        access: AdminAccess,
        sessions: Sessions | None = None,
        wrong_tokens: WrongTokens | None = None,
    ) -> None:
        hosts = access.hosts
        self._hosts = None if hosts is None else frozenset({*LOOPBACK, *(host.lower() for host in hosts)})
        self._access = access
        self._sessions = Sessions() if sessions is None else sessions
        self._wrong_tokens = WrongTokens() if wrong_tokens is None else wrong_tokens

    def foreign(self, request: web.Request) -> web.HTTPException | None:
        """Returns the refusal of another Host or of a page of another origin; None: it is neither."""
        hosts = [host.lower() for host in request.headers.getall("Host", [])]
        # Any Host is accepted for a public response. An HTTP/1.0 request may have none then; an HTTP/1.1
        # request without one got 400 before (RFC 9112 3.2).
        takes_any_host = self._hosts is None or _is_health_check(request)
        if not takes_any_host and (len(hosts) != 1 or hosts[0] not in self._authorities(request)):
            return web.HTTPForbidden(text="the Host header does not name the admin listener")
        origins = request.headers.getall("Origin", [])
        scheme = "http" if tls_of(request) is None else "https"
        own = {f"{scheme}://{host}" for host in hosts}
        if any(origin.lower() not in own for origin in origins):
            return web.HTTPForbidden(text="requests from pages of another origin are refused")
        return None

    def stranger(self, request: web.Request) -> web.HTTPException:
        """Returns the refusal of a request without valid credentials."""
        if self._access.token() is None:
            return web.HTTPForbidden(text="a client certificate of an operator is needed")
        # A request with credentials and without a caller has a wrong token.
        if hdrs.AUTHORIZATION in request.headers and (wait := self._wrong_tokens.add()):
            return web.HTTPTooManyRequests(text=TOO_MANY, headers={hdrs.RETRY_AFTER: str(wait)})
        if not is_page(request):
            text = "send the admin token: `Authorization: Bearer TOKEN`"
        elif wants_page(request):
            refusal = web.HTTPSeeOther(SIGN_IN)
            # As an argument it would be parsed as a URL and written in another spelling.
            refusal.headers[hdrs.LOCATION] = sign_in_path(request.path_qs)
            return refusal
        else:
            text = "sign in, or send the admin token: `Authorization: Bearer TOKEN`"
        return web.HTTPUnauthorized(text=text, headers={"WWW-Authenticate": "Bearer"})

    def caller(self, request: web.Request) -> Caller | None:
        """Returns the credentials of a request; None: it has none. Without token and certificates every
        request is allowed: the listener is on loopback, or its content is public."""
        token = self._access.token()
        certificate = _certificate(request) if self._access.by_certificate() else None
        shown: Proof | None = None
        if certificate is not None:
            shown = proof_of_certificate(certificate)
        elif token is not None and _has_token(request, token):
            shown = proof_of_token(token)
        session = self._session(request, token, shown)
        if shown is None and session is None and self._access.identifies:
            return None
        return Caller(shown, session, lambda: self.caller(request) is not None)

    def _session(self, request: web.Request, token: Secret | None, shown: Proof | None) -> Session | None:
        """Session of the request's cookie, if its operator's token or certificate is still valid."""
        session_id = session_id_of(request) if is_page(request) else ""
        if not session_id:
            return None
        proofs = {shown} if shown is not None else set()
        if token is not None:
            proofs.add(proof_of_token(token))
        return self._sessions.find(session_id, proofs)

    def _authorities(self, request: web.Request) -> set[str]:
        """Valid values of Host for the address that a request came to; without port for the default one."""
        address = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not isinstance(address, tuple):
            return set()
        own, port = str(address[0]), int(address[1])
        names = {f"[{host}]" if ":" in host else host for host in {*(self._hosts or ()), own}}
        default = 80 if tls_of(request) is None else 443
        return {f"{name}:{port}" for name in names} | (names if port == default else set())


def _is_health_check(request: web.Request) -> bool:
    return request.path in OPEN and "verbose" not in request.query


def _certificate(request: web.Request) -> bytes | None:
    """Client certificate of a request in DER, as OpenSSL has verified it; None: none, or it has expired."""
    connection = request.transport
    if isinstance(connection, AdminConnection) and connection.has_expired:
        return None
    tls = tls_of(request)
    return None if tls is None else tls.getpeercert(binary_form=True)


def _has_token(request: web.Request, token: Secret) -> bool:
    """Whether a request has `token`, compared in constant time. Two Authorization fields count as none."""
    fields = request.headers.getall("Authorization", [])
    scheme, _, credentials = fields[0].partition(" ") if len(fields) == 1 else ("", "", "")
    return scheme.lower() == "bearer" and token.matches(credentials.strip())


def guard_requests(guard: Guard) -> Middleware:
    """Makes the middleware that raises the refusals of `guard`, and marks connections as authorised."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (refusal := guard.foreign(request)) is not None:
            raise refusal
        caller = guard.caller(request)
        if caller is None and not (is_open_page(request) or _is_health_check(request)):
            raise guard.stranger(request)
        if caller is not None:
            request[CALLER] = caller
            if isinstance(request.transport, AdminConnection):
                request.transport.authorised = True
        return await handler(request)

    return check
