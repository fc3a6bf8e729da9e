"""The documents about versions that the gateway serves to Chef clients: the offer, and the operations in it.

Not a dialect. The documents are those of RFC 041; no server has the extended one. Statuses and headers belong
to the dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from gateway.core.decision.operations import NEXT, Operation, Operations, PathTemplate
from gateway.core.dialect import Endpoint, OfferedVersions
from gateway.core.versions.ranges import VersionSet

VERSION_DOCUMENT: Final = Endpoint("server_api_version", negotiated=False, answered=True)
EXTENDED_DOCUMENT: Final = Endpoint(
    "server_api_version/extended", negotiated=False, answered=True, rate_limited=True
)

MAX_VERSIONS: Final = 100
"""How many versions on offer are listed for each operation, from the newest down. Chef Server has three, but
a backend may claim a million."""

Element: TypeAlias = Mapping[str, str | int]


def document_endpoint(rest: str) -> Endpoint | None:
    """The document at `/server_api_version/` and `rest`; None when there is none."""
    below = rest.strip("/")
    if not below:
        return VERSION_DOCUMENT
    return EXTENDED_DOCUMENT if below == "extended" or below.startswith("extended/") else None


def write_document(
    endpoint: Endpoint, path: str, offered: OfferedVersions, operations: Operations
) -> Mapping[str, object] | None:
    """The document at `path`. None: `path` names an operation that has no version on offer."""
    if endpoint == VERSION_DOCUMENT:
        return {"min_api_version": offered.lowest[0], "max_api_version": offered.highest[0]}
    wanted = path.partition("extended")[2].strip("/")
    if not wanted:
        return {"endpoints": _endpoints(offered, operations)}
    method, _, operation_path = wanted.partition("/")
    # The spelling of the document, `/users/:user`, is found as well: any text matches a placeholder.
    operation = operations.find(method, operation_path)
    elements = _elements(operation, offered) if operation is not None else []
    if operation is None or not elements:
        return None
    return {"name": operation.path.rfc041_text, "versions": elements}


def _endpoints(offered: OfferedVersions, operations: Operations) -> list[Mapping[str, object]]:
    """Every path with an operation that is on offer or comes next, in the order of the configuration."""
    by_path: dict[PathTemplate, list[Element]] = {}
    for operation in operations.listed:
        by_path.setdefault(operation.path, []).extend(_elements(operation, offered))
    return [
        {"name": path.rfc041_text, "versions": elements} for path, elements in by_path.items() if elements
    ]


def _elements(operation: Operation, offered: OfferedVersions) -> list[Element]:
    """One element for each version on offer, oldest first, then one for the version that comes next."""
    since = max(offered.lowest, offered.highest.step(1 - MAX_VERSIONS))
    newest = VersionSet.between(since, offered.highest)
    statuses = {
        version[0]: rule.status.value for rule in operation.rules for version in rule.versions & newest
    }
    rows: list[tuple[str | int, str]] = sorted(statuses.items())
    rows += [(NEXT, rule.status.value) for rule in operation.rules if not rule.versions][:1]
    return [{"method": operation.method, "version": version, "status": status} for version, status in rows]
