"""Format of the state file: a small JSON object.

    {"skewgate_state": 2, "services": {"baremetal": {"dialect": "ironic", "scheme": ["major.minor"],
      "versions": [["1.1", "1.58"]], "policy": "at_least", "at_least": "50%", "cut": false, "pin": null,
      "drained": ["api-2"], "advertisements": {"api-1": {"url": "http://10.0.0.1:6385",
        "versions": [["1.1", "1.58"]], "default": null, "legacy": false, "at": 1790000000.0}}}}}

Values in, values out; `file` reads and writes the disk. A text of another form is refused as a whole, and an
entry for a service that is configured otherwise is dropped. With several workers or replicas an entry also
has the `document`, which is the agreed record, and the registration as a `replica`. Releases that know
neither ignore them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, UnionType
from typing import Any, Final, NamedTuple, TypeGuard

from gateway.core.agreement.attachment import LastAttached, Registered
from gateway.core.agreement.raised import NOT_RAISED, read_raised, write_raised
from gateway.core.agreement.record import AgreedRecord, UnreadableRecord, read_record, write_record
from gateway.core.dialect import Advertisement
from gateway.core.fleet.offer_state import SavedAdvertisement, SavedState
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionRange, VersionSet, read_anew
from gateway.core.versions.version import Scheme
from gateway.errors import SkewgateError, VersionTextError
from gateway.telemetry.access_log import printable

FORMAT: Final = 2
"""Version of the state file's format. It changes when an older release could misread what this one writes."""
_LATEST_TIME: Final = 1e12
"""Latest Unix time that is accepted in a state file: the year 33658."""
_MAX_QUOTED: Final = 80
"""Largest number of characters that a message quotes of the file."""


MAX_IDS: Final = 64
"""Largest number of registrations in an entry: an earlier process has ended its own, or its successor has."""
_MAX_ID: Final = 128
"""Longest id of a replica, or of a start of the machine, in characters."""


class StateTextError(SkewgateError):
    """Error: the text is not a state that this release can read."""


class ParsedState(NamedTuple):
    """Result of parsing a state file: what is restored, and what no longer fits."""

    saved: Mapping[str, SavedState]
    """State restored from the file, by service."""
    dropped: tuple[str, ...]
    """Sentences about the parts of the file that no longer fit the configuration."""


def format_state(
    snapshot: Snapshot,
    wall_offset: float = 0.0,
    records: Mapping[str, AgreedRecord] = MappingProxyType({}),
    registrations: Mapping[str, Registered] = MappingProxyType({}),
) -> str:
    """Write as text all of `snapshot` that should survive a restart.

    `wall_offset`: the difference between Unix time and the clock that dates facts. `records`: what workers
    hold of the offers, or are about to, by service. `registrations`: those of this replica, by service."""
    entries = {}
    for name, saved in snapshot.saved().items():
        dialect = snapshot.views[name].service.dialect
        policy, at_least = saved.policy
        record, registered = records.get(name), registrations.get(name)
        entry: dict[str, object] = {
            "dialect": dialect.name,
            "scheme": dialect.scheme.key,
            "versions": _ranges(saved.versions, dialect.scheme),
            "policy": policy.value,
            "at_least": None if at_least is None else f"{at_least.number}{'%' if at_least.percent else ''}",
            "cut": saved.cut,
            "pin": None if saved.pin is None else dialect.scheme.format(saved.pin),
            "drained": sorted(saved.drained),
            "advertisements": {
                backend: _advertisement_entry(known, dialect.scheme, wall_offset)
                for backend, known in saved.advertisements.items()
            },
        }
        if saved.raised != NOT_RAISED:  # an earlier release drops it: it offers everything
            entry["raised"] = write_raised(saved.raised, dialect.scheme)
        if by := {backend: by for backend, by in saved.drained.items() if by}:
            entry["drained_by"] = by
        if saved.negotiates_legacy:
            entry["legacy"] = "refuse"
        if record is not None:
            entry["document"] = write_record(record, dialect.name, dialect.scheme)
        if registered is not None:
            last = None if registered.last is None else list(registered.last)
            entry["replica"] = {"ids": list(registered.ids), "last_attached": last}
        entries[name] = entry
    return json.dumps({"skewgate_state": FORMAT, "services": entries}, indent=1) + "\n"


def _ranges(versions: VersionSet, scheme: Scheme) -> list[list[str]]:
    return [[scheme.format(one.low), scheme.format(one.high)] for one in versions.ranges]


def _advertisement_entry(known: SavedAdvertisement, scheme: Scheme, wall_offset: float) -> dict[str, Any]:
    found = known.advertisement
    entry = {
        "url": known.url,
        "versions": _ranges(found.versions, scheme),
        "default": None if found.default is None else scheme.format(found.default),
        "legacy": found.legacy,
        "at": max(0.0, known.at + wall_offset),  # JSON has no infinity
    }
    if known.source:  # releases that know no sources drop the whole entry: they have no such backend
        leaves_at = None if known.leaves_at is None else known.leaves_at + wall_offset
        entry |= {"source": known.source, "leaves_at": leaves_at}
    return entry


def parse_state(text: str, services: Iterable[Service], wall_offset: float = 0.0) -> ParsedState:
    """Parse a state file for `services`. `wall_offset` as in `format_state`. Raises `StateTextError`."""
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
        elif (scheme := service.dialect.scheme.earlier(tuple(entry["scheme"]))) is None:
            found = " ".join(map(str, entry["scheme"]))
            dropped.append(f"{name}: saved for another scheme of versions, {_quoted(found)}")
        else:
            state = _saved_state(name, entry, scheme, service, wall_offset)
            saved[name], gone = _fitting(state, service)
            dropped += gone
            if "document" in entry:
                try:
                    record = read_record(entry["document"], service.dialect.name, service.dialect.scheme)
                except UnreadableRecord as problem:
                    dropped.append(f"{name}: the record of its workers, {problem}")
                else:
                    saved[name] = replace(saved[name], record=record)
            if "replica" in entry:
                registered = _registered(entry["replica"])
                if registered is None:
                    dropped.append(f"{name}: its registration as a replica, malformed")
                else:
                    saved[name] = replace(saved[name], registered=registered)
    return ParsedState(saved, tuple(dropped))


def _fitting(state: SavedState, service: Service) -> tuple[SavedState, list[str]]:
    """Split a saved state into the part about configured backends, and a sentence about each other one."""
    sources = {source.key for source in service.sources}
    urls = {name: known.url for name, known in state.advertisements.items() if known.source in sources}
    urls |= {backend.name: backend.url for backend in service.backends}
    gone = [
        f"{service.name}/{_quoted(backend)}: was drained, no longer configured"
        for backend in sorted(state.drained.keys() - urls.keys())
    ]
    moved = {name for name, known in state.advertisements.items() if urls.get(name) != known.url}
    gone += [
        f"{service.name}/{_quoted(backend)}: what it advertised, "
        + ("it has another address now" if backend in urls else "no longer configured")
        for backend in sorted(moved - (state.drained.keys() - urls.keys()))
    ]
    advertisements = {name: known for name, known in state.advertisements.items() if name not in moved}
    drained = {name: by for name, by in state.drained.items() if name in urls}
    return replace(state, drained=drained, advertisements=advertisements), gone


def _quoted(text: str) -> str:
    """Quote a text of the state file for a message: on one line, and of bounded length."""
    return printable(text, _MAX_QUOTED)


def _entries(text: str) -> Mapping[str, dict[str, Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise StateTextError("it is not JSON") from None
    if not isinstance(content, dict) or type(content.get("skewgate_state")) is not int:
        raise StateTextError("it is not a state file of skewgate")
    found = content["skewgate_state"]
    if found != FORMAT:
        raise StateTextError(f"its format is {_quoted(str(found))}, this release reads {FORMAT}")
    entries = content.get("services")
    if not isinstance(entries, dict):
        raise StateTextError("it has no `services`")
    for name, entry in entries.items():
        if not _is_entry(entry):
            raise StateTextError(f"its entry '{_quoted(name)}' is malformed")
    return entries


def _registered(entry: object) -> Registered | None:
    match entry:
        case {
            "ids": [str(), *_] as ids,
            "last_attached": None | [str(), int() | float(), int() | float()] as at,
        }:
            if len(ids) > MAX_IDS or not all(isinstance(each, str) and len(each) <= _MAX_ID for each in ids):
                return None
            if at is None:
                return Registered(tuple(ids))
            boot, boot_time, wall_time = at
            # A time that no clock shows is none. JSON, as Python reads it, has infinities.
            times_fit = all(0.0 <= each <= _LATEST_TIME for each in (boot_time, wall_time))
            fits = times_fit and len(boot) <= _MAX_ID
            last = LastAttached(boot, float(boot_time), float(wall_time)) if fits else None
            return Registered(tuple(ids), last)
        case _:
            return None


def _has(entry: object, **kinds: type | UnionType) -> TypeGuard[dict[str, Any]]:
    """Whether `entry` is an object with fields of these types."""
    return (
        isinstance(entry, dict)
        and kinds.keys() <= entry.keys()
        and all(isinstance(entry[name], kind) for name, kind in kinds.items())
    )


def _is_entry(entry: object) -> bool:
    return (
        _has(entry, dialect=str, scheme=list, versions=list, policy=str, at_least=str | None)
        and _has(entry, cut=bool, pin=str | None, drained=list, advertisements=dict)
        and all(isinstance(name, str) for name in entry["drained"])
        and isinstance(by := entry.get("drained_by", {}), dict)
        and all(isinstance(each, str) for each in by.values())
        and all(map(_is_range, entry["versions"]))
        and all(map(_is_advertisement, entry["advertisements"].values()))
    )


def _is_advertisement(entry: object) -> bool:
    return (
        _has(entry, url=str, versions=list, default=str | None, legacy=bool, at=int | float)
        and all(map(_is_range, entry["versions"]))
        and -_LATEST_TIME <= entry["at"] <= _LATEST_TIME
        and _is_source(entry.get("source", ""), entry.get("leaves_at"))
    )


def _is_source(source: object, leaves_at: object) -> bool:
    """Whether the fields that only discovered backends have are valid in an entry."""
    match source, leaves_at:
        case str(), None:
            return True
        case str(), int() | float() as at:
            return not isinstance(at, bool) and -_LATEST_TIME <= at <= _LATEST_TIME
        case _:
            return False


def _is_range(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) for end in pair)


def _saved_state(
    name: str, entry: Mapping[str, Any], before: Scheme, service: Service, wall_offset: float
) -> SavedState:
    """Restore a service's state from its entry, written in the scheme `before`. Raises `StateTextError`."""
    scheme = service.dialect.scheme
    try:
        versions = _version_set(entry["versions"], before, scheme)
        pin = None if entry["pin"] is None else scheme.require(entry["pin"])
        raised = read_raised(entry["raised"], scheme) if "raised" in entry else NOT_RAISED
        advertisements = {
            backend: SavedAdvertisement(
                known["url"],
                Advertisement(
                    _version_set(known["versions"], before, scheme),
                    known["legacy"],
                    None if known["default"] is None else scheme.require(known["default"]),
                ),
                float(known["at"]) - wall_offset,
                known.get("source", ""),
                leaves_at - wall_offset if (leaves_at := known.get("leaves_at")) is not None else None,
            )
            for backend, known in entry["advertisements"].items()
        }
    except (VersionTextError, UnreadableRecord):
        raise StateTextError(f"its entry '{_quoted(name)}' has an invalid version, range or floor") from None
    if scheme.contiguous and len(versions.ranges) > 1:
        raise StateTextError(f"its entry '{_quoted(name)}' has a gap in its versions")
    policy = _policy(name, entry["policy"], entry["at_least"])
    return SavedState(
        versions,
        pin,
        {backend: entry.get("drained_by", {}).get(backend, "") for backend in entry["drained"]},
        policy,
        advertisements,
        cut=entry["cut"],
        negotiates_legacy=entry.get("legacy") == "refuse",
        raised=raised,
    )


def _version_set(ranges: list[list[str]], before: Scheme, scheme: Scheme) -> VersionSet:
    """Parse version ranges that were written in the scheme `before`. Raises `VersionTextError`."""
    versions = VersionSet.of(
        VersionRange.in_major(before.require(low), before.require(high)) for low, high in ranges
    )
    return read_anew(versions, before, scheme)


def _policy(name: str, policy: str, number: str | None) -> tuple[Policy, AtLeast | None]:
    """Parse the offer policy in an entry, and its number. Raises `StateTextError`."""
    match = None if number is None else _NUMBER.fullmatch(number)
    if policy not in set(Policy) or (policy == Policy.AT_LEAST) is not (match is not None):
        raise StateTextError(f"its entry '{_quoted(name)}' has an invalid policy")
    at_least = None if match is None else AtLeast(int(match[1]), percent=bool(match[2]))
    return Policy(policy), at_least


_NUMBER: Final = re.compile(r"([0-9]{1,6})(%?)", re.ASCII)
"""Spelling of the value of `at_least`: a number or a percentage."""
