"""What an operator may order at run time: a ceiling for a service (the pin), a backend out of service and
back.

    PUT, DELETE /services/NAME/ceiling        POST /services/NAME/backends/B/drain, …/enable

Reads and refuses; what an order means is `core.fleet`'s. Answers as `/status` once the order is in force and,
where there is a state file, kept there; `kept` says whether it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, final

from aiohttp import web

from gateway.admin.answering import json_answer
from gateway.admin.context import AdminContext
from gateway.core.fleet import Drain, Order, Pin
from gateway.core.service import Service
from gateway.core.snapshot import ServiceView
from gateway.core.version import Version

LONGEST_QUOTE: Final = 80
"""Characters of a text of the body in an error."""
SHAPE: Final = '{"version": "1.90"} or {"release": "2024.1"}'


def add(router: web.UrlDispatcher, context: AdminContext) -> None:
    """Register the endpoints. Names in paths are percent-decoded by the router."""
    endpoints = _Orders(context)
    router.add_put("/services/{service}/ceiling", endpoints.pin)
    router.add_delete("/services/{service}/ceiling", endpoints.unpin)
    router.add_post("/services/{service}/backends/{backend}/drain", endpoints.drain)
    router.add_post("/services/{service}/backends/{backend}/enable", endpoints.enable)


@final
class _Orders:
    """One method an endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def pin(self, request: web.Request) -> web.StreamResponse:
        """The ceiling of the body, until it is taken away."""
        self._view(request)  # an unknown service is said before a wrong body
        named = _named(await request.read())
        view = self._view(request)  # a reload may have come while the body did
        ceiling = _ceiling(view.service, named)
        offered = view.memory.versions
        if offered and ceiling < offered.lowest:
            spell = view.service.dialect.scheme.format
            raise web.HTTPConflict(
                text=f"the ceiling {spell(ceiling)} is below the minimum {spell(offered.lowest)} on offer: "
                "nothing could be served"
            )
        return await self._order(view.service.name, Pin(ceiling))

    async def unpin(self, request: web.Request) -> web.StreamResponse:
        """The configuration's ceiling again, or none."""
        return await self._order(self._view(request).service.name, Pin(None))

    async def drain(self, request: web.Request) -> web.StreamResponse:
        """No new requests for a backend; those in flight are finished."""
        return await self._order(self._view(request).service.name, Drain(self._backend(request)))

    async def enable(self, request: web.Request) -> web.StreamResponse:
        """It may get requests again."""
        order = Drain(self._backend(request), drained=False)
        return await self._order(self._view(request).service.name, order)

    async def _order(self, service: str, order: Order) -> web.StreamResponse:
        self._context.obey(service, order)
        kept = await self._context.kept()
        return json_answer({**self._context.status(), "kept": kept})

    def _view(self, request: web.Request) -> ServiceView:
        """The service that the path names."""
        name = request.match_info["service"]
        view = self._context.snapshots.current.views.get(name)
        if view is None:
            raise web.HTTPNotFound(text=f"there is no service {name!a}")
        return view

    def _backend(self, request: web.Request) -> str:
        """The backend that the path names."""
        view, name = self._view(request), request.match_info["backend"]
        if view.pool.member(name) is None:
            raise web.HTTPNotFound(text=f"{view.service.name} has no backend {name!a}")
        return name


def _named(body: bytes) -> tuple[str, str]:
    """(`version` or `release`, its text) of a ceiling's body. Versions are texts: the number 1.90 is 1.9."""
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or set(document) not in ({"version"}, {"release"}):
        raise web.HTTPBadRequest(text=f"the body must be {SHAPE}")
    [(key, text)] = document.items()
    if not isinstance(text, str):
        raise web.HTTPBadRequest(text=f"`{key}` must be a text in quotation marks, as in {SHAPE}")
    return key, text


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object in which no key stands twice: readers disagree about which one counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _ceiling(service: Service, named: tuple[str, str]) -> Version:
    """The version that a body names, as `offer.ceiling` of the configuration is read."""
    key, text = named
    if key == "version":
        version = service.dialect.scheme.parse(text)
        if version is None:
            example = service.dialect.scheme.example
            raise web.HTTPBadRequest(text=f"{text[:LONGEST_QUOTE]!a} is not a version of the form {example}")
        return version
    releases = {**service.dialect.releases, **service.releases}
    if text not in releases:
        raise web.HTTPNotFound(
            text=f"neither the dialect {service.dialect.name} nor `releases` of {service.name} knows "
            f"{text[:LONGEST_QUOTE]!a}"
        )
    return releases[text]
