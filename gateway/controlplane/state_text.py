"""What is kept across a restart, as the text of one small JSON file, and read back.

    {"skewgate_state": 1, "services": {"baremetal": {"dialect": "ironic", "scheme": ["major.minor"],
      "versions": [["1.1", "1.58"]], "pin": null, "drained": ["api-2"]}}}

Values in, values out; the file itself is `state`. Whoever wrote it, nothing in it is believed that does not
fit: a text of another form is refused as a whole, an entry for what is configured otherwise does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from gateway.core.memory import Kept
from gateway.core.ranges import VersionRange, VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Scheme
from gateway.errors import SkewgateError, VersionTextError

FORM: Final = 1
"""Raised when an older release could misread what this one writes."""


class StateTextError(SkewgateError):
    """The text is none that this release wrote."""


class Recalled(NamedTuple):
    """What a text brings back."""

    kept: Mapping[str, Kept]
    """By service."""
    lost: tuple[str, ...]
    """What it holds that no longer fits the configuration, a sentence each."""


def state_text(snapshot: Snapshot) -> str:
    """All that should survive a restart of the gateway which is in this state."""
    entries = {}
    for name, kept in snapshot.kept().items():
        dialect = snapshot.views[name].service.dialect
        spell = dialect.scheme.format
        entries[name] = {
            "dialect": dialect.name,
            "scheme": dialect.scheme.key,
            "versions": [[spell(each.low), spell(each.high)] for each in kept.versions.ranges],
            "pin": None if kept.pin is None else spell(kept.pin),
            "drained": sorted(kept.drained),
        }
    return json.dumps({"skewgate_state": FORM, "services": entries}, indent=1) + "\n"


def recall(text: str, services: Iterable[Service]) -> Recalled:
    """What `text` says of `services`. Raises `StateTextError`."""
    entries = _entries(text)
    kept: dict[str, Kept] = {}
    lost = []
    configured = {service.name: service for service in services}
    for name, entry in entries.items():
        service = configured.get(name)
        if service is None:
            lost.append(f"{_harmless(name)}: is not configured any more")
        elif entry["dialect"] != service.dialect.name:
            lost.append(f"{name}: was kept for another dialect, {_harmless(entry['dialect'])}")
        elif (entry["dialect"], *entry["scheme"]) != service.language:
            then = " ".join(map(str, entry["scheme"]))
            lost.append(f"{name}: was kept for another scheme of versions, {_harmless(then)}")
        else:
            found = _kept(name, entry, service.dialect.scheme)
            there = frozenset(backend.name for backend in service.backends)
            lost += [
                f"{name}/{_harmless(each)}: was drained and is not configured any more"
                for each in sorted(found.drained - there)
            ]
            kept[name] = replace(found, drained=found.drained & there)
    return Recalled(kept, tuple(lost))


def _harmless(text: str) -> str:
    """A text of the file for the log: on one line, and not endless."""
    return ascii(text[:80])[1:-1]


def _entries(text: str) -> Mapping[str, dict[str, Any]]:
    """The entries by service, each of the right shape."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise StateTextError("it is no JSON") from None
    if not isinstance(document, dict) or type(document.get("skewgate_state")) is not int:
        raise StateTextError("it is no state of skewgate")
    if document["skewgate_state"] != FORM:
        raise StateTextError(
            f"its form is {_harmless(str(document['skewgate_state']))}, this release reads {FORM}"
        )
    entries = document.get("services")
    if not isinstance(entries, dict):
        raise StateTextError("it names no services")
    for name, entry in entries.items():
        if not _is_entry(entry):
            raise StateTextError(f"its entry '{_harmless(name)}' is broken")
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


def _kept(name: str, entry: Mapping[str, Any], scheme: Scheme) -> Kept:
    """Raises `StateTextError` where a text is no version, or the versions are no offer."""
    try:
        versions = VersionSet.of(
            VersionRange(scheme.require(low), scheme.require(high)) for low, high in entry["versions"]
        )
        pin = None if entry["pin"] is None else scheme.require(entry["pin"])
    except VersionTextError:
        raise StateTextError(f"its entry '{_harmless(name)}' names what is no version") from None
    if scheme.contiguous and len(versions.ranges) > 1:
        raise StateTextError(f"its entry '{_harmless(name)}' offers versions with a gap")
    return Kept(versions, pin, frozenset(entry["drained"]))
