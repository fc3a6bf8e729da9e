"""Spellings of a name or a path that servers take for one: letter case, escapes, signs that are dropped.

A server may read a name in more ways than the one in the configuration. So the locations compare every
spelling that some server takes for the configured one. Nothing here knows an option, and nothing from the
network makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

from gateway.core.decision.operations import segments_of

MOST_DECODINGS: Final = 3
"""Number of times that nested escapes are decoded: a server behind a second proxy decodes twice."""

_I_WITHOUT_CASE: Final = str.maketrans("\u0130\u0131", "ii")
"""Turkish i with and without a dot, which Unicode does not fold to `i`, but Python's `(?i)` does."""
_SLASHES: Final = re.compile("//+")
_BRACKETS: Final = re.compile(r"[\[\]]+")
_WIDE_ESCAPE: Final = re.compile("%u([0-9a-fA-F]{4})")
"""Pattern for an escape such as `%u0076`, which ASP.NET decodes."""


def without_case(text: str) -> str:
    """The text as readers that ignore case compare it. Two texts that any of them takes for one are equal."""
    return text.lower() if text.isascii() else text.translate(_I_WITHOUT_CASE).casefold()


def letters_and_digits(text: str) -> str:
    """The letters and digits of a text in lower case, without any other sign."""
    return "".join(filter(str.isalnum, without_case(text)))


class Likeness(Enum):
    """Likeness of a query parameter's name to the configured one, as servers may read it."""

    NONE = "none"
    SAME = "same"
    DISGUISED = "disguised"
    """Likeness: the name is another one, but some server takes it for the configured one."""


def likeness(ours: str, name: str) -> Likeness:
    """The likeness of a query parameter's `name` to `ours`. Disguised: the same letters and digits."""
    if unquote_plus(name) == ours:
        return Likeness.SAME
    wanted = letters_and_digits(ours)
    found = any(letters_and_digits(reading) == wanted for reading in _readings(name))
    return Likeness.DISGUISED if found else Likeness.NONE


known_likeness = lru_cache(maxsize=1024)(likeness)
"""Cached `likeness` of parameters: clients of a fleet send the same few names. Long ones are not cached."""


def _readings(name: str) -> Iterator[str]:
    """The names that servers read in a parameter's name. PHP ends it at a NUL. PHP, Rack and qs (Express)
    take `name[]` for `name`; Rack 2 and qs also take `[name]` for it."""
    for _ in range(MOST_DECODINGS):
        name = unquote_plus(_WIDE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), name))
        before_nul = name.partition("\0")[0]
        yield name
        yield before_nul
        yield next(filter(None, _BRACKETS.split(before_nul)), "")
        if "%" not in name:
            return


def normalized(path: str) -> str:
    """The path as lenient readers see it: escapes decoded, without path parameters and empty segments."""
    if "%" not in path and ";" not in path and "//" not in path:
        return path
    segments = (segment.partition(";")[0] for segment in unquote(path).split("/"))
    return _SLASHES.sub("/", "/".join(segments))


def comparable(path: str, suffixes: tuple[str, ...]) -> str:
    """The path as it is compared with a configured one: `normalized`, without case, slash at the end and
    suffix."""
    if suffixes:
        path = without_suffix(path, suffixes)
    if "%" in path or ";" in path or "//" in path or path[-1:] == "/":
        path = "/" + "/".join(segments_of(path))
    return path.lower() if path.isascii() else without_case(path)


def end_of_prefix(path: str, prefix: str) -> int | None:
    """The offset in `path` where `prefix` ends; None: it does not begin with these segments."""
    if not prefix:
        return 0 if path[:1] == "/" else None
    end = len(prefix)
    if path.startswith(prefix) and path[end : end + 1] in ("", "/"):
        return end
    if "%" in path:
        depth = prefix.count("/") + 1
        end = len("/".join(path.split("/", depth)[:depth]))
    start = path[:end]
    if path[end : end + 1] not in ("", "/") or without_case(unquote(start)) != without_case(prefix):
        return None
    return end


def without_suffix(path: str, suffixes: tuple[str, ...]) -> str:
    """The path without one of `suffixes` (lower case), in which servers read the client's media type."""
    if not suffixes or ("." not in path and "%" not in path):
        return path
    segments = segments_of(path)
    last = segments[-1] if segments else ""
    for suffix in suffixes:
        name = last[: -len(suffix)]
        if name and without_case(last[len(name) :]) == suffix:
            return "/" + "/".join(quote(segment, safe="") for segment in (*segments[:-1], name))
    return path
