"""Mistakes in an operator's options, collected with their positions, and checks that several options share.

Messages never quote a text, because it may come from the environment; a hint in `quoting` may.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, final

from gateway.core.http.message import FORWARDING, HEADER_NAME, HOP_BY_HOP, HTTPOXY, UNLISTABLE, normalize_name
from gateway.dialects.custom.locations import Affixes
from gateway.errors import OptionProblem, OptionsError

Position: TypeAlias = tuple[str | int, ...]
"""The keys and list indexes that lead to an option."""
T = TypeVar("T")

VERSION: Final = "{version}"
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*", re.ASCII)
PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*", re.ASCII)
"""Pattern for text that needs no escape in a header, in a path and in a query."""
SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]+", re.ASCII)
PATH: Final = re.compile(r"/|(?:/[A-Za-z0-9._~!$&'()*+,=:@-]+)+", re.ASCII)
_LIKE_VERSION: Final = re.compile(r"[0-9]+(?:[.-][0-9]+)*", re.ASCII)
_OTHER_MEANING: Final = (
    HOP_BY_HOP
    | FORWARDING
    | HTTPOXY
    | UNLISTABLE
    | {
        "accept",
        "accept-encoding",
        "allow",
        "authorization",
        "content-encoding",
        "content-location",
        "content-type",
        "cookie",
        "date",
        "etag",
        "expect",
        "last-modified",
        "location",
        "origin",
        "range",
        "referer",
        "retry-after",
        "server",
        "set-cookie",
        "user-agent",
        "vary",
        "www-authenticate",
    }
)
"""Headers (normalized names) that cannot hold a version: they already have another meaning."""


@final
class OptionProblems:
    """Collector of the problems in the options of one dialect."""

    def __init__(self) -> None:
        self._found: list[OptionProblem] = []

    def add(self, at: Position, message: str, hint: str = "", quoting: str = "") -> None:
        """Report a problem of an option. `quoting`: a better hint, which quotes the option."""
        self._found.append(OptionProblem(at, message, hint, quoting))

    def raise_if_any(self) -> None:
        """Raise `OptionsError` with all problems of the options, if there are any."""
        if self._found:
            raise OptionsError(tuple(self._found))

    def attempt(self, at: Position, make: Callable[[], T], fallback: T) -> T:
        """The value that `make` reads in an option. A `ValueError` becomes a problem and gives `fallback`."""
        try:
            return make()
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            self.add(at, message, hint)
            return fallback

    def check_header_name(self, at: Position, name: str, content: str = "a version") -> None:
        """Report the name of a header that cannot hold `content`."""
        if MEDIA_TYPE.fullmatch(name.partition(";")[0].strip().lower()):
            message = "this is a media type, but the name of a header belongs here"
            self.add(at, message, "write parameter: NAME and media_types: [TYPE]")
        elif HEADER_NAME.fullmatch(name) is None:
            self.add(at, "not a valid header name", "a name has letters, digits and `-`, and no colon")
        elif normalize_name(name) in _OTHER_MEANING:
            hint = "write parameter: NAME" if normalize_name(name) in {"accept", "content-type"} else ""
            self.add(at, f"this header has another meaning, so it cannot hold {content}", hint)

    def check_path(self, at: Position, path: str) -> str:
        """Report an option that is no valid path without a version, and give it back."""
        if PATH.fullmatch(path) is None:
            message = "not a valid path"
            self.add(at, message, "it begins with a slash, does not end with one, and has no escapes")
        return path

    def read_affixes(self, at: Position, text: str, prefix: str = "", *, free: bool = False) -> Affixes:
        """The texts around `{version}` in an option. `free`: any text is allowed, and a `*` at the end.
        `prefix`: the part of the option before the text."""
        before, found, after = text.partition(VERSION)
        open_end = free and after.endswith("*")
        if open_end:
            after = after[:-1]
        if not found:
            meant = _LIKE_VERSION.sub(VERSION, text, count=1)
            quoting = f"did you mean `{prefix}{meant}`?" if meant != text else ""
            self.add(at, "{version} is missing here", "write it in place of the version", quoting)
        elif VERSION in after:
            self.add(at, "{version} is here twice", "write it once")
        elif not free and PLAIN.fullmatch(before + after) is None:
            self.add(at, "only letters, digits, `.`, `_`, `~` and `-` may surround {version}")
        elif open_end and not after:
            self.add(at, "a character must mark where the version ends", "write {version}.*")
        return Affixes(before, after, open_end)
