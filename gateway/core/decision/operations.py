"""Operations that exist only in some versions of their API, as an operator configures them.

A rule names methods, a path and versions. The rules of one method and path together make one operation, which
exists in the union of their versions. An operation without a rule is not restricted. Nothing is refused here:
`core.decision.decision` does that, with the dialect's response.

Paths are compared decoded, without empty segments and without path parameters (`;a=b`), as the servers behind
most dialects read them: another spelling of a path must not bypass the rule for the plain one. For the same
reason a method is read as the servers read it, which may take that of a POST from a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Self, TypeAlias, final
from urllib.parse import parse_qsl, unquote

from gateway.core.http.message import METHODS, Request
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version
from gateway.errors import TextRefused

NEXT = "next"
"""Word in place of an operation's versions while it is developed (RFC 041): it is in no version yet."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,=@-][A-Za-z0-9._~!$&'()*+,=:@-]*", re.ASCII)
_HINT = "write /v1/nodes/{node}/vifs"


# --- paths -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class PathTemplate:
    """Template of paths, `/v1/nodes/{id}/vifs`: literal segments, and placeholders for any one segment."""

    text: str = field(compare=False)
    segments: tuple[str | None, ...]
    """Segments of a path template; None: a placeholder, whose name is no part of the comparison."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse a path template. Raises `TextRefused`."""
        if not text.startswith("/"):
            raise TextRefused("a path begins with a slash", _HINT)
        parts = text[1:].split("/") if text != "/" else []
        names = [found[1] for part in parts if (found := _PLACEHOLDER.fullmatch(part))]
        if len(set(names)) != len(names):
            raise TextRefused("each {name} may be used once", _HINT)
        return cls(text, tuple(map(_segment, parts)))

    @property
    def rfc041_text(self) -> str:
        """The path template in the notation of RFC 041: `/v1/nodes/:id/vifs`."""
        return _PLACEHOLDER.sub(r":\1", self.text)


def _segment(part: str) -> str | None:
    if _PLACEHOLDER.fullmatch(part):
        return None
    if not part or part in {".", ".."}:
        raise TextRefused("a path holds no empty, `.` or `..` segment, and does not end in a slash", _HINT)
    if part.startswith(":"):
        raise TextRefused("a placeholder is written {name}", _HINT)
    if not _LITERAL.fullmatch(part):
        raise TextRefused(
            "a segment is plain characters, or {name} for any text: no %, no `;`, no query", _HINT
        )
    return part


def segments_of(path: str) -> tuple[str, ...]:
    """Segments of a request's path as its servers look it up: escapes are decoded, then the path is split,
    and path parameters and empty segments are dropped."""
    plain = unquote(path) if "%" in path else path
    segments = plain.split("/")
    if ";" in plain:
        segments = [segment.partition(";")[0] for segment in segments]
    return tuple(filter(None, segments))


# --- methods -----------------------------------------------------------------------------------------------


def effective_method(head: Request, overrides: tuple[str, ...]) -> str:
    """The method by which servers look up a request if they take that of a POST from a header: the first of
    `overrides` (normalized names) that is present. Of several values the first counts, as in Express. One
    that is no method is ignored (semantics, Choosing)."""
    if head.method != "POST":
        return head.method
    for name in overrides:
        text = next((value for found, value in head.fields if found == name), None)
        if text is not None:
            method = text.partition(",")[0].strip().upper()
            return method if method in METHODS else head.method
    return head.method


def possible_methods(head: Request, overrides: tuple[str, ...], parameter: str | None) -> tuple[str, ...]:
    """Methods that a server may execute for this request. First the one of `effective_method`, last those
    that the query names, for servers that take one from there (routes and pecan: `_method`). Of several
    values in headers Express takes the first, others the last, and Rack none: then it stays POST."""
    methods: tuple[str, ...] = (effective_method(head, overrides) if overrides else head.method,)
    if overrides and head.method == "POST":
        values = [part for name, text in head.fields if name in overrides for part in text.split(",")]
        if len(values) > 1:
            named = (value.strip().upper() for value in values)
            methods = tuple(dict.fromkeys((*methods, *(each for each in named if each in METHODS), "POST")))
    query = head.query
    if parameter is None or parameter not in (unquote(query) if "%" in query else query):
        return methods
    # All that any reader finds: which of several counts, and whether `;` separates parameters, differs.
    pairs = parse_qsl(query.replace(";", "&"))
    return (*methods, *(value.upper() for name, value in pairs if name == parameter))


# --- the table ---------------------------------------------------------------------------------------------


class OperationStatus(StrEnum):
    """Stage in the life of an API operation, with the words of RFC 041."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    UNSTABLE = "unstable"


@final
@dataclass(frozen=True, slots=True)
class OperationRule:
    """Rule for the versions in which operations exist: one item of `operations` in the configuration."""

    methods: tuple[str, ...]
    path: PathTemplate
    versions: VersionSet
    """Versions in which the operations exist, perhaps with open ends and spanning majors. Empty: `next`."""
    status: OperationStatus = OperationStatus.ACTIVE
    refusal: int | None = None
    """Status of the refusal outside these versions, 400 or 404; None: the dialect's own."""


@final
@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of an API: one method at one path, with all rules for it."""

    method: str
    path: PathTemplate
    rules: tuple[OperationRule, ...]
    """Rules of the operation in the order of the configuration file; never empty."""
    versions: VersionSet
    """Versions in which the operation exists: the union of its rules'. Empty: in no version yet."""
    refusal: int | None

    @classmethod
    def of(cls, method: str, rules: tuple[OperationRule, ...]) -> Self:
        versions = VersionSet.of(one for rule in rules for one in rule.versions.ranges)
        refusal = next((rule.refusal for rule in rules if rule.refusal is not None), None)
        return cls(method, rules[0].path, rules, versions, refusal)

    def format_versions(self, scheme: Scheme) -> str:
        """The operation's versions as text for people: `1.0-1.3, 2.4 and later`, or `no version yet`."""
        return self.versions.format(scheme) if self.versions else "no version yet"

    def format(self, scheme: Scheme) -> str:
        """The operation as text for people: `GET /v1/nodes/{id} exists only in 1.5 and later`."""
        verb = "exists only in" if self.versions else "exists in"
        return f"{self.method} {self.path.text} {verb} {self.format_versions(scheme)}"


_ByLiterals: TypeAlias = Mapping[tuple[str, ...], Operation]
_Tables: TypeAlias = Mapping[tuple[str, int], tuple[tuple[tuple[int, ...], _ByLiterals], ...]]


@final
@dataclass(frozen=True, slots=True)
class Operations:
    """All operations of a service for which there are rules, in tables for look-up. `of` makes them."""

    listed: tuple[Operation, ...] = ()
    _tables: _Tables = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """Operations by method and number of path segments, then by the literal ones; leftmost literals first."""

    @classmethod
    def of(cls, rules: Iterable[OperationRule]) -> Self:
        """Make a service's operations from `rules`."""
        grouped: dict[tuple[str, PathTemplate], list[OperationRule]] = {}
        for rule in rules:
            for method in dict.fromkeys(rule.methods):
                grouped.setdefault((method, rule.path), []).append(rule)
        listed = {key: Operation.of(key[0], tuple(together)) for key, together in grouped.items()}
        # HEAD is GET without the body: it exists where GET does, unless it has rules of its own.
        heads = {("HEAD", path): one for (method, path), one in listed.items() if method == "GET"}
        return cls(tuple(listed.values()), _tabulated({**heads, **listed}))

    def __bool__(self) -> bool:
        return bool(self.listed)

    def find(self, method: str, path: str) -> Operation | None:
        """Operation of a request; None: unrestricted. The template with the leftmost literals wins."""
        segments = segments_of(path)
        for positions, by_literals in self._tables.get((method, len(segments)), ()):
            found = by_literals.get(tuple([segments[position] for position in positions]))
            if found is not None:
                return found
        return None

    def deprecated_below(self, version: Version) -> Self:
        """These operations with the status `deprecated` in all versions below `version`."""
        found = [replace(rule, methods=(each.method,)) for each in self.listed for rule in each.rules]
        for at, rule in reversed(list(enumerate(found))):
            if below := rule.versions.up_to(version.step(-1)):
                later = replace(rule, versions=rule.versions.down_to(version))
                earlier = replace(rule, versions=below, status=OperationStatus.DEPRECATED)
                found[at : at + 1] = [earlier, later] if later.versions else [earlier]
        return self.of(found)


def _tabulated(operations: Mapping[tuple[str, PathTemplate], Operation]) -> _Tables:
    tables: dict[tuple[str, int], dict[tuple[int, ...], dict[tuple[str, ...], Operation]]] = {}
    for (method, path), operation in operations.items():
        positions = tuple(at for at, segment in enumerate(path.segments) if segment is not None)
        literals = tuple(segment for segment in path.segments if segment is not None)
        by_positions = tables.setdefault((method, len(path.segments)), {})
        by_positions.setdefault(positions, {})[literals] = operation
    return MappingProxyType(
        {
            (method, length): tuple(
                sorted(by_positions.items(), key=lambda item: [at not in item[0] for at in range(length)])
            )
            for (method, length), by_positions in tables.items()
        }
    )


NO_OPERATIONS = Operations()
