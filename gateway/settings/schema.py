"""The model of a whole file for a set of dialects, and its JSON Schema.

The keys of a service depend on the dialects: each dialect adds its options under its own name. This module
reads no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final

from pydantic import JsonValue, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.settings.model.document import Document, services_key
from gateway.settings.model.fields import Name, TextReader, key, read_text
from gateway.settings.model.options import options_model
from gateway.settings.model.service import Service, dialect_key

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document_model(dialects: Mapping[str, type[Dialect]]) -> type[Document]:
    """The model of a whole file, for these dialects."""
    return _document_model(tuple(sorted(dialects.items())))


@cache
def _document_model(dialects: tuple[tuple[str, type[Dialect]], ...]) -> type[Document]:
    options: dict[str, Any] = {
        name: (
            options_model(dialect),
            key(
                {},
                f"Options of the {name} dialect.",
                reason="The defaults are what the dialect's servers do.",
                example={},
            ),
        )
        for name, dialect in dialects
    }
    # The model accepts any word, so that a service with an unknown dialect is still checked otherwise.
    names = {"type": "string", "enum": [name for name, _ in dialects]}
    service: Any = create_model(
        "Service",
        __base__=Service,
        __doc__=Service.__doc__,
        dialect=(Annotated[str, TextReader(read_text, names)], dialect_key()),
        **options,
    )
    return create_model(
        "Configuration",
        __base__=Document,
        __doc__="The configuration of skewgate.",
        services=(dict[Name, service], services_key()),
    )


class _AsWritten(GenerateJsonSchema):
    """The schema of the file as an operator writes it."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # An optional key is left out, never null: `key: null` is the word null.
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        generated = super().dict_schema(schema)
        if "patternProperties" in generated:
            generated["additionalProperties"] = False
        return generated

    def encode_default(self, dft: JsonValue | tuple[JsonValue, ...]) -> JsonValue:
        # A default is written as in the file. Pydantic would build a serializer for each.
        return list(dft) if isinstance(dft, tuple) else dft

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # the title would only repeat the key


def schema_json(dialects: Mapping[str, type[Dialect]] | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12). Every key has `description`, `examples` and `x-reason`. Optional keys
    have `default`. Made once, because that takes 20 ms (measured): it must not be changed."""
    return _schema_json(document_model(discover() if dialects is None else dialects))


@cache
def _schema_json(model: type[Document]) -> dict[str, Any]:
    schema = {"$schema": DIALECT, **model.model_json_schema(schema_generator=_AsWritten)}
    # All services may be in included files.
    schema["required"].remove("services")
    return {**schema, "anyOf": [{"required": ["services"]}, {"required": ["include"]}]}


def schema_text() -> str:
    """The text that `skewgate schema` prints, and that config/schema.json holds."""
    return json.dumps(_without_nulls(schema_json()), indent=2, ensure_ascii=False) + "\n"


def _without_nulls(part: JsonValue) -> JsonValue:
    """The same without `default: null`, for readers who do not know it from a value that can be written:
    yaml-language-server 1.25 completes no key of a section in which a text has that default."""
    if isinstance(part, dict):
        entries = (entry for entry in part.items() if entry != ("default", None))
        return {name: _without_nulls(value) for name, value in entries}
    return [_without_nulls(value) for value in part] if isinstance(part, list) else part


Path = tuple[str, ...]
"""The place of a key: names, `*` for any name, `[]` for any item of a list."""


def keys_of(schema: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    """Every key: its path, its schema (with its references resolved), and whether it is required."""
    yield from _keys_below(schema, schema, ())


def _keys_below(
    whole: dict[str, Any], part: dict[str, Any], path: Path
) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    part = resolved(whole, part)
    for name, below in part.get("properties", {}).items():
        key = resolved(whole, below)
        yield (*path, name), key, "default" not in key
        yield from _keys_below(whole, below, (*path, name))
    for below in part.get("patternProperties", {}).values():
        yield from _keys_below(whole, below, (*path, "*"))
    if "items" in part:
        yield from _keys_below(whole, part["items"], (*path, "[]"))
    for alternative in (*part.get("oneOf", ()), *part.get("anyOf", ())):
        yield from _keys_below(whole, alternative, path)


def resolved(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema, merged with the part that its `$ref` names. Its own entries take precedence."""
    if "$ref" not in part:
        return part
    name = part["$ref"].removeprefix("#/$defs/")
    return {**whole["$defs"][name], **{entry: value for entry, value in part.items() if entry != "$ref"}}
