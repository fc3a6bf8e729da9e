"""Reads configurations with the code of one checkout, and says what became of each: JSON, a line for a file.

    python -P read_files.py CASES RESULTS

`__main__` starts it in each checkout. Of the package it uses what stays: `load`, and the problems and the
settings that it gives. Settings become facts: a path of names, and a text. No name is known here.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from gateway.settings.load import load

MAX_DEPTH: Final = 12


def facts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """What a value holds, down to texts and numbers."""
    reveal = getattr(value, "reveal", None)
    if reveal is not None:
        yield ".".join(path), f"secret {sha256(reveal().encode()).hexdigest()[:12]}"
    elif isinstance(value, Enum):
        yield ".".join(path), repr(value.value)
    elif isinstance(value, str):
        yield ".".join(path), ascii(str(value))
    elif isinstance(value, bool | int | float | bytes | None):
        yield ".".join(path), repr(float(value) if isinstance(value, int | float) else value)
    elif len(path) < MAX_DEPTH:
        parts = list(_parts(value))
        if not parts:
            yield ".".join(path), _as_text(value)
        for name, part in parts:
            yield from facts(part, (*path, name))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, set | frozenset):
        yield from ((str(at), part) for at, part in enumerate(sorted(value, key=repr)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, tuple | list):
        yield from ((str(at), part) for at, part in enumerate(value))
    elif type(value).__module__.startswith("gateway."):
        for name in _names(value):
            part = getattr(value, name, None)
            if not name.startswith("_") and not callable(part):
                yield name, part


def _names(value: Any) -> list[str]:
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if fields := getattr(kind, "model_fields", None):
        return list(fields)
    # What has neither, such as a dialect, is known by its public attributes and those of its classes.
    of_classes = {name for each in kind.__mro__ if each is not object for name in vars(each)}
    return sorted(of_classes | set(getattr(value, "__dict__", ())))


def _as_text(value: Any) -> str:
    """Networks and patterns have a text of their own; of what else there is, only the type is told."""
    if type(value).__module__ in ("ipaddress", "pathlib"):
        return str(value)
    return f"{type(value).__name__} {len(value)}" if hasattr(value, "__len__") else type(value).__name__


def result(case: Mapping[str, Any]) -> dict[str, Any]:
    loaded = load(case["text"], filename=case["file"], environ=case["environ"])
    return {
        "usable": loaded.settings is not None,
        "problems": [
            {
                "file": problem.file,
                "line": problem.line,
                "column": problem.column,
                "width": problem.width,
                "severity": str(problem.severity),
                "code": problem.code,
                "message": problem.message,
                "hint": problem.hint,
            }
            # Earlier releases showed several problems of one kind and place in any order.
            for problem in sorted(
                loaded.problems, key=lambda each: (each.file, each.line, each.column, each.code, each.message)
            )
        ],
        "facts": dict(facts(loaded.settings)) if loaded.settings is not None else {},
    }


def main() -> None:
    cases, results = map(Path, sys.argv[1:])
    with cases.open(encoding="utf-8") as given, results.open("w", encoding="utf-8") as found:
        for line in given:
            # Surrogates are part of some texts: JSON has escapes for them.
            found.write(json.dumps(result(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
