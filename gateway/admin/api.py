"""The admin listener's endpoints: `/livez`, `/readyz`, `/metrics`, `/status`, `/explain`, `POST /-/reload`.

GET changes nothing. Answers are made from one snapshot each, by `views`, `core.explanation` and the metrics;
JSON is never to be cached; an error is `{"error": "one sentence"}`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from aiohttp import web

from gateway.admin import views
from gateway.admin.guard import Guard, Handler, guarded
from gateway.controlplane.reload import ConfigInForce, Reloaded
from gateway.core.explanation import explain
from gateway.core.message import Header
from gateway.core.snapshot import SnapshotSource
from gateway.settings.secret import Secret
from gateway.telemetry.metrics import Metrics

LARGEST_REQUEST: Final = 64 * 1024
"""Bytes of a body: no endpoint needs one."""

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

_log = logging.getLogger("skewgate.admin")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """All that the admin listener looks at. Callables are asked on every request."""

    snapshots: SnapshotSource
    metrics: Metrics
    config: Callable[[], ConfigInForce]
    reload: Callable[[], Awaitable[Reloaded]]
    last_probe_at: Callable[[], Mapping[tuple[str, str], float]]
    """Wall-clock seconds by (service, backend): `Prober.last_probe_at`."""
    load: Callable[[], Mapping[str, int]]
    """Requests in flight by member key: `Worker.load`."""
    draining: Callable[[], bool]
    token: Secret | None = None
    hosts: tuple[str, ...] = ()
    """Names besides loopback and the bound address that a Host may hold: the configured listen host."""


def create_app(context: AdminContext) -> web.Application:
    """The application; `site.AdminSite` serves it."""
    endpoints = _Endpoints(context)
    app = web.Application(
        # The outermost first: errors of the guard are rendered, too.
        middlewares=[_rendered, guarded(Guard(context.hosts, context.token))],
        client_max_size=LARGEST_REQUEST,
    )
    app.router.add_get("/livez", endpoints.livez)
    app.router.add_get("/readyz", endpoints.readyz)
    app.router.add_get("/metrics", endpoints.metrics)
    app.router.add_get("/status", endpoints.status)
    app.router.add_get("/explain", endpoints.explain)
    app.router.add_post("/-/reload", endpoints.reload)
    return app


@web.middleware
async def _rendered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors as one JSON object; nothing is sniffed, nothing is kept."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        text = (
            refusal.text
            if refusal.text and not refusal.text.startswith(f"{refusal.status}:")
            else refusal.reason
        )
        kept = {
            name: value for name, value in refusal.headers.items() if name in {"Allow", "WWW-Authenticate"}
        }
        response = _json({"error": text}, status=refusal.status, headers=kept)
    except Exception:  # noqa: BLE001 - logged; the listener outlives a bug of one answer
        _log.exception("a request of the admin listener failed by a bug of the gateway")
        response = _json({"error": "this failed by a bug of the gateway, see its log"}, status=500)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "skewgate"
    return response


def _json(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    body = json.dumps(document).encode("ascii") + b"\n"
    return web.Response(
        status=status,
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, headers={"Cache-Control": "no-store"})


@final
class _Endpoints:
    """One method an endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def livez(self, request: web.Request) -> web.StreamResponse:
        """The loop turns, or nobody would read this."""
        return _text("ok\n")

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
        return _text(text, status=200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """The text format, or OpenMetrics for who asks for it."""
        accept = ",".join(request.headers.getall("Accept", []))
        body, content_type = self._context.metrics.exposition(accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.StreamResponse:
        return _json(self._status())

    def _status(self) -> dict[str, Any]:
        context = self._context
        config = context.config()
        return views.status(
            context.snapshots.current,
            {"hash": config.hash, "loaded_at": config.loaded_at},
            context.last_probe_at(),
            context.load(),
        )

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
        headers = [_header(line) for line in query.getall("header", [])]
        if len(headers) > MOST_HEADERS:
            raise web.HTTPBadRequest(text=f"at most {MOST_HEADERS} headers can be explained")
        context = self._context
        told = explain(context.snapshots.current, method, target, headers, context.load())
        return _json(told.to_json())

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """Answers once the new configuration is in force, or says why the old one still is."""
        result = await self._context.reload()
        if not result.ok:
            first, *more = (problem.partition("\n")[0] for problem in result.problems)
            others = f", and {len(more)} more" if more else ""
            sentence = f"the file is refused, the old configuration stays in force: {first}{others}"
            return _json({"error": sentence, "problems": list(result.problems)}, status=400)
        return _json({**self._status(), "restart_needed": list(result.restart)})


def _header(line: str) -> Header:
    """`Name: value`, as a request could really hold it."""
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise web.HTTPBadRequest(text="each `header` must be `Name: value`, as it would stand in a request")
    return name, value
