"""The JSON Schema of the configuration, and the whole file's model with the dialects that are there.

Which keys a service has depends on the dialects: each brings its options under its own name. Reads no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final

from pydantic import create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.settings.model import Document, services_key
from gateway.settings.options import options_model
from gateway.settings.reading import Reads
from gateway.settings.scalars import Name, read_text
from gateway.settings.section import key
from gateway.settings.service_model import Service, dialect_key

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
                reason="Its defaults are what its servers do.",
                example={},
            ),
        )
        for name, dialect in dialects
    }
    # The model takes any word, so that a service of an unknown dialect is still checked for everything else.
    word = Annotated[str, Reads(read_text, {"type": "string", "enum": [name for name, _ in dialects]})]
    service: Any = create_model(
        "Service", __base__=Service, __doc__=Service.__doc__, dialect=(word, dialect_key()), **options
    )
    return create_model(
        "Configuration",
        __base__=Document,
        __doc__="The configuration of skewgate.",
        services=(dict[Name, service], services_key()),
    )


class _AsWritten(GenerateJsonSchema):
    """The schema of what an operator writes."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # A key is left out, never null: `key: null` is the word null.
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        if "patternProperties" in made:
            made["additionalProperties"] = False
        return made

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # a key's name says it already


def schema_json(dialects: Mapping[str, type[Dialect]] | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12). Every key has `description`, `examples`, `x-reason`; and `default`
    unless it must be there."""
    model = document_model(discover() if dialects is None else dialects)
    return {"$schema": DIALECT, **model.model_json_schema(schema_generator=_AsWritten)}


def schema_text() -> str:
    """What `skewgate schema` prints, and what config/schema.json holds."""
    return json.dumps(schema_json(), indent=2, ensure_ascii=False) + "\n"


Path = tuple[str, ...]
"""Where a key stands: names, `*` for any name, `[]` for any item of a list."""


def keys_of(schema: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    """Every key: its path, its schema (with what it refers to merged in), and whether it must be there."""
    yield from _keys_below(schema, schema, ())


def _keys_below(
    whole: dict[str, Any], part: dict[str, Any], path: Path
) -> Iterator[tuple[Path, dict[str, Any], bool]]:
    part = resolved(whole, part)
    for name, each in part.get("properties", {}).items():
        yield (*path, name), resolved(whole, each), name in part.get("required", ())
        yield from _keys_below(whole, each, (*path, name))
    for each in part.get("patternProperties", {}).values():
        yield from _keys_below(whole, each, (*path, "*"))
    if "items" in part:
        yield from _keys_below(whole, part["items"], (*path, "[]"))
    for each in (*part.get("oneOf", ()), *part.get("anyOf", ())):
        yield from _keys_below(whole, each, path)


def resolved(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema with what its `$ref` names; its own words win."""
    if "$ref" not in part:
        return part
    name = part["$ref"].removeprefix("#/$defs/")
    return {**whole["$defs"][name], **{word: value for word, value in part.items() if word != "$ref"}}
