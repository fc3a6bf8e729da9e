"""Effects of probes on clients, and reports of probes that found no versions.

Probed paths pass without a version where anything else is refused. The document that `learn` reads is one for
clients, too, unless the options say otherwise. `check` reports what remains misleading. `status` shows the
values of a document without versions, and the key of `learn` that would read them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Final

from gateway.core.dialect import OptionWarning, RequestedKind
from gateway.core.http.json_body import Json
from gateway.core.versions.version import Scheme
from gateway.dialects.custom.codec import MOST_READ, DocumentCodec
from gateway.dialects.custom.json_path import JsonPath
from gateway.dialects.custom.locations import Affixes, PathLocation
from gateway.dialects.custom.option_problems import PATH
from gateway.dialects.custom.option_reader import ApiDescription
from gateway.dialects.custom.options import LearnOptions
from gateway.dialects.custom.spellings import comparable

_JSON: Final = re.compile(r"[^/]+/(?:[^/]+\+)?json", re.ASCII)
_DOCUMENT_STATUSES: Final = frozenset({200, 203, 300})
"""Statuses of a response that may be rewritten (semantics, Responding)."""

SHOWS_ONE_SERVER: Final = "clients that read this document see the versions of one server"
_SHOWN: Final = 40
"""Longest part of a document's value that a report quotes, in characters."""
_MOST_QUOTED: Final = 3
_READ: Final = 200
"""Longest part of a document's value in which a version is searched, in characters."""
_AROUND: Final = re.compile(r"([^0-9]*)([0-9][0-9.-]*[0-9]|[0-9])(.*)", re.ASCII | re.DOTALL)
"""Pattern that splits a text: before, in and after its first number."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._~/:-]{0,20}", re.ASCII)


def with_probed_paths(api: ApiDescription) -> ApiDescription:
    """The description of an API, completed by what the paths that probes request mean for clients."""
    options = api.options
    probes, learn = options.probes, options.learn
    requested = (probes.path or learn.path, probes.health)
    learned, health = (None if path is None else probes.local(path.partition("?")[0]) for path in requested)
    paths = frozenset(path for path in (learned, health) if path is not None)
    api = replace(api, probed_paths=paths, notes=_notes(api, paths))
    if learned is None or not api.advertisement_codec.has_versions or learned in options.unversioned:
        return api
    if options.documents is None and _can_be_rewritten(learned, learn, api):
        # What stands at `/v3/` is rarely the document that stands at `/`.
        versioned = () if learned == "/" else (learned,)
        documents = ((learned, api.advertisement_codec),)
        return replace(api, documents=documents, versioned_documents=versioned)
    known = {comparable(path, api.suffixes) for path, _ in api.documents}
    if options.documents == () or comparable(learned, api.suffixes) in known:
        return api
    hint = "add it to documents, or to unversioned if they may see that"
    if options.documents is None:
        hint = "write documents: [] if they may see that, or how to rewrite it"
    return replace(api, warnings=(OptionWarning(("learn", "path"), SHOWS_ONE_SERVER, hint),))


def _can_be_rewritten(path: str, learn: LearnOptions, api: ApiDescription) -> bool:
    return (
        all(place.read(path, "").kind is not RequestedKind.EXACT for place in api.in_target)
        and PATH.fullmatch(path) is not None
        and not api.advertisement_codec.codec.affixes.open_end
        and _JSON.fullmatch(learn.content_type) is not None
        and not _DOCUMENT_STATUSES.isdisjoint(learn.statuses)
    )


def _notes(api: ApiDescription, paths: frozenset[str]) -> tuple[str, ...]:
    """Remarks of `check` about probed paths that pass without a version."""
    prefix = next((place.prefix for place in api.in_target if isinstance(place, PathLocation)), "")
    below = sorted(path for path in paths if prefix and path.startswith(prefix + "/"))
    if not below or set(below) <= set(api.options.unversioned):
        return ()
    listed = ", ".join(below)
    note = (
        f"every path below {prefix} needs a version, but for GET and HEAD of {listed}, which probes request; "
        f"list those that need none: unversioned: [{listed}]"
    )
    return (note,)


def why_none(api: ApiDescription, document: Json) -> str:
    """A sentence that explains why a probed document has no versions."""
    codec = api.advertisement_codec
    places = [(path, path.find(document)) for path in (codec.listed, codec.minimum, codec.maximum) if path]
    for path, values in places:
        written = JsonPath.write(path)
        if len(values) > MOST_READ:
            return f"more than {MOST_READ} values at {written}"
        if any(codec.codec.read(value) is not None for value in values):
            continue
        if not values:
            return f"no versions found at {written}: the document has nothing there"
        return f"no versions found at {written}; found {_quoted(values)}{_key(codec, api.scheme, values)}"
    where = " and ".join(JsonPath.write(path) for path, _ in places)
    return f"no range from a minimum up to a maximum at {where}"


def _quoted(values: list[Json]) -> str:
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
    """Advice on the option `spelling` that reads the first text with a number in it; empty: none does."""
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
