"""Sign-in to the operations page with the admin token, and sign-out.

    GET, POST /ui/sign-in       GET, POST /ui/sign-out

An operator with a certificate needs neither. Wrong tokens count together with those that the guard refuses
(`guard.WrongTokens`); the right one is always accepted.
"""

from __future__ import annotations

from typing import Final, final

from aiohttp import web

from gateway.admin.context import AdminAccess
from gateway.admin.guard import TOO_MANY, WrongTokens
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
from gateway.admin.ui.page_responses import PageResponses, read_form, read_query, redirection
from gateway.admin.ui.sessions import Sessions, proof_of_token

WRONG: Final = "wrong token: enter the value of `admin.token`"


def add_sign_in_routes(
    app: web.Application,
    access: AdminAccess,
    sessions: Sessions,
    wrong_tokens: WrongTokens,
) -> None:
    """Adds the pages for sign-in and sign-out, and the targets of their forms."""
    endpoints = _SignIn(access, sessions, wrong_tokens)
    app.router.add_get(SIGN_IN, endpoints.form)
    app.router.add_post(SIGN_IN, endpoints.sign_in)
    app.router.add_get(SIGN_OUT, endpoints.question)
    app.router.add_post(SIGN_OUT, endpoints.sign_out)


@final
class _SignIn:
    def __init__(self, access: AdminAccess, sessions: Sessions, wrong_tokens: WrongTokens) -> None:
        self._access = access
        self._sessions = sessions
        self._wrong_tokens = wrong_tokens

    async def form(self, request: web.Request) -> web.StreamResponse:
        """Shows the sign-in form for the token, or goes to the page itself if there is no token."""
        target = local_page(read_query(request, ("next",)).get("next", PAGES))
        if self._access.token() is None:
            return redirection(target)
        return await self._form(request, target)

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Begins a session for the right token, and goes to the page that the operator asked for."""
        fields = await read_form(request, ("token", "next"))
        target, token = local_page(fields.get("next", PAGES)), self._access.token()
        if token is None:
            return redirection(target)
        if not token.matches(fields.get("token", "").strip()):
            return await self._wrong(request, target)
        self._sessions.end(session_id_of(request))
        session_id, _ = self._sessions.begin(proof_of_token(token))
        response = redirection(target)
        set_session(request, response, session_id)
        return response

    async def _wrong(self, request: web.Request, target: str) -> web.StreamResponse:
        if wait := self._wrong_tokens.add():
            headers = {"Retry-After": str(wait)}
            return await self._form(request, target, TOO_MANY, web.HTTPTooManyRequests.status_code, headers)
        headers = {"WWW-Authenticate": "Bearer"}
        return await self._form(request, target, WRONG, web.HTTPUnauthorized.status_code, headers)

    async def question(self, request: web.Request) -> web.StreamResponse:
        """Shows the page that asks whether to sign out: following a link must not do it."""
        session = request[CALLER].session
        if session is None:
            return redirection(PAGES)
        return await PageResponses.of(request).respond("sign_out.html", csrf=session.csrf)

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        fields = await read_form(request, ("csrf",))
        request[CALLER].session_of(fields.get("csrf", ""))
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
        return await PageResponses.of(request).respond(
            "sign_in.html", status=status, headers=headers, next=target, problem=problem
        )
