"""docs/configuration.md, written from the schema, so that it cannot say anything else than what is in force.

    python -m gateway.settings.reference > docs/configuration.md

Nothing is explained here that a key's own description could say.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from gateway.settings.problem import CODES
from gateway.settings.schema import Path, keys_of, schema_json

_OPENING: Final = """\
# Configuration

<!-- Written by `python -m gateway.settings.reference`; a test compares. Change the models, not this page. -->

One YAML file. `skewgate check FILE` prints everything that is wrong with it, each with its line, column, a
caret and a hint; `skewgate schema` prints the JSON Schema, which also stands in
[config/schema.json](../config/schema.json) for editors. [config/minimal.yaml](../config/minimal.yaml)
is the smallest useful file, [config/skewgate.yaml](../config/skewgate.yaml) shows every key, and
[config/examples/](../config/examples/) has worked ones for APIs of many kinds.

How the file is read:

- Values are the texts that were written: `1.90` is 1.90 and `off` is the word off. A version that other tools
  would read as a number brings a warning.
- `${NAME}` in a value is replaced by that environment variable, `${NAME:-default}` by the default when it is
  unset or empty. Unset without a default is an error. Inside `[ ]` and `{ }` YAML wants such a value in
  quotation marks. Messages show `${NAME}`, never what it stood for.
- Durations are whole numbers with `ms`, `s` or `m`; sizes with `B`, `KiB`, `MiB` or `GiB`.
- Unknown keys, duplicate keys and wrong types are errors; so are tags, anchors, aliases and second documents.
- A key is left out to get its default; `null` is the word null.
"""

_CODES_OPENING: Final = """\
## Problem codes

Errors keep the file from being used (exit code 2), warnings do not.

| code | meaning |
|---|---|
"""


def reference_text() -> str:
    """The whole page, in Markdown."""
    schema = schema_json()
    sections: dict[Path, list[str]] = {}
    seen: set[Path] = set()
    for path, key, needed in keys_of(schema):
        if path in seen:
            continue
        seen.add(path)
        sections.setdefault(path[:-1], []).append(_row(path, key, needed=needed))
    parts = [_OPENING]
    for path, rows in sections.items():
        parts.append(
            f"## {_title(path)}\n\n| key | default | meaning | reason | example |\n|---|---|---|---|---|\n"
        )
        parts[-1] += "".join(rows)
    codes = "".join(f"| `{code}` | {_cell(meaning)} |\n" for code, meaning in sorted(CODES.items()))
    parts.append(_CODES_OPENING + codes)
    return "\n".join(parts)


def spoken_path(path: Path) -> str:
    """`services.NAME.backends[].url`."""
    return ".".join("NAME" if part == "*" else part for part in path).replace(".[]", "[]")


def _title(path: Path) -> str:
    return f"`{spoken_path(path)}`" if path else "Top level"


def _row(path: Path, key: dict[str, Any], *, needed: bool) -> str:
    default = "required" if needed else _value(key["default"])
    meaning = _cell(key["description"])
    if words := next((each["enum"] for each in (key, *key.get("anyOf", ())) if "enum" in each), None):
        meaning += " One of: " + ", ".join(f"`{word}`" for word in words) + "."
    cells = (f"`{path[-1]}`", default, meaning, _cell(key["x-reason"]), _value(key["examples"][0]))
    return f"| {' | '.join(cells)} |\n"


def _value(value: object) -> str:
    if value is None:
        return "none"
    if value in ({}, []):
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference_text())
