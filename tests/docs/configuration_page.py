"""Writes docs/configuration.md from the keys, so that the page always agrees with the code.

    python -m tests.docs.configuration_page > docs/configuration.md

A key is explained in its own description, never here.
"""

from __future__ import annotations

import json
import sys
from typing import Final

from gateway.keys.kinds import Key
from gateway.settings.schema import Path, dotted_path, file_section, keys_of
from gateway.settings.yaml.problem import CODES
from tests.docs.pages import table

_OPENING: Final = """\
# Configuration

<!-- Written by `python -m tests.docs.configuration_page`; a test compares. Change the keys, not it. -->

The configuration is one YAML file. `skewgate check FILE` prints every problem of a file with its line, its
column, a caret and a hint. `skewgate schema` prints the JSON Schema; editors can use the same schema from
[config/schema.json](../config/schema.json). [config/minimal.yaml](../config/minimal.yaml) is the smallest
useful file, [config/skewgate.yaml](../config/skewgate.yaml) shows every key, and
[config/examples/](../config/examples/) has complete files for APIs of many kinds.

How the file is read:

- A value is the text that was written: `1.90` is 1.90 and `off` is the word off. `check` warns of a version
  that other tools would read as a number; `check --fix` quotes it.
- `${NAME}` in a value is replaced by the environment variable of that name. `${NAME:-default}` is replaced by
  the default when the variable is unset or empty. An unset variable without a default is an error. Inside
  `[ ]` and `{ }` such a value needs quotation marks. Messages show `${NAME}`, never its value.
- `${FILE:PATH}` reads the value from a file (UTF-8, at most 64 KiB) without its last line end; use it for
  secrets. A reload reads the file again. With `watch`, the gateway reloads by itself when the content
  changes.
- An included file may use only the variables in `include.environment`, and only files beneath
  `include.folders`; without these keys, none. Otherwise its author could put the admin token into a response.
- A relative path begins in the folder of the configuration, also in an included file. A configuration from a
  pipe or standard input has no folder: there it begins in the working folder.
- Durations are whole numbers with `ms`, `s`, `m` or `h`, at most `24h`. Sizes are whole numbers with `B`,
  `KiB`, `MiB` or `GiB`.
- Unknown keys, duplicate keys and wrong types are errors; so are tags, anchors, aliases and second documents.
- To get the default, leave the key out. `null` is the word null.

Each key says how its limit applies with several workers:

- *shared*: it holds for all workers together;
- *divided*: each worker has an equal part, and none gets more;
- *per worker*: each worker has all of it.

Other keys concern one request or connection, or the main process, which all workers have in common: probes,
discovery, the offer, the state, the admin listener. With `workers: 1` every limit is exact. Two gateways,
such as an old one that drains while a new one has taken over, share no limits.
"""

_HEADS: Final = ("key", "default", "meaning", "reason", "example")

_CODES_OPENING: Final = """\
## Problem codes

An error keeps the file from being used (exit code 2). A warning does not.

"""


def reference_text() -> str:
    """The whole page, in Markdown."""
    sections: dict[Path, list[tuple[str, ...]]] = {}
    for path, key in dict(keys_of(file_section())).items():
        sections.setdefault(path[:-1], []).append(_row(path[-1], key))
    parts = [f"## {_title(path)}\n\n{table(_HEADS, rows)}" for path, rows in sections.items()]
    codes = table(("code", "meaning"), ((f"`{code}`", meaning) for code, meaning in sorted(CODES.items())))
    return "\n".join((_OPENING, *parts, _CODES_OPENING + codes))


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
    sys.stdout.write(reference_text())
