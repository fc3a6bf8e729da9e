"""Endpoints about usage: `GET /usage` answers a question, `GET /usage/export` copies the database, and
`GET /simulate` says whom a change would affect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from aiohttp import web

from gateway.admin.commands import view_of
from gateway.admin.context import AdminContext
from gateway.admin.responses import json_response
from gateway.admin.ui.page_responses import read_query
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.controlplane.usage.reading import UsageError
from gateway.core.usage import what_if
from gateway.core.usage.summary import Question, QuestionError, answer
from gateway.core.usage.what_if import CHANGES, changed
from gateway.errors import SkewgateError

_T = TypeVar("_T")


def add_usage_routes(router: web.UrlDispatcher, context: AdminContext) -> None:
    """Adds the endpoints about usage."""

    async def usage(request: web.Request) -> web.StreamResponse:
        question = Question(**read_query(request, Question._fields))
        if question.service is not None:
            view_of(context, question.service)
        try:
            record = await _read(context, lambda keeper: keeper.read(question.service, question.days()))
            # In a thread, because a record may have some hundred thousand rows.
            return json_response(await asyncio.to_thread(answer, record, question))
        except QuestionError as error:
            raise web.HTTPBadRequest(text=str(error)) from None

    async def export(_: web.Request) -> web.StreamResponse:
        copy = await _read(context, lambda keeper: keeper.export())
        return web.Response(body=copy, headers={"Cache-Control": "no-store"})

    async def simulate(request: web.Request) -> web.StreamResponse:
        query = read_query(request, ("service", "since", *CHANGES))
        change = [(name, query[name]) for name in CHANGES if name in query]
        if "service" not in query or len(change) != 1:
            raise web.HTTPBadRequest(text=f"give `service`, and one of {', '.join(CHANGES)}")
        before = view_of(context, query["service"])
        try:
            days = Question(since=query.get("since")).days()
            after = changed(before, *change[0], monotonic())
        except (QuestionError, SkewgateError) as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        record = await _read(context, lambda keeper: keeper.read(before.service.name, days))
        return json_response(await asyncio.to_thread(what_if.answer, record, days, before, after))

    router.add_get("/simulate", simulate)
    router.add_get("/usage", usage)
    router.add_get("/usage/export", export)


async def _read(context: AdminContext, reading: Callable[[UsageKeeper], Awaitable[_T]]) -> _T:
    """Reads the record of usage. Raises 404 if there is none, and 503 if that fails."""
    if context.usage is None:
        raise web.HTTPNotFound(text="nothing is counted: `usage` is off in the configuration")
    try:
        return await reading(context.usage)
    except UsageError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from None
