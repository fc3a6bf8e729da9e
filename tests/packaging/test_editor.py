"""The schema in an editor: the language server that editors use for YAML reads it by the line at the head of
a file, finds mistakes, completes keys and values, and shows what a key means. It asks no network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.language_server import LanguageServer
from tests.packaging.tools import ROOT, npm_packages

pytestmark = pytest.mark.packaging

HEAD = "# yaml-language-server: $schema=schema.json\n"
GOOD = """\
listen: 127.0.0.1:8080
services:
  baremetal:
    dialect: ironic
    offer: {ceiling: "1.90", policy: guaranteed}
    backends:
      - url: http://127.0.0.1:6385
"""


@cache
def server() -> Path:
    """The language server of the lock beside this file."""
    home = npm_packages("editor", Path(__file__).with_name("editor"))
    return home / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"


@pytest.fixture
def editor() -> Iterator[LanguageServer]:
    settings = {
        "yaml": {"validate": True, "completion": True, "hover": True, "schemaStore": {"enable": False}}
    }
    with LanguageServer(["node", server(), "--stdio"], settings) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the schema beside it, as the wheel installs them."""
    shutil.copy(ROOT / "config" / "schema.json", tmp_path)
    return tmp_path / "skewgate.yaml"


def test_a_right_file_has_no_mistake(editor: LanguageServer, file: Path) -> None:
    assert editor.open(file, HEAD + GOOD) == []


@pytest.mark.parametrize("name", ["skewgate.yaml", "minimal.yaml"])
def test_the_files_of_the_project_have_none(editor: LanguageServer, name: str) -> None:
    path = ROOT / "config" / name

    assert editor.open(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "written, instead, line, said",
    [
        ("listen:", "lisen:", 1, "lisen"),
        ("dialect: ironic", "dialect: irnic", 4, "ironic"),
        ("policy: guaranteed", "policy: sometimes", 5, "guaranteed"),
        (
            "      - url: http://127.0.0.1:6385\n",
            "      - url: http://127.0.0.1:6385\n        wait: 3\n",
            8,
            "wait",
        ),
    ],
)
def test_a_mistake_is_shown_where_it_is(
    editor: LanguageServer, file: Path, written: str, instead: str, line: int, said: str
) -> None:
    found = editor.open(file, HEAD + GOOD.replace(written, instead))

    assert [each for each in found if each["range"]["start"]["line"] == line], found
    assert any(said in each["message"] for each in found), found


def test_keys_and_values_are_completed(editor: LanguageServer, file: Path) -> None:
    text = HEAD + GOOD.replace("    backends:", "    \n    backends:") + "\n"
    editor.open(file, text)

    sections = editor.complete(file, 9, 0)
    keys = editor.complete(file, 6, 4)
    values = editor.complete(file, 4, len("    dialect: "))
    policies = editor.complete(file, 5, len('    offer: {ceiling: "1.90", policy: '))

    assert {"admin", "timeouts", "trusted_proxies"} <= set(sections)
    assert {"match", "probe", "timeouts", "retry"} <= set(keys)
    assert keys["releases"].get("documentation")
    assert {"ironic", "nova", "chef", "custom"} <= set(values)
    assert {"guaranteed", "reachable", "at_least"} <= set(policies)


def test_a_key_says_what_it_means(editor: LanguageServer, file: Path) -> None:
    editor.open(file, HEAD + GOOD)

    assert "The address for clients" in editor.hover(file, 1, 2)
