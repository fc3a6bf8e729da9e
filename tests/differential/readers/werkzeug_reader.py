"""Werkzeug, on which Flask is built, with the environment of its own server."""

from __future__ import annotations

from functools import cache

from werkzeug import Request
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_options_header
from werkzeug.routing import Map, Rule

from tests.differential.apis import Path
from tests.differential.readers.view import MediaType, View, joined, media_type, only
from tests.differential.readers.wsgi import werkzeug_environ


@cache
def _routes(location: Path) -> Map:
    start = f"{location.prefix}/{location.before}<version>"
    return Map(
        [
            Rule(start, endpoint="all"),
            Rule(f"{start}/<path:rest>", endpoint="below"),
            Rule(f"{start}/", endpoint="slash"),
        ]
    )


def _media_type(text: str) -> MediaType:
    name, parameters = parse_options_header(text)
    return media_type(name, parameters.items())


def read(raw: bytes) -> View:
    request = Request(werkzeug_environ(raw))

    def route(location: Path) -> list[str]:
        try:
            _, values = _routes(location).bind("any").match(request.path, method="GET")
        except HTTPException:
            return []  # also a redirection, with which the client comes again
        return [str(values["version"])]

    def content_type() -> list[MediaType]:
        name = request.mimetype
        return [media_type(name, request.mimetype_params.items())] if name else []

    return View(
        method=request.method,
        path=request.path,
        header=lambda name: only(request.headers.get(name)),
        query=lambda name: joined(request.args.getlist(name)),
        accept=lambda: [_media_type(text) for text in request.accept_mimetypes.values()],
        content_type=content_type,
        route=route,
    )
