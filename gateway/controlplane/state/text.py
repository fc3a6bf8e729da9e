"""The state file's format: what survives a restart, as one small JSON document, written and parsed.

    {"skewgate_state": 1, "services": {"baremetal": {"dialect": "ironic", "scheme": ["major.minor"],
      "versions": [["1.1", "1.58"]], "pin": null, "drained": ["api-2"]}}}

Values in, values out; `file` reads and writes the disk. Whoever wrote a text, nothing in it counts that does
not fit: a text of another form is refused as a whole, and an entry for a service that is configured otherwise
is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionRange, VersionSet
from gateway.core.versions.version import Scheme
from gateway.errors import SkewgateError, VersionTextError
from gateway.telemetry.access_log import printable

FORMAT: Final = 1
"""Raised when an older release could misread what this one writes."""

_MAX_QUOTED: Final = 80
"""Characters of a text of the file in a message."""


class StateTextError(SkewgateError):
    """The text is not a state that this release wrote."""


class ParsedState(NamedTuple):
    """What a text restores."""

    saved: Mapping[str, SavedState]
    """By service."""
    dropped: tuple[str, ...]
    """What no longer fits the configuration, a sentence each."""


def format_state(snapshot: Snapshot) -> str:
    """All of `snapshot` that should survive a restart."""
    entries = {}
    for name, saved in snapshot.saved().items():
        dialect = snapshot.views[name].service.dialect
        text_of = dialect.scheme.format
        entries[name] = {
            "dialect": dialect.name,
            "scheme": dialect.scheme.key,
            "versions": [
                [text_of(versions.low), text_of(versions.high)] for versions in saved.versions.ranges
            ],
            "pin": None if saved.pin is None else text_of(saved.pin),
            "drained": sorted(saved.drained),
        }
    return json.dumps({"skewgate_state": FORMAT, "services": entries}, indent=1) + "\n"


def parse_state(text: str, services: Iterable[Service]) -> ParsedState:
    """What `text` holds for `services`. Raises `StateTextError`."""
    entries = _entries(text)
    saved: dict[str, SavedState] = {}
    dropped = []
    configured = {service.name: service for service in services}
    for name, entry in entries.items():
        service = configured.get(name)
        if service is None:
            dropped.append(f"{_quoted(name)}: no longer configured")
        elif entry["dialect"] != service.dialect.name:
            dropped.append(f"{name}: saved for another dialect, {_quoted(entry['dialect'])}")
        elif (entry["dialect"], *entry["scheme"]) != service.scheme_id:
            scheme = " ".join(map(str, entry["scheme"]))
            dropped.append(f"{name}: saved for another scheme of versions, {_quoted(scheme)}")
        else:
            state = _saved_state(name, entry, service.dialect.scheme)
            backends = frozenset(backend.name for backend in service.backends)
            dropped += [
                f"{name}/{_quoted(backend)}: was drained, no longer configured"
                for backend in sorted(state.drained - backends)
            ]
            saved[name] = replace(state, drained=state.drained & backends)
    return ParsedState(saved, tuple(dropped))


def _quoted(text: str) -> str:
    """A text of the file for a message: on one line, and of bounded length."""
    return printable(text, _MAX_QUOTED)


def _entries(text: str) -> Mapping[str, dict[str, Any]]:
    """The entries by service, each of the right shape."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise StateTextError("it is not JSON") from None
    if not isinstance(document, dict) or type(document.get("skewgate_state")) is not int:
        raise StateTextError("it is not a state file of skewgate")
    if document["skewgate_state"] != FORMAT:
        found = _quoted(str(document["skewgate_state"]))
        raise StateTextError(f"its format is {found}, this release reads format {FORMAT}")
    entries = document.get("services")
    if not isinstance(entries, dict):
        raise StateTextError("it has no `services`")
    for name, entry in entries.items():
        if not _is_entry(entry):
            raise StateTextError(f"its entry '{_quoted(name)}' is malformed")
    return entries


def _is_entry(entry: object) -> bool:
    match entry:
        case {
            "dialect": str(),
            "scheme": list(),
            "versions": list(ranges),
            "pin": str() | None,
            "drained": list(names),
        }:
            return all(isinstance(name, str) for name in names) and all(map(_is_range, ranges))
        case _:
            return False


def _is_range(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) for end in pair)


def _saved_state(name: str, entry: Mapping[str, Any], scheme: Scheme) -> SavedState:
    """Raises `StateTextError` if a text is not a version, or the versions cannot be an offer."""
    try:
        versions = VersionSet.of(
            VersionRange.in_major(scheme.require(low), scheme.require(high))
            for low, high in entry["versions"]
        )
        pin = None if entry["pin"] is None else scheme.require(entry["pin"])
    except VersionTextError:
        raise StateTextError(f"its entry '{_quoted(name)}' holds what is not a version or a range") from None
    if scheme.contiguous and len(versions.ranges) > 1:
        raise StateTextError(f"its entry '{_quoted(name)}' has a gap in its versions")
    return SavedState(versions, pin, frozenset(entry["drained"]))
