"""Endpoints of the operations page, whose routes are in `routes`.

A page and its stream are made of the same fragments. GET changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from functools import cache, partial
from importlib.resources import files
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.parse import quote

from aiohttp import hdrs, web

from gateway.admin.context import AdminContext
from gateway.admin.explaining import DescriptionError, explain_described
from gateway.admin.ui.access import operator_of, service_path
from gateway.admin.ui.backend_rows import CROWD
from gateway.admin.ui.contents import PageContents
from gateway.admin.ui.feed import Feed
from gateway.admin.ui.fragments import PageFragments, overview_fragments, service_fragments
from gateway.admin.ui.page_responses import HEADERS, PageResponses
from gateway.admin.ui.stream import Streams
from gateway.runtime.compiled import build_info

if TYPE_CHECKING:
    from gateway.admin.ui.rendering import Rendering

STATIC: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

PIECE: Final = 16_000
"""Characters of a page made in one event-loop iteration: some twenty rows."""


class Frame(NamedTuple):
    """Values of a live page outside of its fragments."""

    title: str
    service: str
    """Name of the service that the page shows; empty: all services."""
    dialect: str
    path: str
    events: str
    stamp: str
    now: float
    """Wall-clock seconds at which the page was made."""
    several: bool
    crowd: bool
    """Whether the page groups backends, and can filter them."""
    reloads: bool
    """Whether the browser reloads the page every ten seconds without JavaScript."""


class Asked(NamedTuple):
    """Input of the form that describes a request to explain."""

    method: str = "GET"
    path: str = ""
    headers: tuple[str, ...] = ()
    problem: str = ""
    """Message about input that describes no request; empty: it does."""


@final
class Pages:
    """Handlers of the operations page, one for each endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._contents = PageContents(context)
        self._streams = Streams()
        self._feeds: dict[str, Feed] = {}
        """Live content of pages by service; the empty name is the page of all services."""

    def close(self) -> None:
        """Ends the streams of all open pages."""
        self._streams.close()

    async def slash(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPSeeOther("/ui/")

    async def home(self, request: web.Request) -> web.StreamResponse:
        names = list(self._context.snapshots.current.views)
        return await self._live(request, names[0] if len(names) == 1 else "", "/ui/")

    async def service(self, request: web.Request) -> web.StreamResponse:
        """Shows the page of one service. Raises 404."""
        name = request.match_info["service"]
        return await self._live(request, name, service_path(name))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Shows the form for a request to explain, and the explanation if the query has one."""
        asked, answer, status = Asked(), None, 200
        if request.query:
            query = request.query
            lines = [line.strip() for line in query.get("headers", "").splitlines()]
            asked = Asked(query.get("method", "GET"), query.get("path", ""), tuple(filter(None, lines)))
            try:
                answer = explain_described(
                    self._context, asked.method.strip(), asked.path.strip(), asked.headers
                )
            except DescriptionError as error:
                asked, status = asked._replace(problem=str(error)), 400
        return await PageResponses.of(request).respond(
            "explain.html", status=status, asked=asked, answer=answer
        )

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Streams the changes of one page. Raises 404 and 503."""
        name = request.query.get("service", "")
        if name and name not in self._context.snapshots.current.views:
            raise web.HTTPNotFound(text="there is no such service")
        feed = self._feed(name, await PageResponses.of(request).rendering())
        return await self._streams.serve(request, feed, stamp())

    async def static(self, request: web.Request) -> web.StreamResponse:
        """Responds with a static file of the page, or with 304."""
        name = request.match_info["file"]
        if name not in STATIC:
            raise web.HTTPNotFound
        body, tag = _file(name)
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}
        if tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=STATIC[name], charset="utf-8", headers=headers)

    def _feed(self, name: str, rendering: Rendering) -> Feed:
        """Returns the live content of a service's page, and drops that of pages without followers."""
        self._feeds = {key: feed for key, feed in self._feeds.items() if feed.followers and not feed.is_gone}
        if name not in self._feeds:
            self._feeds[name] = Feed(partial(self._read, name), self._mark, rendering)
        return self._feeds[name]

    async def _read(self, name: str) -> PageFragments | None:
        """Makes the fragments of a page; None: there is no such service."""
        await self._context.refresh(counters=False)
        if not name:
            return overview_fragments(await self._contents.overview())
        page = await self._contents.service_page(name)
        return None if page is None else service_fragments(page)

    def _mark(self) -> tuple[int, int]:
        """Returns a value that changes with every snapshot and every event."""
        return self._context.snapshots.current.generation, self._context.history.last

    async def _live(self, request: web.Request, name: str, path: str) -> web.StreamResponse:
        shown = await self._read(name)
        view = self._context.snapshots.current.views.get(name)
        if shown is None or (name and view is None):
            raise web.HTTPNotFound(text=f"there is no service {name}")
        rendering = await PageResponses.of(request).rendering()
        frame = Frame(
            title=name or "All services",
            service=name,
            dialect="" if view is None else view.service.dialect.name,
            path=path,
            events=f"/ui/events?service={quote(name, safe='')}" if name else "/ui/events",
            stamp=stamp(),
            now=time(),
            several=len(self._context.snapshots.current.views) > 1 or not name,
            crowd=view is not None and len(view.members.all) >= CROWD,
            reloads="reload" in request.query,
        )

        pieces = rendering.pieces(
            "service.html" if name else "overview.html",
            page=frame,
            lists=shown.lists,
            fragment=lambda id_: rendering.fragment(shown.fragments[id_]),
            operator=operator_of(request),
            asked=Asked(),
        )
        return await _send(request, _joined(pieces))


async def _send(request: web.Request, pieces: Iterator[bytes]) -> web.StreamResponse:
    """Sends a long page, each piece when the client has taken the one before."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/html; charset=utf-8"})
    if request.method == hdrs.METH_HEAD:
        return response
    first = next(pieces, b"")  # an error here still becomes an error response
    await response.prepare(request)
    await response.write(first)
    for piece in pieces:
        await response.write(piece)
        await asyncio.sleep(0)
    return response


def _joined(texts: Iterator[str]) -> Iterator[bytes]:
    """Joins small pieces of a page to ones that are worth sending."""
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    yield "".join(waiting).encode()


@cache
def _file(name: str) -> tuple[bytes, str]:
    """Reads a static file of the page, with its entity tag."""
    body = files("gateway.admin.ui").joinpath("static", name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'


@cache
def stamp() -> str:
    """Hash of the gateway's version and the static files: an open page with another one reloads."""
    tags = (_file(name)[1] for name in STATIC)
    return hashlib.sha256("".join((build_info().version, *tags)).encode()).hexdigest()[:16]
