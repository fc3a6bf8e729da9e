"""The responses of docs/demo.md are those of a gateway; README.md is short, and its figures are measured."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import aiohttp
import pytest

from gateway import settings
from gateway.assembly import Gateway
from gateway.cli.status import BACKEND_COLUMNS, SERVICE_COLUMNS
from gateway.core.fleet.snapshot import Snapshot
from gateway.demo.ironic import NEW, OLD, IronicServer
from tests.docs.pages import blocks, page, rows, section
from tests.kit.waiting import PATIENCE

CONFIGURATION = """
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{0}"}}
      - {{name: api-2, url: "http://127.0.0.1:{1}"}}
"""


class Shown(NamedTuple):
    """A curl command and the response below it, without the lines that the page leaves out."""

    path: str
    headers: dict[str, str]
    response: list[str]


def shown() -> Iterator[Shown]:
    return shown_in(page("docs/demo.md"))


def shown_in(text: str) -> Iterator[Shown]:
    """Every curl command of a page, with the lines of its response."""
    for block in blocks(text):
        for command in block.text.split("$ curl ")[1:]:
            request, *response = command.splitlines()
            words = shlex.split(request)
            url = next(word for word in words if word.startswith("http://"))
            pairs = [words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H"]
            yield Shown(
                url.removeprefix("http://127.0.0.1:8080"),
                dict(pairs),
                [line for line in response if line and line != "…"],
            )


@pytest.fixture
async def gateway_url() -> AsyncIterator[str]:
    """The gateway in front of the demo's two servers, once it has learned both."""
    servers = [IronicServer("api-1"), IronicServer("api-2")]
    async with AsyncExitStack() as stack:
        for server, release in zip(servers, (OLD, NEW), strict=True):
            stack.push_async_callback(server.close)
            await server.start(release)
        text = CONFIGURATION.format(*(server.port for server in servers))
        configured = settings.load(text, filename="test", environ={}).require()
        gateway = await stack.enter_async_context(Gateway(configured))
        await until_offered(gateway)
        host, port = gateway.addresses[0]
        yield f"http://{host}:{port}"


async def until_offered(gateway: Gateway, service: str = "baremetal") -> None:
    """Wait for the first offer."""
    offered = asyncio.Event()

    def look(before: Snapshot, after: Snapshot) -> None:
        if after.views[service].offer.versions:
            offered.set()

    gateway.snapshot_holder.subscribe(look)
    if not gateway.snapshot_holder.current.views[service].offer.versions:
        async with asyncio.timeout(PATIENCE):
            await offered.wait()


def test_the_tables_of_status_have_these_columns() -> None:
    text = page("docs/demo.md")
    shown = [tuple(re.split("  +", line)) for line in text.splitlines() if line.startswith("SERVICE ")]

    assert shown == [SERVICE_COLUMNS, BACKEND_COLUMNS]


def test_requests_are_shown() -> None:
    assert len(list(shown())) >= 2


async def test_the_responses_are_those_of_the_page(gateway_url: str) -> None:
    async with aiohttp.ClientSession() as client:
        for request in shown():
            async with client.get(gateway_url + request.path, headers=request.headers) as response:
                received = [f"HTTP/1.1 {response.status} {response.reason}"]
                received += [f"{name}: {value}" for name, value in response.headers.items()]
                received += (await response.text()).splitlines()
            assert [line for line in request.response if line not in received] == []


def test_the_readme_is_short() -> None:
    assert len(page("README.md").encode()) <= 9000


def test_its_figures_are_those_of_the_performance_page() -> None:
    figures_shown = section(page("docs/performance.md"), "Figures")
    [heading] = re.findall(r"^\| (proxy \|.*) \|$", figures_shown, re.MULTILINE)
    names = {"skewgate, compiled": "compiled", "skewgate, interpreted": "gateway"}
    columns = ("CPU µs/request", "requests/s", "p99 ms", "memory MiB")
    at = [heading.split(" | ").index(name) for name in columns]
    figures = {row[0]: [row[index] for index in at] for row in rows(figures_shown)[:7]}
    shown = rows(section(page("README.md"), "Speed"))

    assert len(shown) == 4
    for name, *cells in shown:
        assert cells == figures[names.get(name, name.lower())]
