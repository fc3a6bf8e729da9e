"""What the data plane does with a header, by its name. Most have no meaning to it: they stay in the run of bytes in
which they came, and only the fields named here are taken out, by one regular expression in one call.

Tables learn each spelling once and are bounded. Nothing here reads a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

from gateway.core.message import FORWARDING, HOP_BY_HOP, fold

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
class NameTable(dict[bytes, tuple[int, str]]):
    """The names that matter: `pattern` splits a head at their fields, subscripting tells what each spelling is."""

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

    def __missing__(self, raw: bytes) -> tuple[int, str]:
        name = raw.decode("ascii").lower()
        folded = fold(name)
        # A twin that WSGI would read as the real one is never passed on and never read (hardening V4, O11).
        entry = (self._kinds[folded], folded) if name in self._kinds else (DROP, folded)
        if len(self) < _REMEMBERED:
            self[raw] = entry
        return entry


def fields_named(folded: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each field of these names, in any case and with `_` for `-`: its line end, (name), (value)."""
    names = "|".join(re.escape(name).replace(r"\-", "[-_]") for name in sorted(folded))
    return re.compile(rf"\r\n({names}):([^\r]*)".encode(), re.IGNORECASE)
