"""Locations of a version in a request: a header, a query parameter or a path segment.

Each location reads the version that a client requests there, and writes the negotiated version or removes it.
Text that only some readers would take for a version (`spellings`) is malformed and never passed on. The
fourth location, a parameter of media types, is in `media_types`. Nothing here knows an option or a status,
and nothing from the network makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, final

from gateway.core.dialect import NO_VERSION_REQUESTED, RequestedKind, RequestedVersion
from gateway.core.http.message import Header, all_values, normalize_name
from gateway.core.versions.version import Scheme
from gateway.dialects.custom.spellings import (
    Likeness,
    end_of_prefix,
    known_likeness,
    likeness,
    normalized,
    without_case,
)

LONGEST_TEXT: Final = 64
"""Longest part of a request's target that is kept as a version, in characters. No version is longer."""

MOST_PARAMETERS: Final = 1000
"""Largest number of parameters read in a query, as in Django and PHP: reading costs more than sending."""

_SEPARATORS: Final = re.compile("([&;])")


@final
@dataclass(frozen=True, slots=True)
class Affixes:
    """Affixes of a version: the texts around it. `open_end`: whatever follows `after` is ignored."""

    before: str = ""
    after: str = ""
    open_end: bool = False

    def read(self, text: str) -> str | None:
        """The version's text between the affixes in `text`; None: it does not have these affixes."""
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


_NO_AFFIXES: Final = Affixes()


@final
@dataclass(frozen=True, slots=True)
class VersionSyntax:
    """Spelling of a requested version: a version of the scheme, or the word for the newest."""

    scheme: Scheme
    newest: str | None = None

    def read(self, text: str, affixes: Affixes = _NO_AFFIXES) -> RequestedVersion:
        """The version that `text` requests. Its kind is never `NONE`."""
        return (_read_known if len(text) <= LONGEST_TEXT else _read)(self, text, affixes)


def _read(syntax: VersionSyntax, text: str, affixes: Affixes) -> RequestedVersion:
    inner = affixes.read(text)
    if inner is not None and inner == syntax.newest:
        return RequestedVersion(RequestedKind.LATEST, text=inner)
    version = None if inner is None else syntax.scheme.parse(inner)
    return (
        RequestedVersion(RequestedKind.MALFORMED, text=text)
        if version is None
        else RequestedVersion(RequestedKind.EXACT, version, text)
    )


_read_known = lru_cache(maxsize=1024)(_read)
"""Cached reader of a requested version: clients of a fleet send the same few. Long texts are not cached."""


def agreed(all_requested: Iterable[RequestedVersion]) -> RequestedVersion:
    """The version on which all locations of a request agree, of those that hold something. One that is
    malformed or differs makes the result malformed."""
    present = [requested for requested in all_requested if requested.kind is not RequestedKind.NONE]
    if not present:
        return NO_VERSION_REQUESTED
    first = next(
        (requested for requested in present if requested.kind is RequestedKind.MALFORMED), present[0]
    )
    if all((requested.kind, requested.version) == (first.kind, first.version) for requested in present):
        return first
    if first.kind is RequestedKind.MALFORMED:
        return first
    return RequestedVersion(
        RequestedKind.MALFORMED, text=", ".join(dict.fromkeys(requested.text for requested in present))
    )


@final
@dataclass(frozen=True, slots=True)
class HeaderLocation:
    """A request header whose whole value is the version."""

    name: str
    syntax: VersionSyntax
    affixes: Affixes
    sent: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def read(self, headers: Mapping[str, str]) -> RequestedVersion:
        """The version that the header's lines request. All of them must request the same."""
        return agreed(
            self.syntax.read(line, self.affixes) for line in all_values(headers, normalize_name(self.name))
        )

    def write(self, headers: Mapping[str, str], text: str | None) -> tuple[Header, ...]:
        """The header line for backends with the version `text`; None: no line."""
        return () if text is None else ((self.name, self.affixes.write(text)),)


@final
@dataclass(frozen=True, slots=True)
class QueryLocation:
    """A query parameter whose value is the version. A name that only some servers take for it (`[version]`,
    `Version`, `ver.sion`) is malformed (semantics, Sending)."""

    name: str
    syntax: VersionSyntax
    affixes: Affixes
    sent: bool

    def covers(self, path: str) -> bool:
        """Whether the version can be written into a target with this path: into any but `*`."""
        return path != "*"

    def read(self, path: str, query: str) -> RequestedVersion:
        """The version that all query parameters of this name request. One next to a `;` is malformed: some
        servers take it for `&`."""
        if not query:
            return NO_VERSION_REQUESTED
        parts = _SEPARATORS.split(query)
        if len(parts) > 2 * MOST_PARAMETERS:
            return RequestedVersion(RequestedKind.MALFORMED, text=query[:LONGEST_TEXT])
        all_requested = []
        for at in range(0, len(parts), 2):
            name, _, value = parts[at].partition("=")
            found = self._likeness(name)
            if found is Likeness.SAME and ";" not in parts[max(at - 1, 0) : at + 2]:
                all_requested.append(self.syntax.read(value, self.affixes))
            elif found is not Likeness.NONE:
                all_requested.append(RequestedVersion(RequestedKind.MALFORMED, text=value))
        return agreed(all_requested)

    def _likeness(self, name: str) -> Likeness:
        return (known_likeness if len(name) <= LONGEST_TEXT else likeness)(self.name, name)

    def write(self, path: str, query: str, text: str | None) -> tuple[str, str]:
        """The path and query with the parameter once, at its first place or at the end; None: without it."""
        if not self.covers(path):
            return path, query
        written: list[str] = []
        ours = None if text is None else f"{self.name}={self.affixes.write(text)}"
        for part in query.split("&") if query else ():
            if self._likeness(part.partition("=")[0]) is not Likeness.SAME:
                written.append(part)
            elif ours is not None:
                written.append(ours)
                ours = None
        return path, "&".join([*written, *([] if ours is None else [ours])])


class SplitPath(NamedTuple):
    """The path of a request, split at the segment of the version."""

    prefix: str
    """Part of a request's path before the slash of the version's segment, as the client wrote it."""
    segment: str
    rest: str
    """Part of a request's path after the version's segment: empty, or beginning with a slash."""


@final
@dataclass(frozen=True, slots=True)
class PathLocation:
    """A path segment that holds the version: the first one, or the one after `prefix`. After a prefix the
    segment always holds it; without one only if its text looks like a version: `/containers/json` has none.
    The prefix is compared decoded and without case (semantics, Sending)."""

    prefix: str
    """Configured path before the version, without a slash at its end; empty: it is the first segment."""
    syntax: VersionSyntax
    affixes: Affixes
    sent: bool

    def covers(self, path: str) -> bool:
        """Whether a version can be written into this path: it begins with the prefix."""
        return end_of_prefix(path, self.prefix) is not None

    def read(self, path: str, query: str) -> RequestedVersion:
        """The version in the path; malformed if another parser could find one where this one does not."""
        split = self._split(path)
        if split is not None:
            return self.syntax.read(split.segment, self.affixes)
        plain = normalized(path)
        disguised = self._split(plain, lenient=True)
        if disguised is not None:
            return RequestedVersion(RequestedKind.MALFORMED, text=disguised.segment)
        if plain != path and self.covers(plain) and not self.covers(path):
            return RequestedVersion(RequestedKind.MALFORMED, text=path)
        return NO_VERSION_REQUESTED

    def without_version(self, path: str) -> str:
        """The path of a request without the version's segment."""
        split = self._split(path)
        return path if split is None else (split.prefix + split.rest or "/")

    def write(self, path: str, query: str, text: str | None) -> tuple[str, str]:
        """The path and query with the version in its segment, which is added if missing; None: without it."""
        end = end_of_prefix(path, self.prefix)
        if end is None:
            return path, query
        split = self._split(path)
        rest = path[end:] if split is None else split.rest
        if text is None:
            return path[:end] + rest or "/", query
        return f"{path[:end]}/{self.affixes.write(text)}{rest}", query

    def _split(self, path: str, *, lenient: bool = False) -> SplitPath | None:
        """The path split at the version's segment; None: there is none. `lenient`: without case."""
        end = end_of_prefix(path, self.prefix)
        if end is None:
            return None
        segment, slash, rest = path[end + 1 :].partition("/")
        if not segment or not (self.prefix or self._is_version(segment, lenient=lenient)):
            return None
        return SplitPath(path[:end], segment, slash + rest)

    def _is_version(self, segment: str, *, lenient: bool) -> bool:
        """Whether a first segment is meant as a version: it is one, or a digit follows its prefix."""
        before = self.affixes.before
        if lenient:
            plain, start = without_case(segment), without_case(before)
            segment = before + plain[len(start) :] if plain.startswith(start) else plain
        if self.syntax.read(segment, self.affixes).kind is not RequestedKind.MALFORMED:
            return True
        first = segment[len(before) : len(before) + 1]
        return segment.startswith(before) and first.isascii() and first.isdigit()
