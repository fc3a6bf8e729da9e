"""The testbed of the group `load`, and the table that the group prints.

./test --load        runs this folder
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.load.testbed import Testbed

FIGURES = pytest.StashKey[list[str]]()
WORKERS: Final = 2
"""What holds for two holds for more: one worker, another one, and their main process."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines that are printed at the end, whether the test passes or fails."""
    return pytestconfig.stash[FIGURES]


@pytest.fixture(params=[1, WORKERS], ids=["one-process", f"{WORKERS}-workers"])
def workers(request: pytest.FixtureRequest) -> int:
    """`workers` of the gateway. A test that asks for it runs with one process and behind several workers."""
    number: int = request.param
    return number


@pytest.fixture
def testbed(tmp_path: Path, workers: int) -> Iterator[Testbed]:
    """A running testbed. SIGTERM ends the group as Ctrl-C does, so that no process remains."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Testbed(tmp_path, workers=workers).running() as testbed:
            yield testbed
    finally:
        signal.signal(signal.SIGTERM, before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[FIGURES]:
        terminalreporter.section("continuous load while everything moves")
        for line in config.stash[FIGURES]:
            terminalreporter.write_line(line)
