"""What is wrong with an operator's options: collected with its place. And the texts that many
places hold.

Messages never quote a text: it may come from the environment. A brick of the `header` dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, final

from gateway.core.message import FORWARDING, HOP_BY_HOP, UNLISTABLE, fold
from gateway.dialects._header_places import Spelling
from gateway.errors import OptionsError

At: TypeAlias = tuple[str | int, ...]
"""A place in the options: keys, and numbers of list items."""
T = TypeVar("T")

VERSION: Final = "{version}"
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*", re.ASCII)
PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*", re.ASCII)
"""What may stand in a header, a path and a query alike, without an escape."""
PATH: Final = re.compile(r"/|(?:/[A-Za-z0-9._~!$&'()*+,=:@-]+)+", re.ASCII)
_NOT_OURS: Final = (
    HOP_BY_HOP
    | FORWARDING
    | UNLISTABLE
    | {
        *("accept", "accept-encoding", "content-type", "content-encoding", "content-location", "cookie"),
        *("authorization", "etag", "expect", "last-modified", "location", "range", "set-cookie", "vary"),
        *("allow", "date", "origin", "referer", "retry-after", "server", "user-agent", "www-authenticate"),
    }
)
"""Folded names without which a message would no longer be what it is."""


@final
class Complaints:
    """Every problem found so far."""

    def __init__(self) -> None:
        self._found: list[tuple[At, str, str]] = []

    def wrong(self, at: At, said: str, hint: str = "") -> None:
        """Note a problem."""
        self._found.append((at, said, hint))

    def end(self) -> None:
        """Raises `OptionsError` if there was any."""
        if self._found:
            raise OptionsError(tuple(self._found))

    def tried(self, at: At, make: Callable[[], T], fallback: T) -> T:
        """What `make` makes; where it raises `ValueError`, that is a problem and `fallback` stands there."""
        try:
            return make()
        except ValueError as error:
            said, _, hint = str(error).partition("; ")
            self.wrong(at, said, hint)
            return fallback

    def header_name(self, at: At, name: str) -> None:
        """Note what keeps a text from naming a header that tells a version."""
        if MEDIA_TYPE.fullmatch(name.partition(";")[0].strip().lower()):
            said = "this is a media type, where the name of a header belongs"
            self.wrong(at, said, "write parameter: NAME and media_types: [TYPE]")
        elif TOKEN.fullmatch(name) is None or "_" in name:
            self.wrong(at, "this is no header name", "a name is letters, digits and `-`, without a colon")
        elif fold(name) in _NOT_OURS:
            hint = "write parameter: NAME" if fold(name) in {"accept", "content-type"} else ""
            self.wrong(at, "this header says other things than a version", hint)

    def path(self, at: At, path: str) -> str:
        """The path, which is noted when it is none."""
        if PATH.fullmatch(path) is None:
            self.wrong(
                at, "this is no path", "it begins with a slash, does not end in one, and has no escapes"
            )
        return path

    def spelling(self, at: At, text: str, *, free: bool = False) -> Spelling:
        """What stands around `{version}`. `free`: any text may, and `*` at the end."""
        before, found, after = text.partition(VERSION)
        open_end = free and after.endswith("*")
        if open_end:
            after = after[:-1]
        if not found:
            self.wrong(at, "{version} does not stand here", "write it where the version is")
        elif VERSION in after:
            self.wrong(at, "{version} stands here twice", "once is enough")
        elif not free and PLAIN.fullmatch(before + after) is None:
            self.wrong(at, "around {version} stand letters, digits, `.`, `_`, `~` or `-`")
        elif open_end and not after:
            self.wrong(at, "a character must tell where the version ends", "write {version}.*")
        return Spelling(before, after, open_end)
