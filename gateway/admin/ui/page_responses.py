"""Responses with short pages (forms, confirmations, refusals below `/ui/`), and reading of their forms.

All pages have the same head: nothing from elsewhere, no script or style in the page itself, no frame around
it. Fields that no form here has are refused. Jinja2 is imported in a thread at the first page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qsl

from aiohttp import web

from gateway.admin.responses import PASSED_ON, Handler, sentence_of
from gateway.admin.ui.access import is_page

if TYPE_CHECKING:
    from gateway.admin.ui.rendering import Rendering

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with `no-referrer` browsers send `Origin: null` with a form
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

MAX_FORM: Final = 8 * 1024
"""Maximum bytes of a form: a token, a path, a version."""

CONTENT_TYPE: Final = "application/x-www-form-urlencoded"


@final
class PageResponses:
    """Maker of responses with short pages, one for each application."""

    def __init__(self) -> None:
        self._rendering: Rendering | None = None
        self._loading = asyncio.Lock()

    @staticmethod
    def of(request: web.Request) -> PageResponses:
        """Returns the maker of short pages of the application that serves `request`."""
        return request.app[PAGE_RESPONSES]

    async def rendering(self) -> Rendering:
        """Returns the templates, which the first caller loads in a thread."""
        async with self._loading:
            if self._rendering is None:
                self._rendering = await asyncio.to_thread(_load)
        return self._rendering

    async def respond(
        self,
        template: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: object,
    ) -> web.Response:
        text = (await self.rendering()).page(template, **values)
        return web.Response(
            status=status, text=text, content_type="text/html", headers={**HEADERS, **(headers or {})}
        )


PAGE_RESPONSES: Final[web.AppKey[PageResponses]] = web.AppKey("page responses", PageResponses)


@cache
def _load() -> Rendering:
    """Loads the page templates, once for all applications."""
    from gateway.admin.ui.rendering import Rendering  # noqa: PLC0415 - Jinja2 takes a while to import

    return Rendering()


def redirection(path: str) -> web.Response:
    """Makes a response that redirects a browser to a local path, with GET."""
    return web.Response(status=303, headers={**HEADERS, "Location": path})


@web.middleware
async def render_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that makes a page of every refusal below `/ui/`."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        if not is_page(request):
            raise
        if isinstance(refusal, web.HTTPSeeOther):
            return redirection(refusal.headers["Location"])
        named = {name: refusal.headers[name] for name in PASSED_ON if name in refusal.headers}
        return await PageResponses.of(request).respond(
            "message.html",
            status=refusal.status,
            headers=named,
            heading=HTTPStatus(refusal.status).phrase,
            sentence=sentence_of(refusal),
        )


async def read_form(request: web.Request, names: Collection[str]) -> Mapping[str, str]:
    """Reads the fields of a form in the body, which must be among `names`. Raises 400, 413 and 415."""
    if request.content_type != CONTENT_TYPE or len(request.headers.getall("Content-Type", [])) != 1:
        raise web.HTTPUnsupportedMediaType(text=f"the form must be sent as {CONTENT_TYPE}")
    body = await request.read()
    if len(body) > MAX_FORM:
        raise web.HTTPRequestEntityTooLarge(MAX_FORM, len(body))
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=len(names),
        )
    except ValueError:
        raise web.HTTPBadRequest(text="the form is malformed") from None
    return _fields(pairs, names, "field")


def read_query(request: web.Request, names: Collection[str]) -> Mapping[str, str]:
    """Reads the parameters of the query, which must be among `names`. Raises 400."""
    return _fields(list(request.query.items()), names, "parameter")


def _fields(pairs: list[tuple[str, str]], names: Collection[str], kind: str) -> Mapping[str, str]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise web.HTTPBadRequest(text=f"a {kind} is given more than once")
    if not fields.keys() <= set(names):
        raise web.HTTPBadRequest(text=f"the only {kind}s are {', '.join(names)}")
    return fields
