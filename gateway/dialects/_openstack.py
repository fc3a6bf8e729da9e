"""Bricks of the OpenStack microversion family: its request headers read, its discovery documents told anew.

Not a dialect: nothing here knows a service, a status or a default; which brick is used, and how, is for the
dialect to say. Like a dialect it never raises on anything that came from the network.

Which text of a request counts is decided as microversion-parse decides it (Nova since 14, Senlin since 2,
Placement, Ironic since 25.0): clients get what such a server would give them. What that text may then be is
decided more strictly than there: `int()` also takes `1_0`, `+9`, blanks and digits of other scripts, and two
readers that are lax in different ways read one text as two versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import unquote

from gateway.core.dialect import ASK_SILENT, Advert, Ask, AskKind, Bounds, Links
from gateway.core.message import all_values, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import MajorMinor, Version

MICROVERSION = MajorMinor()
"""X.Y, the one scheme of the family."""

STANDARD = "OpenStack-API-Version"
"""The header that all services share: `compute 2.1, baremetal 1.58`."""

STANDARD_FOLDED = fold(STANDARD)

DEEPEST = 32
"""Levels of lists and objects in a document that is believed; real ones have at most five (Nova 34)."""

_BLANK = " \t"  # what HTTP calls blank; str.strip() alone would also take U+00A0

Document: TypeAlias = dict[str, object]
_Node: TypeAlias = dict[str, object] | list[object]


# --- 1. request headers ------------------------------------------------------------------------------------


class Latest(Enum):
    """How a service spells "the newest you have"."""

    OFF = "off"
    """Not at all (Manila)."""
    EXACT = "exact"
    """`latest` (Nova, Cinder, Placement)."""
    ANY_CASE = "any_case"
    """`latest`, `LATEST`, `Latest` (Ironic, Senlin, Magnum)."""


def read_standard(headers: Mapping[str, str], service_types: frozenset[str]) -> str | None:
    """The version text of the last item of `OpenStack-API-Version` that names one of `service_types`.

    Repeated lines are one list. Service types match whole and in any case; aliases do not count. An item for
    somebody else, or without a version (`compute`, `2.5`), counts as if it were not there. Never empty.
    """
    for line in reversed(all_values(headers, STANDARD_FOLDED)):
        for item in reversed(line.split(",")):
            words = item.split(maxsplit=1)
            if len(words) == 2 and words[0].lower() in service_types:
                # Not words[1]: a separator that is no blank to HTTP stays in the text and garbles it.
                return item.strip()[len(words[0]) :].strip(_BLANK)
    return None


def read_legacy(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The text of the first of a service's own headers (folded `names`, in order) that is there, else None.

    Of a repeated or comma-joined value the last item; `""` when that is empty (Nova refuses it, Ironic since
    25.0 takes it for absence).
    """
    for name in names:
        values = all_values(headers, name)
        if values:
            return values[-1].rpartition(",")[2].strip(_BLANK)
    return None


def parse_microversion(text: str) -> Version | None:
    """X.Y by the API-SIG guideline, whose major is at least 1: to Nova and Senlin `0.9` is malformed."""
    version = MICROVERSION.parse(text)
    return version if version is not None and version[0] > 0 else None


def read_text(text: str | None, parse: Callable[[str], Version | None], latest: Latest) -> Ask:
    """The ask that `text` makes; None is silence."""
    if text is None:
        return ASK_SILENT
    if (text.lower() if latest is Latest.ANY_CASE else text) == "latest" and latest is not Latest.OFF:
        return Ask(AskKind.LATEST, text=text)
    version = parse(text)
    return Ask(AskKind.GARBLED, text=text) if version is None else Ask(AskKind.EXACT, version, text)


# --- 2. reply headers --------------------------------------------------------------------------------------


def without_json(path: str) -> str:
    """The path, decoded, as servers read one that ends in `.json`: Ironic takes it off (`json_ext`), and the
    routers of Cinder and Manila take it for the form of the reply."""
    plain = unquote(path) if "%" in path else path
    return plain.rstrip("/").removesuffix(".json").rstrip("/")


def one_text(values: tuple[str, ...]) -> str:
    """The text that all lines of a reply's header agree on; `""`, which is no version, when they do not."""
    return values[0] if values and values.count(values[0]) == len(values) else ""


@lru_cache(maxsize=256)  # the same few pairs stand on every reply of a fleet
def read_range(lowest: str, highest: str) -> Advert | None:
    """The advert that two version texts make; None unless both are versions of one major and run upwards."""
    low, high = MICROVERSION.parse(lowest), MICROVERSION.parse(highest)
    if low is None or high is None or low.major != high.major or low > high:
        return None
    return Advert(VersionSet.between(low, high))


# --- 3. discovery documents --------------------------------------------------------------------------------


def load_document(body: bytes) -> Document | None:
    """The JSON object that `body` is; None for anything else, and for one that is nested too deeply."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and not _deeper_than(DEEPEST, document) else None


def dump_document(document: Document) -> bytes | None:
    """The document as the servers write it: ASCII, a blank after `,` and `:`.

    None when it holds NaN or infinity, which are no JSON.
    """
    try:
        return json.dumps(document, allow_nan=False).encode("ascii")
    except ValueError:
        return None


def tell_range(entry: object, bounds: Bounds, highest: tuple[str, ...] = ("version",)) -> None:
    """Put the offer where `entry`, one version of a document, tells a range; in place.

    The minimum is `min_version` in every service, the maximum one of the keys `highest`. A text that is no
    version (`""` of Nova's v2.0) or one of another major stays: the offer does not speak for it. So does what
    is no object at all.
    """
    if not isinstance(entry, dict):
        return
    for key, version in (("min_version", bounds.lowest), *((key, bounds.highest) for key in highest)):
        text = entry.get(key)
        told = MICROVERSION.parse(text) if isinstance(text, str) else None
        if told is not None and told.major == version.major:
            entry[key] = MICROVERSION.format(version)


def mend_links(document: Document, links: Links) -> None:
    """Make every `href` below `document` one that the client can follow; in place."""
    pending: list[_Node] = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            href = node.get("href")
            if isinstance(href, str):
                node["href"] = links.rewrite(href)
        pending.extend(_children(node))


def _children(node: _Node) -> list[_Node]:
    """The lists and objects directly below `node`."""
    values = node.values() if isinstance(node, dict) else node
    return [each for each in values if isinstance(each, dict | list)]


def _deeper_than(limit: int, document: Document) -> bool:
    """Whether lists and objects nest in more than `limit` levels; a loop, since recursion is the danger."""
    level: list[_Node] = [document]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


# --- 4. releases -------------------------------------------------------------------------------------------


def release_table(names_by_highest: Mapping[str, str]) -> Mapping[str, Version]:
    """Highest version by release name, from `{"1.82": "21.4 antelope 2023.1"}`: what an operator may pin to.

    Raises `VersionTextError` for a key that is no version and `ValueError` for a name that stands twice: both
    are slips in a dialect's own table.
    """
    table: dict[str, Version] = {}
    for highest, names in names_by_highest.items():
        for name in names.split():
            if name in table:
                raise ValueError(f"the release {name!r} stands twice in a release table")
            table[name] = MICROVERSION.require(highest)
    return MappingProxyType(table)
