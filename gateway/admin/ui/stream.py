"""`GET /ui/events`: changes of a page, as server-sent events.

    hello    {"stamp", "now"}        first: a page that another version of the gateway has made reloads
    more     a piece of a JSON text that continues in the next event
    update   the end of it: {"set": {id: HTML}, "lists": {id: [ids in order]}}
    alive    {"now"}                 every ten seconds: without it a page shows that it is stale
    reload   {}                      the page does not exist any more

A stream begins with the whole page, because a client that connects again does not know what it has missed. No
event is longer than `MAX_EVENT`. A client that does not read is closed by the deadline of `connection`, and
at most one event waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from time import monotonic, time
from typing import Final, final

from aiohttp import hdrs, web

from gateway.admin.connection import AdminConnection
from gateway.admin.ui.access import CALLER, follower_of
from gateway.admin.ui.feed import NOTHING, Feed, Shown

MAX_STREAMS: Final = 16
"""Maximum streams of page changes at a time. Further pages reload themselves every ten seconds."""

MAX_OF_SESSION: Final = 4
"""Maximum streams of one session or certificate, so that one operator does not keep the others out. A browser
has six connections to a server: four streams leave two for everything else. The fifth page is refused; if the
oldest were closed instead, its browser would connect again and close the next one, without end."""

MAX_EVENT: Final = 16_000
"""Maximum bytes of the data of one server-sent event."""

MAX_HTML: Final = 12_000
"""Characters of HTML put into one server-sent event: as JSON they are some more."""

RETRY: Final = 2000
"""Milliseconds after which a browser whose stream has ended connects again."""

HEARTBEAT: Final = 10.0
POLL: Final = 1.0
"""Seconds between two checks whether a stream's client is still connected and allowed."""

HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy in front must not buffer
}


@final
class Streams:
    """All open streams of page changes."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[None], web.Request] = {}
        self._is_closed = False

    def close(self) -> None:
        """Ends all streams of page changes, and accepts no others."""
        self._is_closed = True
        for task in tuple(self._open):
            task.cancel()

    async def serve(self, request: web.Request, feed: Feed, stamp: str) -> web.StreamResponse:
        """Streams a page until the client disconnects. Raises 503 if there are too many streams."""
        self._require_room(follower_of(request))
        response = web.StreamResponse(headers=HEADERS)
        if request.method == hdrs.METH_HEAD:
            return response
        if isinstance(request.transport, AdminConnection):
            request.transport.is_stream = True
        task = asyncio.get_running_loop().create_task(_follow(request, response, feed, stamp))
        self._open[task] = request
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            del self._open[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ConnectionError):
            raise error
        response.force_close()
        return response

    def _require_room(self, follower: object | None) -> None:
        """Raises 503 if there are too many streams. Those whose client has disconnected do not count."""
        there = [request for request in self._open.values() if not _has_gone(request)]
        own = 0 if follower is None else sum(follower_of(request) == follower for request in there)
        if own >= MAX_OF_SESSION:
            raise web.HTTPServiceUnavailable(text=f"{own} live pages of this session are open: close one")
        if self._is_closed or len(there) >= MAX_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many live pages are open: close some")


def _has_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _follow(request: web.Request, response: web.StreamResponse, feed: Feed, stamp: str) -> None:
    """Sends the changes of a page until the client disconnects or loses access, or the page is gone."""
    await response.prepare(request)
    hello = json.dumps({"stamp": stamp, "now": time()})
    await response.write(f"retry: {RETRY}\n".encode() + event("hello", hello))
    with feed.followed():
        sent = NOTHING
        heard = monotonic()
        while not _has_gone(request) and request[CALLER].is_still_allowed():
            shown = await feed.after(sent, POLL)
            if shown is not None:
                for piece in updates(sent, shown):
                    await response.write(piece)
                    await asyncio.sleep(0)  # a write that does not wait lets nothing else run
                    heard = monotonic()
                sent = shown
            elif feed.is_gone:
                await response.write(event("reload", "{}"))
                return
            elif monotonic() - heard >= HEARTBEAT:
                await response.write(event("alive", json.dumps({"now": time()})))
                heard = monotonic()


def updates(sent: Shown, shown: Shown) -> Iterator[bytes]:
    """Makes the server-sent events that turn the page as it was sent into the present one."""
    waiting: dict[str, str] = {}
    size = 0
    for id_, html in shown.html.items():
        if sent.html.get(id_) is html:
            continue
        if waiting and size + len(html) > MAX_HTML:
            yield from _update({"set": waiting})
            waiting, size = {}, 0
        waiting[id_] = html
        size += len(html)
    lists = {id_: rows for id_, rows in shown.page.lists.items() if sent.page.lists.get(id_) != rows}
    if waiting or lists:
        yield from _update({"set": waiting, "lists": lists})


def _update(document: Mapping[str, object]) -> Iterator[bytes]:
    """Makes the server-sent events of one change of a page. JSON in ASCII can be cut anywhere."""
    text = json.dumps(document)
    while len(text) > MAX_EVENT:
        yield event("more", text[:MAX_EVENT])
        text = text[MAX_EVENT:]
    yield event("update", text)


def event(name: str, data: str) -> bytes:
    """Makes one server-sent event; `data` has no line ends."""
    return f"event: {name}\ndata: {data}\n\n".encode("ascii")
