"""What the page shows, and that it stays true while the fleet moves."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser import look
from tests.browser.bed import NAMES, OTHER, SERVICE, Bed
from tests.browser.operator import (
    backend,
    connection,
    offered,
    open_page,
    open_service,
)
from tests.browser.tabs import Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def mark(page: Page) -> None:
    """Leave something in the page that a reload would remove."""
    await page.evaluate("window.mark = 'still here'")


async def is_the_same(page: Page) -> bool:
    return bool(await page.evaluate("window.mark === 'still here'"))


async def width_of(page: Page, name: str) -> float:
    """Of the bar of a backend, in percent of the axis."""
    text = await backend(page, name).locator("rect.served").first.get_attribute("width")
    assert text is not None
    return float(text.rstrip("%"))


async def test_the_overview_leads_to_each_service(bed: Bed, tabs: Tabs) -> None:
    """Loaded without an error, a failed request or a request to elsewhere: `tabs` sees to that."""
    page = await open_page(tabs, bed.page())
    services = page.get_by_role("list").filter(has=page.get_by_role("heading", level=3))

    await expect(services.get_by_role("link")).to_have_text([SERVICE, OTHER])
    await expect(services).to_contain_text("1.1-1.58")
    await expect(services).to_contain_text("1.1-1.90")
    await expect(connection(page)).to_contain_text("live")
    await services.get_by_role("link", name=OTHER).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(OTHER)
    await expect(connection(page)).to_contain_text("live")


async def test_a_service_says_what_it_offers_why_and_who_must_move(bed: Bed, tabs: Tabs) -> None:
    assert await bed.ask("1.58", 9) == [200] * 9
    assert await bed.ask("1.90", 3) == [406] * 3
    page = await open_service(tabs, bed)
    card = page.get_by_role("region", name="On offer now")

    await expect(offered(page)).to_contain_text("1.1-1.58")
    await expect(card).to_contain_text("what every backend in service serves")
    await expect(card.get_by_role("listitem")).to_have_text(list(NAMES[:3]))
    await expect(card).to_contain_text("1.1-1.90 will be on offer")
    for name in NAMES:
        serves = "1.1-1.90" if name == "api-4" else "1.1-1.58"
        await expect(backend(page, name)).to_contain_text(serves)
        await expect(backend(page, name)).to_contain_text("fresh")
    assert await width_of(page, "api-1") < await width_of(page, "api-4") == 100.0
    await expect(page.get_by_role("region", name="Served versions")).to_contain_text("1.58")
    await expect(page.get_by_role("region", name="Refused requests")).to_contain_text("3")


async def test_the_page_follows_an_upgrade_without_a_reload(bed: Bed, tabs: Tabs) -> None:
    page = await open_service(tabs, bed)
    await mark(page)
    narrow = await width_of(page, "api-1")
    events = page.locator("#event-rows > li")
    before = await events.count()

    await bed.upgrade("api-1")
    await expect(backend(page, "api-1")).to_contain_text("1.1-1.90")
    assert await width_of(page, "api-1") == 100.0 > narrow
    await expect(offered(page)).to_contain_text("1.1-1.58")
    await bed.upgrade("api-2", "api-3")

    await expect(offered(page)).to_contain_text("1.1-1.90")
    await expect(page.get_by_role("region", name="On offer now")).to_contain_text("uniform")
    await expect(events.filter(has_text="1.1-1.90").first).to_be_visible()
    assert await events.count() > before
    assert await is_the_same(page)


async def test_the_overview_follows_it_too(bed: Bed, tabs: Tabs) -> None:
    page = await open_page(tabs, bed.page())
    await mark(page)
    row = page.get_by_role("listitem").filter(has=page.get_by_role("link", name=SERVICE))
    await expect(row).to_contain_text("1.1-1.58")

    await bed.upgrade(*NAMES[:3])

    await expect(row).to_contain_text("1.1-1.90")
    assert await is_the_same(page)


async def test_a_backend_that_fails_is_shown_as_it_fails(bed: Bed, tabs: Tabs) -> None:
    page = await open_service(tabs, bed)
    await bed.servers["api-2"].stop()

    await expect(backend(page, "api-2")).to_contain_text("down")
    await expect(page.locator("#health")).to_contain_text("api-2")
    await bed.servers["api-2"].start(bed.servers["api-2"].release)
    await expect(backend(page, "api-2")).to_contain_text("fresh")
    await expect(page.locator("#health")).to_have_class(re.compile(r"\bupgrading\b"))


async def test_what_the_operator_holds_is_left_alone_by_an_update(bed: Bed, tabs: Tabs) -> None:
    """The text in a field, the focus and the scroll position survive what comes by the stream."""
    page = await open_service(tabs, bed)
    field = page.get_by_label("Highest version on offer")
    await field.fill("1.3")
    await bed.upgrade("api-1", "api-2", "api-3")
    await expect(offered(page)).to_contain_text("1.1-1.90")
    await page.keyboard.type("1")

    await expect(field).to_be_focused()
    await expect(field).to_have_value("1.31")


async def test_without_javascript_the_page_shows_the_truth(bed: Bed, tabs: Tabs) -> None:
    page = await open_service(tabs, bed, scripts=False)
    await expect(offered(page)).to_contain_text("1.1-1.58")

    await page.get_by_role("link", name="Reload it every 10 s").click()
    await expect(page.get_by_role("link", name="Stop reloading")).to_be_visible()
    await bed.upgrade(*NAMES[:3])
    await bed.offers("1.1-1.90")

    await expect(offered(page)).to_contain_text("1.1-1.90")
    await page.get_by_role("link", name="Stop reloading").click()
    await expect(page).to_have_url(bed.service_page)
    await tabs.picture(page, "plain")
    assert await look.overlaps(page) == []
    for name in NAMES:
        await expect(backend(page, name)).to_contain_text("1.1-1.90")


@pytest.mark.parametrize("scripts", [True, False], ids=["javascript", "plain"])
async def test_an_explanation_can_be_linked_to(bed: Bed, tabs: Tabs, scripts: bool) -> None:
    page = await open_service(tabs, bed, scripts=scripts)
    await page.get_by_label("Path").fill("/v1/nodes")
    await page.get_by_label("Headers").fill("X-OpenStack-Ironic-API-Version: 1.90")
    await page.get_by_role("button", name="Explain").click()
    answer = page.get_by_role("region", name="GET /v1/nodes")
    await expect(answer).to_contain_text("406")
    said = await answer.inner_text()

    link = page.url
    await page.goto(bed.page())
    await page.goto(link)

    assert "1.90" in link
    assert await answer.inner_text() == said


async def test_a_request_that_cannot_be_explained_is_said_to_be_so(bed: Bed, tabs: Tabs) -> None:
    tabs.expected = ("Failed to load resource",)  # it is a 400
    page = await open_page(tabs, bed.page())
    await page.get_by_label("Path").fill("no path")
    await page.get_by_role("button", name="Explain").click()

    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_label("Path")).to_have_value("no path")


async def test_a_service_that_does_not_exist_is_said_to_be_so(bed: Bed, tabs: Tabs) -> None:
    tabs.expected = ("Failed to load resource",)  # it is a 404
    page = await open_page(tabs, bed.page())
    await page.goto(bed.page("/ui/services/spam"))

    await expect(page.get_by_role("main")).to_contain_text("spam")
    await page.get_by_role("main").get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("All services")
