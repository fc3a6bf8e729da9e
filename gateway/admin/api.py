"""The admin listener's endpoints: `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `POST /-/reload`.
Those that change a ceiling or a backend are in `commands`.

GET changes nothing. Each response is made from one snapshot, by `views`, `core.decision.explanation` and the
metrics.
"""

from __future__ import annotations

import re
from typing import Final, final

from aiohttp import web

from gateway.admin import views
from gateway.admin.commands import add_command_routes
from gateway.admin.context import AdminContext
from gateway.admin.guard import Guard, guard_requests
from gateway.admin.responses import AdminResponse, json_response, render_errors, text_response
from gateway.core.decision.explanation import explain
from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.dataplane.http1.heads import read_described, refusal_sentence
from gateway.dataplane.http1.names import NameTable
from gateway.errors import FramingError

MAX_BODY: Final = 64 * 1024
"""Bytes of a request body: a ceiling takes a hundred."""

MAX_TARGET: Final = 4096
MAX_HEADERS: Final = 100
PARAMETERS: Final = frozenset({"method", "path", "header"})
"""The parameters of `/explain`, and the bounds of what they describe."""

_TARGET: Final = re.compile(r"/[\x21-\x22\x24-\x7e]*")  # printable ASCII but blank and `#`
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")


def create_app(context: AdminContext) -> web.Application:
    """The application; `site.AdminSite` serves it."""
    endpoints = _Endpoints(context)
    app = web.Application(
        # The outermost comes first: it also renders the refusals of the guard.
        middlewares=[render_errors, guard_requests(Guard(context.hosts, context.token))],
        client_max_size=MAX_BODY,
    )
    app.router.add_get("/livez", endpoints.livez)
    app.router.add_get("/readyz", endpoints.readyz)
    app.router.add_get("/metrics", endpoints.metrics)
    app.router.add_get("/status", endpoints.status)
    app.router.add_get("/explain", endpoints.explain)
    app.router.add_post("/-/reload", endpoints.reload)
    add_command_routes(app.router, context)
    return app


@final
class _Endpoints:
    """One method per endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def livez(self, request: web.Request) -> web.StreamResponse:
        """A response at all shows that the event loop runs."""
        return text_response("ok\n")

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """200 if requests should be sent here, else 503; `?verbose` gives the reasons."""
        conditions = views.conditions(self._context.snapshots.current, draining=self._context.draining())
        ready = all(condition.holds for condition in conditions)
        text = "ready\n" if ready else "not ready\n"
        if "verbose" in request.query:
            lines = (
                f"[+] {condition.name}\n"
                if condition.holds
                else f"[-] {condition.name}: {condition.reason}\n"
                for condition in conditions
            )
            text = "".join(lines) + text
        return text_response(text, status=200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """The text format, or OpenMetrics if `Accept` prefers it."""
        accept = ",".join(request.headers.getall("Accept", []))
        body, content_type = self._context.metrics.exposition(accept)
        return AdminResponse(body=body, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._context.status())

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """What would happen to a request. Nothing is sent."""
        query = request.query
        if not PARAMETERS.issuperset(query):
            raise web.HTTPBadRequest(text="the only parameters are method, path and header")
        for name in ("method", "path"):
            if len(query.getall(name, [])) > 1:
                raise web.HTTPBadRequest(text=f"`{name}` is given more than once")
        method, target = method_of_text(query.get("method", "GET")), query.get("path", "")
        if not METHOD.fullmatch(method):
            raise web.HTTPBadRequest(text="`method` must be a method, such as GET")
        if len(target) > MAX_TARGET or not _TARGET.fullmatch(target):
            raise web.HTTPBadRequest(text="`path` must begin with / and hold printable ASCII without blanks")
        headers = [_header(line) for line in query.getall("header", [])]
        if len(headers) > MAX_HEADERS:
            raise web.HTTPBadRequest(text=f"`header` can be given at most {MAX_HEADERS} times")
        context = self._context
        snapshot = context.snapshots.current
        table = NameTable.for_requests(snapshot.selected_names)
        try:
            head = read_described(method, target, headers, table, context.limits())
        except FramingError as refusal:
            raise web.HTTPBadRequest(text=refusal_sentence(refusal)) from None
        explanation = explain(
            snapshot, head, head.host, context.in_flight_by_member(), context.known_documents()
        )
        return json_response(explanation.to_json())

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """Respond once the new configuration is in force, or report why the old one stays in force."""
        result = await self._context.reload()
        if not result.ok:
            first, *more = (problem.partition("\n")[0] for problem in result.problems)
            others = f", and {len(more)} more" if more else ""
            error = f"the file is refused, the old configuration stays in force: {first}{others}"
            return json_response({"error": error, "problems": list(result.problems)}, status=400)
        return json_response({**self._context.status(), "restart_needed": list(result.restart)})


def _header(line: str) -> Header:
    """`Name: value`, in the characters that a request may hold."""
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise web.HTTPBadRequest(text="each `header` must be `Name: value`, as in a request")
    return name, value
