"""The readers that run in this process, and what all readers have in common: requests in, views out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from tests.differential.readers import (
    aiohttp_reader,
    django_reader,
    starlette_reader,
    webob_reader,
    werkzeug_reader,
)
from tests.differential.readers.view import Unreadable, View


class Reader(Protocol):
    """One framework, or one engine."""

    @property
    def name(self) -> str: ...
    async def read(self, requests: Sequence[bytes]) -> list[View | None]:
        """A view of each request, in their order. None: the framework refuses the request."""


@final
class InProcess:
    """A framework in this process."""

    def __init__(self, name: str, read: Callable[[bytes], View]) -> None:
        self.name = name
        self._read = read

    async def read(self, requests: Sequence[bytes]) -> list[View | None]:
        return [self._view(request) for request in requests]

    def _view(self, request: bytes) -> View | None:
        try:
            return self._read(request)
        except Unreadable:
            return None


PYTHON_READERS: Final[tuple[Reader, ...]] = (
    InProcess("WebOb", webob_reader.read),
    InProcess("Werkzeug", werkzeug_reader.read),
    InProcess("Django", django_reader.read),
    InProcess("Starlette", starlette_reader.read),
    InProcess("aiohttp", aiohttp_reader.read),
)
