"""TRANSLATES: each API family is one file or one folder. No family imports another, and none performs I/O.

A new dialect is one new file or one new folder here (decision 0020). A file holds the dialect of the same
name. A folder holds one family: a module that defines a public subclass of `core.dialect.Dialect` is one
dialect, named after the module or the folder, and the other modules are code that these dialects share.
Nothing has to be registered.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType

from gateway.core.dialect import Dialect


@cache
def discover() -> Mapping[str, type[Dialect]]:
    """Every dialect by name.

    Raises `TypeError` when a file or a folder has no dialect, when a module has two, and when a name is used
    twice or matches neither the module nor the folder in which it is defined.
    """
    dialects_by_name: dict[str, type[Dialect]] = {}
    for family in pkgutil.iter_modules(__path__):
        dialects = list(_dialects_of(family.name, is_folder=family.ispkg))
        if not dialects:
            raise TypeError(f"{__name__}.{family.name} defines no dialect")
        for dialect in dialects:
            if dialect.name in dialects_by_name:
                raise TypeError(f"two dialects are named {dialect.name!r}")
            dialects_by_name[dialect.name] = dialect
    return MappingProxyType(dict(sorted(dialects_by_name.items())))


def _dialects_of(family: str, *, is_folder: bool) -> Iterator[type[Dialect]]:
    package = import_module(f"{__name__}.{family}")
    modules = [package]
    if is_folder:
        names = [found.name for found in pkgutil.iter_modules(package.__path__)]
        modules += [import_module(f"{package.__name__}.{name}") for name in names]
    for module in modules:
        dialect = _dialect_of(module)
        if dialect is not None:
            if dialect.name not in {family, module.__name__.rpartition(".")[2]}:
                raise TypeError(
                    f"{module.__name__}: its dialect must be named after the module or the folder"
                )
            yield dialect


def _dialect_of(module: ModuleType) -> type[Dialect] | None:
    """The public dialect that `module` itself defines."""
    classes = [
        found
        for name, found in vars(module).items()
        if isinstance(found, type)
        and issubclass(found, Dialect)
        and found.__module__ == module.__name__
        and not name.startswith("_")
    ]
    if len(classes) > 1:
        raise TypeError(f"{module.__name__} defines more than one dialect")
    return classes[0] if classes else None
