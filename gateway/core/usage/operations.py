"""Operations of requests, as the record of usage names them: `GET /v1/nodes/{id}`.

A path that matches an entry of `operations` counts under its template. Any other counts under its first three
segments, without the version's place: numbers, UUIDs and 32 hex digits are `{id}`, and a longer path ends in
`/…`. Clients choose paths, so a segment has at most `MAX_SEGMENT` characters here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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


def count_paths(service: Service, paths: Sequence[str]) -> Mapping[str, int]:
    """Count paths, mostly those of one operation as one path. `paths`: with the prefix of the service, which
    is removed. A thousand are cheaper together than one by one."""
    prefix, texts = _count_texts(service, paths)
    if not prefix:
        return texts
    start = len(prefix)
    return {text[start:] or "/": requests for text, requests in texts.items()}


def _count_texts(service: Service, paths: Sequence[str]) -> tuple[str, Mapping[str, int]]:
    """Count paths with their prefix. Returns the prefix that they have then."""
    prefix, number = service.match.prefix, len(paths)
    if number < 2 or (paths[0] == paths[-1] and paths.count(paths[0]) == number):
        return prefix, dict.fromkeys(paths[:1], number)  # clients do one thing again and again
    if service.operations or service.dialect.target_has_version:
        return prefix, Counter(paths)  # a number may be literal in a template, or the version
    text = "\n".join(paths) + "\n"
    if number >= _MANY and _differ_in_ids(text.encode(), number):
        return _without_ids(prefix), {_without_ids(paths[0]): number}
    return _without_ids(prefix), _count_lines(_IDS.sub("/{id}", text), number)


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


def _count_lines(text: str, number: int) -> Mapping[str, int]:
    """Count the lines of a text, each with its end. `number`: how many there are."""
    end = text.find("\n") + 1
    line = text[:end]
    if text == line * number:  # all are one operation, so no line has to be cut out
        return {line[:-1]: number}
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
