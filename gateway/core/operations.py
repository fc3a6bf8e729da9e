"""Operations that exist in some versions of their API only, as an operator configures them.

An entry says methods, a path and versions; entries of the same method and path together are one operation,
which exists in the union of their versions. What no entry speaks of is not restricted. Nothing is refused
here: that is `core.decision`, in the dialect's words.

Paths are compared decoded, without empty segments and without path parameters (`;a=b`), as the servers behind
most dialects read them: a spelling must not lead past what the plain path is held to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Self, TypeAlias, final
from urllib.parse import unquote

from gateway.core.ranges import VersionRange, VersionSet
from gateway.core.version import Scheme, Version
from gateway.errors import PathTemplateError, VersionTextError

NEXT = "next"
"""The word for what is still being developed (RFC 041): it is in no version yet."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,=@-][A-Za-z0-9._~!$&'()*+,=:@-]*", re.ASCII)


# --- versions with open ends -------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Stretch:
    """All versions from `low` to `high`, both included, across majors; None: no end on that side."""

    low: Version | None = None
    high: Version | None = None

    def __contains__(self, version: Version) -> bool:
        return (self.low is None or self.low <= version) and (self.high is None or version <= self.high)

    def format(self, scheme: Scheme) -> str:
        """`2.4 and later`, `2.3 and earlier`, `1.0-2.3`: for people."""
        if self.low is None:
            return "every version" if self.high is None else f"{scheme.format(self.high)} and earlier"
        if self.high is None:
            return f"{scheme.format(self.low)} and later"
        dash = "-" if scheme.contiguous else ".."
        ends = [scheme.format(self.low), scheme.format(self.high)]
        return ends[0] if self.low == self.high else dash.join(ends)


@final
@dataclass(frozen=True, slots=True)
class Extent:
    """A set of versions as sorted stretches that neither overlap nor touch. Build it with `of`.

    Not a `VersionSet`, whose ends are known and whose ranges live inside one major: `>=1.58` has no end, and
    no spelling in those terms.
    """

    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def of(cls, stretches: Iterable[Stretch]) -> Self:
        """The union: one sort, one coalescing pass."""
        merged: list[Stretch] = []
        for each in sorted(stretches, key=lambda each: each.low or ()):
            last = merged[-1] if merged else None
            if last is None or not _touch(last, each):
                merged.append(each)
            elif last.high is not None:
                high = None if each.high is None else max(last.high, each.high)
                merged[-1] = Stretch(last.low, high)
        return cls(tuple(merged))

    @classmethod
    def read(cls, text: str, scheme: Scheme) -> Self:
        """Read `>=1.58`, `<=2.4`, `1.1-1.58` (dates and names `a..b`), one version, or a list with commas.

        Raises `VersionTextError`.
        """
        return cls.of(_stretch(item.strip(), scheme) for item in text.split(","))

    def __bool__(self) -> bool:
        return bool(self.stretches)

    def __contains__(self, version: Version) -> bool:
        return any(version in each for each in self.stretches)

    def __or__(self, other: Self) -> Self:
        return self.of((*self.stretches, *other.stretches))

    def __and__(self, other: Self) -> Self:
        return self.of(
            Stretch(_later(mine.low, theirs.low), _earlier(mine.high, theirs.high))
            for mine in self.stretches
            for theirs in other.stretches
            if _overlap(mine, theirs) and _overlap(theirs, mine)
        )

    def begins_after(self, version: Version) -> bool:
        """Whether all of it is newer; true of the empty set, which is yet to come."""
        low = self.stretches[0].low if self.stretches else None
        return not self.stretches or (low is not None and version < low)

    def within(self, versions: VersionSet) -> VersionSet:
        """What both hold."""
        return VersionSet.of(
            VersionRange(low, high)
            for whole in versions.ranges
            for each in self.stretches
            if (low := max(whole.low, each.low or whole.low))
            <= (high := min(whole.high, each.high or whole.high))
        )

    def format(self, scheme: Scheme) -> str:
        """`1.0-1.3, 2.4 and later`; the empty set is `no version yet`."""
        return ", ".join(each.format(scheme) for each in self.stretches) or "no version yet"


def _overlap(before: Stretch, after: Stretch) -> bool:
    """Whether `before` does not end until `after` has begun."""
    return before.high is None or after.low is None or after.low <= before.high


def _later(one: Version | None, other: Version | None) -> Version | None:
    return one if other is None else other if one is None else max(one, other)


def _earlier(one: Version | None, other: Version | None) -> Version | None:
    return one if other is None else other if one is None else min(one, other)


def _touch(before: Stretch, after: Stretch) -> bool:
    """Whether nothing lies between two stretches of which `before` begins no later."""
    return before.high is None or after.low is None or after.low <= before.high.step(1)


def _stretch(item: str, scheme: Scheme) -> Stretch:
    if item.startswith(">="):
        return Stretch(low=scheme.require(item[2:].strip()))
    if item.startswith("<="):
        return Stretch(high=scheme.require(item[2:].strip()))
    low_text, dash, high_text = item.partition("-" if scheme.contiguous else "..")
    low = scheme.require(low_text.strip())
    high = scheme.require(high_text.strip()) if dash else low
    if low > high:
        raise VersionTextError(f"{item!r} does not run upwards")
    return Stretch(low, high)


# --- paths -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class PathTemplate:
    """`/v1/nodes/{id}/vifs`: literal segments, and named ones for which any text stands."""

    text: str = field(compare=False)
    segments: tuple[str | None, ...]
    """None: any. Two templates that differ in names only are the same path."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises `PathTemplateError`."""
        if not text.startswith("/"):
            raise PathTemplateError("a path begins with a slash")
        parts = text[1:].split("/") if text != "/" else []
        names = [found[1] for part in parts if (found := _PLACEHOLDER.fullmatch(part))]
        if len(set(names)) != len(names):
            raise PathTemplateError("a name stands for one segment only")
        return cls(text, tuple(map(_segment, parts)))

    @property
    def spoken(self) -> str:
        """The path with its names as RFC 041 writes them: `/v1/nodes/:id/vifs`."""
        return _PLACEHOLDER.sub(r":\1", self.text)


def _segment(part: str) -> str | None:
    """One segment of a template: its text, None for a placeholder."""
    if _PLACEHOLDER.fullmatch(part):
        return None
    if not part or part in {".", ".."}:
        raise PathTemplateError("a path holds no empty, `.` or `..` segment, and does not end in a slash")
    if part.startswith(":"):
        raise PathTemplateError("a segment that stands for any text is written {name}")
    if not _LITERAL.fullmatch(part):
        raise PathTemplateError(
            "a segment is plain characters, or {name} for any text: no %, no `;`, no query"
        )
    return part


def segments_of(path: str) -> tuple[str, ...]:
    """A request's path as its servers look it up: escapes decoded, then split, path parameters and empty
    segments left out."""
    plain = unquote(path) if "%" in path else path
    segments = plain.split("/")
    if ";" in plain:
        segments = [segment.partition(";")[0] for segment in segments]
    return tuple(filter(None, segments))


# --- the table ---------------------------------------------------------------------------------------------


class Status(StrEnum):
    """What becomes of an operation, as RFC 041 tells it."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    UNSTABLE = "unstable"


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One item of `operations`."""

    methods: tuple[str, ...]
    path: PathTemplate
    versions: Extent
    """Empty: `next`."""
    status: Status = Status.ACTIVE
    refusal: int | None = None
    """What it is refused with outside its versions: 400 or 404; None: as the dialect's servers do."""


@final
@dataclass(frozen=True, slots=True)
class Operation:
    """All that is configured of one method at one path."""

    method: str
    path: PathTemplate
    entries: tuple[Entry, ...]
    """In the order of the file; never empty."""
    extent: Extent
    """The union of theirs."""
    refusal: int | None

    @classmethod
    def of(cls, method: str, entries: tuple[Entry, ...]) -> Self:
        extent = Extent.of(stretch for entry in entries for stretch in entry.versions.stretches)
        refusal = next((entry.refusal for entry in entries if entry.refusal is not None), None)
        return cls(method, entries[0].path, entries, extent, refusal)

    def format(self, scheme: Scheme) -> str:
        """`GET /v1/nodes/{id} exists only in 1.5 and later`."""
        verb = "exists only in" if self.extent else "exists in"
        return f"{self.method} {self.path.text} {verb} {self.extent.format(scheme)}"


_ByWords: TypeAlias = Mapping[tuple[str, ...], Operation]
_Tables: TypeAlias = Mapping[tuple[str, int], tuple[tuple[tuple[int, ...], _ByWords], ...]]


@final
@dataclass(frozen=True, slots=True)
class Operations:
    """Every operation of a service, ready to be looked up. Build it with `of`."""

    listed: tuple[Operation, ...] = ()
    """In the order of the file."""
    _tables: _Tables = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """By method and number of segments: where literals stand, and the operations by these literals."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The operations that `entries` make."""
        grouped: dict[tuple[str, PathTemplate], list[Entry]] = {}
        for entry in entries:
            for method in dict.fromkeys(entry.methods):
                grouped.setdefault((method, entry.path), []).append(entry)
        listed = {key: Operation.of(key[0], tuple(each)) for key, each in grouped.items()}
        # HEAD is GET without the body: it exists where GET does, unless it is spoken of itself.
        heads = {("HEAD", path): each for (method, path), each in listed.items() if method == "GET"}
        return cls(tuple(listed.values()), _tabulated({**heads, **listed}))

    def __bool__(self) -> bool:
        return bool(self.listed)

    def find(self, method: str, path: str) -> Operation | None:
        """What is configured for a request; None: it is not restricted. A literal segment beats a
        placeholder, the leftmost first."""
        words = segments_of(path)
        for places, operations in self._tables.get((method, len(words)), ()):
            found = operations.get(tuple([words[place] for place in places]))
            if found is not None:
                return found
        return None


def _tabulated(operations: Mapping[tuple[str, PathTemplate], Operation]) -> _Tables:
    tables: dict[tuple[str, int], dict[tuple[int, ...], dict[tuple[str, ...], Operation]]] = {}
    for (method, path), operation in operations.items():
        places = tuple(place for place, word in enumerate(path.segments) if word is not None)
        words = tuple(word for word in path.segments if word is not None)
        by_places = tables.setdefault((method, len(path.segments)), {})
        by_places.setdefault(places, {})[words] = operation
    return MappingProxyType(
        {
            (method, length): tuple(
                sorted(by_places.items(), key=lambda each: [at not in each[0] for at in range(length)])
            )
            for (method, length), by_places in tables.items()
        }
    )


NO_OPERATIONS = Operations()
