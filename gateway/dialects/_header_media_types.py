"""A version in a parameter of the media types in `Accept` and `Content-Type`: one of the places of a version.

What cannot be read is garbled. A brick of the `header` dialect: nothing here knows an option or a status, and
nothing that came from the network makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.core.dialect import Ask, AskKind
from gateway.core.message import Header, all_values, fold
from gateway.dialects._header_places import Spelling, Words, agreed

LONGEST_LIST: Final = 2048
"""Characters of `Accept` or `Content-Type` that are read; browsers send 150. Reading takes longer than
sending does, and the whole head may have 32 KiB."""
_BLANKS: Final = " \t"
_LOOSE: Final = _BLANKS + "\"'"
_WEIGHT: Final = re.compile(r"0\.?([0-9]{0,3})|1(?:\.0{0,3})?", re.ASCII)


class MediaType(NamedTuple):
    """One element of `Accept`, or the whole of `Content-Type`."""

    name: str
    """Lower case: `application/json`."""
    parameters: tuple[tuple[str, str], ...]
    """Name in lower case, value as it was written."""
    written: str = ""
    """As it came, while nothing is changed."""

    def __str__(self) -> str:
        told = (f"{name}={value}" if value else name for name, value in self.parameters)
        return self.written or "; ".join((self.name, *told))

    @property
    def weight(self) -> int:
        """How much a client likes it, in thousandths; 0 is not at all, and no weight, or nonsense, is all."""
        found = next((_WEIGHT.fullmatch(value) for name, value in self.parameters if name == "q"), None)
        return 1000 if found is None or found[1] is None else int(found[1].ljust(3, "0"))

    @property
    def unweighted(self) -> MediaType:
        return MediaType(self.name, tuple(each for each in self.parameters if each[0] != "q"))

    def valued(self, parameter: str) -> list[str]:
        """What the parameter is said to be, without quotation marks."""
        return [_unquoted(value) for name, value in self.parameters if name == parameter]

    def saying(self, parameter: str, text: str | None) -> MediaType:
        """With the parameter once, before the weight, or (None) without it."""
        kept = [each for each in self.parameters if each[0] != parameter]
        if text is None and len(kept) == len(self.parameters):
            return self
        if text is not None:
            weight = next((at for at, (name, _) in enumerate(kept) if name == "q"), len(kept))
            kept.insert(weight, (parameter, text))
        return MediaType(self.name, tuple(kept))


@final
@dataclass(frozen=True, slots=True)
class MediaTypePlace:
    """A parameter of the media types `types` (none: of all) in `Accept` and `Content-Type`."""

    parameter: str
    """Lower case."""
    types: tuple[str, ...]
    words: Words
    spelling: Spelling
    sent: bool

    names = ("Accept", "Content-Type")

    def read(self, headers: Mapping[str, str]) -> Ask:
        """Every element that has the parameter must say the same, in both headers. What cannot be read is
        garbled: somebody else may read a version in it."""
        asks: list[Ask] = []
        for name in self.names:
            lines = all_values(headers, fold(name))
            elements = read_media_types(lines, listed=name == "Accept")
            if elements is None or self._hides(lines, elements):
                return Ask(AskKind.GARBLED, text=", ".join(lines))
            for element in elements:
                if self._has(element.name):
                    asks += [self.words.read(text, self.spelling) for text in element.valued(self.parameter)]
        return agreed(asks)

    def _hides(self, lines: tuple[str, ...], elements: list[MediaType]) -> bool:
        """Whether another reader finds the parameter where this one does not: many know no quotation marks,
        some (Django, Werkzeug) take `name*` and `name*0` for `name` (RFC 8187, RFC 2231)."""
        names = [piece.partition("=")[0] for line in lines for piece in line.replace(",", ";").split(";")]
        found = sum(name.partition("*")[0].strip(_LOOSE).lower() == self.parameter for name in names)
        return found > sum(len(each.valued(self.parameter)) for each in elements)

    def _has(self, name: str) -> bool:
        return not self.types or name in self.types

    def write(self, headers: Mapping[str, str], text: str | None) -> tuple[Header, ...]:
        """Both headers with the version, or (None) without it and else as they came."""
        spelled = None if text is None else self.spelling.write(text)
        written = []
        for name in self.names:
            lines = all_values(headers, fold(name))
            elements = read_media_types(lines, listed=name == "Accept")
            if elements is None:
                written.append((name, ", ".join(lines)))
                continue
            if spelled is None:
                elements = [self._marked(element, None) for element in elements]
            elif name == "Accept":
                elements = self._accepting(elements, spelled)
            else:
                elements = [self._marked(self._able(element) or element, spelled) for element in elements]
            if elements:
                written.append((name, ", ".join(map(str, elements))))
        return tuple(written)

    def _marked(self, element: MediaType, spelled: str | None) -> MediaType:
        return element.saying(self.parameter, spelled) if self._has(element.name) else element

    def _accepting(self, elements: list[MediaType], spelled: str) -> list[MediaType]:
        """What `Accept` becomes: where only `types` carry a version, the one that the client likes best.

        Any other type beside it would leave the version to the backend, and some servers (Elasticsearch) read
        none at all where more than one type stands. A client that takes none of them gets the first.
        """
        if not self.types:
            return [self._marked(each, spelled) for each in elements or [MediaType("*/*", ())]]
        able = [(each, self._able(each)) for each in elements if each.weight]
        liked = sorted((pair for pair in able if pair[1]), key=lambda pair: -pair[0].weight)
        best = liked[0][1] if liked else None
        return [(best or MediaType(self.types[0], ())).unweighted.saying(self.parameter, spelled)]

    def _able(self, element: MediaType) -> MediaType | None:
        """The element as a type that can carry the version: itself, the one of `types` of which it is the
        plain form, or the first that a wildcard takes; None where there is none."""
        if self._has(element.name):
            return element
        kind, _, subtype = element.name.partition("/")
        if subtype == "*":
            found = (each for each in self.types if kind in ("*", each.partition("/")[0]))
        else:
            found = (each for each in self.types if _plain(each) == (kind, subtype))
        name = next(found, None)
        return None if name is None else MediaType(name, element.parameters)


def _plain(name: str) -> tuple[str, str]:
    """Type and suffix: `application`, `json` of `application/vnd.x+json`."""
    kind, _, subtype = name.partition("/")
    return kind, subtype.rpartition("+")[2]


def read_media_types(lines: tuple[str, ...], *, listed: bool) -> list[MediaType] | None:
    """The elements of a list of media types, or the one media type where there is no list; None where a
    quotation mark stays open, where there are two of what can be one, or more than anybody means."""
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
    """`text` cut at the separators outside quotation marks; None when one stays open."""
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
    """The value of a parameter, whose quotation marks mean nothing (RFC 9110 5.6.6)."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
