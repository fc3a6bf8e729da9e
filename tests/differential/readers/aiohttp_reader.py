"""aiohttp's server: its own parser, its own media types, its own router."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import parse_mimetype
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_urldispatcher import DynamicResource

from tests.differential.apis import Path
from tests.differential.readers.view import MediaType, Unreadable, View, joined, media_type


@cache
def _routes(location: Path) -> tuple[DynamicResource, ...]:
    start = f"{location.prefix}/{location.before}{{version}}"
    return tuple(DynamicResource(path) for path in (start, start + "/{rest:.*}"))


def _media_type(text: str) -> MediaType:
    parsed = parse_mimetype(text)
    suffix = f"+{parsed.suffix}" if parsed.suffix else ""
    return media_type(f"{parsed.type}/{parsed.subtype}{suffix}", parsed.parameters.items())


def read(raw: bytes) -> View:
    """Needs a running event loop."""
    loop = asyncio.get_running_loop()
    parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
    try:
        messages, _, _ = parser.feed_data(raw)
    except HttpProcessingError as error:
        raise Unreadable(str(error)) from None
    message: Any = messages[0][0]

    def lines(name: str) -> list[str]:
        return list(message.headers.getall(name, []))

    def route(location: Path) -> list[str]:
        matches = (resource._match(message.url.raw_path) for resource in _routes(location))
        return [str(found["version"]) for found in matches if found is not None]

    return View(
        method=message.method,
        path=message.url.path,
        header=lambda name: joined(lines(name)),
        query=lambda name: joined(message.url.query.getall(name, [])),
        accept=lambda: [_media_type(item) for item in ",".join(lines("Accept")).split(",") if item.strip()],
        content_type=lambda: [_media_type(line) for line in lines("Content-Type") if line],
        route=route,
    )
