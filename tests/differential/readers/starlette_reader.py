"""Starlette, on which FastAPI is built, with the ASGI scope that uvicorn builds from httptools."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, final
from urllib.parse import unquote

import httptools
from starlette.requests import Request
from starlette.routing import Match, Route

from tests.differential.apis import Path
from tests.differential.readers.email_types import email_media_type
from tests.differential.readers.view import Unreadable, View, joined


async def _endpoint(_: Request) -> None:
    raise NotImplementedError


@cache
def _routes(location: Path) -> tuple[Route, ...]:
    start = f"{location.prefix}/{location.before}{{version}}"
    return tuple(Route(path, _endpoint) for path in (start, f"{start}/{{rest:path}}"))


@final
class _Callbacks:
    """Those of httptools, as uvicorn has them."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def _scope(raw: bytes) -> dict[str, Any]:
    callbacks = _Callbacks()
    parser = httptools.HttpRequestParser(callbacks)
    try:
        with suppress(httptools.HttpParserUpgrade):
            parser.feed_data(raw)
        parsed = httptools.parse_url(callbacks.target)
    except (httptools.HttpParserError, httptools.HttpParserInvalidURLError) as error:
        raise Unreadable(str(error)) from None
    path = parsed.path.decode("ascii")
    return {
        "type": "http",
        "method": parser.get_method().decode(),
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": parsed.path,
        "query_string": parsed.query or b"",
        "headers": callbacks.headers,
    }


def read(raw: bytes) -> View:
    scope = _scope(raw)
    request = Request(scope)
    headers = request.headers

    def route(location: Path) -> list[str]:
        matches = (each.matches(scope) for each in _routes(location))
        return [str(child["path_params"]["version"]) for match, child in matches if match is not Match.NONE]

    return View(
        method=request.method,
        path=scope["path"],
        header=lambda name: joined(headers.getlist(name)),
        query=lambda name: joined(request.query_params.getlist(name)),
        accept=lambda: [
            email_media_type(item) for item in ", ".join(headers.getlist("accept")).split(",") if item.strip()
        ],
        content_type=lambda: [email_media_type(line) for line in headers.getlist("content-type") if line],
        route=route,
    )
