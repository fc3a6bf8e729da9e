"""The guide of docs/dialects.md from a version header to a running gateway: it works as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.cli import main
from tests.docs.pages import blocks, page
from tests.kit.gateways import gateway_of
from tests.scenarios.fakes import running as started
from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed
from tests.worked.header_servers import Orders

GUIDE: Final = page("docs/dialects.md").split("#### From a version header to a running gateway\n")[1]
FIRST, SECOND = [block.text for block in blocks(GUIDE) if block.language == "yaml"][:2]
CONSOLE: Final = next(block.text for block in blocks(GUIDE) if block.language == "console")


def test_the_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(FIRST)

    assert main(["check", "my.yaml"]) == 0
    main(["explain", "--offline", "-c", "my.yaml", "GET", "/orders", "-H", "API-Version: 4"])
    printed = capfd.readouterr().out.splitlines()

    shown = [line for line in CONSOLE.splitlines() if not line.startswith(("$", "…"))]
    assert len(shown) == 4
    assert [line for line in shown if line not in printed] == []


def test_the_readme_shows_the_same_file() -> None:
    assert FIRST in [block.text for block in blocks(page("README.md"))]


async def test_the_second_file_works_as_the_page_promises() -> None:
    fleet = Orders("1", "2", "3"), Orders("2", "3", "4")
    async with started(*fleet):
        text = SECOND.replace(":8080", ":0\nadmin:\n  listen: 127.0.0.1:0")
        for port, server in zip((7001, 7002), fleet, strict=True):
            text = text.replace(f":{port}", f":{server.port}")
        async with gateway_of(text) as gateway:
            testbed = WorkedTestbed(gateway, fleet, "", "orders")
            await testbed.until_offered("2-3")

            newest = await testbed.repeated("/orders", ("API-Version", "latest"))
            unversioned = await testbed.repeated("/orders")
            assert (newest.get("API-Version"), unversioned.get("API-Version")) == ("3", "2")
            assert sorted(testbed.executed()) == ["2"] * REPEATS + ["3"] * REPEATS
            assert (await testbed.repeated("/orders", ("API-Version", "4"))).status == 400
            assert (await testbed.repeated("/versions")).body == b'{"oldest":2,"newest":3}'
            await testbed.send("/healthz", ("API-Version", "99"))
            assert [head.versions for head in testbed.forwarded if head.target == "/healthz"] == [{}]
