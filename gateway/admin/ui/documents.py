"""Short pages as responses: the forms, the confirmations, and every refusal below `/ui/`.

All have the same head: nothing from elsewhere, no script or style in the page itself, no frame around it.
Jinja2 is imported in a thread when the first page is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

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


@final
class Documents:
    """Makes them. One for each application."""

    def __init__(self) -> None:
        self._rendering: Rendering | None = None
        self._loading = asyncio.Lock()

    @staticmethod
    def of(request: web.Request) -> Documents:
        """Those of the application that serves `request`."""
        return request.app[DOCUMENTS]

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


DOCUMENTS: Final[web.AppKey[Documents]] = web.AppKey("documents", Documents)


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
        return await Documents.of(request).respond(
            "message.html",
            status=refusal.status,
            headers=named,
            heading=HTTPStatus(refusal.status).phrase,
            sentence=sentence_of(refusal),
        )
