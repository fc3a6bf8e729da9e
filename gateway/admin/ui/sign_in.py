"""Sign in to the operations page by the admin token in a form, and sign out.

    GET, POST /ui/sign-in       GET, POST /ui/sign-out

Who shows a certificate needs none of it. Guessing is slowed for everybody equally: once there were many wrong
tokens, no token is looked at for a moment, whoever sends it. Programs use the API, which this does not slow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final, final

from aiohttp import web

from gateway.admin.context import AdminContext
from gateway.admin.ui.access import (
    CALLER,
    PAGES,
    SIGN_IN,
    SIGN_OUT,
    local_page,
    session_id_of,
    set_session,
    unset_session,
)
from gateway.admin.ui.controls import FORGED
from gateway.admin.ui.documents import Documents, redirection
from gateway.admin.ui.forms import read_form, read_query
from gateway.admin.ui.sessions import Sessions, proof_of_token
from gateway.dataplane.rate_limiter import TokenBuckets

WRONG_AT_ONCE: Final = 10
"""Wrong tokens that are looked at one after the other: operators mistype, and paste the wrong line."""

WRONG_PER_SECOND: Final = 5.0
"""After that. A token of 16 characters that a person made up takes ages so."""

WRONG: Final = "this is not the token in force"
TOO_MANY: Final = "there were too many wrong tokens, and this one was not looked at: try again in a moment"


def add_sign_in_routes(
    app: web.Application,
    context: AdminContext,
    sessions: Sessions,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Add the pages and what they send. `clock`: monotonic seconds."""
    endpoints = _SignIn(context, sessions, clock)
    app.router.add_get(SIGN_IN, endpoints.form)
    app.router.add_post(SIGN_IN, endpoints.sign_in)
    app.router.add_get(SIGN_OUT, endpoints.question)
    app.router.add_post(SIGN_OUT, endpoints.sign_out)


@final
class _SignIn:
    """One method per endpoint."""

    def __init__(self, context: AdminContext, sessions: Sessions, clock: Callable[[], float]) -> None:
        self._context = context
        self._sessions = sessions
        self._clock = clock
        self._wrong = TokenBuckets(WRONG_PER_SECOND, WRONG_AT_ONCE)

    async def form(self, request: web.Request) -> web.StreamResponse:
        """The form for the token; where there is none, the page itself."""
        target = local_page(read_query(request, ("next",)).get("next", PAGES))
        if self._context.token() is None:
            return redirection(target)
        return await self._form(request, target)

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session, and go on to where the operator wanted to be."""
        fields = await read_form(request, ("token", "next"))
        target, token = local_page(fields.get("next", PAGES)), self._context.token()
        if token is None:
            return redirection(target)
        now = self._clock()
        wait = self._wrong.wait("", now)
        if wait:
            headers = {"Retry-After": str(ceil(wait))}
            return await self._form(request, target, TOO_MANY, web.HTTPTooManyRequests.status_code, headers)
        if not token.matches(fields.get("token", "").strip()):
            self._wrong.take("", now)
            headers = {"WWW-Authenticate": "Bearer"}
            return await self._form(request, target, WRONG, web.HTTPUnauthorized.status_code, headers)
        self._sessions.end(session_id_of(request))
        session_id, _ = self._sessions.begin(proof_of_token(token))
        response = redirection(target)
        set_session(request, response, session_id)
        return response

    async def question(self, request: web.Request) -> web.StreamResponse:
        """Whether to sign out: a link must not do it."""
        caller = request.get(CALLER)
        if caller is None or caller.session is None:
            return redirection(PAGES)
        return await Documents.of(request).respond("sign_out.html", csrf=caller.session.csrf)

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """End the session."""
        fields = await read_form(request, ("csrf",))
        caller = request.get(CALLER)
        session = None if caller is None else caller.session
        if session is None or not session.has_csrf(fields.get("csrf", "")):
            raise web.HTTPForbidden(text=FORGED)
        self._sessions.end(session_id_of(request))
        response = redirection(PAGES)
        unset_session(request, response)
        return response

    async def _form(
        self,
        request: web.Request,
        target: str,
        problem: str = "",
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> web.StreamResponse:
        return await Documents.of(request).respond(
            "sign_in.html", status=status, headers=headers, next=target, problem=problem
        )
