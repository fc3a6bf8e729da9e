"""Comparison of one server's answers to a request at an older and a newer version, without values. Pure.

A path such as `$.nodes[*].extra.*` has `[*]` for items of a list, and `*` for keys that are data. A report
may be shown to anybody, so a key in doubt counts as data. What differs between the answers at the older
version changes by itself, and does not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.dialect import ProbeResponse

Difference: TypeAlias = tuple[str, str]
"""A path or `header NAME`, and what is there at the newer version: `added`, `changed` or `removed`."""
Answer: TypeAlias = ProbeResponse | str
"""An answer, or the reason why there is none that can be compared."""

_MISSING: Final = object()
_NAME: Final = re.compile(r"(?!(?=.*[0-9])[0-9a-fA-F-]{8})[A-Za-z_$@][A-Za-z0-9_$:-]{0,63}")
"""Key of an object, unless it looks like an id."""
_CONSTANT: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_FREE: Final = frozenset({"addresses", "annotations", "driver_info", "driver_internal_info", "extra"}) | {
    *("extra_specs", "instance_info", "labels", "metadata", "properties", "system_metadata")
}
"""Members of known APIs, in lower case, in which clients and operators keep what they like."""


class Result(StrEnum):
    """Result for a request or an operation, the worst one last."""

    NOT_COMPARED = "not compared"
    SAME = "the same"
    ADDITIONS = "only additions"
    CHANGED = "changed"
    STATUS = "status differs"
    REFUSED = "refused"


@final
class Comparison(NamedTuple):
    """Comparison of the answers to one request."""

    result: Result
    why: str = ""
    differences: frozenset[Difference] = frozenset()
    unstable: frozenset[str] = frozenset()
    """Paths that differ between the answers at the older version alone."""


def judge(older: Sequence[Answer], newer: Answer) -> Comparison:
    """Compare answers at the older version, at least two, with the one at the newer version."""
    answers = []
    for each in (*older, newer):
        if isinstance(each, str):
            return Comparison(Result.NOT_COMPARED, each)
        answers.append(each)
    *before, then = (each.status for each in answers)
    status = before[0]
    if before.count(status) < len(before):
        return Comparison(Result.NOT_COMPARED, "its status changes by itself")
    if status in {401, 403, 407, 429} or status >= 500 or (status >= 400 and then >= 400):
        hint = ", credentials are given by -H" if status == 401 else ""
        return Comparison(Result.NOT_COMPARED, f"status {status}{hint}")
    if status != then:
        result = Result.REFUSED if status < 400 <= then < 500 else Result.STATUS
        return Comparison(result, f"{status}, then {then}")
    first, *others, last = answers
    try:
        unstable = frozenset(path for each in others for path, _ in _between(first, each))
        found = frozenset(each for each in _between(first, last) if each[0] not in unstable)
    except (ValueError, RecursionError):
        return Comparison(Result.NOT_COMPARED, "not JSON")
    kinds = {kind for _, kind in found}
    result = Result.CHANGED if kinds - {"added"} else Result.ADDITIONS if kinds else Result.SAME
    return Comparison(result, "", found, unstable)


def _between(before: ProbeResponse, after: ProbeResponse) -> Iterator[Difference]:
    """Differences between two answers: names of headers, and the bodies. Raises `ValueError` for no JSON."""
    for name in before.headers.keys() ^ after.headers.keys():
        yield f"header {name}", "removed" if name in before.headers else "added"
    if before.body != after.body:
        yield from differences(json.loads(before.body), json.loads(after.body))


def differences(
    before: object, after: object, path: str = "$", *, free: bool = False
) -> Iterator[Difference]:
    """Differences between two bodies. `free`: all keys below are data."""
    if before is _MISSING or after is _MISSING:
        yield path, "added" if before is _MISSING else "removed"
    elif isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys((*before, *after))
        hidden = free or _are_data(keys, before.values()) or _are_data(keys, after.values())
        for key in keys:
            place = f"{path}.{'*' if hidden else key}"
            pair = before.get(key, _MISSING), after.get(key, _MISSING)
            yield from differences(*pair, place, free=free or key.lower() in _FREE)
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in _paired(before, after):
            yield from differences(one, other, f"{path}[*]", free=free)
    elif before != after or isinstance(before, bool) != isinstance(after, bool):  # to Python, true is 1
        yield path, "changed"


def _are_data(keys: Collection[str], values: Collection[object]) -> bool:
    """Whether the keys of an object are data: one is no name, all are constants (resource classes), or many
    values are objects with the same keys, as those of a map are."""
    if not all(map(_NAME.fullmatch, keys)) or (keys and all(map(_CONSTANT.fullmatch, keys))):
        return True
    shapes = {frozenset(each) if isinstance(each, dict) else None for each in values}
    return len(values) > 1 and len(shapes) == 1 and None not in shapes


def _paired(before: Sequence[object], after: Sequence[object]) -> Iterator[tuple[object, object]]:
    """Items of two lists: those with the same identity, or else at the same place."""
    for name in ("uuid", "id", "name", "rel"):
        one, other = (
            {str(each[name]): each for each in items if isinstance(each, dict) and name in each}
            for items in (before, after)
        )
        if one and len(one) == len(before) and len(other) == len(after):
            return ((one.get(key, _MISSING), other.get(key, _MISSING)) for key in {**one, **other})
    return zip_longest(before, after, fillvalue=_MISSING)
