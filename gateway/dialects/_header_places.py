"""Where a version stands in a request: in a header, a query parameter, a path segment.

Each place reads what a client says there as an ask, and writes the settled version there, or takes it off.
What one reader could take for a version and another could not (escapes, two slashes, another case, `;` in a
query) is garbled, never passed on. A brick of the `header` dialect: nothing here knows an option or a status,
and nothing that came from the network makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, final
from urllib.parse import unquote, unquote_plus

from gateway.core.dialect import ASK_SILENT, Ask, AskKind
from gateway.core.message import Header, all_values, fold
from gateway.core.version import Scheme

LONGEST_TEXT: Final = 64
"""Characters of a target's text that are kept: no version is longer, and clients choose them."""

MOST_PARAMETERS: Final = 1000
"""Of a query that is read, as in Django and PHP: looking at each takes longer than sending it does."""

_SEPARATORS: Final = re.compile("([&;])")
_SLASHES: Final = re.compile("//+")
_UNDERSCORED: Final = str.maketrans(". ", "__")


@final
@dataclass(frozen=True, slots=True)
class Spelling:
    """What stands around a version. `open_end`: whatever follows is no part of it."""

    before: str = ""
    after: str = ""
    open_end: bool = False

    def read(self, text: str) -> str | None:
        """The version's own text; None where `text` is spelled otherwise."""
        if not text.startswith(self.before):
            return None
        inner = text[len(self.before) :]
        if self.open_end:
            return inner.partition(self.after)[0] if self.after else inner
        if not inner.endswith(self.after):
            return None
        return inner[: len(inner) - len(self.after)]

    def write(self, text: str) -> str:
        return f"{self.before}{text}{self.after}"


_BARE: Final = Spelling()


@final
@dataclass(frozen=True, slots=True)
class Words:
    """How an ask is spelled: a version, or the word for the newest."""

    scheme: Scheme
    newest: str | None = None

    def read(self, text: str, spelling: Spelling = _BARE) -> Ask:
        """The ask that `text` makes; it is never silence."""
        return (_read_known if len(text) <= LONGEST_TEXT else _read)(self, text, spelling)


def _read(words: Words, text: str, spelling: Spelling) -> Ask:
    inner = spelling.read(text)
    if inner is not None and inner == words.newest:
        return Ask(AskKind.LATEST, text=inner)
    version = None if inner is None else words.scheme.parse(inner)
    return Ask(AskKind.GARBLED, text=text) if version is None else Ask(AskKind.EXACT, version, text)


_read_known = lru_cache(maxsize=1024)(_read)
"""The same few versions stand in every target of a fleet's clients. Long texts are not kept."""


def agreed(asks: Iterable[Ask]) -> Ask:
    """What several places come to: those that say something must say the same, the first is told."""
    said = [ask for ask in asks if ask.kind is not AskKind.SILENT]
    if not said:
        return ASK_SILENT
    first = next((ask for ask in said if ask.kind is AskKind.GARBLED), said[0])
    if all((ask.kind, ask.version) == (first.kind, first.version) for ask in said):
        return first
    if first.kind is AskKind.GARBLED:
        return first
    return Ask(AskKind.GARBLED, text=", ".join(dict.fromkeys(ask.text for ask in said)))


# --- headers -----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header whose whole value is the version."""

    name: str
    words: Words
    spelling: Spelling
    sent: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def read(self, headers: Mapping[str, str]) -> Ask:
        """Every line must say the same."""
        return agreed(self.words.read(line, self.spelling) for line in all_values(headers, fold(self.name)))

    def write(self, headers: Mapping[str, str], text: str | None) -> tuple[Header, ...]:
        """The one line with `text`; nothing for None."""
        return () if text is None else ((self.name, self.spelling.write(text)),)


# --- targets -----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class QueryPlace:
    """A query parameter whose value is the version. Names are compared without case and escapes, because
    some servers do."""

    name: str
    words: Words
    spelling: Spelling
    sent: bool

    def covers(self, path: str) -> bool:
        """Whether the version can be written into a target with this path: into any but `*`."""
        return path != "*"

    def read(self, path: str, query: str) -> Ask:
        """Every parameter of the name must say the same. One that stands at a `;`, which some servers take
        for `&`, is garbled."""
        if not query:
            return ASK_SILENT
        parts = _SEPARATORS.split(query)
        if len(parts) > 2 * MOST_PARAMETERS:
            return Ask(AskKind.GARBLED, text=query[:LONGEST_TEXT])
        asks = []
        for at in range(0, len(parts), 2):
            name, _, value = parts[at].partition("=")
            likeness = self._likeness(name)
            if likeness is Likeness.SAME and ";" not in parts[max(at - 1, 0) : at + 2]:
                asks.append(self.words.read(value, self.spelling))
            elif likeness is not Likeness.NONE:
                asks.append(Ask(AskKind.GARBLED, text=value))
        return agreed(asks)

    def _likeness(self, name: str) -> Likeness:
        return (_known_likeness if len(name) <= LONGEST_TEXT else _likeness)(self.name, name)

    def write(self, path: str, query: str, text: str | None) -> tuple[str, str]:
        """The same target with the parameter once, where it first stood or at the end; None: without it."""
        if not self.covers(path):
            return path, query
        kept: list[str] = []
        said = None if text is None else f"{self.name}={self.spelling.write(text)}"
        for part in query.split("&") if query else ():
            if self._likeness(part.partition("=")[0]) is not Likeness.SAME:
                kept.append(part)
            elif said is not None:
                kept.append(said)
                said = None
        return path, "&".join([*kept, *([] if said is None else [said])])


class Likeness(Enum):
    """Whether a parameter's name is ours."""

    NONE = "none"
    SAME = "same"
    DISGUISED = "disguised"
    """Some server takes it for ours."""


def _likeness(ours: str, name: str) -> Likeness:
    """PHP, Rack and qs read `name[]` as `name`; PHP ends a name at its NUL and has `_` for a blank or a dot
    in it; JavaScript drops a `?` before the first one."""
    plain = unquote_plus(name).strip()
    if plain.lower() == ours.lower():
        return Likeness.SAME
    plain = plain.lstrip("?").partition("\0")[0].partition("[")[0].strip()
    return Likeness.DISGUISED if _loose(plain) == _loose(ours) else Likeness.NONE


_known_likeness = lru_cache(maxsize=1024)(_likeness)
"""A fleet's clients write the same few names."""


def _loose(name: str) -> str:
    return name.casefold().translate(_UNDERSCORED)


class Cut(NamedTuple):
    """A path, taken apart at the segment of the version."""

    segment: str
    rest: str
    """What follows the segment: empty, or from its slash on."""


@final
@dataclass(frozen=True, slots=True)
class PathPlace:
    """A path segment that holds the version: the first one, or the one behind `prefix`.

    Behind a prefix the segment is the version's, whatever stands there. At the start it is one when it is
    spelled like one: what names no version there (`/containers/json`) is the path of a request without one.
    """

    prefix: str
    """Without a slash at its end; empty: the start."""
    words: Words
    spelling: Spelling
    sent: bool

    def covers(self, path: str) -> bool:
        """Whether the version can be written into this path."""
        return path.startswith(self.prefix + "/") or (bool(self.prefix) and path == self.prefix)

    def read(self, path: str, query: str) -> Ask:
        """What the segment says. Where only another reader would find one, it is garbled."""
        cut = self._cut(path)
        if cut is not None:
            return self.words.read(cut.segment, self.spelling)
        disguised = self._cut(_as_others_read(path), lax=True)
        return ASK_SILENT if disguised is None else Ask(AskKind.GARBLED, text=disguised.segment)

    def rest(self, path: str) -> str:
        """The path without the version's segment."""
        cut = self._cut(path)
        return path if cut is None else (self.prefix + cut.rest or "/")

    def write(self, path: str, query: str, text: str | None) -> tuple[str, str]:
        """The same target with the version in its segment, which is made where there is none; None: without
        it."""
        if not self.covers(path):
            return path, query
        cut = self._cut(path)
        behind = path[len(self.prefix) :] if cut is None else cut.rest
        if text is None:
            return self.prefix + behind or "/", query
        return f"{self.prefix}/{self.spelling.write(text)}{behind}", query

    def _cut(self, path: str, *, lax: bool = False) -> Cut | None:
        """The segment of the version and what follows it; None where there is none. `lax`: as servers that
        do not tell cases apart would look for it."""
        start = path[: len(self.prefix) + 1]
        wanted = self.prefix + "/"
        if start != wanted and not (lax and start.lower() == wanted.lower()):
            return None
        segment, slash, rest = path[len(wanted) :].partition("/")
        if not segment or not (self.prefix or self._is_version(segment, lax=lax)):
            return None
        return Cut(segment, slash + rest)

    def _is_version(self, segment: str, *, lax: bool) -> bool:
        """Whether a first segment is meant to be a version: it is one, or goes on with a digit."""
        before = self.spelling.before
        if lax and segment.lower().startswith(before.lower()):
            segment = before + segment[len(before) :]
        if self.words.read(segment, self.spelling).kind is not AskKind.GARBLED:
            return True
        first = segment[len(before) : len(before) + 1]
        return segment.startswith(before) and first.isascii() and first.isdigit()


def _as_others_read(path: str) -> str:
    """The path without escapes, path parameters and empty segments, which other readers may not see."""
    if "%" not in path and ";" not in path and "//" not in path:
        return path
    segments = (segment.partition(";")[0] for segment in unquote(path).split("/"))
    return _SLASHES.sub("/", "/".join(segments))
