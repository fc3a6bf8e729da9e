"""axe-core, which finds what people with a screen reader or a keyboard cannot use, and what it has found."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

from tests.packaging.tools import npm_packages

_RUN: Final = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations"""


@cache
def script() -> str:
    home = npm_packages("axe", Path(__file__).with_name("axe"))
    return (home / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def findings(page: Page) -> list[str]:
    """What axe-core finds: the rule, and the elements. The debugger brings the script in, which the page's
    own rules for scripts do not bind."""
    await page.evaluate(script())
    found: list[dict[str, Any]] = await page.evaluate(_RUN)
    return [
        f"{each['impact']} {each['id']}: {each['help']}: {node['html']} {node.get('failureSummary', '')}"
        for each in found
        for node in each["nodes"]
    ]
