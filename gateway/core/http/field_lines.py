"""Finds field lines in the bytes of a head by their names, with every other spelling of these names.

Only finds: what a field means, and whether it is cut out, is decided by who asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final

_SEPARATORS: Final = re.escape("!#$%&'*+-.^_`|~")
"""Every character of a token but letters and digits (RFC 9110 5.6.2)."""


def fields_named(normalized: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each field with one of these names or a twin of it: the CRLF before it, (name), (value). A name
    with `*` at its end stands for every name that begins so."""
    return _pattern(tuple(sorted(normalized)))


@lru_cache(maxsize=64)  # services, reloads and both kinds of peer ask for the same few sets of names
def _pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    firsts = "".join(sorted({name[0] for name in names})).replace("-", _SEPARATORS)
    return re.compile(rf"\r\n(?=[{firsts}])({_any_of(list(names))}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


def _any_of(names: list[str]) -> str:
    """An alternation that shares common beginnings, so that each letter of a name is compared about once.
    It costs half of a flat alternation on a head of ten fields, and heads are most of a proxy's work."""
    if "*" in names:
        return r"[^:\r]*"  # whatever the others are, they begin so too
    branches = []
    for first, group in groupby(names, key=lambda name: name[:1]):
        rests = [name[1:] for name in group]
        letter = f"[{_SEPARATORS}]" if first == "-" else first
        branches.append(letter + _any_of(rests) if first else "")
    # The longer branches first; the empty one last.
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(reversed(branches))})"
