"""TRANSLATES: one file, one dialect; no dialect knows another, none performs I/O.

A new dialect is one new file here: a module whose name is the dialect's, with exactly one public subclass of
`core.dialect.Dialect` of the same `name`. Nothing else needs to be told (decision 0009). A leading underscore
marks bricks that several dialects share, not a dialect.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from gateway.core.dialect import Dialect


@cache
def discover() -> Mapping[str, type[Dialect]]:
    """Every dialect by name. Raises `TypeError` when a file does not hold exactly one dialect of its own
    name."""
    found: dict[str, type[Dialect]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.name.startswith("_"):
            continue
        module = import_module(f"{__name__}.{module_info.name}")
        classes = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Dialect) and each.__module__ == module.__name__
        ]
        if len(classes) != 1 or classes[0].name != module_info.name:
            raise TypeError(f"{module.__name__} must define exactly one dialect, named {module_info.name!r}")
        found[module_info.name] = classes[0]
    return MappingProxyType(found)
