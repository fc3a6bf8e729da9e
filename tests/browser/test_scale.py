"""The page for 4 backends, for 200 and for 13 services: each can be read, and a crowd is shown as a crowd."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

import pytest
from playwright.async_api import Page, expect

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeFailed
from gateway.telemetry.history import History
from gateway.telemetry.process_log import about, outage
from gateway.telemetry.recent import ServiceRates, TrafficCounts
from tests.admin.testbed import AdminTestbed, on_site
from tests.browser import axe, look
from tests.browser.operator import connection
from tests.browser.tabs import NARROW, Tabs
from tests.kit import ironic
from tests.kit.ironic import holder_of, learn, upto

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

DESK: Final = 1440
LEAST_DESK: Final = 1200
ROW: Final = 28.5
"""Pixels of a row of a crowd, and what a browser may round."""
DOWN: Final = (3, 7, 11)
"""Numbers of the backends of a crowd that are down."""

FEW: Final = {"baremetal": (4, 1)}
CROWD: Final = {"compute": (200, 67)}
SERVICES: Final = {f"service-{number:02}": (4, number % 5) for number in range(13)}


def name_of(service: str, number: int) -> str:
    return f"{service[:7]}-{number:03}"


@asynccontextmanager
async def fleet(sizes: dict[str, tuple[int, int]]) -> AsyncIterator[AdminTestbed]:
    """Services by name, each with its number of backends and how many of them are upgraded."""
    history = History()
    logging.getLogger("skewgate").setLevel(logging.INFO)
    history.start()
    holder = holder_of(
        *(
            ironic.service(
                *(Backend(name_of(service, each), "10.0.0.1", 1 + each) for each in range(number)),
                name=service,
            )
            for service, (number, _) in sizes.items()
        )
    )
    for service, (number, upgraded) in sizes.items():
        for each in range(number):
            learn(holder, name_of(service, each), upto(90 if each < upgraded else 58), service=service)
        for each in DOWN if number > len(DOWN) * 3 else ():
            for at in range(3):
                error = f"no connection to 10.0.0.1:{1 + each}: connection refused"
                holder.observe(service, name_of(service, each), ProbeFailed(error, 2.0 + at))
            log = logging.getLogger("skewgate.prober")
            name = f"{service}/{name_of(service, each)}"
            log.warning(
                "%s: down; check http://10.0.0.1:%d: connection refused", name, each, extra=about(name)
            )
        log = logging.getLogger("skewgate.offer")
        log.error("%s: all backends are down", service, extra=outage(service, begins=True))
        log.info("%s: served again", service, extra=outage(service, begins=False))
    history.close()
    async with on_site(
        holder,
        history=history,
        rates={service: ServiceRates(42.0 * number) for service, (number, _) in sizes.items()},
        traffic={
            service: [TrafficCounts(900 + each * 37 % 200, 40 if 20 < each < 26 else 0) for each in range(47)]
            for service in sizes
        },
    ) as testbed:
        yield testbed


async def opened(
    tabs: Tabs, testbed: AdminTestbed, width: int, scheme: Literal["light", "dark"] = "light"
) -> Page:
    page = await tabs.open(f"http://127.0.0.1:{testbed.port}/ui/", width=width, scheme=scheme)
    await expect(connection(page)).to_contain_text("live")
    return page


@pytest.mark.parametrize(
    "name, sizes", [("few", FEW), ("crowd", CROWD), ("services", SERVICES)], ids=["4", "200", "13-services"]
)
async def test_each_size_can_be_read(tabs: Tabs, name: str, sizes: dict[str, tuple[int, int]]) -> None:
    found = []
    async with fleet(sizes) as testbed:
        for scheme, width in (("light", DESK), ("dark", DESK), ("light", LEAST_DESK), ("light", NARROW)):
            page = await opened(tabs, testbed, width, "dark" if scheme == "dark" else "light")
            await tabs.picture(page, f"scale-{name}-{scheme}-{width}", whole=False)
            wrong = await look.overlaps(page)
            if await look.scrolls_sideways(page):
                wrong.append("the page scrolls sideways")
            if width in {DESK, NARROW}:
                wrong += await axe.findings(page)
            found += [f"{scheme} {width}: {each}" for each in wrong]
    assert found == [], "\n".join(found)


async def test_the_first_screen_says_what_is_offered_and_who_holds_it(tabs: Tabs) -> None:
    async with fleet(CROWD) as testbed:
        page = await opened(tabs, testbed, LEAST_DESK)
        await expect(page.locator("#offer")).to_contain_text("67 of 200 serve 1.90")
        offer = await page.locator(".offer-card").bounding_box()
        backends = await page.locator(".backends-card").bounding_box()
        assert offer is not None
        assert backends is not None
        assert offer["x"] + offer["width"] <= backends["x"]
        assert offer["y"] == backends["y"] < 500


async def test_a_crowd_is_grouped_with_rows_of_one_line_and_problems_first(tabs: Tabs) -> None:
    async with fleet(CROWD) as testbed:
        page = await opened(tabs, testbed, DESK)
        await expect(page.locator("#groups li:not([aria-hidden])")).to_have_text(
            ["133 serve 1.1-1.58", "67 serve 1.1-1.90"]
        )
        rows = page.locator("#backend-rows tr")
        names = [await rows.nth(at).locator(".name").inner_text() for at in range(len(DOWN) + 1)]
        assert names == [*(name_of("compute", each) for each in DOWN), name_of("compute", 0)]
        heights = await rows.evaluate_all("rows => rows.map(row => row.getBoundingClientRect().height)")
        assert max(heights) <= ROW


async def test_the_filter_shows_backends_that_have_all_its_words(tabs: Tabs) -> None:
    async with fleet(CROWD) as testbed:
        page = await opened(tabs, testbed, DESK)
        shown = page.locator("#backend-rows tr:visible")
        await page.get_by_label("Show backends with").fill("down 00")
        await expect(shown).to_have_count(2)
        await expect(page.locator("#filtered")).to_have_text("2 of 200")
        learn(testbed.snapshot_holder, name_of("compute", DOWN[0]), upto(90), 9.0, service="compute")
        await expect(shown).to_have_count(1)  # an update keeps to the filter
        await page.get_by_label("Show backends with").fill("")
        await expect(shown).to_have_count(200)
        await expect(page.locator("#filtered")).to_be_empty()


async def test_without_scripts_there_is_no_filter(tabs: Tabs) -> None:
    async with fleet(CROWD) as testbed:
        page = await tabs.open(f"http://127.0.0.1:{testbed.port}/ui/", width=DESK, scripts=False)
        await expect(page.get_by_label("Show backends with")).to_be_hidden()
        await expect(page.locator("#backend-rows tr")).to_have_count(200)
