"""Where a version stands in a request: in a parameter of the media types of `Accept` and `Content-Type`.

What cannot be parsed is malformed. Nothing here knows an option or a status, and nothing that came from the
network makes it raise. The other locations of a version are in `locations`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.core.dialect import RequestedKind, RequestedVersion
from gateway.core.http.message import Header, all_values, normalize_name
from gateway.dialects.custom.locations import Affixes, VersionSyntax, agreed

LONGEST_LIST: Final = 2048
"""Characters of `Accept` or `Content-Type` that are read; browsers send 150. Reading them takes longer than
sending them, and the whole head may have 32 KiB."""
_BLANKS: Final = " \t"
_BLANKS_AND_QUOTES: Final = _BLANKS + "\"'"
_WEIGHT: Final = re.compile(r"0\.?([0-9]{0,3})|1(?:\.0{0,3})?", re.ASCII)


class MediaType(NamedTuple):
    """One element of `Accept`, or all of `Content-Type`."""

    name: str
    """Lower case: `application/json`."""
    parameters: tuple[tuple[str, str], ...]
    """Names in lower case, values as the client wrote them."""
    original: str = ""
    """The client's own text, as long as nothing is changed."""

    def __str__(self) -> str:
        parameters = (f"{name}={value}" if value else name for name, value in self.parameters)
        return self.original or "; ".join((self.name, *parameters))

    @property
    def weight(self) -> int:
        """The weight in thousandths. 0 is "not acceptable". A missing or invalid weight is 1000."""
        found = next((_WEIGHT.fullmatch(value) for name, value in self.parameters if name == "q"), None)
        return 1000 if found is None or found[1] is None else int(found[1].ljust(3, "0"))

    @property
    def without_weight(self) -> MediaType:
        return MediaType(self.name, tuple(pair for pair in self.parameters if pair[0] != "q"))

    def values_of(self, parameter: str) -> list[str]:
        """Every value of the parameter, without quotation marks."""
        return [_unquoted(value) for name, value in self.parameters if name == parameter]

    def with_parameter(self, parameter: str, text: str | None) -> MediaType:
        """The same with the parameter once, before the weight. None: without the parameter."""
        others = [pair for pair in self.parameters if pair[0] != parameter]
        if text is None and len(others) == len(self.parameters):
            return self
        if text is not None:
            weight = next((at for at, (name, _) in enumerate(others) if name == "q"), len(others))
            others.insert(weight, (parameter, text))
        return MediaType(self.name, tuple(others))


@final
@dataclass(frozen=True, slots=True)
class MediaTypeLocation:
    """A parameter of the media types `types` (empty: of all) in `Accept` and `Content-Type`."""

    parameter: str
    """Lower case."""
    types: tuple[str, ...]
    syntax: VersionSyntax
    affixes: Affixes
    sent: bool

    names = ("Accept", "Content-Type")

    def read(self, headers: Mapping[str, str]) -> RequestedVersion:
        """Every element that has the parameter must request the same, in both headers. What cannot be parsed
        is malformed, because another reader may find a version in it."""
        all_requested: list[RequestedVersion] = []
        for name in self.names:
            lines = all_values(headers, normalize_name(name))
            elements = read_media_types(lines, listed=name == "Accept")
            if elements is None or self._is_ambiguous(lines, elements):
                return RequestedVersion(RequestedKind.MALFORMED, text=", ".join(lines))
            for element in elements:
                if self._applies_to(element.name):
                    all_requested += [
                        self.syntax.read(text, self.affixes) for text in element.values_of(self.parameter)
                    ]
        return agreed(all_requested)

    def _is_ambiguous(self, lines: tuple[str, ...], elements: list[MediaType]) -> bool:
        """Whether another reader finds the parameter where this one does not. Many readers ignore quotation
        marks. Some (Django, Werkzeug) take `name*` and `name*0` for `name` (RFC 8187, RFC 2231)."""
        names = [piece.partition("=")[0] for line in lines for piece in line.replace(",", ";").split(";")]
        found = sum(
            name.partition("*")[0].strip(_BLANKS_AND_QUOTES).lower() == self.parameter for name in names
        )
        return found > sum(len(element.values_of(self.parameter)) for element in elements)

    def _applies_to(self, name: str) -> bool:
        return not self.types or name in self.types

    def write(self, headers: Mapping[str, str], text: str | None) -> tuple[Header, ...]:
        """Both headers with the version. None: both without it, and otherwise as they came."""
        value = None if text is None else self.affixes.write(text)
        written = []
        for name in self.names:
            lines = all_values(headers, normalize_name(name))
            elements = read_media_types(lines, listed=name == "Accept")
            if elements is None:
                written.append((name, ", ".join(lines)))
                continue
            if value is None:
                elements = [self._with_version(element, None) for element in elements]
            elif name == "Accept":
                elements = self._accept(elements, value)
            else:
                elements = [
                    self._with_version(self._carrier(element) or element, value) for element in elements
                ]
            if elements:
                written.append((name, ", ".join(map(str, elements))))
        return tuple(written)

    def _with_version(self, element: MediaType, value: str | None) -> MediaType:
        return element.with_parameter(self.parameter, value) if self._applies_to(element.name) else element

    def _accept(self, elements: list[MediaType], value: str) -> list[MediaType]:
        """`Accept` with the version. When only `types` can carry one, it is the single type that the client
        prefers.

        Any other type beside it would leave the version to the backend, and some servers (Elasticsearch) read
        no version at all in a list of types. A client that accepts none of `types` gets the first.
        """
        if not self.types:
            return [self._with_version(element, value) for element in elements or [MediaType("*/*", ())]]
        carriers = [(element, self._carrier(element)) for element in elements if element.weight]
        preferred = sorted((pair for pair in carriers if pair[1]), key=lambda pair: -pair[0].weight)
        best = preferred[0][1] if preferred else None
        return [(best or MediaType(self.types[0], ())).without_weight.with_parameter(self.parameter, value)]

    def _carrier(self, element: MediaType) -> MediaType | None:
        """The element as a type that can carry the version: itself, the one of `types` whose plain form it
        is, or the first that its wildcard matches. None where there is none."""
        if self._applies_to(element.name):
            return element
        kind, _, subtype = element.name.partition("/")
        if subtype == "*":
            found = (name for name in self.types if kind in ("*", name.partition("/")[0]))
        else:
            found = (name for name in self.types if _plain(name) == (kind, subtype))
        name = next(found, None)
        return None if name is None else MediaType(name, element.parameters)


def _plain(name: str) -> tuple[str, str]:
    """Type and suffix: `application`, `json` of `application/vnd.x+json`."""
    kind, _, subtype = name.partition("/")
    return kind, subtype.rpartition("+")[2]


def read_media_types(lines: tuple[str, ...], *, listed: bool) -> list[MediaType] | None:
    """The elements of a list of media types (`listed`), or the one media type.

    None for a quotation mark that is not closed, for two media types where one is allowed, and for more text
    than `LONGEST_LIST`.
    """
    if sum(map(len, lines)) > LONGEST_LIST:
        return None
    items = _split(", ".join(lines), ",") if listed else list(lines)
    elements = []
    for item in items or ():
        parts = _split(item, ";")
        if parts is None:
            return None
        name, *rest = (part.strip(_BLANKS) for part in parts)
        if not item.strip(_BLANKS):
            continue
        pairs = (part.partition("=") for part in rest if part)
        parameters = tuple((key.rstrip(_BLANKS).lower(), value.lstrip(_BLANKS)) for key, _, value in pairs)
        elements.append(MediaType(name.lower(), parameters, item.strip(_BLANKS)))
    return None if items is None or (not listed and len(elements) > 1) else elements


def _split(text: str, separator: str) -> list[str] | None:
    """`text` split at the separators outside quotation marks. None when a quotation mark is not closed."""
    if '"' not in text:
        return text.split(separator)
    parts, start, quoted, at = [], 0, False, 0
    while at < len(text):
        character = text[at]
        if character == "\\" and quoted:
            at += 1
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return None if quoted else [*parts, text[start:]]


def _unquoted(value: str) -> str:
    """The value of a parameter without its quotation marks, which are no part of it (RFC 9110 5.6.6)."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
