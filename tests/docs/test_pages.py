"""All pages: links lead somewhere, files and commands exist, configurations work, records are whole."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from posixpath import dirname, normpath
from typing import Final

import click
import pytest

from gateway import __version__, cli, settings
from gateway.cli.verbs import VERBS
from gateway.dialects import discover
from tests.architecture.source import ROOT, project_texts
from tests.docs.pages import all_pages, anchors, blocks, links, mentioned, page, section
from tests.docs.walkthrough import steps

ENVIRONMENT: Final = {"SKEWGATE_ADMIN_TOKEN": "a-token-long-enough-for-anybody"}
RECORDS: Final = sorted((ROOT / "docs" / "decisions").glob("*.md"))
WRITTEN_BY_US: Final = [name for name in all_pages() if not name.startswith(".")]


@pytest.mark.parametrize("name", WRITTEN_BY_US)
def test_links_lead_somewhere(name: str) -> None:
    for target in links(page(name)):
        path, _, fragment = target.partition("#")
        found = normpath(f"{dirname(name)}/{path}") if path else name
        found = found.lstrip("/")
        assert (ROOT / found).exists(), f"{name}: {target}"
        if fragment:
            assert fragment in anchors(page(found)), f"{name}: {target}"


@pytest.mark.parametrize("name", WRITTEN_BY_US)
def test_files_that_are_named_exist(name: str) -> None:
    paths = re.compile(r"(?:gateway|config|docs|bench|tests|deploy|requirements|\.ci)/[\w./-]*")
    for mention in mentioned(page(name)):
        if paths.fullmatch(mention):
            assert (ROOT / mention).exists(), f"{name}: {mention}"


@pytest.mark.parametrize("name", WRITTEN_BY_US)
def test_commands_can_be_given(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `./run …` of a page is one that the command line takes, beside the files of the page."""
    for step in steps(name):
        if file := step.directives.get("file"):
            (tmp_path / file).write_text(step.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    typed = [line[2:] for block in blocks(page(name)) for line in block.text.splitlines() if line[:2] == "$ "]
    shown = [part.strip() for line in typed for part in re.split(r"&&|\|\|", line)]
    for line in [*shown, *mentioned(page(name))]:
        words = shlex.split(line, comments=True) if line.startswith("./run") else []
        if len(words) > 1:
            verb = words[1]
            assert verb in VERBS, f"{name}: {line}"
            if line in shown:
                above = click.Context(cli.skewgate, info_name="skewgate")
                _, command, rest = cli.skewgate.resolve_command(above, words[1:])
                assert command is not None
                command.make_context(verb, rest, parent=above).close()  # raises for what it does not take


@pytest.mark.parametrize("name", ["README.md", "docs/dialects.md", "docs/tutorial.md", "docs/lifecycle.md"])
def test_configurations_can_be_used(name: str) -> None:
    texts = [block.text for block in blocks(page(name)) if block.language == "yaml"]

    assert texts
    for text in texts:
        loaded = settings.load(text, filename=name, environ=ENVIRONMENT, check_files=False)
        assert not loaded.problems, loaded.render()


def test_the_minimal_file_is_shown_as_it_is() -> None:
    written = "".join(
        line for line in page("config/minimal.yaml").splitlines(keepends=True) if not line.startswith("#")
    )

    assert written in [block.text for block in blocks(page("docs/tutorial.md"))]


def test_the_bench_finds_its_place() -> None:
    lines = page("docs/performance.md").splitlines()

    assert lines.count("<!-- bench:start -->") == lines.count("<!-- bench:end -->") == 1
    assert lines.index("<!-- bench:start -->") < lines.index("<!-- bench:end -->")


def test_the_list_of_what_is_missing_has_the_dialects_that_exist() -> None:
    text = section(page("docs/compatibility.md"), "What this release does not do")

    assert re.findall(r"`(\w+)`", text.strip().splitlines()[0]) == list(discover())


@pytest.mark.parametrize("number", range(1, len(RECORDS) + 1))
def test_a_record_is_whole(number: int) -> None:
    path = RECORDS[number - 1]
    text = path.read_text(encoding="utf-8")
    parts = re.findall(r"^\*\*(\w+)[^*]*\*\*$", text, re.MULTILINE)

    assert text.startswith(f"# {number:04}: ")
    assert path.name.startswith(f"{number:04}-")
    assert parts == ["Context", "Choice", "Rejected", "Consequence"]
    assert text.count("\n") <= 60


def test_records_that_are_referred_to_exist() -> None:
    numbers = {path.name[:4] for path in RECORDS}
    for path, text in project_texts():
        for number in re.findall(r"\bdecision (\d{4})\b", text):
            assert number in numbers, f"{path}: decision {number}"


def test_the_changelog_knows_the_version_and_the_verbs() -> None:
    text = page("CHANGELOG.md")
    project = tomllib.loads(page("pyproject.toml"))["project"]

    assert project["version"] == __version__
    assert __version__ in text
    for verb in VERBS:
        assert f"`{verb}`" in text
