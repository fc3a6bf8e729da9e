"""Routes of the operations page.

    GET  /ui/                  the service, if there is one; else all services
    GET  /ui/services/NAME     one service
    GET  /ui/explain           explains a request: ?method=&path=&headers=
    GET  /ui/events            stream of changes: ?service=NAME, or of all services
    GET  /ui/static/FILE       style, script and icon

The modules that make the page are imported in a thread at the first request for it: most gateways start
without anybody who looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from aiohttp import web

from gateway.admin.context import AdminContext
from gateway.admin.responses import Handler

if TYPE_CHECKING:
    from gateway.admin.ui.pages import Pages


def add_page_routes(app: web.Application, context: AdminContext) -> None:
    """Adds the routes of the operations page. Its streams end when the application shuts down."""
    late = _LatePages(context)
    add = app.router.add_get
    add("/ui", late.handler(lambda pages: pages.slash))
    add("/ui/", late.handler(lambda pages: pages.home))
    add("/ui/services/{service}", late.handler(lambda pages: pages.service))
    add("/ui/explain", late.handler(lambda pages: pages.explain))
    add("/ui/events", late.handler(lambda pages: pages.events))
    add("/ui/static/{file}", late.handler(lambda pages: pages.static))
    app.on_shutdown.append(late.close)


@final
class _LatePages:
    """The handlers of the operations page, made at the first request."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._pages: Pages | None = None

    def handler(self, choose: Callable[[Pages], Handler]) -> Handler:
        """Makes the handler of one route, which calls the one that `choose` returns."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if self._pages is None:
                make = await asyncio.to_thread(_import_pages)
                self._pages = self._pages or make(self._context)  # another request may have been faster
            return await choose(self._pages)(request)

        return handle

    async def close(self, app: web.Application) -> None:
        """Ends the streams of all open pages."""
        if self._pages is not None:
            self._pages.close()


def _import_pages() -> type[Pages]:
    from gateway.admin.ui.pages import Pages  # noqa: PLC0415 - takes 20 ms

    return Pages
