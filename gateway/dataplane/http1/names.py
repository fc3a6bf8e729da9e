"""What the data plane does with a field, by its name.

Most fields mean nothing to it and stay in the run of bytes in which they came. Only the fields named here are
taken out, by one regular expression in one call. A table looks up each spelling of a name once, and is
bounded. Nothing here reads a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, final

from gateway.core.http.message import FORWARDING, HOP_BY_HOP

SELECTED: Final = 1
"""Selected for the dialects: some dialect reads or owns it."""
DROP: Final = 2
"""Removed: it is for one hop only, or a twin that a server would read as a name in this table."""
HOST: Final = 3
LENGTH: Final = 4
CODING: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
FORWARDED: Final = 8
"""Describes the client; used from trusted peers only."""
LOCATION: Final = 9
VIA: Final = 10

_FRAMING_KINDS: Final = {
    "content-length": LENGTH,
    "transfer-encoding": CODING,
    "connection": CONNECTION,
}
_REQUEST_KINDS: Final = _FRAMING_KINDS | {"host": HOST, "expect": EXPECT, "via": VIA}
_RESPONSE_KINDS: Final = _FRAMING_KINDS | {"location": LOCATION, "content-location": LOCATION}

_MAX_CACHED_NAMES: Final = 1024
"""Spellings. Peers choose them, so the table is bounded; further ones are looked up each time."""


@final
class NameTable(dict[bytes, int]):
    """The names that matter. `pattern` finds their fields in a head; an item is the kind of one spelling."""

    def __init__(self, selected: frozenset[str], known: dict[str, int], dropped: frozenset[str]) -> None:
        super().__init__()
        self.selected = selected
        self._kinds = dict.fromkeys(dropped, DROP) | known | dict.fromkeys(selected, SELECTED)
        self.pattern = fields_named(self._kinds)

    @classmethod
    def for_requests(cls, selected: frozenset[str]) -> NameTable:
        """`selected`: every folded name that some dialect reads or owns in requests."""
        return cls(selected, _REQUEST_KINDS | dict.fromkeys(FORWARDING - {"via"}, FORWARDED), HOP_BY_HOP)

    @classmethod
    def for_responses(cls, selected: frozenset[str]) -> NameTable:
        """`selected`: the folded names that the dialect of the service reads or owns in responses."""
        return cls(selected, _RESPONSE_KINDS, HOP_BY_HOP - {"proxy-authenticate"})

    def __missing__(self, raw: bytes) -> int:
        # A twin, with `_` for `-`, is never forwarded and never read: WSGI servers would read it as the
        # real name (threats V4, O11).
        kind = self._kinds.get(raw.decode("ascii").lower(), DROP)
        if len(self) < _MAX_CACHED_NAMES:
            self[raw] = kind
        return kind


def fields_named(folded: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each field with one of these names, in any case and with `_` for `-`: the CRLF before it,
    (name), (value)."""
    names = sorted(folded)
    firsts = re.escape("".join({name[0] for name in names}))
    return re.compile(rf"\r\n(?=[{firsts}])({_any_of(names)}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


def _any_of(names: list[str]) -> str:
    """An alternation that shares common beginnings, so that each letter of a name is compared about once.
    It costs half of a flat alternation on a head of ten fields, and heads are most of a proxy's work."""
    branches = []
    for first, group in groupby(names, key=lambda name: name[:1]):
        rests = [name[1:] for name in group]
        letter = "[-_]" if first == "-" else re.escape(first)
        branches.append(letter + _any_of(rests) if first else "")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(reversed(branches))})"
