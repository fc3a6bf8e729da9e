"""What an operator may change at run time: a service's ceiling (the pin), and which backends are drained;
and that a replica does not come back.

    PUT, DELETE /services/NAME/ceiling        POST /services/NAME/backends/B/drain, …/enable
    DELETE /replicas/ID

Parses and refuses; what a command means is up to `core.fleet.fleet`. Responds with the document of `/status`
once the command is in force in every worker and, if there is a state file, written to it; `kept` says whether
it is, `pending` for whom it still waits after some seconds. `warning` says what the operator should know
about it, or is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, NoReturn, final

from aiohttp import web

from gateway.admin.context import AdminContext
from gateway.admin.responses import json_response
from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from gateway.telemetry.agreement import AgreementReport

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
    router.add_delete("/replicas/{replica}", endpoints.forget)


@final
class _Commands:
    """One method per endpoint. Each reads the body first, also where it needs none: a request that turns out
    to be malformed must not have changed anything."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def pin(self, request: web.Request) -> web.StreamResponse:
        """Set the ceiling of the body, until it is removed."""
        self._view(request)  # an unknown service is reported before a wrong body
        key, text = _parse_body(await request.read())
        view = self._view(request)  # a reload may have come while the body was read
        ceiling = _ceiling(view.service, key, text)
        versions = _beneath(view)
        if versions and ceiling < versions.lowest:
            scheme = view.service.dialect.scheme
            raise web.HTTPConflict(
                text=f"the ceiling {scheme.format(ceiling)} is below the minimum "
                f"{scheme.format(versions.lowest)} on offer: nothing could be served"
            )
        return await self._apply(view.service.name, Pin(ceiling), _pins_nothing)

    async def unpin(self, request: web.Request) -> web.StreamResponse:
        """Go back to the configured ceiling, or to none."""
        await request.read()
        return await self._apply(self._view(request).service.name, Pin(None))

    async def drain(self, request: web.Request) -> web.StreamResponse:
        """Send no new requests to a backend; those in flight are finished."""
        await request.read()
        command = Drain(self._backend(request))
        return await self._apply(self._view(request).service.name, command, _leaves_unserved)

    async def enable(self, request: web.Request) -> web.StreamResponse:
        """Send requests to a backend again."""
        await request.read()
        command = Drain(self._backend(request), drained=False)
        return await self._apply(self._view(request).service.name, command)

    async def forget(self, request: web.Request) -> web.StreamResponse:
        """End the registration of a replica that does not come back."""
        await request.read()
        refuse_while_still(self._context)
        replica, report = request.match_info["replica"], self._context.agreement()
        if self._context.forget is None or report is None:
            raise web.HTTPNotFound(text="this gateway stands alone: `agreement` is not configured")
        if replica == report.id:
            raise web.HTTPConflict(text=f"{replica!a} is this replica itself: stop it, and it signs off")
        with _store_may_fail():
            is_forgotten = await self._context.forget(replica)
        if not is_forgotten:
            _refuse_to_forget(replica, self._context.agreement() or report)
        return json_response(self._context.status())

    async def _apply(
        self,
        service: str,
        command: OperatorCommand,
        warning_of: Callable[[ServiceView], str | None] = lambda _: None,
    ) -> web.StreamResponse:
        """The new state, once it is in force. `warning_of`: what the operator should know about it."""
        refuse_while_still(self._context)
        with _store_may_fail():
            if self._context.command is None:
                self._context.apply(service, command)
            else:
                await self._context.command(service, command)
        view = self._context.snapshots.current.views.get(service)
        warning = None if view is None else warning_of(view)
        saved = await self._context.state_saved()
        pending = await self._context.pending(service)
        return json_response(
            {**self._context.status(), "kept": saved, "pending": pending, "warning": warning}
        )

    def _view(self, request: web.Request) -> ServiceView:
        """The service that the path names; raises 404."""
        name = request.match_info["service"]
        view = self._context.snapshots.current.views.get(name)
        if view is None:
            there = _first_of(self._context.snapshots.current.views)
            raise web.HTTPNotFound(text=f"there is no service {name!a}; there are: {there}")
        return view

    def _backend(self, request: web.Request) -> str:
        """The name of the backend that the path names; raises 404."""
        view, name = self._view(request), request.match_info["backend"]
        if view.pool.member(name) is None:
            there = _first_of(member.backend.name for member in view.pool.members)
            raise web.HTTPNotFound(text=f"{view.service.name} has no backend {name!a}; it has: {there}")
        return name


@contextmanager
def _store_may_fail() -> Iterator[None]:
    """Raises 503 if the store does not take what is to hold for all replicas."""
    try:
        yield
    except StoreError as error:
        raise web.HTTPServiceUnavailable(
            text=f"the store did not confirm it, so ask again whether it holds: {error}"
        ) from error


def _refuse_to_forget(replica: str, report: AgreementReport) -> NoReturn:
    """Raises 404 or 409."""
    if replica in {each.id for each in report.replicas}:
        raise web.HTTPConflict(
            text=f"{report.name_of(replica)} is live: stop it, and it signs off; "
            "one that has just ended can be forgotten after a few seconds"
        )
    there = _first_of(f"{each.id} ({each.name})" for each in report.replicas)
    raise web.HTTPNotFound(text=f"there is no replica {replica[:MAX_QUOTED]!a}; there are: {there}")


def _beneath(view: ServiceView) -> VersionSet:
    """What is on offer beneath the ceiling."""
    if view.agreed is None or not view.agreed.voting:
        return view.offer_state.versions
    return NO_VERSIONS if view.agreed.document is None else view.agreed.document.state


def refuse_while_still(context: AdminContext) -> None:
    """Another gateway is taking over: what is changed now would be lost. Raises 503."""
    if reason := context.frozen():
        raise web.HTTPServiceUnavailable(text=reason)


def _first_of(names: Iterable[str]) -> str:
    """The names for a message, which stays short."""
    first = list(islice(names, 9))
    return ", ".join(first[:8]) + (", …" if len(first) > 8 else "") or "none"


def _leaves_unserved(view: ServiceView) -> str | None:
    """What stays on offer although no backend in service serves it: a drain takes nothing off the offer."""
    unserved = view.offer.versions - view.offer.reachable
    if not unserved:
        return None
    text = unserved.format(view.service.dialect.scheme)
    return f"{text} stays on offer, and no backend in service serves it: such requests are 503 until one does"


def _pins_nothing(view: ServiceView) -> str | None:
    """A pin above all that is known hides nothing, which may be a slip."""
    known = _beneath(view) | view.offer.reachable
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
