"""The rules of every test run: hypothesis profiles, and groups of which none may stay empty or be skipped.

Shared fixtures do not live here but beside the tests that share them.

SKEWGATE_NO_SKIP=1          a skipped test is a failure, and examples are the same in every run
SKEWGATE_GROUPS="quick ..." every group named here must have run at least one test
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final

import hypothesis
import pytest

HEAVY_GROUPS: Final = ("real", "engines", "load", "browser")
"""Markers that `-m` in pyproject.toml leaves out by default. Whatever bears none of them is `quick`."""

HEAVY_TIMEOUT: Final = 1800.0
"""Seconds for one test of a heavy group: its first one installs what the group needs."""

NO_SKIP: Final = os.environ.get("SKEWGATE_NO_SKIP") == "1"
WANTED: Final = tuple(os.environ.get("SKEWGATE_GROUPS", "").split())

# No deadline: on a loaded machine it says something about the machine only.
hypothesis.settings.register_profile("desk", deadline=None, max_examples=100)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if NO_SKIP or "CI" in os.environ else "desk")

executed_key = pytest.StashKey[dict[str, int]]()


def group_of(item: pytest.Item) -> str:
    """The group of a test, by its marker: its keywords would also hold the names of its folders."""
    return next((name for name in HEAVY_GROUPS if item.get_closest_marker(name)), "quick")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[executed_key] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group_of(item) != "quick" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HEAVY_TIMEOUT))


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that keeps the skip's reason. An expected failure is no skip."""
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped where nothing may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    if report.when == "call" and not report.skipped:
        executed = item.config.stash[executed_key]
        group = group_of(item)
        executed[group] = executed.get(group, 0) + 1
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


def empty_groups(config: pytest.Config) -> list[str]:
    """The wanted groups of which no test was executed."""
    if config.getoption("collectonly"):
        return []
    return [name for name in WANTED if not config.stash[executed_key].get(name)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if empty_groups(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in empty_groups(config):
        terminalreporter.write_line(f"FAILED group {name}: none of its tests was executed", red=True)
