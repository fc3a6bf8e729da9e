"""Why a document that a probe read holds no versions: what stands where they are looked for, and which key of
`learn` would read it. The sentence is for the operator, who looks at `status`."""

from __future__ import annotations

import json
import re
from typing import Final

from gateway.core.http.json_body import Json
from gateway.core.versions.version import Scheme
from gateway.dialects.custom.codec import MOST_READ, DocumentCodec
from gateway.dialects.custom.json_path import JsonPath
from gateway.dialects.custom.locations import Affixes
from gateway.dialects.custom.option_reader import Parts

_SHOWN: Final = 40
"""Characters of a value that are quoted."""
_MOST_QUOTED: Final = 3
_READ: Final = 200
"""Characters of a value in which a version is looked for."""
_AROUND: Final = re.compile(r"([^0-9]*)([0-9][0-9.-]*[0-9]|[0-9])(.*)", re.ASCII | re.DOTALL)
"""What stands before and after the first number."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._~/:-]{0,20}", re.ASCII)


def why_none(parts: Parts, document: Json) -> str:
    """One sentence about a document in which no versions were found."""
    codec = parts.advertisement_codec
    places = [(path, path.find(document)) for path in (codec.listed, codec.minimum, codec.maximum) if path]
    for path, values in places:
        written = JsonPath.write(path)
        if len(values) > MOST_READ:
            return f"more than {MOST_READ} values at {written}"
        if any(codec.codec.read(value) is not None for value in values):
            continue
        if not values:
            return f"no versions found at {written}: the document has nothing there"
        return f"no versions found at {written}; found {_quoted(values)}{_key(codec, parts.scheme, values)}"
    where = " and ".join(JsonPath.write(path) for path, _ in places)
    return f"what stands at {where} is no range from a minimum up to a maximum"


def _quoted(values: list[Json]) -> str:
    """The first values as JSON writes them, each cut."""
    shown = [_one(value) for value in values[:_MOST_QUOTED]]
    return ", ".join(shown) + (", \u2026" if len(values) > _MOST_QUOTED else "")


def _one(value: Json) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if not isinstance(value, str):
        return json.dumps(value)[:_SHOWN]
    printable = "".join(each if " " <= each <= "~" and each not in '"\\' else "?" for each in value[:_SHOWN])
    return f'"{printable}"' + ("\u2026" if len(value) > _SHOWN else "")


def _key(codec: DocumentCodec, scheme: Scheme, values: list[Json]) -> str:
    """The `spelling` that reads the first text with a number in it; empty: none does."""
    for value in values:
        found = _AROUND.fullmatch(value[:_READ]) if isinstance(value, str) else None
        if found is None or not isinstance(value, str):
            continue
        before, number, after = found.groups()
        for end in range(len(number), 0, -1):
            rest = number[end:] + after
            spelled = Affixes(before, rest[:1], open_end=True) if rest else Affixes(before)
            text = spelled.read(value)
            if text is not None and scheme.parse(text) is not None and _PLAIN.fullmatch(before + rest[:1]):
                ending = f"{rest[:1]}*" if rest else ""
                return f': spelling: "{before}{{version}}{ending}" reads it'
    return ""
