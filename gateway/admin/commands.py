"""Commands of operators: limit the offer of a service, drain or enable a backend, forget a replica.

    PUT, DELETE /services/NAME/ceiling        POST /services/NAME/backends/B/drain, …/enable
    PUT, DELETE /services/NAME/floor          DELETE /replicas/ID

The endpoints and the operations page call the same functions; `core.fleet.fleet` carries a command out. An
endpoint responds with the status (`/status`) once the command is in force in every worker and, if there is a
state file, written to it (`kept`). `pending` lists workers and replicas that have not acknowledged after some
seconds. `warning` is a sentence for the operator or null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time
from typing import Final, NamedTuple, final

from aiohttp import web

from gateway.admin.context import AdminContext
from gateway.admin.effects import (
    above_maximum,
    below_minimum,
    refuses_unversioned,
    warning_of,
)
from gateway.admin.responses import json_response
from gateway.admin.status_document import status_document
from gateway.admin.ui.page_responses import read_query
from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.backend import Member
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin, Raise
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.version import Version
from gateway.errors import CommandRefused
from gateway.telemetry.access_log import printable
from gateway.telemetry.process_log import named

MAX_QUOTED: Final = 80
"""Maximum characters of the request body that an error quotes."""

BODY_FORM: Final = '{"version": "1.90"} or {"release": "2024.1"}'


def add_command_routes(router: web.UrlDispatcher, context: AdminContext) -> None:
    """Adds the endpoints of operators' commands. The router percent-decodes names in paths."""
    endpoints = _CommandEndpoints(context)
    router.add_put("/services/{service}/ceiling", endpoints.pin)
    router.add_delete("/services/{service}/ceiling", endpoints.unpin)
    router.add_put("/services/{service}/floor", endpoints.raise_floor)
    router.add_delete("/services/{service}/floor", endpoints.lower_floor)
    router.add_post("/services/{service}/backends/{backend}/{verb:drain|enable}", endpoints.set_drained)
    router.add_delete("/replicas/{replica}", endpoints.forget)


class CommandResult(NamedTuple):
    """Result of an operator's command that was accepted."""

    saved: bool
    """Whether the command is in the state file; False: the file cannot be written, or there is none."""
    pending: Sequence[str]
    """Names of the workers and replicas that have not acknowledged the command after some seconds."""
    warning: str | None
    """Sentence about an effect of the command that the operator may not expect; None: there is none."""


async def pin(context: AdminContext, service: str, key: str, text: str) -> CommandResult:
    """Pins a service to the ceiling that `read_ceiling` reads. Raises 400, 404, 409 (too low) and 503."""
    view = view_of(context, service)
    ceiling = read_ceiling(view.service, key, text)
    if (reason := below_minimum(view, ceiling)) is not None:
        raise web.HTTPConflict(text=reason)
    return await apply(context, service, Pin(ceiling))


async def set_drained(context: AdminContext, service: str, command: Drain) -> CommandResult:
    """Drains a backend, whose requests in flight finish, or enables it. Raises 404, 409 (`drains.refusal`)
    and 503."""
    member_of(view_of(context, service), command.backend)
    return await apply(context, service, command)


def view_of(context: AdminContext, service: str) -> ServiceView:
    """Finds the service with this name, or raises 404."""
    view = context.snapshots.current.views.get(service)
    if view is None:
        there = named(list(context.snapshots.current.views)) or "none"
        raise web.HTTPNotFound(text=f"there is no service {service!a}; there are: {there}")
    return view


def member_of(view: ServiceView, backend: str) -> Member:
    """Finds the backend with this name, or raises 404."""
    member = view.members.member(backend)
    if member is None:
        there = named(list(view.members.positions)) or "none"
        raise web.HTTPNotFound(text=f"{view.service.name} has no backend {backend!a}; it has: {there}")
    return member


async def apply(context: AdminContext, service: str, command: OperatorCommand) -> CommandResult:
    """Gives an operator's command and waits for its effect. Raises 404, 409 and 503."""
    view_of(context, service)
    refuse_while_still(context)
    with _store_may_fail():
        await context.commands.apply(service, command)
    view = context.snapshots.current.views.get(service)
    warning = None if view is None else warning_of(view, command)
    saved = await context.commands.saved()
    pending = await pending_for(context, service)
    return CommandResult(saved, pending, warning)


async def pending_for(context: AdminContext, service: str | None) -> list[str]:
    """Waits until commands are in force. Returns names of workers and replicas that have not acknowledged."""
    waits_for = await context.commands.in_force(service)
    report = context.agreement()
    if report is None:
        return list(waits_for)
    found = (each for whom in waits_for for each in whom.split(", "))
    return sorted({report.name_of(each) for each in found})


@final
class _CommandEndpoints:
    """Handlers of operators' commands, one for each endpoint. Each reads the body first, even if it needs
    none: a request that turns out to be malformed must not have changed anything."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def pin(self, request: web.Request) -> web.StreamResponse:
        service = request.match_info["service"]
        view_of(self._context, service)  # an unknown service is reported before a wrong body
        key, text = _parse_body(await request.read())
        return await self._status(await pin(self._context, service, key, text))

    async def unpin(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return await self._status(await apply(self._context, request.match_info["service"], Pin(None)))

    async def raise_floor(self, request: web.Request) -> web.StreamResponse:
        service = request.match_info["service"]
        view_of(self._context, service)
        query = read_query(request, ("yes",))
        key, text = _parse_body(await request.read())
        if key != "version":
            raise web.HTTPBadRequest(text='the body must be {"version": "1.40"}')
        view = view_of(self._context, service)
        floor = read_ceiling(view.service, key, text)
        reason = above_maximum(view, floor, time())
        if reason is None and "yes" not in query:
            reason = refuses_unversioned(view.service, floor)
        if reason is not None:
            raise web.HTTPConflict(text=reason)
        return await self._status(await apply(self._context, service, Raise(floor)))

    async def lower_floor(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return await self._status(await apply(self._context, request.match_info["service"], Raise(None)))

    async def set_drained(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        names, drained = request.match_info, request.match_info["verb"] == "drain"
        query = read_query(request, ("by", "served") if drained else ("by",))
        by = printable(query.get("by", ""), MAX_QUOTED)
        command = Drain(names["backend"], drained=drained, by=by, served="served" in query)
        return await self._status(await set_drained(self._context, names["service"], command))

    async def _status(self, result: CommandResult) -> web.StreamResponse:
        return json_response(
            {
                **await status_document(self._context.status()),
                "kept": result.saved,
                "pending": result.pending,
                "warning": result.warning,
            }
        )

    async def forget(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        refuse_while_still(self._context)
        replica, report = request.match_info["replica"], self._context.agreement()
        forget = self._context.commands.forget
        if forget is None or report is None:
            raise web.HTTPNotFound(text="there are no replicas: `agreement` is not configured")
        if replica == report.id:
            raise web.HTTPConflict(text=f"{replica!a} is this replica itself: stop it, and it deregisters")
        with _store_may_fail():
            is_forgotten = await forget(replica)
        if not is_forgotten:
            report = self._context.agreement() or report
            if replica in {each.id for each in report.replicas}:
                raise web.HTTPConflict(
                    text=f"{report.name_of(replica)} is live: stop it, and it deregisters; "
                    "if it has just ended, try again in a few seconds"
                )
            there = named([f"{each.id} ({each.name})" for each in report.replicas]) or "none"
            raise web.HTTPNotFound(text=f"there is no replica {replica[:MAX_QUOTED]!a}; there are: {there}")
        return json_response(await status_document(self._context.status()))


@contextmanager
def _store_may_fail() -> Iterator[None]:
    """Context manager that raises 503 for a failing store, and 409 for a command that replicas refuse."""
    try:
        yield
    except CommandRefused as error:
        raise web.HTTPConflict(text=str(error)) from error
    except StoreError as error:
        text = f"the store did not confirm the command, so check whether it is in force: {error}"
        raise web.HTTPServiceUnavailable(text=text) from error


def refuse_while_still(context: AdminContext) -> None:
    """Raises 503 while another gateway takes over: changes of operators would be lost."""
    if reason := context.commands.frozen():
        raise web.HTTPServiceUnavailable(text=reason)


def _parse_body(body: bytes) -> tuple[str, str]:
    """Reads (`version` or `release`, its text) from the body of a command. The number 1.90 would be 1.9."""
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
    """Makes a dict of a JSON object, and refuses duplicate keys: parsers disagree about which one counts."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("duplicate key")
    return mapping


def read_ceiling(service: Service, key: str, text: str) -> Version:
    """Reads a ceiling by its key, `version` or `release`. Raises 400 and 404."""
    if key == "version":
        version = service.dialect.scheme.parse(text)
        if version is None:
            example = service.dialect.scheme.example
            raise web.HTTPBadRequest(text=f"{text[:MAX_QUOTED]!a} is not a version of the form {example}")
        return version
    releases = releases_of(service)
    if text not in releases:
        raise web.HTTPNotFound(
            text=f"neither the dialect {service.dialect.name} nor `releases` of {service.name} knows "
            f"{text[:MAX_QUOTED]!a}"
        )
    return releases[text]


def releases_of(service: Service) -> Mapping[str, Version]:
    """Returns the releases that a ceiling may name, from the dialect and the configuration."""
    return {**service.dialect.releases, **service.releases}
