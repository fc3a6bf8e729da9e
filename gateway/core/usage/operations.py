"""Operations of requests, as the record of usage names them: `GET /v1/nodes/{id}`.

A path that matches an entry of `operations` counts under its template. Any other counts under its first three
segments, without the version's place: numbers, UUIDs and 32 hex digits are `{id}`, and a longer path ends in
`/…`. Clients choose paths, so a segment has at most `MAX_SEGMENT` characters here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
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
_LONG_ID: Final = re.compile(f"/({_UUID}|{_HEX}{{32}}+)(?=[/\n])".encode())
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_ALIKE: Final = bytes.maketrans(_HEX_DIGITS, b"0" * len(_HEX_DIGITS))
_MANY: Final = 40
"""Paths from which on it is cheaper to compare them with the first one than to look for ids in each."""


def count_paths(service: Service, text: str) -> Mapping[str, int]:
    """Count paths, mostly those of one operation as one path. `text`: paths with the prefix of the service,
    which is removed, each with a line end. A thousand are cheaper together than one by one."""
    prefix, lines = _count_lines(service, text)
    if not prefix:
        return lines
    start = len(prefix)
    return {line[start:] or "/": requests for line, requests in lines.items()}


def _count_lines(service: Service, text: str) -> tuple[str, Mapping[str, int]]:
    """Count paths with their prefix. Returns the prefix that they have then."""
    prefix, number, end = service.match.prefix, text.count("\n"), text.find("\n")
    if not (service.operations or service.dialect.target_has_version):
        # Else a number may be literal in a template, or the version.
        prefix = _without_ids(prefix) if prefix else ""
        if number >= _MANY and _differ_in_ids(text.encode(), number):
            return prefix, {_without_ids(text[:end]): number}
        text = _IDS.sub("/{id}", text)
        end = text.find("\n")
    first = text[: end + 1]
    if text == first * number:  # all are one operation, so no line has to be cut out
        return prefix, {first[:-1]: number} if number else {}
    counted = Counter(text.split("\n"))
    del counted[""]  # it is behind the last line; no line is empty
    return prefix, counted


def _without_ids(path: str) -> str:
    return _IDS.sub("/{id}", path + "\n")[:-1]


def _differ_in_ids(text: bytes, number: int) -> bool:
    """Whether all lines of a text, each with its end, differ in UUIDs or 32 hex digits only, and so are one
    operation. Four times as fast as to look for the ids of each. `number`: how many lines there are."""
    size = text.find(b"\n") + 1
    line = bytearray(text[:size])
    if text.translate(_ALIKE) != line.translate(_ALIKE) * number:
        return False
    # All are of one length, and only hex digits differ: those of each column outside of ids must not.
    for found in _LONG_ID.finditer(text, 0, size):
        begins, ends = found.span(1)
        line[begins:ends] = b"-" * (ends - begins)
    rest = bytes(line)  # mypyc enumerates no bytearray
    return all(text[at::size].count(byte) == number for at, byte in enumerate(rest) if byte in _HEX_DIGITS)


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
