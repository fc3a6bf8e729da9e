"""Werkzeug, on which Flask is built, with the environment of its own server."""

from __future__ import annotations

from functools import cache
from typing import final

from werkzeug import Request
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_options_header
from werkzeug.routing import Map, Rule
from werkzeug.routing.exceptions import RequestRedirect

from tests.differential.apis import Path
from tests.differential.readers.view import MediaType, View
from tests.differential.readers.wsgi import Environ, werkzeug_environ


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
    return MediaType(name.lower(), tuple(parameters.items()))


@final
class WerkzeugView(View):
    """One request in Werkzeug."""

    def __init__(self, environ: Environ) -> None:
        self._request = Request(environ)

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def path(self) -> str:
        return self._request.path

    def header(self, name: str) -> list[str]:
        value = self._request.headers.get(name)
        return [] if value is None else [value]

    def query(self, name: str) -> list[str]:
        values = self._request.args.getlist(name)
        return [", ".join(values), self._request.args[name]] if values else []

    def accept(self) -> list[MediaType]:
        return [_media_type(text) for text in self._request.accept_mimetypes.values()]

    def content_type(self) -> list[MediaType]:
        request = self._request
        if not request.mimetype:
            return []
        return [MediaType(request.mimetype, tuple(request.mimetype_params.items()))]

    def route(self, location: Path) -> list[str]:
        try:
            _, values = _routes(location).bind("any").match(self.path, method="GET")
        except RequestRedirect:
            return []  # the client comes again with another path
        except HTTPException:
            return []
        return [str(values["version"])]


def read(raw: bytes) -> View:
    return WerkzeugView(werkzeug_environ(raw))
