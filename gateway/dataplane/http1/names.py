"""The table of header names that the data plane acts on.

Only the fields named here are taken out, by one regular expression in one call. The other fields are not
parsed one by one: their bytes are forwarded unchanged. A table looks up each spelling of a name once, and is
bounded. Nothing here reads a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, final

from gateway.core.http.message import FORWARDING, HOP_BY_HOP, HTTPOXY, fields_named, normalize_pattern

PASSED: Final = 0
"""Kind of header field that is forwarded as it came."""
SELECTED: Final = 1
"""Kind of header field that is selected for the dialects: some dialect reads or owns it."""
DROP: Final = 2
"""Kind of header field that is removed: hop-by-hop, not allowed from this peer, or an alias of a name."""
HOST: Final = 3
LENGTH: Final = 4
CODING: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
FORWARDED_FOR: Final = 8
"""Kind of `X-Forwarded-For`, the one field of an outer proxy that differs from client to client."""
LOCATION: Final = 9
HOP: Final = 10
"""Kind of the other header fields of an outer proxy: `Via`, and those about the URL that the client used."""
REQUEST_ID: Final = 11
"""Kind of header field that holds an id of the request."""
MAX_FORWARDS: Final = 12
UPGRADE: Final = 13
"""Kind of `Upgrade`, asking for another protocol. Dropped from responses: `tunnel` reads that of a 101."""

_FRAMING_KINDS: Final = {
    "content-length": LENGTH,
    "transfer-encoding": CODING,
    "connection": CONNECTION,
}
_REQUEST_KINDS: Final = _FRAMING_KINDS | {
    "host": HOST,
    "expect": EXPECT,
    "max-forwards": MAX_FORWARDS,
    "upgrade": UPGRADE,
}
_FORWARDING_KINDS: Final = dict.fromkeys(FORWARDING, DROP) | {
    "via": HOP,
    "x-forwarded-for": FORWARDED_FOR,
    "x-forwarded-proto": HOP,
    "x-forwarded-host": HOP,
    "x-forwarded-port": HOP,
    "x-forwarded-prefix": HOP,
}
"""Kinds of the fields with which one proxy describes the client to the next. Trusted or not, they never pass
as they came, and `Via` is checked for loops."""
_RESPONSE_KINDS: Final = _FRAMING_KINDS | {"location": LOCATION, "content-location": LOCATION}

MAX_CACHED_NAMES: Final = 1024
"""Maximum cached spellings of field names: peers choose them. Further ones are looked up each time."""
MAX_CACHED_NAME_SIZE: Final = 64
"""Maximum bytes of a cached spelling. A pattern with `*` matches names as long as a line may be."""


@final
class NameTable:
    """Kinds of header fields, by spelling of the name. `pattern` finds fields that are not `PASSED`, and
    `hop_lines` the whole lines of those that are `HOP`."""

    __slots__ = ("_by_spelling", "_kinds", "hop_lines", "pattern", "reads_ids", "selected")

    def __init__(self, selected: frozenset[str], known: dict[str, int], dropped: frozenset[str]) -> None:
        self.selected = selected
        self.reads_ids = False
        """Whether `RequestHead.trace` and `ResponseHead.request_id` are read."""
        self._kinds = dict.fromkeys(dropped, DROP) | known | dict.fromkeys(selected, SELECTED)
        self._by_spelling: dict[bytes, int] = {}
        self.pattern = fields_named(self._kinds)
        self.hop_lines = _lines_named(sorted(name for name, kind in self._kinds.items() if kind == HOP))

    @classmethod
    def for_requests(
        cls,
        selected: frozenset[str],
        request_id_names: frozenset[str] = frozenset(),
        dropped: Iterable[str] = (),
    ) -> NameTable:
        """Table of header names for requests. `selected`: normalized names that some dialect reads or owns.
        `request_id_names`: those of request ids. `dropped`: names, or beginnings of names with `*`, that this
        peer may not send. A name that already has a use here keeps it."""
        known = dict.fromkeys(request_id_names, REQUEST_ID) | _REQUEST_KINDS | _FORWARDING_KINDS
        return cls(selected, known, HOP_BY_HOP | HTTPOXY | set(map(normalize_pattern, dropped)))

    @classmethod
    def for_responses(cls, selected: frozenset[str]) -> NameTable:
        """Table of header names for responses. `selected`: normalized names the dialect reads or owns."""
        # A 407 of a backend keeps its challenge (RFC 9110 15.5.8): the gateway has none of its own.
        return cls(selected, _RESPONSE_KINDS, HOP_BY_HOP - {"proxy-authenticate"})

    def kind(self, raw: bytes) -> int:
        """Kind of the header field with this name. `raw`: as it came."""
        kind = self._by_spelling.get(raw)
        if kind is None:
            kind = self._look_up(raw)
            if len(self._by_spelling) < MAX_CACHED_NAMES and len(raw) <= MAX_CACHED_NAME_SIZE:
                self._by_spelling[raw] = kind
        return kind

    def _look_up(self, raw: bytes) -> int:
        kind = self._kinds.get(raw.decode("ascii").lower())
        if kind is not None:
            return kind
        # An alias is never forwarded and never read: many servers would read it as the real name (threats V4,
        # R-A6, O11).
        return DROP if self.pattern.match(b"\r\n%b:" % raw) else PASSED


def _lines_named(names: Iterable[str]) -> re.Pattern[bytes]:
    """Pattern of the field lines with exactly these names, in any case, each with the CRLF before it."""
    return re.compile(rf"\r\n(?:{'|'.join(names)}):[^\r]*".encode(), re.IGNORECASE)
