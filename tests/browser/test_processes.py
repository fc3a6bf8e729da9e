"""Several workers, and several replicas over a real etcd, as the page of one of them shows them."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser import axe, look
from tests.browser.bed import running
from tests.browser.operator import connection, open_service
from tests.browser.tabs import Tabs
from tests.engines.replicas import replicas

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


def row(page: Page, name: str) -> Locator:
    """Of a worker or replica."""
    return page.locator("#processes").get_by_role("row").filter(has_text=name)


async def see(tabs: Tabs, page: Page, state: str) -> None:
    await tabs.picture(page, state)
    assert await look.overlaps(page) + await axe.findings(page) == []


async def test_workers_are_shown_and_one_that_is_replaced(tmp_path: Path, tabs: Tabs) -> None:
    async with running(tmp_path, workers=2) as bed:
        assert await bed.ask("1.58", 9) == [200] * 9
        assert await bed.ask("1.90", 3) == [406] * 3
        page = await open_service(tabs, bed)

        for name in ("worker 0", "worker 1"):
            await expect(row(page, name)).to_contain_text("serving")
            await expect(row(page, name)).to_contain_text(re.compile(r"process \d+, \d+ connections?"))
        # Whichever of them has served: what all have counted is shown.
        await expect(page.get_by_role("region", name="Served versions")).to_contain_text("1.58")
        await expect(page.get_by_role("region", name="Refused requests")).to_contain_text("3")
        await see(tabs, page, "workers")

        [pid] = re.findall(r"process (\d+)", await row(page, "worker 1").inner_text())
        os.kill(int(pid), signal.SIGKILL)
        await expect(row(page, "worker 1")).to_contain_text("replaced once")
        await expect(row(page, "worker 1")).to_contain_text("serving")
        await expect(row(page, "worker 1")).not_to_contain_text(f"process {pid},")
        await expect(row(page, "worker 0")).not_to_contain_text("replaced")
        assert await bed.ask("1.58", 3) == [200] * 3
        await tabs.close()  # before the gateway ends, and its stream with it


async def test_replicas_are_shown_with_what_each_holds(tmp_path: Path, tabs: Tabs) -> None:
    async with replicas(tmp_path) as bed:
        await bed.offered("1.58")
        first, _, last = bed.replicas

        def told(status: dict[str, Any]) -> list[str]:
            return [each["id"] for each in status["agreement"]["replicas"]]

        async def all_are_known() -> bool:
            return len(told(await bed.status(first))) == 3

        await bed.until(all_are_known, "the first replica knows three")
        ids = told(await bed.status(first))
        own = (await bed.status(first))["agreement"]["id"]
        lost = (await bed.status(last))["agreement"]["id"]
        page = await tabs.open(f"{first.admin}/ui/services/baremetal")
        await expect(connection(page)).to_contain_text("live")

        for each in ids:
            await expect(row(page, each)).to_contain_text("attached")
            await expect(row(page, each)).to_contain_text(re.compile(r"record \d+"))
        await expect(row(page, own)).to_contain_text("(this one)")
        await see(tabs, page, "replicas")

        await last.kill()
        await expect(row(page, lost)).to_contain_text("detached")
        await see(tabs, page, "replica-detached")
        await tabs.close()  # before the gateways end
