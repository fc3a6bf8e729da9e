"""What an operator does with the page, by the words on it."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.browser.bed import SERVICE, Bed
from tests.browser.gateway import TOKEN
from tests.browser.tabs import PATIENCE, Tabs

expect.set_options(timeout=PATIENCE)

DONE = "Result of your command"


async def sign_in(page: Page, token: str = TOKEN) -> None:
    """On the page that asks for the token."""
    await page.get_by_label("Admin token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def open_page(tabs: Tabs, url: str, **look: Any) -> Page:
    """A page in a browser of its own, signed in. `look`: as of `Tabs.open`."""
    page = await tabs.open(url, **look)
    await sign_in(page)
    await expect(page).to_have_url(url)
    return page


async def open_service(tabs: Tabs, bed: Bed, *, scripts: bool = True, **look: Any) -> Page:
    """The page of the first service, and, with scripts, live."""
    page = await open_page(tabs, bed.service_page, scripts=scripts, **look)
    await expect(page.get_by_role("heading", level=1)).to_have_text(SERVICE)
    if scripts:
        await expect(connection(page)).to_contain_text("live")
    return page


def connection(page: Page) -> Locator:
    """Where the page says whether it is live."""
    return page.locator("#connection")


def offered(page: Page) -> Locator:
    """The range on offer, in large letters."""
    return page.locator("#offer .range")


def backend(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader").filter(has_text=name))


async def ask_for_pin(page: Page, version: str) -> None:
    """Leads to the confirmation."""
    await page.get_by_label("Highest version on offer").fill(version)
    await page.get_by_role("button", name="Pin…").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(version)


async def confirm(page: Page, verb: str) -> Locator:
    """Go on from the confirmation; what the page then says of the command."""
    await page.get_by_role("button", name=verb).first.click()
    said = page.get_by_role("status", name=DONE)
    await expect(said).to_be_visible()
    return said


async def pin(page: Page, version: str) -> Locator:
    """All of it; what the page then says of the command."""
    await ask_for_pin(page, version)
    return await confirm(page, "Pin")
