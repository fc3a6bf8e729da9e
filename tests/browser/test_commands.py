"""Every control of the page does what it says, by mouse, by keyboard, and without JavaScript."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.bed import SERVICE, Bed, running
from tests.browser.gateway import TOKEN
from tests.browser.look import tab_to
from tests.browser.operator import (
    DONE,
    ask_for_pin,
    backend,
    confirm,
    offered,
    open_service,
    pin,
    sign_in,
)
from tests.browser.tabs import Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["javascript", "plain"])
REFUSED = ("Failed to load resource",)
"""What Chromium says of every page that comes with an error status."""


async def test_a_wrong_token_is_said_to_be_wrong(bed: Bed, tabs: Tabs) -> None:
    tabs.expected = REFUSED
    page = await tabs.open(bed.service_page)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await sign_in(page, "the-token-of-somebody-else")

    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_label("Admin token")).to_be_empty()
    await sign_in(page)
    await expect(page).to_have_url(bed.service_page)
    await expect(page.get_by_role("heading", level=1)).to_have_text(SERVICE)


@SCRIPTS
async def test_a_pin_says_first_what_it_will_change(bed: Bed, tabs: Tabs, scripts: bool) -> None:
    assert await bed.ask("1.58", 6) == [200] * 6
    assert await bed.ask("1.31", 4) == [200] * 4
    page = await open_service(tabs, bed, scripts=scripts)
    await ask_for_pin(page, "1.31")
    effects = page.get_by_role("region", name="What will change")

    await expect(effects).to_contain_text("1.32-1.58 will be refused")
    await expect(effects).to_contain_text("60 % of the requests since the start")
    await bed.offers("1.1-1.58")  # nothing has been done yet
    said = await confirm(page, "Pin")

    await expect(said).to_contain_text("1.31")
    await expect(page).to_have_url(f"{bed.service_page}?done=0")
    await expect(offered(page)).to_contain_text("1.1-1.31")
    await bed.offers("1.1-1.31")
    assert await bed.ask("1.58") == [406]

    await page.get_by_role("button", name="Unpin 1.31").click()
    await expect(page.get_by_role("region", name="What will change")).to_contain_text(
        "1.32-1.58 will be offered"
    )
    await confirm(page, "Unpin")
    await expect(offered(page)).to_contain_text("1.1-1.58")
    await bed.offers("1.1-1.58")


async def test_a_pin_that_cannot_be_is_refused_in_words(bed: Bed, tabs: Tabs) -> None:
    tabs.expected = REFUSED
    page = await open_service(tabs, bed)
    for version, said in (("spam", "is not a version"), ("1.0", "below the minimum")):
        await page.get_by_label("Highest version on offer").fill(version)
        await page.get_by_role("button", name="Pin…").click()
        await expect(page.get_by_role("alert")).to_contain_text(said)
        await expect(page.get_by_role("button", name="Pin baremetal")).to_have_count(0)
        await page.get_by_role("link", name="Back to").click()
    await bed.offers("1.1-1.58")


@SCRIPTS
async def test_a_backend_is_drained_and_enabled(bed: Bed, tabs: Tabs, scripts: bool) -> None:
    page = await open_service(tabs, bed, scripts=scripts)
    await backend(page, "api-1").get_by_role("link", name="Drain api-1").click()
    await expect(page.get_by_role("region", name="What will change")).to_contain_text("no new requests")
    await confirm(page, "Drain api-1")

    await expect(backend(page, "api-1")).to_contain_text("drained")
    bed.servers["api-1"].received.clear()
    assert await bed.ask("1.31", 8) == [200] * 8
    assert bed.servers["api-1"].received["1.31"] == 0

    await backend(page, "api-1").get_by_role("link", name="Enable api-1").click()
    await confirm(page, "Enable api-1")
    await expect(backend(page, "api-1")).not_to_contain_text("drained")
    await expect(backend(page, "api-1").get_by_role("link", name="Drain api-1")).to_be_visible()


async def test_a_confirmation_can_be_left(bed: Bed, tabs: Tabs) -> None:
    page = await open_service(tabs, bed)
    await ask_for_pin(page, "1.31")
    await page.get_by_role("link", name="Cancel").click()

    await expect(page).to_have_url(bed.service_page)
    await expect(page.get_by_role("status", name=DONE)).to_have_count(0)
    await bed.offers("1.1-1.58")


async def test_two_operators_see_each_others_pin(bed: Bed, tabs: Tabs) -> None:
    one, other = await open_service(tabs, bed), await open_service(tabs, bed)
    await ask_for_pin(other, "1.40")
    await pin(one, "1.31")
    # What the other one has confirmed upon is no longer so.
    tabs.expected = REFUSED
    await other.get_by_role("button", name="Pin").first.click()
    await expect(other.get_by_role("alert")).to_contain_text("Nothing was done")
    await bed.offers("1.1-1.31")
    await other.get_by_role("link", name="Cancel").click()

    await expect(offered(other)).to_contain_text("1.1-1.31")
    await other.get_by_role("button", name="Unpin 1.31").click()
    await confirm(other, "Unpin")
    await expect(offered(one)).to_contain_text("1.1-1.58")
    await expect(one.get_by_role("button", name="Unpin")).to_have_count(0)
    await expect(one.locator("#event-rows")).to_contain_text("1.31")


@SCRIPTS
async def test_signed_out_nobody_sees_anything(bed: Bed, tabs: Tabs, scripts: bool) -> None:
    page = await open_service(tabs, bed, scripts=scripts)
    await page.get_by_role("link", name="Sign out").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Admin token")).to_be_visible()
    await page.goto(bed.service_page)

    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


async def test_the_keyboard_alone_can_sign_in_pin_and_unpin(bed: Bed, tabs: Tabs) -> None:
    page = await tabs.open(bed.service_page)
    await expect(page.get_by_label("Admin token")).to_be_focused()
    await page.keyboard.type(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(SERVICE)

    await tab_to(page, page.get_by_label("Highest version on offer"))
    await page.keyboard.type("1.31")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="What will change")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Pin").first)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status", name=DONE)).to_be_visible()
    await bed.offers("1.1-1.31")

    await tab_to(page, page.get_by_role("button", name="Unpin 1.31"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="What will change")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Unpin").first)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status", name=DONE)).to_be_visible()
    await bed.offers("1.1-1.58")


async def test_without_a_token_the_page_shows_and_takes_no_command(tmp_path: Path, tabs: Tabs) -> None:
    async with running(tmp_path, token=None) as bed:
        page = await tabs.open(bed.service_page)

        await expect(offered(page)).to_contain_text("1.1-1.58")
        await expect(page.get_by_text("set admin.token")).to_be_visible()
        await expect(page.get_by_role("button", name="Pin…")).to_have_count(0)
        for name in ("Drain", "Sign out"):
            await expect(page.get_by_role("link", name=name)).to_have_count(0)
        await tabs.close()
