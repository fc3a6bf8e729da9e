"""What the data plane does with a field, by its name.

Only the fields named here are taken out, by one regular expression in one call. The other fields are not
parsed one by one: their bytes are forwarded unchanged. A table looks up each spelling of a name once, and is
bounded. Nothing here reads a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, final

from gateway.core.http.message import FORWARDING, HOP_BY_HOP, HTTPOXY, normalize_pattern

SELECTED: Final = 1
"""Selected for the dialects: some dialect reads or owns it."""
DROP: Final = 2
"""Removed: a hop-by-hop field, one that is not taken from this peer, or a twin of a name in this table
(`normalize_name`)."""
HOST: Final = 3
LENGTH: Final = 4
CODING: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
FORWARDED: Final = 8
"""Describes the client; used from trusted peers only."""
LOCATION: Final = 9
VIA: Final = 10
REQUEST_ID: Final = 11
"""Holds the id of the request in some dialect of the configuration."""
MAX_FORWARDS: Final = 12

_FRAMING_KINDS: Final = {
    "content-length": LENGTH,
    "transfer-encoding": CODING,
    "connection": CONNECTION,
}
_REQUEST_KINDS: Final = _FRAMING_KINDS | {
    "host": HOST,
    "expect": EXPECT,
    "via": VIA,
    "max-forwards": MAX_FORWARDS,
}
_RESPONSE_KINDS: Final = _FRAMING_KINDS | {"location": LOCATION, "content-location": LOCATION}

_SEPARATORS: Final = re.escape("!#$%&'*+-.^_`|~")
"""Every character of a token but letters and digits (RFC 9110 5.6.2)."""
_MAX_CACHED_NAMES: Final = 1024
"""Spellings. Peers choose them, so the table is bounded; further ones are looked up each time."""
_MAX_CACHED_NAME_SIZE: Final = 64
"""Bytes. A pattern with `*` matches names as long as a line may be."""


@final
class NameTable(dict[bytes, int]):
    """Maps each spelling of a field name that matters to its kind (the constants above). `pattern` finds
    these fields in a head."""

    def __init__(self, selected: frozenset[str], known: dict[str, int], dropped: frozenset[str]) -> None:
        super().__init__()
        self.selected = selected
        self._kinds = dict.fromkeys(dropped, DROP) | known | dict.fromkeys(selected, SELECTED)
        self.pattern = fields_named(self._kinds)

    @classmethod
    def for_requests(
        cls,
        selected: frozenset[str],
        request_id_names: frozenset[str] = frozenset(),
        dropped: Iterable[str] = (),
    ) -> NameTable:
        """`selected`: every normalized name that some dialect reads or owns in requests. `request_id_names`:
        those in which some dialect has its request ids. `dropped`: names, and beginnings of names with `*`,
        that are not taken from the peer. A name that already has a use here keeps it."""
        # `Via` has a kind of its own: it is kept and checked for loops whether the peer is trusted or not.
        known = (
            dict.fromkeys(request_id_names, REQUEST_ID)
            | _REQUEST_KINDS
            | dict.fromkeys(FORWARDING - {"via"}, FORWARDED)
        )
        return cls(selected, known, HOP_BY_HOP | HTTPOXY | set(map(normalize_pattern, dropped)))

    @classmethod
    def for_responses(cls, selected: frozenset[str]) -> NameTable:
        """`selected`: the normalized names that the dialect of the service reads or owns in responses."""
        # A 407 of a backend keeps its challenge (RFC 9110 15.5.8): the gateway has none of its own.
        return cls(selected, _RESPONSE_KINDS, HOP_BY_HOP - {"proxy-authenticate"})

    def __missing__(self, raw: bytes) -> int:
        # A twin is never forwarded and never read: many servers would read it as the real name (threats V4,
        # R-A6, O11).
        kind = self._kinds.get(raw.decode("ascii").lower(), DROP)
        if len(self) < _MAX_CACHED_NAMES and len(raw) <= _MAX_CACHED_NAME_SIZE:
            self[raw] = kind
        return kind


def fields_named(normalized: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each field with one of these names or a twin of it: the CRLF before it, (name), (value). A name
    with `*` at its end stands for every name that begins so."""
    names = sorted(normalized)
    firsts = "".join(sorted({name[0] for name in names})).replace("-", _SEPARATORS)
    return re.compile(rf"\r\n(?=[{firsts}])({_any_of(names)}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


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
