"""What Chef clients can ask the gateway about versions: the offer, and which operations exist in it.

A brick of the Chef dialect, not a dialect. The documents are those of RFC 041, of which no server has the
extended one; statuses and headers are the dialect's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from gateway.core.dialect import Bounds, Place
from gateway.core.operations import NEXT, Operation, Operations, PathTemplate
from gateway.core.ranges import VersionSet

OWN_DOCUMENT: Final = Place("server_api_version", negotiated=False, answered=True)
EXTENDED: Final = Place("server_api_version/extended", negotiated=False, answered=True, metered=True)

MOST_VERSIONS: Final = 100
"""The newest on offer that are told of each operation. Chef Server has three; one may claim a million."""

Element: TypeAlias = Mapping[str, str | int]


def document_place(rest: str) -> Place | None:
    """The document at `/server_api_version/` and `rest`; None: it is not one of ours."""
    below = rest.strip("/")
    if not below:
        return OWN_DOCUMENT
    return EXTENDED if below == "extended" or below.startswith("extended/") else None


def tell(place: Place, path: str, bounds: Bounds, operations: Operations) -> Mapping[str, object] | None:
    """The document at `path`. None: an endpoint is asked for of which nothing is known in this offer."""
    if place == OWN_DOCUMENT:
        return {"min_api_version": bounds.lowest[0], "max_api_version": bounds.highest[0]}
    wanted = path.partition("extended")[2].strip("/")
    if not wanted:
        return {"endpoints": _endpoints(bounds, operations)}
    method, _, endpoint = wanted.partition("/")
    # A path as in the document, `/users/:user`, finds it as well: anything stands for a placeholder.
    found = operations.find(method, endpoint)
    elements = _elements(found, bounds) if found is not None else []
    return {"name": found.path.spoken, "versions": elements} if found is not None and elements else None


def _endpoints(bounds: Bounds, operations: Operations) -> list[Mapping[str, object]]:
    """Every path of which something exists in the offer or is to come, in the order of the file."""
    by_path: dict[PathTemplate, list[Element]] = {}
    for operation in operations.listed:
        by_path.setdefault(operation.path, []).extend(_elements(operation, bounds))
    return [{"name": path.spoken, "versions": elements} for path, elements in by_path.items() if elements]


def _elements(operation: Operation, bounds: Bounds) -> list[Element]:
    """One for each version on offer, oldest first, and then one for what is to come."""
    since = max(bounds.lowest, bounds.highest.step(1 - MOST_VERSIONS))
    newest = VersionSet.between(since, bounds.highest)
    statuses = {
        version[0]: entry.status.value
        for entry in operation.entries
        for version in entry.versions.within(newest)
    }
    told: list[tuple[str | int, str]] = sorted(statuses.items())
    told += [(NEXT, entry.status.value) for entry in operation.entries if not entry.versions][:1]
    return [{"method": operation.method, "version": version, "status": status} for version, status in told]
