"""Mutual TLS on the admin listener: an operator's browser shows a certificate, and needs no token."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.admin.test_tls import authority, running_tls
from tests.browser.operator import backend, confirm, connection
from tests.browser.tabs import Tabs

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_with_a_certificate_an_operator_sees_and_commands(tmp_path: Path, tabs: Tabs) -> None:
    pair = authority().client("an operator").write(tmp_path, "of-an-operator")
    async with running_tls(tmp_path, token=None, client="required") as tls:
        url = f"{tls.admin.gateway.admin_url}/ui/services/baremetal"
        page = await tabs.open(url, certificate=pair)
        await expect(connection(page)).to_contain_text("live")

        await backend(page, "old").get_by_role("link", name="Drain").click()
        said = await confirm(page, "Drain")
        await expect(said).to_contain_text("old")
        await expect(backend(page, "old")).to_contain_text("drained")
        await tabs.close()  # before the gateway ends, and its stream with it
