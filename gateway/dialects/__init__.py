"""TRANSLATES: each API family is one file or one folder. No family imports another, and none performs I/O.

A file holds the dialect of the same name. A folder holds one family: each module with a public, concrete
subclass of `core.dialect.Dialect` is one dialect, named after the module or the folder; the other modules are
shared code. Nothing has to be registered (decision 0020), and a dialect is found by its name without
importing the others.

What holds for every API belongs to `core`, where no code knows a dialect by name; what an operator writes
about any service belongs to `settings`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import MappingProxyType, ModuleType

from gateway.core.dialect import Dialect


@cache
def discover() -> Mapping[str, type[Dialect]]:
    """All dialects by name. Raises `TypeError` for a file or folder that defines none of its name."""
    dialects_by_name: dict[str, type[Dialect]] = {}
    for family in pkgutil.iter_modules(__path__):
        dialects = list(_dialects_of(family))
        if not dialects:
            raise TypeError(f"{__name__}.{family.name} defines no dialect")
        for dialect in dialects:
            if dialect.name in dialects_by_name:
                raise TypeError(f"two dialects are named {dialect.name!r}")
            dialects_by_name[dialect.name] = dialect
    return MappingProxyType(dict(sorted(dialects_by_name.items())))


def find(name: str) -> type[Dialect] | None:
    """The dialect of this name; None: there is none. Imports only modules that may define it."""
    for family in pkgutil.iter_modules(__path__):
        for dialect in _dialects_of(family, name):
            if dialect.name == name:
                return dialect
    return None


def _dialects_of(family: pkgutil.ModuleInfo, name: str | None = None) -> Iterator[type[Dialect]]:
    """The dialects of one family; with `name`, only those of modules that may define one of that name."""
    for module_name in _modules_of(family):
        last = module_name.rpartition(".")[2]
        if name not in {None, family.name, last}:
            continue
        dialect = _dialect_of(import_module(module_name))
        if dialect is not None:
            if dialect.name not in {family.name, last}:
                raise TypeError(f"{module_name}: its dialect must be named after the module or the folder")
            yield dialect


def _modules_of(family: pkgutil.ModuleInfo) -> list[str]:
    """Names of the modules of one family: the file's module, or the folder's package and its modules."""
    whole = f"{__name__}.{family.name}"
    inside = pkgutil.iter_modules(import_module(whole).__path__) if family.ispkg else ()
    return [whole, *(f"{whole}.{found.name}" for found in inside)]


def _dialect_of(module: ModuleType) -> type[Dialect] | None:
    classes = [
        found
        for name, found in vars(module).items()
        if isinstance(found, type)
        and issubclass(found, Dialect)
        and found.__module__ == module.__name__
        and not name.startswith("_")
        and not isabstract(found)
    ]
    if len(classes) > 1:
        raise TypeError(f"{module.__name__} defines more than one dialect")
    return classes[0] if classes else None
