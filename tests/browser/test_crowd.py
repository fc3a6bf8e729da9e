"""A service with 1,000 backends: the page paints soon, and what changes comes in small events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from playwright.async_api import Page, expect

from tests.browser.gateway import GatewayProcess
from tests.browser.operator import sign_in
from tests.browser.tabs import Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

NUMBER: Final = 1000
SERVICE: Final = "crowd"
ROWS: Final = "backend-rows"
MOST_BYTES: Final = 20_000
"""Of one event of the stream."""
SLOWEST: Final = 10_000.0
"""Milliseconds to the first paint that are too many on any machine. A quiet one needs less than 1,000."""

_PAINT: Final = """() => new Promise(resolve => {
  new PerformanceObserver((list, observer) => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) {
      observer.disconnect();
      resolve(entry.startTime);
    }
  }).observe({type: "paint", buffered: true});
})"""


def services(minor: int) -> str:
    """Backends that declare what they serve, so that nobody has to probe them."""
    backends = "\n".join(
        f"      - {{name: api-{number:04}, url: 'http://127.0.0.1:{9000 + number}', versions: 1.1-1.{minor}}}"
        for number in range(1, NUMBER + 1)
    )
    return (
        f"  {SERVICE}:\n    dialect: ironic\n    offer: {{stabilization: 100ms}}\n    backends:\n{backends}\n"
    )


@asynccontextmanager
async def crowd(folder: Path) -> AsyncIterator[GatewayProcess]:
    gateway = GatewayProcess(folder)
    gateway.configure_services(services(58))
    try:
        await gateway.start_ready()
        yield gateway
    finally:
        await gateway.close()


async def opened(tabs: Tabs, gateway: GatewayProcess) -> Page:
    page = await tabs.open(f"{gateway.admin}/ui/services/{SERVICE}")
    await sign_in(page)
    await expect(page.locator(f"#{ROWS} > tr")).to_have_count(NUMBER)
    return page


async def test_the_first_paint_comes_soon(tmp_path: Path, tabs: Tabs, figures: list[str]) -> None:
    async with crowd(tmp_path) as gateway:
        page = await opened(tabs, gateway)
        paints = []
        for _ in range(3):
            await page.reload()
            paints.append(float(await page.evaluate(_PAINT)))
            await expect(page.locator(f"#{ROWS} > tr")).to_have_count(NUMBER)
        await tabs.picture(page, "crowd", whole=False)
        await tabs.close()

    figures.append(f"{NUMBER} backends: first contentful paint after {min(paints):.0f} ms, the best of 3")
    assert min(paints) < SLOWEST


async def sizes(gateway: GatewayProcess, url: str, cookie: str, begun: asyncio.Event) -> list[int]:
    """The bytes of each event of a stream, until the new range has come as often as there are backends.
    `begun` is set when something has come."""
    found: list[int] = []
    headers = {"Cookie": cookie, "Accept": "text/event-stream"}
    moved = 0
    async with gateway.session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(120)) as response:
        assert response.status == 200, await response.text()
        text = b""
        async for chunk in response.content.iter_any():
            text += chunk
            while b"\n\n" in text:
                event, _, text = text.partition(b"\n\n")
                found.append(len(event) + 2)
                moved += event.count(b"1.1-1.90")
                if event.startswith(b"event: update"):
                    begun.set()
            if moved >= NUMBER:
                return found
    raise AssertionError(f"the stream has ended after {len(found)} events")


async def test_a_change_of_all_backends_comes_in_small_events(
    tmp_path: Path, tabs: Tabs, figures: list[str]
) -> None:
    async with crowd(tmp_path) as gateway:
        page = await opened(tabs, gateway)
        cookie = "; ".join(f"{each['name']}={each['value']}" for each in await page.context.cookies())
        events = await page.locator("body").get_attribute("data-events")
        begun = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(sizes(gateway, f"{gateway.admin}{events}", cookie, begun))
            await begun.wait()
            gateway.configure_services(services(90))
        # The browser has put them all in its page, without a reload.
        rows = page.locator(f"#{ROWS} > tr")
        await expect(rows.filter(has_text="1.1-1.90")).to_have_count(NUMBER)
        await expect(rows.filter(has_text="1.1-1.58")).to_have_count(0)
        await tabs.close()

    found = reading.result()
    figures.append(f"{NUMBER} backends: {len(found)} events, the largest of {max(found)} bytes")
    assert max(found) <= MOST_BYTES
