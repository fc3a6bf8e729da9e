"""Django on a WSGI environment, with routes that ignore case."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLPattern, re_path

from tests.differential.apis import Path
from tests.differential.readers.email_types import CRASHES
from tests.differential.readers.view import MediaType, Unreadable, View, joined, media_type, only
from tests.differential.readers.wsgi import wsgiref_environ

if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], USE_I18N=False)


def _view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@cache
def _routes(location: Path) -> tuple[URLPattern, ...]:
    start = f"{re.escape(location.prefix.lstrip('/'))}{'/' if location.prefix else ''}{location.before}"
    return tuple(re_path(f"{flags}^{start}(?P<version>[^/]+)(?:/|$)", _view) for flags in ("", "(?i)"))


def read(raw: bytes) -> View:
    try:
        request: Any = WSGIRequest(wsgiref_environ(raw))
    except CRASHES as error:
        raise Unreadable(str(error)) from None

    def accept() -> list[MediaType]:
        try:
            types = request.accepted_types
        except CRASHES as error:
            raise Unreadable(str(error)) from None
        if not types and request.headers.get("Accept") != "":
            raise Unreadable("the client accepts nothing")
        return [media_type(f"{each.main_type}/{each.sub_type}", each.params.items()) for each in types]

    def route(location: Path) -> list[str]:
        found = []
        for pattern in _routes(location):
            try:
                match = pattern.resolve(request.path_info.removeprefix("/"))
            except Resolver404:
                continue
            if match is not None:
                found.append(match.kwargs["version"])
        return found

    def content_type() -> list[MediaType]:
        name = request.content_type
        return [media_type(name, request.content_params.items())] if name else []

    return View(
        method=request.method,
        path=request.path_info,
        header=lambda name: only(request.headers.get(name)),
        query=lambda name: joined(request.GET.getlist(name)),
        accept=accept,
        content_type=content_type,
        route=route,
    )
