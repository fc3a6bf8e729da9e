"""A dialect's options: its dataclass as a section of the file's model, and what was read as the dataclass.

Fields may be texts, numbers, flags, words of a `Literal`, dataclasses again, lists of all these, and each of
them or nothing. A field's `metadata` holds `description`, `examples` and `reason`, and may say that its text
is a `version` or has several `lines`. Knows no dialect and no option.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import create_model

from gateway.core.dialect import Dialect
from gateway.settings.reading import Reads
from gateway.settings.scalars import Flag, Lines, Text, VersionText, read_count
from gateway.settings.section import Section, key, required

Options = TypeVar("Options")

_PLAIN_TYPES: Final[Mapping[object, object]] = {
    bool: Flag,
    int: Annotated[int, Reads(read_count, {"type": "integer", "minimum": 0}, (int,))],
    str: Text,
}
_TEXTS: Final[Mapping[str, object]] = {"version": VersionText, "lines": Lines}


@cache
def options_model(dialect: type[Dialect]) -> type[Section]:
    """The section for a dialect's own options, from its dataclass."""
    name = f"{dialect.name.title()}Options"
    return _section(dialect.Options, name, f"Options of the {dialect.name} dialect.")


def _section(options: type, name: str, doc: str) -> type[Section]:
    hints = get_type_hints(options, include_extras=True)
    fields: dict[str, Any] = {}
    for each in dataclasses.fields(options):
        examples = tuple(each.metadata.get("examples", ()))
        about: dict[str, Any] = {
            "description": each.metadata.get("description", ""),
            "reason": each.metadata.get("reason", "What its servers do."),
        }
        default = _default(each)
        about["example"] = examples[0] if examples else default
        made = required(**about) if default is dataclasses.MISSING else key(default, **about)
        fields[each.name] = (_type(hints[each.name], each.metadata), made)
    return create_model(name, __base__=Section, __doc__=doc, **fields)


def _type(hint: Any, metadata: Mapping[str, object]) -> Any:  # noqa: ANN401
    """The model's type for a field's."""
    if get_origin(hint) in (Union, UnionType):
        [inner] = [each for each in get_args(hint) if each is not NoneType]
        return _type(inner, metadata) | None
    if get_origin(hint) is tuple:
        return tuple.__class_getitem__((_type(get_args(hint)[0], metadata), ...))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _section(hint, hint.__name__, (hint.__doc__ or "").strip())
    if hint is str:
        return next((kind for word, kind in _TEXTS.items() if metadata.get(word)), Text)
    return _PLAIN_TYPES.get(hint, hint)


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """A field's default as an operator would write it; `MISSING` without one."""
    made = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return _written(made)


def _written(value: Any) -> Any:  # noqa: ANN401
    """What must be written to get `value`: of a dataclass what is not default anyway."""
    if isinstance(value, tuple):
        return tuple(map(_written, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    told = ((each, getattr(value, each.name)) for each in dataclasses.fields(value))
    return {each.name: _written(said) for each, said in told if _written(said) != _default(each)}


def read_options(section: Section, options: type[Options]) -> Options:
    """The dataclass from what was read."""
    hints = get_type_hints(options)
    fields = dataclasses.fields(options)  # type: ignore[arg-type]
    return options(**{each.name: _value(getattr(section, each.name), hints[each.name]) for each in fields})


def _value(value: Any, hint: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        return tuple(_value(each, get_args(hint)[0]) for each in value)
    if isinstance(value, Section):
        kinds = (hint, *get_args(hint))
        kind: Any = next(each for each in kinds if dataclasses.is_dataclass(each))
        return read_options(value, kind)
    return value
