"""The admin listener's endpoints: `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `POST /-/reload`.
Those that change a ceiling or a backend are `orders`.

GET changes nothing. Answers are made from one snapshot each, by `views`, `core.explanation` and the metrics.
"""

from __future__ import annotations

import re
from typing import Final, final

from aiohttp import web

from gateway.admin import orders, views
from gateway.admin.answering import json_answer, rendered, text_answer
from gateway.admin.context import AdminContext
from gateway.admin.guard import Guard, guarded
from gateway.core.explanation import explain
from gateway.core.message import Header
from gateway.dataplane.http1 import refused_line

LARGEST_REQUEST: Final = 64 * 1024
"""Bytes of a body: a ceiling needs a hundred."""

LONGEST_TARGET: Final = 4096
MOST_HEADERS: Final = 100
PARAMETERS: Final = frozenset({"method", "path", "header"})
"""Of `/explain`."""

_METHOD: Final = re.compile(r"[A-Z]{1,32}")
_TARGET: Final = re.compile(
    r"/[\x21-\x22\x24-\x7e]*"
)  # printable ASCII but blank and `#`, as in a request line
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


def create_app(context: AdminContext) -> web.Application:
    """The application; `site.AdminSite` serves it."""
    endpoints = _Endpoints(context)
    app = web.Application(
        # The outermost first: errors of the guard are rendered, too.
        middlewares=[rendered, guarded(Guard(context.hosts, context.token))],
        client_max_size=LARGEST_REQUEST,
    )
    app.router.add_get("/livez", endpoints.livez)
    app.router.add_get("/readyz", endpoints.readyz)
    app.router.add_get("/metrics", endpoints.metrics)
    app.router.add_get("/status", endpoints.status)
    app.router.add_get("/explain", endpoints.explain)
    app.router.add_post("/-/reload", endpoints.reload)
    orders.add(app.router, context)
    return app


@final
class _Endpoints:
    """One method an endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def livez(self, request: web.Request) -> web.StreamResponse:
        """The loop turns, or nobody would read this."""
        return text_answer("ok\n")

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """200 when requests should come here, 503 otherwise; `?verbose` says why."""
        found = views.conditions(self._context.snapshots.current, draining=self._context.draining())
        ready = all(condition.holds for condition in found)
        text = "ready\n" if ready else "not ready\n"
        if "verbose" in request.query:
            lines = (
                f"[+] {condition.name}\n" if condition.holds else f"[-] {condition.name}: {condition.why}\n"
                for condition in found
            )
            text = "".join(lines) + text
        return text_answer(text, status=200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """The text format, or OpenMetrics for who asks for it."""
        accept = ",".join(request.headers.getall("Accept", []))
        body, content_type = self._context.metrics.exposition(accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.StreamResponse:
        return json_answer(self._context.status())

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """What would happen to a request; nothing is sent."""
        query = request.query
        if not PARAMETERS.issuperset(query):
            raise web.HTTPBadRequest(text="the parameters are method, path and header")
        for name in ("method", "path"):
            if len(query.getall(name, [])) > 1:
                raise web.HTTPBadRequest(text=f"`{name}` is given more than once")
        method, target = query.get("method", "GET").upper(), query.get("path", "")
        if not _METHOD.fullmatch(method):
            raise web.HTTPBadRequest(text="`method` must be a method, such as GET")
        if len(target) > LONGEST_TARGET or not _TARGET.fullmatch(target):
            raise web.HTTPBadRequest(text="`path` must begin with / and hold printable ASCII without blanks")
        if refusal := refused_line(method, target):
            raise web.HTTPBadRequest(text=refusal)
        headers = [_header(line) for line in query.getall("header", [])]
        if len(headers) > MOST_HEADERS:
            raise web.HTTPBadRequest(text=f"at most {MOST_HEADERS} headers can be explained")
        context = self._context
        told = explain(context.snapshots.current, method, target, headers, context.load())
        return json_answer(told.to_json())

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """Answers once the new configuration is in force, or says why the old one still is."""
        result = await self._context.reload()
        if not result.ok:
            first, *more = (problem.partition("\n")[0] for problem in result.problems)
            others = f", and {len(more)} more" if more else ""
            sentence = f"the file is refused, the old configuration stays in force: {first}{others}"
            return json_answer({"error": sentence, "problems": list(result.problems)}, status=400)
        return json_answer({**self._context.status(), "restart_needed": list(result.restart)})


def _header(line: str) -> Header:
    """`Name: value`, as a request could really hold it."""
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise web.HTTPBadRequest(text="each `header` must be `Name: value`, as it would stand in a request")
    return name, value
