"""WebOb on a WSGI environment, with microversion-parse: what most OpenStack servers are built on."""

from __future__ import annotations

import re
from typing import final

import webob
from microversion_parse import get_version
from webob.acceptparse import AcceptValidHeader

from tests.differential.apis import Microversion, Path
from tests.differential.readers.email_types import email_media_type
from tests.differential.readers.view import MediaType, Unreadable, View
from tests.differential.readers.wsgi import Environ, wsgiref_environ


@final
class WebObView(View):
    """One request in WebOb."""

    def __init__(self, environ: Environ) -> None:
        self._environ = environ
        self._request = webob.Request(environ)

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def path(self) -> str:
        try:
            return self._request.path_info
        except UnicodeDecodeError as error:
            raise Unreadable(str(error)) from None

    def header(self, name: str) -> list[str]:
        value = self._request.headers.get(name)
        return [] if value is None else [value]

    def query(self, name: str) -> list[str]:
        try:
            values = self._request.GET.getall(name)
        except UnicodeDecodeError as error:
            raise Unreadable(str(error)) from None
        return [", ".join(values), *values[-1:]] if values else []

    def accept(self) -> list[MediaType]:
        accept = self._request.accept
        if not isinstance(accept, AcceptValidHeader):
            return []  # an invalid field counts as an absent one
        found = []
        for name, _, parameters, extensions in accept.parsed:
            pairs = [*parameters, *(pair for pair in extensions if not isinstance(pair, str))]
            found.append(
                MediaType(name.partition(";")[0].lower(), tuple((key.lower(), text) for key, text in pairs))
            )
        return found

    def content_type(self) -> list[MediaType]:
        return [email_media_type(line) for line in self.header("Content-Type") if line]

    def route(self, location: Path) -> list[str]:
        found = re.match(rf"{re.escape(location.prefix)}/{location.before}([^/]+)(?:/|\Z)", self.path)
        return [found[1]] if found else []

    def microversion(self, location: Microversion) -> list[str]:
        text = get_version(self._environ, location.service_type, list(location.legacy_headers))
        return [] if text is None else [text]


def read(raw: bytes) -> View:
    return WebObView(wsgiref_environ(raw))
