"""Short pages as responses (forms, confirmations, and every refusal below `/ui/`), and what their forms send.

All pages have the same head: nothing from elsewhere, no script or style in the page itself, no frame around
it. What a form of ours never sends is refused. Jinja2 is imported in a thread when the first page is asked
for.
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

OWN_TEMPLATES: Final = ("sign_in.html", "sign_out.html", "confirm.html")

MAX_FORM: Final = 8 * 1024
"""Bytes of a form: a token, an address, a version."""

CONTENT_TYPE: Final = "application/x-www-form-urlencoded"


@final
class PageResponses:
    """Makes them. One for each application."""

    def __init__(self) -> None:
        self._rendering: Rendering | None = None
        self._loading = asyncio.Lock()

    @staticmethod
    def of(request: web.Request) -> PageResponses:
        """Those of the application that serves `request`."""
        return request.app[PAGE_RESPONSES]

    async def rendering(self) -> Rendering:
        """The templates, loaded in a thread by whoever comes first."""
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
        """`template` with these values, as a response."""
        text = (await self.rendering()).page(template, **values)
        return web.Response(
            status=status, text=text, content_type="text/html", headers={**HEADERS, **(headers or {})}
        )


PAGE_RESPONSES: Final[web.AppKey[PageResponses]] = web.AppKey("page responses", PageResponses)


@cache
def _load() -> Rendering:
    """The same for all applications: templates do not change."""
    from gateway.admin.ui.rendering import Rendering  # noqa: PLC0415 - Jinja2 takes a while to import

    rendering = Rendering()
    for name in OWN_TEMPLATES:
        rendering.environment.get_template(name)
    return rendering


def redirection(path: str) -> web.Response:
    """Go to `path`, one of ours, with GET."""
    return web.Response(status=303, headers={**HEADERS, "Location": path})


@web.middleware
async def render_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The middleware that makes every refusal below `/ui/` a page, and the way to the sign-in a redirection.
    Refusals of all other requests pass."""
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
    """The fields of the body, which are some of `names`. Raises 400, 413 and 415."""
    if request.content_type != CONTENT_TYPE or len(request.headers.getall("Content-Type", [])) != 1:
        raise web.HTTPUnsupportedMediaType(text=f"a form is sent as {CONTENT_TYPE}")
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
    """The parameters of the address, which are some of `names`. Raises 400."""
    return _fields(list(request.query.items()), names, "parameter")


def _fields(pairs: list[tuple[str, str]], names: Collection[str], kind: str) -> Mapping[str, str]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise web.HTTPBadRequest(text=f"a {kind} is given more than once")
    if not fields.keys() <= set(names):
        raise web.HTTPBadRequest(text=f"the only {kind}s are {', '.join(names)}")
    return fields
