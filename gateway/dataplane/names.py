"""What the data plane does with a header, by its name. Most have no meaning to it: they stay in the run of
bytes in which they came, and only the fields named here are taken out, by one regular expression in one call.

Tables learn each spelling once and are bounded. Nothing here reads a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, final

from gateway.core.message import FORWARDING, HOP_BY_HOP

APART: Final = 1
"""Set apart for a dialect, with its folded name."""
DROP: Final = 2
"""Speaks of one hop only, or is a twin that would be read as a name which we own."""
HOST: Final = 3
LENGTH: Final = 4
CODING: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
FORWARDED: Final = 8
"""Speaks of the client; believed from trusted peers only."""
LOCATION: Final = 9
VIA: Final = 10

_FRAMING: Final = {
    "content-length": LENGTH,
    "transfer-encoding": CODING,
    "connection": CONNECTION,
}
_REQUEST: Final = _FRAMING | {"host": HOST, "expect": EXPECT, "via": VIA}
_REPLY: Final = _FRAMING | {"location": LOCATION, "content-location": LOCATION}

_REMEMBERED: Final = 1024
"""Spellings; clients choose them, so the table must end somewhere. Beyond it each is looked at anew."""


@final
class NameTable(dict[bytes, int]):
    """The names that matter: `pattern` splits a head at their fields, subscripting tells what each spelling
    is."""

    def __init__(self, apart: frozenset[str], known: dict[str, int], dropped: frozenset[str]) -> None:
        super().__init__()
        self.apart = apart
        self._kinds = dict.fromkeys(dropped, DROP) | known | dict.fromkeys(apart, APART)
        self.pattern = fields_named(self._kinds)

    @classmethod
    def for_requests(cls, apart: frozenset[str]) -> NameTable:
        """`apart`: every folded name that some dialect reads or owns."""
        return cls(apart, _REQUEST | dict.fromkeys(FORWARDING - {"via"}, FORWARDED), HOP_BY_HOP)

    @classmethod
    def for_replies(cls, apart: frozenset[str]) -> NameTable:
        """`apart`: the folded names that the service's dialect reads or owns in replies."""
        return cls(apart, _REPLY, HOP_BY_HOP - {"proxy-authenticate"})

    def __missing__(self, raw: bytes) -> int:
        # A twin that WSGI would read as the real one is never passed on and never read (hardening V4, O11).
        kind = self._kinds.get(raw.decode("ascii").lower(), DROP)
        if len(self) < _REMEMBERED:
            self[raw] = kind
        return kind


def fields_named(folded: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each field of these names, in any case and with `_` for `-`: its line end, (name), (value)."""
    names = sorted(folded)
    firsts = re.escape("".join({name[0] for name in names}))
    return re.compile(rf"\r\n(?=[{firsts}])({_any_of(names)}):[ \t]*([^\r]*)".encode(), re.IGNORECASE)


def _any_of(names: list[str]) -> str:
    """An alternation that shares common beginnings: each letter of a field's name is looked at about once.
    Half the cost of a flat one on a head of ten fields, and heads are most of what a proxy does."""
    branches = []
    for first, group in groupby(names, key=lambda name: name[:1]):
        rests = [name[1:] for name in group]
        letter = "[-_]" if first == "-" else re.escape(first)
        branches.append(letter + _any_of(rests) if first else "")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(reversed(branches))})"
