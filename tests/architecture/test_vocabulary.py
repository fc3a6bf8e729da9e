"""One concept has one word: the glossary has it, and the words that it replaced do not come back."""

from __future__ import annotations

import ast

import pytest

from tests.architecture import vocabulary
from tests.architecture.source import ROOT, gateway_modules, project_texts
from tests.docs.pages import page, rows

GLOSSARY = rows(page("docs/glossary.md"))
HISTORY = ("CHANGELOG.md", "docs/decisions/")
"""Texts that tell what was, in the words of then."""


def allowed_in(path: str) -> frozenset[str]:
    """Names that are given from outside, in the modules that hold them."""
    if path.startswith("gateway/telemetry/series/"):
        return vocabulary.ALLOWED | vocabulary.SERIES
    is_options = path == "gateway/dialects/custom/options.py"
    return vocabulary.ALLOWED | (vocabulary.YAML_KEYS if is_options else frozenset())


def test_every_entry_of_the_glossary_is_one_line_and_stands_once() -> None:
    words = [word for row in GLOSSARY for word in row[0].split(", ")]

    assert len(words) > 80
    assert sorted(words) == sorted(set(words))
    assert all(len(row) == 3 and row[0] and row[1] for row in GLOSSARY)


def test_the_glossary_uses_no_word_that_is_banned() -> None:
    assert [found for row in GLOSSARY for found in vocabulary.banned_prose(row[0])] == []


def test_no_identifier_of_the_package_is_an_old_word() -> None:
    findings = [
        f"{module.path}:{line}: {name}: {instead}"
        for module in gateway_modules()
        for line, name, instead in vocabulary.banned_identifiers(module.tree, allowed_in(module.path))
    ]

    assert not findings, "\n".join(findings)


def test_no_comment_and_no_page_uses_an_old_word() -> None:
    findings = [
        f"{path}:{line}: {old}: {instead}"
        for path, text in project_texts()
        if path.startswith("gateway/") and path.endswith(".py")
        if any(vocabulary.banned_prose(text))  # a text without an old word has none in its comments
        for line, prose in vocabulary.prose_of(text)
        for old, instead in vocabulary.banned_prose(prose)
    ]
    findings += [
        f"{path}: {old}: {instead}"
        for path, text in project_texts()
        if path.endswith(".md") and not path.startswith(HISTORY)
        for old, instead in vocabulary.banned_prose(text)
    ]

    assert not findings, "\n".join(findings)


@pytest.mark.parametrize(
    "text, names",
    [
        ("def read_reply(): ...", ["read_reply"]),
        ("class AdvertReader: ...", ["AdvertReader"]),
        ("def f(silent): ...", ["silent"]),
        ("self.markings = {}", ["markings"]),
        ("for verdict in x: ...", ["verdict"]),
        ("NO_REPLY = 'no_reply'", []),
        ("upload_speed = 1", ["upload_speed"]),
        ("requested = advertisement", []),
    ],
)
def test_an_old_identifier_is_noticed(text: str, names: list[str]) -> None:
    assert [name for _, name, _ in vocabulary.banned_identifiers(ast.parse(text))] == names


@pytest.mark.parametrize(
    "text, banned",
    [
        ("The backend's advert.", True),
        ("What was settled\n    on stands.", True),
        ("A Garbled version.", True),
        ("An advertisement.", False),
        ("It settles a bill.", False),
    ],
)
def test_an_old_word_in_prose_is_noticed(text: str, banned: bool) -> None:
    assert bool(list(vocabulary.banned_prose(text))) is banned


def test_the_rules_read_the_project() -> None:
    assert (ROOT / "docs" / "glossary.md").is_file()
    assert any(list(vocabulary.prose_of(text)) for path, text in project_texts() if path.endswith(".py"))
