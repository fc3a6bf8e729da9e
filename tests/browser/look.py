"""What can be seen of a page without eyes: what overlaps, what leaves the page, and where the focus is."""

from __future__ import annotations

from typing import Any, Final

from playwright.async_api import Locator, Page

TAB_STOPS: Final = 120
"""More than any page here has."""

_TEXTS: Final = """() => {
  // Where each text can be seen: its rectangles, without what the boxes around it cut off.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  let number = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({visibilityProperty: true, opacityProperty: true}))
      continue;
    if (element.tagName === "DETAILS" && !element.open) continue;
    number += 1;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const seen of range.getClientRects()) {
      let [left, top, right, bottom] = [seen.left, seen.top, seen.right, seen.bottom];
      let scrolled = false;
      for (let box = element; box && box !== document.body; box = box.parentElement) {
        const style = getComputedStyle(box);
        if (style.overflowX === "visible" && style.clipPath === "none" && style.clip === "auto") continue;
        const edges = box.getBoundingClientRect();
        const hidden = style.clipPath.startsWith("inset(50%") || style.clip === "rect(0px, 0px, 0px, 0px)";
        left = Math.max(left, edges.left); right = hidden ? left : Math.min(right, edges.right);
        top = Math.max(top, edges.top); bottom = Math.min(bottom, edges.bottom);
        scrolled = true;
      }
      if (right - left > 3 && bottom - top > 3)
        found.push({number, text: node.data.trim().slice(0, 60), left, top, right, bottom, scrolled});
    }
  }
  return found;
}"""

_FOCUS: Final = """() => {
  const style = getComputedStyle(document.activeElement);
  return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
}"""

SLACK: Final = 3.0
"""Pixels by which the boxes of two letters may overlap: accents need room that most letters leave empty."""


async def scrolls_sideways(page: Page) -> bool:
    """Whether the page as a whole is wider than the window."""
    return bool(
        await page.evaluate("document.scrollingElement.scrollWidth > document.documentElement.clientWidth")
    )


async def overlaps(page: Page) -> list[str]:
    """The texts that lie on others, or beyond an edge of the page."""
    texts: list[dict[str, Any]] = await page.evaluate(_TEXTS)
    width: float = await page.evaluate("document.documentElement.clientWidth")
    assert texts, "the page has no text"
    found = [
        f"{each['text']!r} leaves the page"
        for each in texts
        if not -1 < each["left"] <= each["right"] < width + 1
    ]
    texts.sort(key=lambda each: each["top"])
    for number, one in enumerate(texts):
        for other in texts[number + 1 :]:
            if other["top"] >= one["bottom"] - SLACK:
                break
            if one["number"] == other["number"]:
                continue  # a text that is cut by an ellipsis has two rectangles
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - other["top"]
            if across > SLACK and down > SLACK:
                found.append(f"{one['text']!r} lies on {other['text']!r}")
    return found


async def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until `target` has the focus, and see that the focus is shown."""
    for _ in range(TAB_STOPS):
        await page.keyboard.press("Tab")
        if await target.evaluate("element => element === document.activeElement"):
            assert await page.evaluate(_FOCUS), "the focus cannot be seen"
            return
    raise AssertionError(f"no Tab leads to {target}")
