"""API servers of the demonstration's second API, which has whole numbers as versions in `API-Version`.

This module must not know the gateway: these are foreign servers that run in the same process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, final

from aiohttp import web

from gateway.demo.servers import ApiServer, Release

VERSION: Final = "API-Version"
"""Header with the version, in requests and in responses."""
OLDEST: Final = "API-Min-Version"
NEWEST: Final = "API-Max-Version"

OLD_CATALOG: Final = Release("2.3", 4)
NEW_CATALOG: Final = Release("3.0", 7)

ITEMS: Final = ("rack", "switch", "server")


@final
class CatalogServer(ApiServer):
    """A server of the catalog API. A request without a version gets version 1."""

    documents = frozenset({"/"})

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self.present, self._negotiate])
        application.router.add_get("/", self._range)
        application.router.add_get("/items", self._items)
        return application

    @web.middleware
    async def _negotiate(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        text = request.headers.get(VERSION, "")
        self.received[text] += 1
        if request.path == "/":
            return await handler(request)
        number = self._read(text)
        if number is None:
            self.refused.append(text)
            refusal = {"title": "Not Acceptable", "status": 406, "detail": f"Version {text} is not served."}
            response: web.StreamResponse = web.json_response(
                refusal, status=406, content_type="application/problem+json"
            )
        else:
            response = await handler(request)
            response.headers[VERSION] = str(number)
        response.headers[OLDEST], response.headers[NEWEST] = "1", str(self.release.highest)
        return response

    def _read(self, text: str) -> int | None:
        if text == "latest":
            return self.release.highest
        short = text.isascii() and text.isdigit() and len(text) <= 6
        number = int(text) if short else 0 if text else 1
        return number if 1 <= number <= self.release.highest else None

    async def _range(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "catalog", "minimum": "1", "maximum": str(self.release.highest)})

    async def _items(self, request: web.Request) -> web.Response:
        return web.json_response({"items": ITEMS})
