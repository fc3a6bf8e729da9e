"""Fleets for the operations page, and how a test reads the page and its stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any, Final, NamedTuple

from aiohttp import ClientResponse

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from tests.admin.testbed import AdminTestbed
from tests.kit import ironic
from tests.kit.ironic import holder_of, learn, upto
from tests.kit.waiting import PATIENCE

API: Final = Backend("api-1", "10.0.0.1", 6385)
VOID: Final = frozenset({"meta", "link", "input", "br"})


def fleet(*names: str, service: str = "baremetal", highest: int = 58) -> SnapshotHolder:
    """A service whose backends all serve the same."""
    backends = (Backend(name, f"10.0.{n // 250}.{n % 250}", 6385) for n, name in enumerate(names))
    holder = holder_of(ironic.service(*backends, name=service))
    for name in names:
        serves(holder, name, highest, 1.0, service=service)
    return holder


def two_services() -> SnapshotHolder:
    return holder_of(*(ironic.service(API, name=name) for name in ("baremetal", "staging/eu")))


def serves(
    holder: SnapshotHolder, backend: str, highest: int, at: float, *, service: str = "baremetal"
) -> None:
    """A probe has shown that a backend serves up to 1.`highest`."""
    learn(holder, backend, upto(highest), at, service=service)


class Page(HTMLParser):
    """A page as a browser would find it: every element closed, every id once."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open
        assert len(self.ids) == len(set(self.ids)), self.ids

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, (tag, self._open)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def ids(self) -> list[str]:
        return [str(each["id"]) for _, each in self.tags if "id" in each]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements with this name."""
        return [each for name, each in self.tags if name == tag]


async def page(admin: AdminTestbed, path: str = "/ui/", *, status: int = 200, **more: Any) -> Page:
    response = await admin.send("GET", path, **more)
    text = await response.text()
    assert response.status == status, text
    assert response.content_type == "text/html"
    return Page(text)


class Event(NamedTuple):
    """One event of a stream. `size`: of its data, in bytes."""

    name: str
    data: Any
    size: int


class Reader:
    """Reads a stream, as a browser does."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response
        self.text = ""

    async def event(self) -> Event | None:
        """The next one; None: the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            while line := (await self.response.content.readline()).decode("ascii"):
                if line == "\n" and "data" in fields:
                    break
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
            else:
                return None
        data = self.text + fields["data"]
        size = len(fields["data"])
        if fields["event"] == "more":
            self.text = data
            return Event("more", None, size)
        self.text = ""
        return Event(fields["event"], json.loads(data), size)

    async def until(self, part: str, *, whole: dict[str, str] | None = None) -> dict[str, str]:
        """What has changed, up to the update that shows `part`; `whole` takes it, too."""
        found: dict[str, str] = {} if whole is None else whole
        while event := await self.event():
            if event.name == "update":
                found |= event.data["set"]
                if any(part in html for html in event.data["set"].values()):
                    return found
        raise AssertionError(f"the stream ended without {part!r}")


@asynccontextmanager
async def stream(
    admin: AdminTestbed, query: str = "?service=baremetal", **more: Any
) -> AsyncIterator[Reader]:
    response = await admin.send(
        "GET",
        f"/ui/events{query}",
        headers={"Accept": "text/event-stream", **more.pop("headers", {})},
        **more,
    )
    async with response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Reader(response)
