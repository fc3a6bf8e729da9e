"""What an operator may change at run time: a service's ceiling (the pin), and which backends are drained.

    PUT, DELETE /services/NAME/ceiling        POST /services/NAME/backends/B/drain, …/enable

Parses and refuses; what a command means is up to `core.fleet.fleet`. Responds with the document of `/status`
once the command is in force and, if there is a state file, written to it; `kept` says whether it is.
`warning` says what the operator should know about it, or is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, final

from aiohttp import web

from gateway.admin.context import AdminContext
from gateway.admin.responses import json_response
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.version import Version

MAX_QUOTED: Final = 80
"""Characters that an error quotes of the request body."""

BODY_FORM: Final = '{"version": "1.90"} or {"release": "2024.1"}'


def add_command_routes(router: web.UrlDispatcher, context: AdminContext) -> None:
    """Add the endpoints. The router percent-decodes names in paths."""
    endpoints = _Commands(context)
    router.add_put("/services/{service}/ceiling", endpoints.pin)
    router.add_delete("/services/{service}/ceiling", endpoints.unpin)
    router.add_post("/services/{service}/backends/{backend}/drain", endpoints.drain)
    router.add_post("/services/{service}/backends/{backend}/enable", endpoints.enable)


@final
class _Commands:
    """One method per endpoint."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def pin(self, request: web.Request) -> web.StreamResponse:
        """Set the ceiling of the body, until it is removed."""
        self._view(request)  # an unknown service is reported before a wrong body
        key, text = _parse_body(await request.read())
        view = self._view(request)  # a reload may have come while the body was read
        ceiling = _ceiling(view.service, key, text)
        versions = view.offer_state.versions
        if versions and ceiling < versions.lowest:
            scheme = view.service.dialect.scheme
            raise web.HTTPConflict(
                text=f"the ceiling {scheme.format(ceiling)} is below the minimum "
                f"{scheme.format(versions.lowest)} on offer: nothing could be served"
            )
        return await self._apply(view.service.name, Pin(ceiling), _pins_nothing)

    async def unpin(self, request: web.Request) -> web.StreamResponse:
        """Go back to the configured ceiling, or to none."""
        return await self._apply(self._view(request).service.name, Pin(None))

    async def drain(self, request: web.Request) -> web.StreamResponse:
        """Send no new requests to a backend; those in flight are finished."""
        command = Drain(self._backend(request))
        return await self._apply(self._view(request).service.name, command, _leaves_unserved)

    async def enable(self, request: web.Request) -> web.StreamResponse:
        """Send requests to a backend again."""
        command = Drain(self._backend(request), drained=False)
        return await self._apply(self._view(request).service.name, command)

    async def _apply(
        self,
        service: str,
        command: OperatorCommand,
        warning_of: Callable[[ServiceView], str | None] = lambda _: None,
    ) -> web.StreamResponse:
        """The new state, once it is in force. `warning_of`: what the operator should know about it."""
        self._context.apply(service, command)
        view = self._context.snapshots.current.views.get(service)
        warning = None if view is None else warning_of(view)
        saved = await self._context.state_saved()
        return json_response({**self._context.status(), "kept": saved, "warning": warning})

    def _view(self, request: web.Request) -> ServiceView:
        """The service that the path names; raises 404."""
        name = request.match_info["service"]
        view = self._context.snapshots.current.views.get(name)
        if view is None:
            raise web.HTTPNotFound(text=f"there is no service {name!a}")
        return view

    def _backend(self, request: web.Request) -> str:
        """The name of the backend that the path names; raises 404."""
        view, name = self._view(request), request.match_info["backend"]
        if view.pool.member(name) is None:
            raise web.HTTPNotFound(text=f"{view.service.name} has no backend {name!a}")
        return name


def _leaves_unserved(view: ServiceView) -> str | None:
    """What stays on offer although no backend in service serves it: a drain takes nothing off the offer."""
    unserved = view.offer.versions - view.offer.reachable
    if not unserved:
        return None
    text = unserved.format(view.service.dialect.scheme)
    return f"{text} stays on offer, and no backend in service serves it: such requests are 503 until one does"


def _pins_nothing(view: ServiceView) -> str | None:
    """A pin above all that is known hides nothing, which may be a slip."""
    known = view.offer_state.versions | view.offer.reachable
    pin = view.pool.pin
    if pin is None or not known or pin <= known.highest:
        return None
    scheme = view.service.dialect.scheme
    return (
        f"no known backend serves more than {scheme.format(known.highest)}: "
        f"the ceiling {scheme.format(pin)} hides nothing now"
    )


def _parse_body(body: bytes) -> tuple[str, str]:
    """(`version` or `release`, its text) of a ceiling's body. Versions are texts: the number 1.90 is 1.9."""
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or set(document) not in ({"version"}, {"release"}):
        raise web.HTTPBadRequest(text=f"the body must be {BODY_FORM}")
    [(key, text)] = document.items()
    if not isinstance(text, str):
        raise web.HTTPBadRequest(text=f"`{key}` must be a string in quotation marks, as in {BODY_FORM}")
    return key, text


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object without duplicate keys: parsers disagree about which one counts."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("duplicate key")
    return mapping


def _ceiling(service: Service, key: str, text: str) -> Version:
    """The version that a body names, read like `offer.ceiling` of the configuration."""
    if key == "version":
        version = service.dialect.scheme.parse(text)
        if version is None:
            example = service.dialect.scheme.example
            raise web.HTTPBadRequest(text=f"{text[:MAX_QUOTED]!a} is not a version of the form {example}")
        return version
    releases = {**service.dialect.releases, **service.releases}
    if text not in releases:
        raise web.HTTPNotFound(
            text=f"neither the dialect {service.dialect.name} nor `releases` of {service.name} knows "
            f"{text[:MAX_QUOTED]!a}"
        )
    return releases[text]
