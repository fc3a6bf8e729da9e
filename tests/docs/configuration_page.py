"""Writes the tables of docs/configuration.md from the keys, so that the page always agrees with the code.

    python -m tests.docs.configuration_page

A key is explained in its own description, never here.
"""

from __future__ import annotations

import json
from typing import Final

from gateway.keys.kinds import Key
from gateway.settings.schema import Path, dotted_path, file_section, keys_of
from gateway.settings.yaml.problem import CODES
from tests.architecture.source import ROOT
from tests.docs.pages import table, with_parts

PAGE: Final = ROOT / "docs" / "configuration.md"
COMMAND: Final = "python -m tests.docs.configuration_page"
_HEADS: Final = ("key", "default", "meaning", "reason", "example")


def page_as_it_should_be(page: str) -> str:
    """docs/configuration.md with its tables written anew; everything else stays."""
    codes = ((f"`{code}`", meaning) for code, meaning in sorted(CODES.items()))
    return with_parts(page, COMMAND, {"keys": reference_text(), "codes": table(("code", "meaning"), codes)})


def reference_text() -> str:
    """A table for each section, with a row for each key."""
    sections: dict[Path, list[tuple[str, ...]]] = {}
    for path, key in dict(keys_of(file_section())).items():
        sections.setdefault(path[:-1], []).append(_row(path[-1], key))
    return "\n".join(f"## {_title(path)}\n\n{table(_HEADS, rows)}" for path, rows in sections.items())


def _title(path: Path) -> str:
    return f"`{dotted_path(path)}`" if path else "Top level"


def _row(name: str, key: Key) -> tuple[str, ...]:
    default = "required" if key.is_required else _value(key.default)
    meaning = key.meaning
    schema = key.kind.schema({})
    if words := next((part["enum"] for part in (schema, *schema.get("anyOf", ())) if "enum" in part), None):
        meaning += " One of: " + ", ".join(f"`{word}`" for word in words) + "."
    if key.workers:
        meaning += f" *Several workers: {key.workers}.*"
    return f"`{name}`", default, meaning, key.reason, _value(key.example)


def _value(value: object) -> str:
    if value is None:
        return "none"
    if value in ({}, [], ()):
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page_as_it_should_be(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
