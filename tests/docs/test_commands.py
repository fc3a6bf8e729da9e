"""Every command of these pages is run, and prints what stands below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.docs.walkthrough import Step, missing_line, shell, steps

PAGES = ("README.md", "docs/demo.md", "docs/tutorial.md", "docs/usage.md", "docs/lifecycle.md")


@pytest.mark.engines
@pytest.mark.parametrize("path", PAGES)
def test_the_commands_of_a_page_do_what_it_says(path: str, tmp_path: Path) -> None:
    with shell(tmp_path, f"skewgate-{os.getpid()}") as opened:
        for step in steps(path):
            if "tested" not in step.directives:
                opened.follow(step)


@pytest.mark.parametrize("path", PAGES)
def test_what_this_does_not_run_another_test_runs(path: str) -> None:
    for step in steps(path):
        if tested := step.directives.get("tested"):
            text = (ROOT / tested).read_text(encoding="utf-8")
            for command in step.commands():
                program, *_ = command.text.split()
                assert program.rpartition("/")[2] in text, (tested, command.text)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_commands(path: str) -> None:
    assert sum(len(list(step.commands())) for step in steps(path)) >= 5


def test_lines_come_in_order_whatever_comes_between_them() -> None:
    assert missing_line(("a", "b"), "a\nx\nb\n") is None
    assert missing_line(("b", "a"), "a\nb\n") == "a"
    assert missing_line(("x  2.1 s ago  y",), "x  0.3 s ago  y  \n") is None
    assert missing_line(("a", "…"), "") == "a"


def test_a_block_has_commands_and_what_they_print() -> None:
    step = Step("console", "$ one \\\n  two\nprinted\n$ three\n")

    assert [tuple(command) for command in step.commands()] == [
        ("one \\\n  two", ("printed",)),
        ("three", ()),
    ]
