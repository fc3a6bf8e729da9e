"""Django on a WSGI environment, with routes that ignore case."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, final

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLPattern, re_path

from tests.differential.apis import Path
from tests.differential.readers.email_types import CRASHES
from tests.differential.readers.view import MediaType, Unreadable, View
from tests.differential.readers.wsgi import Environ, wsgiref_environ

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], USE_I18N=False)


def _view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@cache
def _routes(location: Path) -> tuple[URLPattern, ...]:
    start = f"{re.escape(location.prefix.lstrip('/'))}{'/' if location.prefix else ''}{location.before}"
    return tuple(re_path(f"{flags}^{start}(?P<version>[^/]+)(?:/|$)", _view) for flags in ("", "(?i)"))


@final
class DjangoView(View):
    """One request in Django."""

    def __init__(self, environ: Environ) -> None:
        try:
            self._request: Any = WSGIRequest(environ)
        except CRASHES as error:
            raise Unreadable(str(error)) from None

    @property
    def method(self) -> str:
        return str(self._request.method)

    @property
    def path(self) -> str:
        return str(self._request.path_info)

    def header(self, name: str) -> list[str]:
        value = self._request.headers.get(name)
        return [] if value is None else [value]

    def query(self, name: str) -> list[str]:
        values = self._request.GET.getlist(name)
        return [", ".join(values), self._request.GET[name]] if values else []

    def accept(self) -> list[MediaType]:
        try:
            types = self._request.accepted_types
        except CRASHES as error:
            raise Unreadable(str(error)) from None
        if not types and self.header("Accept") != [""]:
            raise Unreadable("the client accepts nothing")
        return [
            MediaType(
                f"{each.main_type}/{each.sub_type}",
                tuple((key.lower(), text) for key, text in each.params.items()),
            )
            for each in types
        ]

    def content_type(self) -> list[MediaType]:
        name = self._request.content_type
        parameters = tuple((key.lower(), text) for key, text in self._request.content_params.items())
        return [MediaType(name, parameters)] if name else []

    def route(self, location: Path) -> list[str]:
        found = []
        for pattern in _routes(location):
            try:
                match = pattern.resolve(self.path.removeprefix("/"))
            except Resolver404:
                continue
            if match is not None:
                found.append(match.kwargs["version"])
        return found


def read(raw: bytes) -> View:
    return DjangoView(wsgiref_environ(raw))
