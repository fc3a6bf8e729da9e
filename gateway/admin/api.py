"""Endpoints of the admin listener: `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `POST /-/reload`.
`commands` has those that change a ceiling or a backend, `usage` those about usage.

GET changes nothing. Each response is made from one snapshot, by `views`, `core.decision.explanation` and the
metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, final

from aiohttp import hdrs, web

from gateway.admin import views
from gateway.admin.commands import add_command_routes, pending_for, refuse_while_still
from gateway.admin.connection import on_connections
from gateway.admin.context import AdminAccess, AdminContext
from gateway.admin.explaining import DescriptionError, explain_described
from gateway.admin.guard import Guard, WrongTokens, guard_requests
from gateway.admin.responses import finish_head, json_response, render_errors, text_response
from gateway.admin.status_document import status_document
from gateway.admin.ui.controls import add_control_routes
from gateway.admin.ui.page_responses import PAGE_RESPONSES, PageResponses, render_pages
from gateway.admin.ui.routes import add_page_routes
from gateway.admin.ui.sessions import Sessions
from gateway.admin.ui.sign_in import add_sign_in_routes
from gateway.admin.usage import add_usage_routes
from gateway.admin.waiting import add_wait_route
from gateway.telemetry.process_stats import collect_stats

MAX_BODY: Final = 64 * 1024
"""Maximum bytes of a request body: a ceiling takes a hundred."""

PARAMETERS: Final = frozenset({"method", "path", "header", "from"})


def create_app(context: AdminContext, *, clock: Callable[[], float] = monotonic) -> web.Application:
    """Makes the application of the admin listener. `clock` gives monotonic seconds."""
    endpoints, sessions, wrong_tokens = _Endpoints(context), Sessions(clock), WrongTokens(clock)
    guard = Guard(context.access, sessions, wrong_tokens)
    app = web.Application(
        # The outermost first: all render the refusals of the guard, too.
        middlewares=[on_connections, render_errors, render_pages, guard_requests(guard)],
        client_max_size=MAX_BODY,
    )
    app.on_response_prepare.append(finish_head)
    _add_public_routes(app.router, endpoints)
    app.router.add_get("/status", endpoints.status)
    app.router.add_get("/explain", endpoints.explain)
    app.router.add_post("/-/reload", endpoints.reload)
    add_command_routes(app.router, context)
    add_usage_routes(app.router, context)
    add_wait_route(app.router, context)
    app[PAGE_RESPONSES] = PageResponses()
    add_sign_in_routes(app, context.access, sessions, wrong_tokens)
    add_control_routes(app, context, sessions)
    add_page_routes(app, context)
    return app


def create_metrics_app(context: AdminContext) -> web.Application:
    """Makes the application for metrics and health, which needs no token and takes any Host."""
    app = web.Application(
        middlewares=[on_connections, render_errors, guard_requests(Guard(AdminAccess(hosts=None)))],
        client_max_size=MAX_BODY,
    )
    app.on_response_prepare.append(finish_head)
    _add_public_routes(app.router, _Endpoints(context))
    return app


def _add_public_routes(router: web.UrlDispatcher, endpoints: _Endpoints) -> None:
    router.add_get("/livez", endpoints.livez)
    router.add_get("/readyz", endpoints.readyz)
    router.add_get("/metrics", endpoints.metrics)


@final
class _Endpoints:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._piece_turn = asyncio.Lock()

    async def livez(self, request: web.Request) -> web.StreamResponse:
        """Responds 200 to a liveness check; any response shows that the event loop runs."""
        return text_response("ok\n")

    async def readyz(self, request: web.Request) -> web.StreamResponse:
        """Responds 200 if requests should be sent here, else 503; with `?attached` only an attached replica
        is ready."""
        conditions = views.conditions(
            self._context.snapshots.current,
            not_serving=self._context.not_serving(),
            agreement=self._context.agreement(),
        )
        needed = [each for each in conditions if each.is_needed or "attached" in request.query]
        ready = all(condition.holds for condition in needed)
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
        """Responds with the metrics as text format or OpenMetrics, in pieces that wait for the client."""
        accept = ",".join(request.headers.getall("Accept", []))
        await self._context.refresh(counters=True)
        stats = await collect_stats()
        pieces, content_type = self._context.metrics.exposition(accept, stats)
        headers = {"Content-Type": content_type}
        if request.method == hdrs.METH_HEAD:
            return web.StreamResponse(headers=headers)
        first, second = await self._next(pieces), await self._next(pieces)
        if not second:
            return web.Response(body=first, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(first)
        while second:
            await response.write(second)
            second = await self._next(pieces)
        return response

    async def _next(self, pieces: Iterator[bytes]) -> bytes:
        """Makes the next piece of /metrics; empty: the end. All scrapes make one per loop iteration."""
        async with self._piece_turn:
            await asyncio.sleep(0)
            return next(pieces, b"")

    async def status(self, request: web.Request) -> web.StreamResponse:
        await self._context.refresh(counters=False)
        return json_response(await status_document(self._context.status()))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        if not PARAMETERS.issuperset(query):
            raise web.HTTPBadRequest(text="the only parameters are method, path, header and from")
        for name in ("method", "path", "from"):
            if len(query.getall(name, [])) > 1:
                raise web.HTTPBadRequest(text=f"`{name}` is given more than once")
        method, target = query.get("method", "GET"), query.get("path", "")
        try:
            headers, address = query.getall("header", []), query.get("from", "")
            explanation = explain_described(self._context, method, target, headers, address)
        except DescriptionError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return json_response(explanation)

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """Reloads the configuration. Responds once it is in force, or with the reasons against it."""
        await request.read()  # a malformed or endless body must not reload
        refuse_while_still(self._context)
        result = await self._context.commands.reload()
        if not result.ok:
            first, *more = (problem.partition("\n")[0] for problem in result.problems)
            others = f", and {len(more)} more" if more else ""
            error = f"reload refused, the old configuration stays in force: {first}{others}"
            body = {"error": error, "problems": list(result.problems), "restart_needed": list(result.restart)}
            return json_response(body, status=400)
        pending = await pending_for(self._context, None)
        return json_response({**await status_document(self._context.status()), "pending": pending})
