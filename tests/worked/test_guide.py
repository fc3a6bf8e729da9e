"""From a version header to a running gateway, as docs/dialects.md has it: what is shown there comes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.cli import main
from gateway.cli.gateway import Gateway
from gateway.settings import load
from tests.docs.pages import blocks, page
from tests.scenarios.fakes import running as started
from tests.worked.fleet import TRIES, WorkedStand
from tests.worked.header_servers import Orders

GUIDE: Final = page("docs/dialects.md").split("#### From a version header to a running gateway\n")[1]
FIRST, SECOND = [block.text for block in blocks(GUIDE) if block.language == "yaml"][:2]
CONSOLE: Final = next(block.text for block in blocks(GUIDE) if block.language == "console")


def test_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(FIRST)

    assert main(["check", "my.yaml"]) == 0
    main(["explain", "--offline", "-c", "my.yaml", "GET", "/orders", "-H", "API-Version: 4"])
    printed = capfd.readouterr().out.splitlines()

    shown = [line for line in CONSOLE.splitlines() if not line.startswith(("$", "…"))]
    assert len(shown) == 3
    assert [line for line in shown if line not in printed] == []


def test_readme_shows_the_same_file() -> None:
    assert FIRST in [block.text for block in blocks(page("README.md"))]


async def test_with_most_of_it_said_it_works_as_the_questions_promise() -> None:
    fleet = Orders("1", "2", "3"), Orders("2", "3", "4")
    async with started(*fleet):
        text = SECOND.replace(":8080", ":0\nadmin:\n  listen: 127.0.0.1:0")
        for port, server in zip((7001, 7002), fleet, strict=True):
            text = text.replace(f":{port}", f":{server.port}")
        configured = load(text, filename="my.yaml", environ={}).require()
        async with Gateway(configured) as gateway:
            stand = WorkedStand(gateway, fleet, "", "orders")
            await stand.until_offered("2-3")

            newest = await stand.same("/orders", ("API-Version", "latest"))
            silent = await stand.same("/orders")
            assert (newest.get("API-Version"), silent.get("API-Version")) == ("3", "2")
            assert sorted(stand.executed()) == ["2"] * TRIES + ["3"] * TRIES
            assert (await stand.same("/orders", ("API-Version", "4"))).status == 400
            assert (await stand.same("/versions")).body == b'{"oldest":2,"newest":3}'
            await stand.ask("/healthz", ("API-Version", "99"))
            assert [head.versions for head in stand.asked if head.target == "/healthz"] == [{}]
