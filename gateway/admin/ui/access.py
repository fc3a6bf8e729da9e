"""Credentials in requests and responses of the operations page: callers, operators, cookies and local paths.

    caller      credentials of a request: certificate, token, session, or none where everybody may look
    operator    caller who may give commands: one with a certificate, the token or a session

The cookie of a session authorises the pages below `/ui/` and nothing else: not `/status`, not the commands of
the API. `admin.guard` finds the caller and refuses; nothing here does.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from aiohttp import hdrs, web

from gateway.admin.ui.sessions import Notice, Proof, Session

COOKIE: Final = "skewgate_session"
PAGES: Final = "/ui/"
SIGN_IN: Final = "/ui/sign-in"
SIGN_OUT: Final = "/ui/sign-out"
STATIC: Final = "/ui/static"
OPEN_PAGES: Final = frozenset({"/ui", SIGN_IN})
"""Pages that need no credentials, beside the files in `STATIC`: a redirection, and the form for the token."""

DONE: Final = "done"
"""Query parameter of a service's page with the number of a command's result."""

FORGED: Final = "nothing was done: the form is not from a page of your session; reload that page"

MAX_NEXT: Final = 2048
"""Maximum characters of the path to which a sign-in leads."""

_LOCAL: Final = re.compile(r"/ui/[A-Za-z0-9\-._~%!$&'()*+,;=:@/?\[\]]*")
_EVENT_STREAM: Final = "text/event-stream"


class Caller(NamedTuple):
    """Credentials of a request that was let pass; without any, everybody on this machine may look."""

    proof: Proof | None
    """Proof of identity from the request itself: a certificate, or the token as Bearer."""
    session: Session | None
    is_still_allowed: Callable[[], bool]
    """Returns whether the same request would be let pass now, for a stream that may last for hours: a reload
    can change the token, and a session ends. It counts as a use of the session."""

    @property
    def shown(self) -> Proof | None:
        """Proof of identity from the request or its session; None: no command is accepted."""
        return self.proof if self.session is None else self.session.proof

    def session_of(self, csrf: str) -> Session:
        """Session of the page whose form has sent this CSRF token. Raises 403."""
        if self.session is None or not self.session.has_csrf(csrf):
            raise web.HTTPForbidden(text=FORGED)
        return self.session


CALLER: Final[web.RequestKey[Caller]] = web.RequestKey("caller", Caller)
"""Key under which `admin.guard` stores the caller of each request that it lets pass, but for open pages."""


class Operator(NamedTuple):
    """Caller with a session, as the page shows it."""

    signed_in: bool
    """Whether the operator has signed in by the form, and can sign out."""
    notice: Notice | None
    """Result of the command that led to this page."""


def operator_of(request: web.Request) -> Operator | None:
    """Returns the operator who sent a request; None: it belongs to no session."""
    caller = request[CALLER]
    if caller.session is None:
        return None
    return Operator(caller.proof is None, caller.session.notice(request.query.get(DONE, "")))


def follower_of(request: web.Request) -> object | None:
    """Identity of the operator to whom a page belongs: the proof of a certificate, or a session. None:
    operators cannot be distinguished, because a proxy sends the token for all of them, or there is none."""
    caller, tls = request[CALLER], tls_of(request)
    if caller.proof is not None and tls is not None and tls.getpeercert(binary_form=True):
        return caller.proof
    return caller.session


def is_page(request: web.Request) -> bool:
    """Whether the route of a request is below `/ui/`."""
    path = _route(request) or request.path
    return path == PAGES.rstrip("/") or path.startswith(PAGES)


def is_open_page(request: web.Request) -> bool:
    """Whether a request is for a page that needs no credentials."""
    path = _route(request)
    return path in OPEN_PAGES or path == STATIC or path.startswith(f"{STATIC}/")


def _route(request: web.Request) -> str:
    """Path of the route of a request, with names in braces; empty: there is none."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def wants_page(request: web.Request) -> bool:
    """Whether a request comes from a browser for a page, rather than from a script or for a stream."""
    accepted = ",".join(request.headers.getall(hdrs.ACCEPT, []))
    is_get = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
    return is_get and _EVENT_STREAM not in accepted and hdrs.AUTHORIZATION not in request.headers


def service_path(service: str) -> str:
    """Makes the path of a service's page."""
    return f"/ui/services/{quote(service, safe='')}"


def sign_in_path(target: str) -> str:
    """Makes the path of the sign-in page that leads to `target` afterwards."""
    local = local_page(target)
    return SIGN_IN if local == PAGES else f"{SIGN_IN}?next={quote(local, safe='/')}"


def local_page(target: str) -> str:
    """Returns `target` if it is a page of the gateway, else the first page: a link to the sign-in may come
    from anywhere. Browsers take `//` and `/\\` for another host, and resolve dots."""
    path = target.partition("?")[0]
    segments = unquote(path).split("/")
    is_ours = (
        len(target) <= MAX_NEXT
        and _LOCAL.fullmatch(target) is not None
        and "//" not in unquote(path)
        and not {".", ".."}.intersection(segments)
        and path not in {SIGN_IN, SIGN_OUT}
    )
    return target if is_ours else PAGES


def cookie_name(host: str) -> str:
    """Makes the name of the cookie, with the port: cookies go to all ports of a host name (RFC 6265 8.5)."""
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def session_id_of(request: web.Request) -> str:
    """Reads the session id from the cookie; empty: there is none, or several cookies of this name."""
    own = cookie_name(request.host)
    pairs = ";".join(request.headers.getall(hdrs.COOKIE, [])).split(";")
    found = [value for name, _, value in (pair.strip().partition("=") for pair in pairs) if name == own]
    return found[0] if len(found) == 1 else ""


def tls_of(request: web.Request) -> ssl.SSLObject | None:
    """Returns the TLS object of a request's connection; None: it is not TLS."""
    found = request.get_extra_info("ssl_object")
    return found if isinstance(found, ssl.SSLObject) else None


def set_session(request: web.Request, response: web.StreamResponse, session_id: str) -> None:
    """Set the session cookie of the operations page in a response, until the browser is closed."""
    response.set_cookie(cookie_name(request.host), session_id, **_attributes(request))


def unset_session(request: web.Request, response: web.StreamResponse) -> None:
    """Deletes the cookie with the session id."""
    response.del_cookie(cookie_name(request.host), **_attributes(request))


def _attributes(request: web.Request) -> dict[str, Any]:
    """Attributes of the session's cookie."""
    return {"path": PAGES, "httponly": True, "samesite": "Strict", "secure": tls_of(request) is not None}
