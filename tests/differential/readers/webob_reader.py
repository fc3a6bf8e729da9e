"""WebOb on a WSGI environment, with microversion-parse: what most OpenStack servers are built on."""

from __future__ import annotations

import re

import webob
from microversion_parse import get_version
from webob.acceptparse import AcceptValidHeader

from tests.differential.apis import Microversion, Path
from tests.differential.readers.email_types import email_media_type
from tests.differential.readers.view import MediaType, Unreadable, View, joined, media_type, only
from tests.differential.readers.wsgi import wsgiref_environ


def read(raw: bytes) -> View:
    environ = wsgiref_environ(raw)
    request = webob.Request(environ)
    try:
        path = request.path_info
    except UnicodeDecodeError as error:
        raise Unreadable(str(error)) from None

    def query(name: str) -> list[str]:
        try:
            return joined(request.GET.getall(name))
        except UnicodeDecodeError as error:
            raise Unreadable(str(error)) from None

    def route(location: Path) -> list[str]:
        found = re.match(rf"{re.escape(location.prefix)}/{location.before}([^/]+)(?:/|\Z)", path)
        return [found[1]] if found else []

    def microversion(location: Microversion) -> list[str]:
        return only(get_version(environ, location.service_type, list(location.legacy_headers)))

    def content_type() -> list[MediaType]:
        line = request.headers.get("Content-Type")
        return [email_media_type(line)] if line else []

    return View(
        method=request.method,
        path=path,
        header=lambda name: only(request.headers.get(name)),
        query=query,
        accept=lambda: _accepted(request.accept),
        content_type=content_type,
        route=route,
        microversion=microversion,
    )


def _accepted(accept: object) -> list[MediaType]:
    if not isinstance(accept, AcceptValidHeader):
        return []  # an invalid field counts as an absent one
    return [
        media_type(
            name.partition(";")[0],
            [*parameters, *(pair for pair in extensions if not isinstance(pair, str))],
        )
        for name, _, parameters, extensions in accept.parsed
    ]
