"""A dialect's options: from its dataclass to a section of the model, and from the values to the dataclass.

A field may be a text, a number, a flag, a word of a `Literal`, a dataclass, or a list of these. Each may be
optional. The `metadata` of a field has `description`, `examples` and `reason`. It may also say that the text
is a `version` or has several `lines`. This module knows no dialect and no option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import create_model

from gateway.core.configuration_rules import ProbePaths
from gateway.core.dialect import Dialect
from gateway.settings.model.fields import (
    Flag,
    Lines,
    Section,
    Text,
    TextReader,
    VersionText,
    key,
    one_of,
    read_count,
    required,
)

Options = TypeVar("Options")

_PLAIN_TYPES: Final[Mapping[object, object]] = {
    bool: Flag,
    int: Annotated[int, TextReader(read_count, {"type": "integer", "minimum": 0}, (int,))],
    str: Text,
}
_TEXTS: Final[Mapping[str, object]] = {"version": VersionText, "lines": Lines}


@cache
def options_model(dialect: type[Dialect]) -> type[Section]:
    """The section for a dialect's options, made from its dataclass."""
    name = f"{dialect.name.title()}Options"
    return _section(dialect.Options, name, f"Options of the {dialect.name} dialect.")


def _section(options: type, name: str, doc: str) -> type[Section]:
    hints = get_type_hints(options, include_extras=True)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        if hints[field.name] is ProbePaths:
            continue
        examples = tuple(field.metadata.get("examples", ()))
        about: dict[str, Any] = {
            "description": field.metadata.get("description", ""),
            "reason": field.metadata.get("reason", "What the dialect's servers do."),
        }
        default = _default(field)
        about["example"] = examples[0] if examples else default
        declared = required(**about) if default is dataclasses.MISSING else key(default, **about)
        fields[field.name] = (_type(hints[field.name], field.metadata), declared)
    return create_model(name, __base__=Section, __doc__=doc, **fields)


def _type(hint: Any, metadata: Mapping[str, object]) -> Any:  # noqa: ANN401
    """The model's type for the type of a field."""
    if get_origin(hint) in (Union, UnionType):
        [inner] = [part for part in get_args(hint) if part is not NoneType]
        return _type(inner, metadata) | None
    if get_origin(hint) is tuple:
        return tuple.__class_getitem__((_type(get_args(hint)[0], metadata), ...))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _section(hint, hint.__name__, (hint.__doc__ or "").strip())
    if get_origin(hint) is Literal:
        return Annotated[str, one_of(*get_args(hint))]
    if hint is str:
        return next((text for flag, text in _TEXTS.items() if metadata.get(flag)), Text)
    return _PLAIN_TYPES.get(hint, hint)


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """A field's default as an operator would write it; `MISSING` without one."""
    value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return _written(value)


def _written(value: Any) -> Any:  # noqa: ANN401
    """What an operator writes to get `value`. Of a dataclass: only what differs from the defaults."""
    if isinstance(value, tuple):
        return tuple(map(_written, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    written = ((field, _written(getattr(value, field.name))) for field in dataclasses.fields(value))
    return {field.name: part for field, part in written if part != _default(field)}


def read_options(section: Section, options: type[Options], probes: ProbePaths | None = None) -> Options:
    """The dataclass, made from the section's values. `probes`: for an option that the operator does not write
    here."""
    hints = get_type_hints(options)
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    values = {
        field.name: probes or ProbePaths()
        if hints[field.name] is ProbePaths
        else _value(getattr(section, field.name), hints[field.name])
        for field in fields
    }
    return options(**values)


def _value(value: Any, hint: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        listed: Any = next(part for part in (hint, *get_args(hint)) if get_origin(part) is tuple)
        return tuple(_value(item, get_args(listed)[0]) for item in value)
    if isinstance(value, Section):
        part: Any = next(part for part in (hint, *get_args(hint)) if dataclasses.is_dataclass(part))
        return read_options(value, part)
    return value
