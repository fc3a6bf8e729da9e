"""The checks of these tests are able to fail."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.browser import axe, look
from tests.browser.tabs import Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

FINE = (
    "<!doctype html><html lang=en><title>fine</title><main><h1>fine</h1><p>one <b>two</b>"
    "<p>three<span style='position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)'>four"
    "</span>"
    f"<div tabindex=0 style='width:100px;overflow-x:auto'><pre>{'long ' * 40}</pre></div>"
    "<details><summary>more</summary>closed</details>"
    "<svg width=100 height=30><text x=5 y=20>ab</text></svg><button>press</button></main>"
)
NOWHERE = "data:text/html,<title>empty</title>"


async def shown(tabs: Tabs, markup: str) -> Page:
    page = await tabs.open(NOWHERE)
    await page.set_content(markup)
    return page


async def test_a_fine_page_passes(tabs: Tabs) -> None:
    page = await shown(tabs, FINE)

    assert await look.overlaps(page) == []
    assert not await look.scrolls_sideways(page)
    assert await axe.findings(page) == []
    await look.tab_to(page, page.get_by_role("button"))


@pytest.mark.parametrize(
    "markup, said",
    [
        ("<p style='margin:0'>one</p><p style='position:absolute;top:10px;margin:0'>other", "lies on"),
        (f"<p style='white-space:nowrap'>{'long ' * 400}", "leaves the page"),
        ("<p style='position:absolute;left:-20px'>cut here", "leaves the page"),
        ("<svg width=99 height=30><text x=5 y=20>abcd</text><text x=15 y=20>efgh</text></svg>", "lies on"),
    ],
)
async def test_what_cannot_be_read_is_noticed(tabs: Tabs, markup: str, said: str) -> None:
    (found,) = await look.overlaps(await shown(tabs, markup))

    assert said in found


async def test_a_page_wider_than_the_window_is_noticed(tabs: Tabs) -> None:
    assert await look.scrolls_sideways(await shown(tabs, "<div style='width:3000px'>wide</div>"))


async def test_what_axe_finds_is_told(tabs: Tabs) -> None:
    assert any("image-alt" in each for each in await axe.findings(await shown(tabs, "<img src='data:,'>")))


async def test_a_focus_that_cannot_be_seen_is_noticed(tabs: Tabs) -> None:
    page = await shown(tabs, "<button style='outline:none'>press</button>")

    with pytest.raises(AssertionError, match="cannot be seen"):
        await look.tab_to(page, page.get_by_role("button"))


async def test_what_goes_wrong_in_a_page_is_kept(tabs: Tabs) -> None:
    page = await shown(tabs, "<p>one")
    await page.evaluate("console.error('spam'); setTimeout(() => { throw Error('eggs') }); alert('ham')")
    await page.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")

    for part in ("spam", "eggs", "ham", "request to elsewhere", "request failed"):
        assert any(part in sentence for sentence in tabs.wrong), tabs.wrong
    tabs.wrong.clear()
