"""The page when the gateway does not answer, and when what it shows was written by somebody hostile."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeFailed
from tests.admin.testbed import on_site
from tests.browser.bed import Bed
from tests.browser.gateway import TOKEN
from tests.browser.operator import backend, connection, offered, open_page, open_service, sign_in
from tests.browser.tabs import Tabs
from tests.kit.ironic import holder_of, learn, service, upto

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CUT = ("Failed to load resource", "request failed: ")
"""What Chromium says of a gateway that is not there. It is what these tests are about."""

SILENCE = 30_000
"""Milliseconds after which a page that has heard nothing says so. Nobody waits for them: the test moves the
clock of the page."""
STALE = re.compile(r"stale since \d\d:\d\d:\d\d UTC")

MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = (
    MARKUP,
    "\"><script>alert('spam')</script>",
    "'-alert(1)-' onclick=alert(2) x='",
    "</script></title></textarea><svg onload=alert(3)>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\x00\x1b[31m\r\nSet-Cookie: a=b",
    "&lt;b&gt;&amp;&#60;i&#62;",
    "javascript:alert(4)",
)


async def test_a_frozen_gateway_makes_the_page_stale_and_it_recovers(bed: Bed, tabs: Tabs) -> None:
    tabs.expected = CUT
    page = await open_service(tabs, bed)
    await page.clock.install()
    await page.reload()
    await expect(connection(page)).to_contain_text("live")
    bed.gateway.freeze()
    await page.clock.fast_forward(SILENCE)
    await expect(connection(page)).to_contain_text(STALE)
    since = STALE.search(await connection(page).inner_text())
    await page.clock.fast_forward(SILENCE)
    assert since is not None
    await expect(connection(page)).to_contain_text(since[0])
    await tabs.picture(page, "stale", whole=False)
    await expect(offered(page)).to_contain_text("1.1-1.58")
    bed.gateway.thaw()

    await expect(connection(page)).to_contain_text("live")
    await bed.upgrade("api-1")
    await expect(backend(page, "api-1")).to_contain_text("1.1-1.90")


async def test_a_gateway_that_comes_back_is_found_again(bed: Bed, tabs: Tabs) -> None:
    """It knows no session any more: the page says so, and after a sign-in it is where it was."""
    tabs.expected = CUT
    page = await open_service(tabs, bed)
    await bed.gateway.kill()
    await expect(connection(page)).to_contain_text(STALE)
    await expect(offered(page)).to_contain_text("1.1-1.58")
    await bed.gateway.start_ready()

    await expect(
        page.get_by_role("link", name="Sign in").or_(page.get_by_label("Admin token"))
    ).to_be_visible()
    await page.goto(bed.service_page)
    await sign_in(page)
    await expect(connection(page)).to_contain_text("live")


def hostile_fleet() -> SnapshotHolder:
    """Backends whose names and errors are markup. No configuration may hold such names; discovery neither."""
    backends = tuple(Backend(name, "10.0.0.1", 6000 + number) for number, name in enumerate(HOSTILE))
    holder = holder_of(service(*backends, name="bare<b>metal"), service(backends[0], name="other"))
    for number, name in enumerate(HOSTILE):
        learn(holder, name, upto(58 + number), service="bare<b>metal")
        holder.observe("bare<b>metal", name, ProbeFailed(HOSTILE[-number], 2.0))
    return holder


@pytest.mark.parametrize("scripts", [True, False], ids=["javascript", "plain"])
async def test_markup_from_outside_stays_text(tabs: Tabs, scripts: bool) -> None:
    holder = hostile_fleet()
    async with on_site(holder, TOKEN) as admin:
        base = f"http://127.0.0.1:{admin.port}/ui/"
        page = await open_page(tabs, base, scripts=scripts)
        await expect(page.get_by_text("bare<b>metal").first).to_be_visible()
        await page.get_by_role("link", name="bare<b>metal").first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("bare<b>metal")
        await expect(page.get_by_role("rowheader").filter(has_text=MARKUP)).to_be_visible()
        if scripts:
            # The same once more by the stream, which puts elements in.
            await expect(connection(page)).to_contain_text("live")
            for name in HOSTILE:
                holder.observe("bare<b>metal", name, ProbeFailed(f"again {MARKUP}", 3.0))
            await expect(page.get_by_text(f"again {MARKUP}").first).to_be_visible()
        for selector in ("img", "main script", "[onerror]", "[onload]", "[onclick]", "b", "i"):
            await expect(page.locator(selector)).to_have_count(0)
        assert "alert" not in str(await page.locator("a").evaluate_all("all => all.map(a => a.protocol)"))

        await page.goto(f"{base}explain?method=GET&path=/%3Cimg/src=x/onerror=alert(1)%3E")
        await expect(page.get_by_role("main")).to_contain_text("onerror")
        await expect(page.locator("img")).to_have_count(0)
