"""Chromium, started once for all tests of this folder, and pages in it whose every error is a failure.

All of it runs in one event loop, that of the session: the browser belongs to the loop that has started it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.bed import Bed, running
from tests.browser.tabs import Tabs
from tests.kit.processes import kill_left

CHROMIUM = "chromium"
ARGUMENTS = ("--disable-dev-shm-usage", "--force-color-profile=srgb")
FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines that are printed at the end, whether the test passes or fails."""
    return pytestconfig.stash[FIGURES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[FIGURES]:
        terminalreporter.section("the operations page in a browser")
        for line in config.stash[FIGURES]:
            terminalreporter.write_line(line)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    program = shutil.which(CHROMIUM)
    if program is None:
        pytest.skip("there is no chromium; as root on Debian: .ci/packages")
    # Chromium's sandbox refuses to be root's.
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=arguments)
        yield started
        await started.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the states go: $SKEWGATE_SCREENSHOTS, else a folder of the tests."""
    configured = os.environ.get("SKEWGATE_SCREENSHOTS")
    folder = Path(configured).absolute() if configured else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True, scope="session")
def _nothing_left() -> Iterator[None]:
    """Each bed ends its own gateway. This is for what an interrupted one has left."""
    yield
    kill_left()


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser, screenshots: Path) -> AsyncIterator[Tabs]:
    """Opens pages. At the end, nothing may have gone wrong in any of them."""
    opened = Tabs(browser, screenshots)
    yield opened
    await opened.close()
    assert opened.wrong == []


@pytest_asyncio.fixture(loop_scope="session")
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    """Three old servers and a new one: 1.1-1.58 is on offer."""
    async with running(tmp_path, upgraded=["api-4"]) as started:
        yield started
