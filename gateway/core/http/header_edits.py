"""Configured changes of one service's heads: header lines removed, set and added.

One value for its requests and one for its responses, with everything precomputed. A name is removed in every
spelling that servers take for it, so `X_User` does not survive beside `X-User` (threats V4). Settings refuse
names that a dialect or the gateway writes, so versions, framing and the client's description stay. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from gateway.core.http.message import Header, Response, fields_named, normalize_name


@final
@dataclass(frozen=True, slots=True)
class HeaderEdits:
    """Header changes of requests, or of responses. No name is in two of `set`, `add` and `remove`."""

    set: tuple[Header, ...] = ()
    """Header lines to be set: each replaces every line with the same name."""
    add: tuple[Header, ...] = ()
    remove: tuple[str, ...] = ()
    removed: frozenset[str] = field(init=False, compare=False, repr=False)
    """Header names (normalized) of which no original line stays."""
    _pattern: re.Pattern[bytes] | None = field(init=False, compare=False, repr=False)
    _lines: bytes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        removed = frozenset(normalize_name(name) for name in (*self.remove, *(name for name, _ in self.set)))
        object.__setattr__(self, "removed", removed)
        object.__setattr__(self, "_pattern", fields_named(removed) if removed else None)
        lines = "".join(f"\r\n{name}: {value}" for name, value in (*self.set, *self.add))
        object.__setattr__(self, "_lines", lines.encode("latin-1"))

    def without(self, fields: bytes) -> bytes:
        """Remove the headers in `removed` from `fields`: field lines, each with the CRLF before it."""
        return fields if self._pattern is None else self._pattern.sub(b"", fields)

    def edit(self, fields: bytes) -> bytes:
        """Apply all header changes to `fields`: field lines, each with the CRLF before it."""
        return self.without(fields) + self._lines

    def others(self, fields: Iterable[Header]) -> tuple[Header, ...]:
        """The header fields (names normalized) of a message without those that are removed."""
        return tuple(one for one in fields if one[0] not in self.removed)

    def edit_response(self, response: Response) -> Response:
        """Apply all header changes to a response that the gateway makes."""
        others = [one for one in response.headers if normalize_name(one[0]) not in self.removed]
        return Response(response.status, (*others, *self.set, *self.add), response.body)
