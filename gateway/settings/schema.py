"""The section of a whole file for a set of dialects, and its JSON Schema.

Each dialect adds its options to the keys of a service, under its own name. This module reads no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeAlias

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.keys.kinds import Either, Key, Kind, ListOf, Schema, Section, Table, Text, section
from gateway.keys.texts import NAME, read_text
from gateway.settings.sections.file import FILE, WrittenFile
from gateway.settings.sections.service import SERVICE, WrittenService

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Path: TypeAlias = tuple[str, ...]
"""Path of a configuration key, the same in every file: names, `*` for any name, `[]` for any list item."""


def file_section(dialects: Mapping[str, type[Dialect]] | None = None) -> Section[WrittenFile]:
    """The declaration of all keys of a configuration file, for these dialects; by default for all."""
    return _file_section(tuple(sorted((discover() if dialects is None else dialects).items())))


@cache
def _file_section(dialects: tuple[tuple[str, type[Dialect]], ...]) -> Section[WrittenFile]:
    options = {name: _options_key(name, dialect) for name, dialect in dialects}
    # The reader takes any word, so that a service with an unknown dialect is still checked otherwise.
    word = Text(read_text, {"type": "string", "enum": list(options)})
    keys = {**SERVICE.keys, "dialect": replace(SERVICE.keys["dialect"], kind=word), **options}

    def make(**values: Any) -> WrittenService:  # noqa: ANN401 - of all keys
        chosen = {name: values.pop(name) for name in options if name in values}
        return WrittenService(**values, options=chosen)

    services = replace(FILE.keys["services"], kind=Table(NAME, replace(SERVICE, make=make, keys=keys)))
    return replace(FILE, keys={**FILE.keys, "services": services})


def _options_key(name: str, dialect: type[Dialect]) -> Key:
    about = f"Options of the {name} dialect."
    return Key(
        section(dialect.Options, about, title=f"{name.title()}Options"),
        about,
        reason="The defaults are what the dialect's servers do.",
        example={},
        default={},
    )


def schema_json(dialects: Mapping[str, type[Dialect]] | None = None) -> Schema:
    """The JSON Schema (draft 2020-12) of a configuration. Every key has `description`, `examples` and
    `x-reason`. Optional keys have `default`, unless the default is to have no value."""
    definitions: dict[str, Schema] = {}
    whole = file_section(dialects).definition(definitions)
    whole["required"].remove("services")  # all of them may be in included files
    ordered: Schema = _ordered({**whole, "$defs": dict(sorted(definitions.items()))})
    alternatives = [{"required": ["services"]}, {"required": ["include"]}]
    return {"$schema": DIALECT, **ordered, "anyOf": alternatives}


def _ordered(part: Any, name: str = "") -> Any:  # noqa: ANN401 - any part of a schema
    """A part of the JSON Schema with sorted entries; keys of the file and defaults keep their order."""
    if isinstance(part, dict):
        entries = part if name in {"properties", "default"} else sorted(part)
        return {each: _ordered(part[each], each) for each in entries}
    return [_ordered(each, name) for each in part] if isinstance(part, list | tuple) else part


def schema_text() -> str:
    """The JSON Schema as text: what `skewgate schema` prints, and the content of config/schema.json."""
    return json.dumps(schema_json(), indent=2, ensure_ascii=False) + "\n"


def keys_of(kind: Kind[Any], path: Path = ()) -> Iterator[tuple[Path, Key]]:
    """Every key of the configuration below a section, table or list, with its path."""
    match kind:
        case Section():
            for name, key in kind.keys.items():
                yield (*path, name), key
                yield from keys_of(key.kind, (*path, name))
        case Table():
            yield from keys_of(kind.item, (*path, "*"))
        case ListOf():
            yield from keys_of(kind.item, (*path, "[]"))
        case Either():
            yield from keys_of(kind.other, path)
        case _:
            pass


def dotted_path(path: Path) -> str:
    """The path of a configuration key as people write it: `services.NAME.backends[].url`."""
    return ".".join("NAME" if part == "*" else part for part in path).replace(".[]", "[]")
