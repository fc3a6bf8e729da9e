"""What a form of the operations page sends: fields by name, each at most once.

Refuses everything that a form of ours never sends; knows no page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

MAX_FORM: Final = 8 * 1024
"""Bytes of a form: a token, an address, a version."""

CONTENT_TYPE: Final = "application/x-www-form-urlencoded"


async def read_form(request: web.Request, names: Collection[str]) -> Mapping[str, str]:
    """The fields of the body, which are some of `names`. Raises 400, 413 and 415."""
    if request.content_type != CONTENT_TYPE or len(request.headers.getall("Content-Type", [])) != 1:
        raise web.HTTPUnsupportedMediaType(text=f"a form is sent as {CONTENT_TYPE}")
    body = await request.read()
    if len(body) > MAX_FORM:
        raise web.HTTPRequestEntityTooLarge(MAX_FORM, len(body))
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=len(names),
        )
    except ValueError:
        raise web.HTTPBadRequest(text="the form is malformed") from None
    return _fields(pairs, names, "field")


def read_query(request: web.Request, names: Collection[str]) -> Mapping[str, str]:
    """The parameters of the address, which are some of `names`. Raises 400."""
    return _fields(list(request.query.items()), names, "parameter")


def _fields(pairs: list[tuple[str, str]], names: Collection[str], kind: str) -> Mapping[str, str]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise web.HTTPBadRequest(text=f"a {kind} is given more than once")
    if not fields.keys() <= set(names):
        raise web.HTTPBadRequest(text=f"the only {kind}s are {', '.join(names)}")
    return fields
