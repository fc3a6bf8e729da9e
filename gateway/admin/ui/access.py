"""Who may look at the operations page, and who may command from it, as requests and responses say it.

    caller      by what a request is an operator's: certificate, token, session, or because everybody may look
    operator    whoever may command from the page: a caller who has shown a certificate or the token

The cookie of a session authorises the pages below `/ui/` and nothing else: not `/status`, not the commands of
the API. `admin.guard` finds the caller and refuses; nothing here does.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from aiohttp import hdrs, web

from gateway.admin.ui.sessions import Notice, Proof, Session

COOKIE: Final = "skewgate_session"
PAGES: Final = "/ui/"
SIGN_IN: Final = "/ui/sign-in"
SIGN_OUT: Final = "/ui/sign-out"
STATIC: Final = "/ui/static"
OPEN_PAGES: Final = frozenset({"/ui", SIGN_IN})
"""What everybody may have, together with the files in `STATIC`: a redirection, the form for the token, and
what that looks like."""

DONE: Final = "done"
"""The parameter of a service's page that names the result of a command."""

MAX_DIGITS: Final = 10
"""Of the number of a result."""

MAX_NEXT: Final = 2048
"""Characters of an address to which a sign-in leads."""

_LOCAL: Final = re.compile(r"/ui/[A-Za-z0-9\-._~%!$&'()*+,;=:@/?\[\]]*")
_EVENT_STREAM: Final = "text/event-stream"


class Caller(NamedTuple):
    """By what a request may see everything. Neither: everybody on this machine may."""

    proof: Proof | None
    """What the request itself shows: a certificate, or the token as Bearer."""
    session: Session | None
    """That of its cookie."""
    is_still_allowed: Callable[[], bool]
    """Whether the same request would be let pass now as well. For a stream that may last for hours: a reload
    can change the token, and a session ends. It counts as a use of the session."""

    @property
    def shown(self) -> Proof | None:
        """What this operator has shown, now or at the sign-in. None: nothing, so no command is taken."""
        return self.proof if self.session is None else self.session.proof


CALLER: Final[web.RequestKey[Caller]] = web.RequestKey("caller", Caller)
"""Set by `admin.guard` on each request that it lets pass."""


class Operator(NamedTuple):
    """Whoever may command from the page."""

    signed_in: bool
    """By the token in the form, so that signing out makes sense."""
    notice: Notice | None
    """The result of the command that led to this page."""


def operator_of(request: web.Request) -> Operator | None:
    """None: this request may look and not command."""
    caller = request.get(CALLER)
    if caller is None or caller.shown is None:
        return None
    session = caller.session
    if session is None:
        return Operator(signed_in=False, notice=None)
    number = request.query.get(DONE, "")
    is_number = number.isascii() and number.isdecimal() and len(number) < MAX_DIGITS
    notice = session.notice(int(number)) if is_number else None
    return Operator(caller.proof is None, notice)


def follower_of(request: web.Request) -> object | None:
    """Identity of the operator to whom a page belongs: the proof of a certificate, or a session. None: all
    others, whom nothing tells apart. A proxy may send the token in the head for many operators, and without a
    token nobody shows anything."""
    caller: Caller | None = request.get(CALLER)
    if caller is None:
        return None
    tls = tls_of(request)
    if caller.proof is not None and tls is not None and tls.getpeercert(binary_form=True):
        return caller.proof
    return caller.session


def is_page(request: web.Request) -> bool:
    """Whether a request is for something below `/ui/`, by the route that will be taken, not by its text."""
    path = _route(request) or request.path
    return path == PAGES.rstrip("/") or path.startswith(PAGES)


def is_open_page(request: web.Request) -> bool:
    """Whether everybody may have it."""
    path = _route(request)
    return path in OPEN_PAGES or path == STATIC or path.startswith(f"{STATIC}/")


def _route(request: web.Request) -> str:
    """The path of the route that will be taken, with names in braces; empty: there is none."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def wants_page(request: web.Request) -> bool:
    """Whether a person waits for a page who can sign in, and not a script for a stream, or a program with a
    wrong token."""
    accepted = ",".join(request.headers.getall(hdrs.ACCEPT, []))
    is_get = request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
    return is_get and _EVENT_STREAM not in accepted and hdrs.AUTHORIZATION not in request.headers


def service_path(service: str) -> str:
    """The page of a service."""
    return f"/ui/services/{quote(service, safe='')}"


def sign_in_path(target: str) -> str:
    """Where to sign in, to go on to `target` then."""
    local = local_page(target)
    return SIGN_IN if local == PAGES else f"{SIGN_IN}?next={quote(local, safe='/')}"


def local_page(target: str) -> str:
    """`target` if it is a page of ours, else the first page: a link to the sign-in may come from anywhere.
    Browsers take `//` and `/\\` for another host, and resolve dots."""
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
    """The name of the cookie for a `Host`. Browsers send a cookie to all ports of a host name (RFC 6265 8.5),
    and each gateway has sessions of its own, so the port is in the name."""
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def session_id_of(request: web.Request) -> str:
    """The id in the cookie; empty: there is none. Several cookies of this name count as none."""
    own = cookie_name(request.host)
    pairs = ";".join(request.headers.getall(hdrs.COOKIE, [])).split(";")
    found = [value for name, _, value in (pair.strip().partition("=") for pair in pairs) if name == own]
    return found[0] if len(found) == 1 else ""


def tls_of(request: web.Request) -> ssl.SSLObject | None:
    """Of the connection; None: it is plain."""
    found = request.get_extra_info("ssl_object")
    return found if isinstance(found, ssl.SSLObject) else None


def set_session(request: web.Request, response: web.StreamResponse, session_id: str) -> None:
    """Give the browser the id of its session, until it is closed."""
    response.set_cookie(
        cookie_name(request.host),
        session_id,
        path=PAGES,
        httponly=True,
        samesite="Strict",
        secure=tls_of(request) is not None,
    )


def unset_session(request: web.Request, response: web.StreamResponse) -> None:
    """The browser may forget it."""
    response.del_cookie(
        cookie_name(request.host),
        path=PAGES,
        httponly=True,
        samesite="Strict",
        secure=tls_of(request) is not None,
    )
