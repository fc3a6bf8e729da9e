"""Pages of the browser, each an operator's own, and what goes wrong in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, final
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

WIDE: Final = 1600
NARROW: Final = 360
HEIGHT: Final = {WIDE: 1000, NARROW: 780}
PATIENCE: Final = 30_000.0
"""Milliseconds after which what is expected counts as missing: long, as the machine may be busy."""


@final
class Tabs:
    """Opens pages, and keeps what goes wrong in them: `wrong`, a sentence each."""

    def __init__(self, browser: Browser, screenshots: Path) -> None:
        self._browser = browser
        self._screenshots = screenshots
        self._contexts: list[BrowserContext] = []
        self.wrong: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of the sentences that the test is about."""

    async def open(
        self,
        url: str,
        *,
        width: int = WIDE,
        scheme: Literal["light", "dark"] = "light",
        scripts: bool = True,
        certificate: tuple[Path, Path] | None = None,
    ) -> Page:
        """A page in a context of its own: with its own cookies. `certificate`: the file of it and that of its
        key, which the browser shows; it takes any of the server then."""
        address = urlsplit(url)
        shown: dict[str, Any] = {}
        if certificate is not None:
            pair = {
                "origin": f"{address.scheme}://{address.netloc}",
                "certPath": certificate[0],
                "keyPath": certificate[1],
            }
            shown = {"client_certificates": [pair], "ignore_https_errors": True}
        context = await self._browser.new_context(
            viewport={"width": width, "height": HEIGHT.get(width, 900)},
            color_scheme=scheme,
            java_script_enabled=scripts,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            **shown,
        )
        context.set_default_timeout(PATIENCE)
        self._contexts.append(context)
        page = await context.new_page()
        self._watch(page, address.netloc)
        await page.goto(url)
        return page

    def _watch(self, page: Page, origin: str) -> None:
        def console(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                self._note(f"console {message.type}: {message.text}")

        def request(sent: Request) -> None:
            if urlsplit(sent.url).netloc != origin:
                self._note(f"request to elsewhere: {sent.url}")

        def failed(sent: Request) -> None:
            # A page that is left drops its stream.
            if sent.failure != "net::ERR_ABORTED":
                self._note(f"request failed: {sent.url}: {sent.failure}")

        async def dialog(shown: Dialog) -> None:
            self._note(f"dialog: {shown.message}")
            await shown.dismiss()

        page.on("console", console)
        page.on("pageerror", lambda error: self._note(f"exception: {error}"))
        page.on("request", request)
        page.on("requestfailed", failed)
        page.on("dialog", dialog)

    def _note(self, sentence: str) -> None:
        if not any(part in sentence for part in self.expected):
            self.wrong.append(sentence)

    async def picture(self, page: Page, name: str, *, whole: bool = True) -> None:
        await page.screenshot(path=self._screenshots / f"{name}.png", full_page=whole)

    async def close(self) -> None:
        while self._contexts:
            await self._contexts.pop().close()
