"""Every state of the page, wide and narrow, light and dark: nothing overlaps or leaves the page, and axe-core
finds nothing. A picture of each is kept (SKEWGATE_SCREENSHOTS)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser import axe, look
from tests.browser.bed import OTHER, Bed, running
from tests.browser.operator import (
    ask_for_pin,
    backend,
    confirm,
    connection,
    offered,
    sign_in,
)
from tests.browser.tabs import NARROW, WIDE, Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

# A service whose old versions end in every way that there is.
ENDING: Final = """\
    default_version: minimum
    offer: {floor: "1.31", for: [{clients: [cron, nightly-report], ceiling: "1.58", until: 2099-06-30}]}
    bridge: [{clients: [appliance], match: nearest_later, until: 2099-06-30}]
    lifecycle:
      deprecated: {below: "1.46", since: 2026-01-15, link: "https://docs.example/baremetal/deprecations"}
      sunset: {below: "1.40", at: 2099-06-30, link: "https://docs.example/baremetal/deprecations"}
      brownouts: [{weekly: "tue 10:00", from: 2099-05-01, for: [5m, 15m, 1h]}]
"""
CLIENTS: Final = """\
clients:
  - {name: cron, user_agent: cron}
  - {name: nightly-report, header: {X-Job: report}}
  - {name: appliance, user_agent: appliance}
"""

See = Callable[[str], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def bed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bed]:
    """In the middle of an upgrade, with something of everything that a page can show."""
    folder = tmp_path_factory.mktemp("looks")
    async with running(folder, upgraded=[], other=ENDING, clients=CLIENTS) as started:
        for version, times, agent in (
            ("1.58", 60, "python-ironicclient"),
            ("1.31", 25, "nova-compute/30.1.0"),
            ("1.46", 2, "nova-compute/30.1.0"),
            ("", 8, "Prometheus/2.53"),
            ("1.90", 12, "openstacksdk/4.0.0"),
            ("latest", 3, "openstacksdk/4.0.0"),
            ("new", 1, "a-client-with-a-name-that-is-longer-than-any-other/1"),
        ):
            await started.ask(version, times, agent=agent)
        await started.upgrade("api-4", "api-3")
        await started.servers["api-2"].stop()
        await started.gateway.until(
            lambda status: status["services"]["baremetal"]["backends"]["api-2"]["freshness"] == "down"
        )
        yield started


@pytest.mark.parametrize(
    "scheme, width, with_axe",
    [("light", WIDE, True), ("dark", WIDE, False), ("light", NARROW, False), ("dark", NARROW, True)],
    ids=["light-wide", "dark-wide", "light-narrow", "dark-narrow"],
)
async def test_every_state_can_be_read(
    bed: Bed, tabs: Tabs, scheme: Literal["light", "dark"], width: int, with_axe: bool
) -> None:
    """axe-core looks at both colour schemes and both widths, not at all pairs of them: it takes a second."""
    tabs.expected = ("Failed to load resource",)  # some states come with an error status
    page = await tabs.open(bed.service_page, width=width, scheme=scheme)

    async def see(state: str) -> None:
        await tabs.picture(page, f"{state}-{scheme}-{width}")
        wrong = await look.overlaps(page) + (await axe.findings(page) if with_axe else [])
        if await look.scrolls_sideways(page):
            wrong.append("the page scrolls sideways")
        found.extend(f"{state}: {each}" for each in wrong)

    found: list[str] = []
    await see("sign-in")
    await sign_in(page, "the-token-of-somebody-else")
    await expect(page.get_by_role("alert")).to_be_visible()
    await see("sign-in-wrong")
    await sign_in(page)
    await expect(connection(page)).to_contain_text("live")
    await see("service")
    await see_commands(page, bed, see)
    await page.goto(bed.page())
    await expect(connection(page)).to_contain_text("live")
    await see("overview")
    await see_explanations(page, see)
    await page.goto(bed.page(f"/ui/services/{OTHER}"))
    await expect(connection(page)).to_contain_text("live")
    await see("service-ending")
    await page.goto(bed.page("/ui/services/spam"))
    await see("no-such-service")
    assert found == [], "\n".join(found)


async def see_commands(page: Page, bed: Bed, see: See) -> None:
    """From the page of a service and back to it."""
    await page.goto(bed.page("/ui/services/baremetal/confirm?do=pin&version=1.0"))
    await see("confirm-impossible")
    await page.goto(bed.service_page)
    await ask_for_pin(page, "1.31")
    await see("confirm")
    await confirm(page, "Pin")
    await backend(page, "api-1").get_by_role("link", name="Drain").click()
    await see("confirm-drain")
    await confirm(page, "Drain")
    await expect(connection(page)).to_contain_text("live")
    await expect(offered(page)).to_contain_text("1.1-1.31")
    await see("service-pinned")
    await backend(page, "api-1").get_by_role("link", name="Enable").click()
    await confirm(page, "Enable")
    await page.get_by_role("button", name="Unpin").click()
    await confirm(page, "Unpin")
    await page.get_by_role("link", name="Sign out").click()
    await see("sign-out")


async def see_explanations(page: Page, see: See) -> None:
    for state, path, version in (
        ("explain", "/v1/nodes", "1.31"),
        ("explain-refused", "/v1/nodes", "1.90"),
        ("explain-problem", "no path", ""),
    ):
        await page.get_by_label("Path").fill(path)
        header = f"X-OpenStack-Ironic-API-Version: {version}" if version else ""
        await page.get_by_label("Headers").fill(header)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Explain")
        await see(state)
