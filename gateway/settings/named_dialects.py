"""The dialects that a file names: for a file without mistakes, all that reading it takes.

Each dialect is code and a section of the model, and most gateways need one. Where a file names something that
is no dialect, all of them are known: messages list them, and tell which was meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.dialect import Dialect
from gateway.dialects import discover, find
from gateway.settings.model.service import SERVICE
from gateway.settings.yaml.tree import MappingNode, Node, Scalar


def named_dialects(services: Node | None) -> Mapping[str, type[Dialect]]:
    """The dialects of the services, and those whose options any of them has."""
    found: dict[str, type[Dialect]] = {}
    for name in _names(services):
        dialect = find(name)
        if dialect is None:
            return discover()
        found[name] = dialect
    return found


def _names(services: Node | None) -> set[str]:
    """What must be names of dialects in a file without mistakes."""
    names: set[str] = set()
    for entry in services.entries.values() if isinstance(services, MappingNode) else ():
        if isinstance(service := entry.value, MappingNode):
            written = service.entries.get("dialect")
            names.add(written.value.text if written and isinstance(written.value, Scalar) else "")
            names |= service.entries.keys() - SERVICE.keys.keys()
    return names
