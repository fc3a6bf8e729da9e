"""aiohttp's server: its own parser, its own media types, its own router."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, final

from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import parse_mimetype
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_urldispatcher import DynamicResource

from tests.differential.apis import Path
from tests.differential.readers.view import MediaType, Unreadable, View


@cache
def _routes(location: Path) -> tuple[DynamicResource, ...]:
    start = f"{location.prefix}/{location.before}{{version}}"
    return tuple(DynamicResource(path) for path in (start, start + "/{rest:.*}"))


def _media_type(text: str) -> MediaType:
    parsed = parse_mimetype(text)
    suffix = f"+{parsed.suffix}" if parsed.suffix else ""
    return MediaType(f"{parsed.type}/{parsed.subtype}{suffix}", tuple(parsed.parameters.items()))


@final
class AiohttpView(View):
    """One request in aiohttp."""

    def __init__(self, message: Any) -> None:
        self._message = message

    @property
    def method(self) -> str:
        return str(self._message.method)

    @property
    def path(self) -> str:
        return str(self._message.url.path)

    def header(self, name: str) -> list[str]:
        values = self._message.headers.getall(name, [])
        return [", ".join(values), self._message.headers[name]] if values else []

    def query(self, name: str) -> list[str]:
        values = self._message.url.query.getall(name, [])
        return [", ".join(values), self._message.url.query[name]] if values else []

    def accept(self) -> list[MediaType]:
        lines = self._message.headers.getall("Accept", [])
        return [_media_type(item) for item in ",".join(lines).split(",") if item.strip()]

    def content_type(self) -> list[MediaType]:
        return [_media_type(line) for line in self._message.headers.getall("Content-Type", []) if line]

    def route(self, location: Path) -> list[str]:
        for resource in _routes(location):
            found = resource._match(self._message.url.raw_path)
            if found is not None:
                return [str(found["version"])]
        return []


def read(raw: bytes) -> View:
    """Needs a running event loop."""
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
    try:
        messages, _, _ = parser.feed_data(raw)
    except HttpProcessingError as error:
        raise Unreadable(str(error)) from None
    return AiohttpView(messages[0][0])
