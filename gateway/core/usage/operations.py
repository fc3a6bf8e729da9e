"""Operations of requests, as the record of usage names them: `GET /v1/nodes/{id}`.

A path that matches an entry of `operations` counts under its template. Any other counts under its first three
segments, without the version's place: numbers, UUIDs and 32 hex digits are `{id}`, and a longer path ends in
`/…`. Clients choose paths, so a segment has at most `MAX_SEGMENT` characters here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gateway.core.decision.operations import segments_of
from gateway.core.fleet.service import Service

MAX_SEGMENT: Final = 64
SEGMENTS: Final = 3
"""Segments of a path in the name of an operation: more would name every part of a resource."""

_HEX: Final = "[0-9a-fA-F]"
# No repeat ever has to give anything back: a seventh faster with `+` behind it.
_UUID: Final = f"{_HEX}{{8}}+-{_HEX}{{4}}+-{_HEX}{{4}}+-{_HEX}{{4}}+-{_HEX}{{12}}+"
_ID: Final = re.compile(f"(?:{_UUID}|[0-9]++|{_HEX}{{32}}+)")
# The look-ahead fails at once in most segments: three times as fast as without it.
_IDS: Final = re.compile(f"/(?={_HEX}){_ID.pattern}(?=[/\n])")


def count_operations(service: Service, method: str, paths: Sequence[str]) -> Counter[str]:
    """Count the requests of each operation of a service. `paths`: those of requests with `method`, with the
    prefix of the service. A thousand paths are cheaper together than one by one."""
    prefix = service.match.prefix
    if service.operations or service.dialect.target_has_version:
        texts = Counter(paths)  # a number may be literal in a template, or the version
    else:
        texts = _count_lines(_IDS.sub("/{id}", "\n".join((*paths, ""))), len(paths))
        prefix = _IDS.sub("/{id}", prefix + "\n")[:-1]
    start = len(prefix)
    counted: Counter[str] = Counter()
    for path, requests in texts.items():
        counted[operation_of(service, method, path[start:] or "/")] += requests
    return counted


def _count_lines(text: str, number: int) -> Counter[str]:
    """Count the lines of a text, each with its end. `number`: how many there are."""
    end = text.find("\n") + 1
    line = text[:end]
    if text == line * number:  # clients do one thing again and again: no line has to be cut out
        return Counter({line[:-1]: number})
    counted = Counter(text.split("\n"))
    del counted[""]  # it is behind the last line; no line is empty
    return counted


def operation_of(service: Service, method: str, path: str) -> str:
    """Name the operation of a request. `path`: as the API itself sees it."""
    plain = service.dialect.operation_path(path)
    found = service.operations.find(method, plain)
    if found is not None:
        return f"{method} {found.path.text}"
    segments = segments_of(plain)
    shown = ["{id}" if _ID.fullmatch(one) else _bounded(one) for one in segments[:SEGMENTS]]
    if len(segments) > SEGMENTS:
        shown.append("…")
    return f"{method} /{'/'.join(shown)}"


def _bounded(segment: str) -> str:
    return segment if len(segment) <= MAX_SEGMENT else f"{segment[: MAX_SEGMENT - 1]}…"
