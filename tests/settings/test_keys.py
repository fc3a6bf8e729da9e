"""The declarations of keys: what the type of a field says is what its kind reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from gateway.keys.kinds import Key, Section, section
from gateway.settings.schema import file_section, keys_of
from gateway.settings.sections.file import FILE

SECTIONS = {key.kind.title: key.kind for _, key in keys_of(file_section()) if isinstance(key.kind, Section)}


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of the type that an annotation says."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inside)
    if origin is Literal:
        return value in inside
    if origin in (tuple, frozenset):
        return isinstance(value, origin) and all(fits(each, inside[0]) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(each, inside[1]) for each in value.values())
    return type(value) is hint or (hint not in (int, float, str) and isinstance(value, hint))


def declared() -> Iterator[tuple[str, Key, type, str]]:
    """Each key of a section that is a dataclass: its name, itself, its class and its field."""
    for each in [FILE, *SECTIONS.values()]:
        if is_dataclass(each.make) and isinstance(each.make, type):
            for name, key in each.keys.items():
                yield f"{each.title}.{name}", key, each.make, name


@pytest.mark.interpreted("a compiled class does not keep its annotations whole")
@pytest.mark.parametrize("key, of, name", [pytest.param(*each[1:], id=each[0]) for each in declared()])
def test_default_and_example_are_of_the_type_of_the_field(key: Key, of: type, name: str) -> None:
    hint = get_type_hints(of)[name]

    assert fits(key.kind.value(key.example), hint)
    if not key.is_required:
        assert fits(None if key.default is None else key.kind.value(key.default), hint)


def test_the_default_of_the_field_is_that_of_the_key() -> None:
    for _, key, of, name in declared():
        if not key.is_required and key.default is not None:
            [own] = [each for each in fields(of) if each.name == name]
            made = own.default_factory() if callable(own.default_factory) else own.default
            assert made == key.kind.value(key.default)


def test_a_section_without_a_sentence_is_refused() -> None:
    """A compiled class has no docstring."""

    class Silent:
        pass

    with pytest.raises(TypeError, match="Silent needs a sentence"):
        section(Silent)
