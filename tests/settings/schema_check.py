"""A validator for the part of JSON Schema that our schema uses. An unknown keyword is an error."""

from __future__ import annotations

import re
from typing import Any

KNOWN = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "examples", "x-reason", "x-workers"),
    "writeOnly",
    *(
        "type",
        "enum",
        "const",
        "pattern",
        "minLength",
        "minimum",
        "maximum",
        "items",
        "minItems",
        "minProperties",
    ),
    *(
        "properties",
        "patternProperties",
        "propertyNames",
        "additionalProperties",
        "required",
        "oneOf",
        "anyOf",
    ),
}
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": (list, tuple),
}


def accepts(whole: dict[str, Any], value: object) -> bool:
    """Whether the schema accepts `value`, which comes from a YAML reader with types."""
    return _accepts(whole, whole, value)


def _accepts(whole: dict[str, Any], part: dict[str, Any], value: object) -> bool:
    assert part.keys() <= KNOWN, part.keys() - KNOWN
    if "$ref" in part and not _accepts(whole, whole["$defs"][part["$ref"].removeprefix("#/$defs/")], value):
        return False
    if "anyOf" in part and not any(_accepts(whole, each, value) for each in part["anyOf"]):
        return False
    if "oneOf" in part and sum(_accepts(whole, each, value) for each in part["oneOf"]) != 1:
        return False
    return _right_type(part, value) and _right_value(part, value) and _right_content(whole, part, value)


def _right_type(part: dict[str, Any], value: object) -> bool:
    names = part.get("type", [])
    names = [names] if isinstance(names, str) else names
    if not names:
        return True
    return any(
        isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in names
    )


def _right_value(part: dict[str, Any], value: object) -> bool:
    if "enum" in part and value not in part["enum"]:
        return False
    if "const" in part and value != part["const"]:
        return False
    if isinstance(value, str):
        return len(value) >= part.get("minLength", 0) and bool(re.search(part.get("pattern", ""), value))
    if isinstance(value, int):
        return bool(part.get("minimum", value) <= value <= part.get("maximum", value))
    return True


def _right_content(whole: dict[str, Any], part: dict[str, Any], value: object) -> bool:
    if isinstance(value, list | tuple):
        enough = len(value) >= part.get("minItems", 0)
        return enough and all(_accepts(whole, part.get("items", {}), item) for item in value)
    if not isinstance(value, dict):
        return True
    if len(value) < part.get("minProperties", 0) or not set(part.get("required", ())) <= value.keys():
        return False
    if not all(_accepts(whole, part.get("propertyNames", {}), name) for name in value):
        return False
    for name, each in value.items():
        patterns = [
            schema
            for pattern, schema in part.get("patternProperties", {}).items()
            if re.search(pattern, name)
        ]
        schema = part.get("properties", {}).get(name) or (patterns[0] if patterns else None)
        if schema is None:
            schema = part.get("additionalProperties", {})
        if schema is False or (isinstance(schema, dict) and not _accepts(whole, schema, each)):
            return False
    return True
