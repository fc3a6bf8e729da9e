"""Starlette, on which FastAPI is built, with the ASGI scope that uvicorn builds from httptools."""

from __future__ import annotations

from functools import cache
from typing import Any, final
from urllib.parse import unquote

import httptools
from starlette.requests import Request
from starlette.routing import Match, Route

from tests.differential.apis import Path
from tests.differential.readers.email_types import email_media_type, email_media_types
from tests.differential.readers.view import MediaType, Unreadable, View


async def _endpoint(_: Request) -> None:
    raise NotImplementedError


@cache
def _routes(location: Path) -> tuple[Route, ...]:
    start = f"{location.prefix}/{location.before}{{version}}"
    return tuple(Route(path, _endpoint) for path in (start, f"{start}/{{rest:path}}"))


@final
class _Scope:
    """The callbacks of httptools, as uvicorn has them."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def scope(self, method: str) -> dict[str, Any]:
        parsed = httptools.parse_url(self.target)
        raw_path = parsed.path
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "method": method,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": parsed.query or b"",
            "headers": self.headers,
        }


@final
class StarletteView(View):
    """One request in Starlette."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self._scope = scope
        self._request = Request(scope)

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def path(self) -> str:
        return str(self._scope["path"])

    def header(self, name: str) -> list[str]:
        values = self._request.headers.getlist(name)
        return [", ".join(values), self._request.headers[name]] if values else []

    def query(self, name: str) -> list[str]:
        values = self._request.query_params.getlist(name)
        return [", ".join(values), self._request.query_params[name]] if values else []

    def accept(self) -> list[MediaType]:
        return email_media_types(", ".join(self._request.headers.getlist("accept")))

    def content_type(self) -> list[MediaType]:
        return [email_media_type(line) for line in self._request.headers.getlist("content-type") if line]

    def route(self, location: Path) -> list[str]:
        for route in _routes(location):
            match, child = route.matches(self._scope)
            if match is not Match.NONE:
                return [str(child["path_params"]["version"])]
        return []


def read(raw: bytes) -> View:
    callbacks = _Scope()
    parser = httptools.HttpRequestParser(callbacks)
    try:
        parser.feed_data(raw)
        return StarletteView(callbacks.scope(parser.get_method().decode()))
    except httptools.HttpParserUpgrade:
        return StarletteView(callbacks.scope(parser.get_method().decode()))
    except (httptools.HttpParserError, httptools.HttpParserInvalidURLError) as error:
        raise Unreadable(str(error)) from None
