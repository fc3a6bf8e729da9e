"""A location of a version in a request: a parameter of the media types of `Accept` and `Content-Type`.

The two fields are read by the grammar of RFC 9110 (5.6.6, 8.3.1, 12.5.1) in ASCII. Anything else in them is
malformed, because servers read it in different ways. Nothing here knows an option or a status, and nothing
from the network makes it raise. The other locations are in `locations`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.core.dialect import RequestedKind, RequestedVersion
from gateway.core.http.message import Header, all_values, normalize_name
from gateway.dialects.custom.locations import Affixes, VersionSyntax, agreed
from gateway.dialects.custom.spellings import letters_and_digits

LONGEST_LIST: Final = 2048
"""Longest `Accept` or `Content-Type` that is read, in characters: reading costs more than sending. Browsers
send 150."""

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
"""Pattern for a token as in names of media types and parameters (RFC 9110 5.6.2)."""
_WEIGHT: Final = re.compile(r"0?\.([0-9]{0,3})|0|1(?:\.0{0,3})?", re.ASCII)
"""Pattern for the weight of a media type, also `.2`: Java's `HttpURLConnection` sends `*; q=.2` by itself."""


def _element(kind: str, quotable: str, end: str) -> re.Pattern[str]:
    """A pattern for one media type up to `end`: (type), (parameters). `quotable`: characters of a quoted
    string. No text can be read in two ways, so what fails does so after one way back."""
    # Only single characters are possessive: of more, Python before 3.11.5 skips some that do not match
    # (cpython gh-106052).
    value = rf'(?:{_NAME}|"(?:[{quotable}]|\\[{quotable}\\"])*")'
    parameters = rf"(?:[ \t]*+;[ \t]*+(?:{_NAME}={value})?)*"
    return re.compile(rf"[ \t]*+(?:({kind})({parameters}))?[ \t]*+(?:{end})", re.ASCII)


_LISTED: Final = _element(rf"{_NAME}/{_NAME}|\*", r"\t !#-+\--\[\]-~", r",|\Z")
"""Pattern for a media type in a list, without a quoted comma: Django splits a list at every comma."""
_ALONE: Final = _element(rf"{_NAME}/{_NAME}", r"\t !#-\[\]-~", r"\Z")
_PARAMETER: Final = re.compile(rf';[ \t]*+({_NAME})=("(?:[^"\\]|\\.)*"|{_NAME})', re.ASCII)


class MediaType(NamedTuple):
    """A media type with its parameters: an element of `Accept`, or all of `Content-Type`."""

    name: str
    """Type and subtype of a media type in lower case: `application/json`."""
    parameters: tuple[tuple[str, str], ...]
    """Parameters of a media type: names in lower case, values as the client wrote them."""
    original: str = ""
    """The media type as the client wrote it; empty: it was changed."""

    def __str__(self) -> str:
        parameters = (f"{name}={value}" for name, value in self.parameters)
        return self.original or "; ".join((self.name, *parameters))

    @property
    def weights(self) -> list[str]:
        """The texts of the media type's weight (`q`): one, or none, in a list that can be read."""
        return [value for name, value in self.parameters if name == "q"]

    @property
    def weight(self) -> int:
        """The media type's weight in thousandths; 0 is "not acceptable". A missing weight is 1000."""
        found = _WEIGHT.fullmatch("".join(self.weights))
        if found is None or found[0][0] == "1":
            return 1000
        return int((found[1] or "").ljust(3, "0"))

    @property
    def without_weight(self) -> MediaType:
        return MediaType(self.name, tuple(pair for pair in self.parameters if pair[0] != "q"))

    def values_of(self, parameter: str) -> list[str]:
        """All values of a media type's parameter, without quotation marks."""
        return [_unquoted(value) for name, value in self.parameters if name == parameter]

    def with_parameter(self, parameter: str, text: str) -> MediaType:
        """A copy of the media type with the parameter first, because some readers stop at the weight."""
        others = self.without_weight.without_parameter(parameter).parameters
        weights = tuple(("q", value if value[0] != "." else f"0{value}") for value in self.weights)
        return MediaType(self.name, ((parameter, text), *others, *weights))

    def without_parameter(self, parameter: str) -> MediaType:
        """A copy of the media type without the parameter; the client's own text if it has none."""
        others = tuple(pair for pair in self.parameters if pair[0] != parameter)
        return self if len(others) == len(self.parameters) else MediaType(self.name, others)


@final
@dataclass(frozen=True, slots=True)
class MediaTypeLocation:
    """A parameter of the media types `types` (empty: of all) in `Accept` and `Content-Type`."""

    parameter: str
    """Name of the parameter that holds the version, in lower case."""
    types: tuple[str, ...]
    syntax: VersionSyntax
    affixes: Affixes
    sent: bool

    names = ("Accept", "Content-Type")

    def read(self, headers: Mapping[str, str]) -> RequestedVersion:
        """The version that all media types with the parameter request. Text that cannot be parsed is
        malformed."""
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
        """Whether another reader finds a version where this one does not, or the other way round. Many
        ignore quotation marks. Django and Werkzeug take `name*` and `name*0` for `name` (RFC 8187, RFC 2231).
        WebOb takes what follows the weight for no parameter of the type."""
        read = 0
        for element in elements:
            names = [name for name, _ in element.parameters]
            count = names.count(self.parameter)
            if count > 1 or (count and "q" in names[: names.index(self.parameter)]):
                return True
            read += count
        ours = letters_and_digits(self.parameter)
        pieces = (piece.partition("=")[0] for line in lines for piece in line.replace(",", ";").split(";"))
        found = sum(letters_and_digits(name.partition("*")[0]) == ours for name in pieces if "/" not in name)
        return found > read

    def _applies_to(self, name: str) -> bool:
        return not self.types or name in self.types

    def write(self, headers: Mapping[str, str], text: str | None) -> tuple[Header, ...]:
        """`Accept` and `Content-Type` with the version in the parameter; None: without it."""
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
        if not self._applies_to(element.name):
            return element
        if value is None:
            return element.without_parameter(self.parameter)
        return element.with_parameter(self.parameter, value)

    def _accept(self, elements: list[MediaType], value: str) -> list[MediaType]:
        """`Accept` with the version. If only `types` can carry one, it is the single type that the client
        prefers, or the first: another type beside it would leave the version to the backend, and
        Elasticsearch reads none at all in a list of types."""
        if not self.types:
            return [self._with_version(element, value) for element in elements or [MediaType("*/*", ())]]
        carriers = [(element, self._carrier(element)) for element in elements if element.weight]
        preferred = sorted((pair for pair in carriers if pair[1]), key=lambda pair: -pair[0].weight)
        best = preferred[0][1] if preferred else None
        return [(best or MediaType(self.types[0], ())).without_weight.with_parameter(self.parameter, value)]

    def _carrier(self, element: MediaType) -> MediaType | None:
        """The media type, one of `types`, as which an element can carry the version: itself, its plain form,
        or the first that its wildcard matches; None: there is none."""
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
    """Type and suffix of a media type: `application`, `json` of `application/vnd.x+json`."""
    kind, _, subtype = name.partition("/")
    return kind, subtype.rpartition("+")[2]


def read_media_types(lines: tuple[str, ...], *, listed: bool) -> list[MediaType] | None:
    """The elements of a list of media types (`listed`), or the one media type. None for anything outside the
    grammar, and for more text than `LONGEST_LIST`."""
    if sum(map(len, lines)) > LONGEST_LIST:
        return None
    elements: list[MediaType] = []
    for line in lines:
        at = 0
        while at < len(line):
            found = (_LISTED if listed else _ALONE).match(line, at)
            if found is None:
                return None
            if found[1] is not None:
                pairs = tuple((name.lower(), value) for name, value in _PARAMETER.findall(found[2]))
                name = "*/*" if found[1] == "*" else found[1].lower()
                elements.append(MediaType(name, pairs, found[0].rstrip(",").strip(" \t")))
            at = found.end()
    valid = all(map(_has_weight, elements)) if listed else len(elements) <= 1
    return elements if valid else None


def _has_weight(element: MediaType) -> bool:
    weights = element.weights
    return not weights or (len(weights) == 1 and _WEIGHT.fullmatch(weights[0]) is not None)


def _unquoted(value: str) -> str:
    """The value of a parameter without its quotation marks, which are no part of it (RFC 9110 5.6.6)."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
