"""The files of config/examples: `check` accepts them, a test runs each, and the page lists them."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from gateway.cli import main
from tests.docs.pages import page, rows
from tests.worked.fleet import EXAMPLES

PAGES: Final = EXAMPLES.parents[1]
FILES: Final = sorted(EXAMPLES.glob("*.yaml"))
TABLE: Final = {
    found[1]: row
    for row in rows(page("docs/dialects.md").split("#### Worked configurations\n")[1].split("\n### ")[0])
    if (found := re.fullmatch(r"\[(.+)\]\(\.\./config/examples/\1\)", row[1]))
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_R3_N2_check_finds_nothing_and_default_version_is_written(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(file)]) == 0
    out, err = capfd.readouterr()
    [first, *notes] = out.splitlines()
    assert (first, err) == (f"{file}: fine", "")
    assert notes, "each says what a request without a version gets"
    assert not any("default_version decides" in note for note in notes), "each file decides it"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_begins_with_what_it_relies_on(file: Path) -> None:
    head = file.read_text(encoding="utf-8").split("\n\n", 1)[0]

    assert re.search(r"^# .*this relies on:$|^# What it relies on:$", head, re.MULTILINE)
    assert len(re.findall(r"^# - ", head, re.MULTILINE)) >= 3


def test_each_file_is_run_in_front_of_a_fleet() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    run = {name for text in texts for name in re.findall(r"running\(\s*\"([\w-]+)\"", text)}

    assert run == {file.stem for file in FILES}


def test_the_table_lists_every_file() -> None:
    assert sorted(TABLE) == [file.name for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_table_quotes_only_what_is_in_the_file(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    quoted = [quote for cell in TABLE[file.name][2:] for quote in re.findall(r"`([^`]+)`", cell)]

    assert len(quoted) >= 4
    assert [quote for quote in quoted if quote not in text] == []


def test_declared_versions_can_be_explained_before_anything_runs(capfd: pytest.CaptureFixture[str]) -> None:
    """The explanation says to which month the requested one falls forward. Two dots separate the ends of an
    offer whose versions have dashes."""
    file = str(EXAMPLES / "shopify.yaml")
    assert main(["explain", "--offline", "-c", file, "GET", "/admin/api/2023-07/products.json"]) == 0

    printed = capfd.readouterr().out
    assert "2023-10 of the offer 2023-10, 2024-01, 2024-04" in printed
    assert "path in the API /admin/api/2023-10/products.json" in printed
    assert "  offer     2023-10..2024-04 (guaranteed), phase mixed" in printed


def test_R3_N2_every_example_of_the_pages_decides_what_no_version_means() -> None:
    """Each service of the dialect `custom` in a page or in config/."""
    found = 0
    for file in (*PAGES.glob("*.md"), *PAGES.glob("docs/*.md"), *PAGES.glob("config/**/*.yaml")):
        for part in file.read_text(encoding="utf-8").split("dialect: custom\n")[1:]:
            found += 1
            assert re.search(r"^ +default_version: ", part[:400], re.MULTILINE), f"{file.name}: {part[:60]}"
    assert found > len(FILES)
