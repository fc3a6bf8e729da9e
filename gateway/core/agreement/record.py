"""The record that all replicas of a service share about its offer, and its form in a store.

Four sets of versions give the level of each version on the ladder (`core.agreement.ladder`). Reading is
strict: a replica that cannot read all of a record follows no part of it. Operators' words are not in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, final

from gateway.core.versions.ranges import NO_VERSIONS, VersionRange, VersionSet, read_anew, unbroken
from gateway.core.versions.version import Scheme, Version
from gateway.errors import SkewgateError

FORM: Final = 1
"""Number of the format in which this release writes records. Raised when an older one could misread them."""

FLOOR_FORM: Final = 2
"""Number of the format while a floor holds: a release without floors must not follow such a record."""

FORMS: Final = frozenset({FORM, FLOOR_FORM})
"""Numbers of the record formats that this release reads and writes."""

MAX_ITEMS: Final = 4096
"""Most ranges or versions of a set in a record. No API has as many, but a store may hold anything."""

MAX_SEQ: Final = 2**53 - 1
"""Highest number of a record: the largest whole number that every reader of JSON reads as it stands."""

_MAX_RULE: Final = 64

_MAX_QUOTED: Final = 80

_KEYS: Final = ("form", "dialect", "scheme", "seq", "rule", "state", "offered", "accepted", "open")


class UnreadableRecord(SkewgateError):
    """Raised for a value in the store that is no record this release and this configuration can follow."""


class Level(IntEnum):
    """Level of a version in an agreed record: how the replicas that hold it treat requests for it."""

    REFUSED = 0
    UNDECIDED = 1
    """Level of a version that is not decided about: requests for it are answered with 503."""
    ACCEPTED = 2
    """Level of a version that is served if requested exactly, and not shown to clients."""
    OFFERED = 3


@final
@dataclass(frozen=True, slots=True)
class AgreedRecord:
    """Versions of a service that all replicas agree on. `offered` is in `accepted`, and that in `open`."""

    seq: int
    """Sequence number of the agreed record, one above that of the record before it."""
    rule: str
    """Offer policy, with its number, that gave the agreed versions `state`."""
    state: VersionSet
    """Versions of the offer state, before a ceiling is applied."""
    offered: VersionSet
    accepted: VersionSet
    open: VersionSet
    scheme_key: tuple[object, ...] = ()
    """Version scheme in which the record was written, perhaps one with fewer names. Empty: this replica's."""

    @property
    def is_empty(self) -> bool:
        """Whether the agreed record offers nothing, and decides nothing about any version."""
        return not self.state and not self.open


def level(record: AgreedRecord | None, version: Version) -> Level:
    """Level of `version` by the agreed record; without a record it is undecided."""
    if record is None:
        return Level.UNDECIDED
    if version in record.offered:
        return Level.OFFERED
    if version in record.accepted:
        return Level.ACCEPTED
    if version in record.open or record.is_empty:
        return Level.UNDECIDED
    return Level.REFUSED


def decides_nothing(record: AgreedRecord | None) -> bool:
    """Whether there is no agreed record, or one that offers nothing and decides about no version."""
    return record is None or record.is_empty


def seq_of(record: AgreedRecord | None) -> int:
    """Number of an agreed record; 0: there is none."""
    return 0 if record is None else record.seq


def record_anew(record: AgreedRecord, before: Scheme, scheme: Scheme) -> AgreedRecord:
    """The agreed record with its versions in a scheme that has only gained names since `before`."""
    return replace(
        record,
        state=read_anew(record.state, before, scheme),
        offered=read_anew(record.offered, before, scheme),
        accepted=read_anew(record.accepted, before, scheme),
        open=read_anew(record.open, before, scheme),
        scheme_key=record.scheme_key or before.key,
    )


# --- its form ----------------------------------------------------------------------------------------------


def write_record(record: AgreedRecord, dialect: str, scheme: Scheme, form: int = FORM) -> dict[str, object]:
    """The agreed record as JSON values. Versions are texts, so a named scheme may gain names. Without new
    names it is written in the scheme of its last writer, so that a replica without these can read it."""
    if form not in FORMS:
        raise ValueError(f"form {form} cannot be written")
    written_in = _writing_scheme(record, scheme)
    return {
        "form": form,
        "dialect": dialect,
        "scheme": list(written_in.key),
        "seq": record.seq,
        "rule": record.rule,
        "state": write_versions(record.state, scheme),
        "offered": write_versions(record.offered, scheme),
        "accepted": write_versions(record.accepted, scheme),
        "open": write_versions(record.open, scheme),
    }


def read_record(value: object, dialect: str, scheme: Scheme) -> AgreedRecord:
    """Read an agreed record from the JSON value of a store. Raises `UnreadableRecord`."""
    if not isinstance(value, Mapping):
        raise UnreadableRecord("it is no object")
    form = value.get("form")
    if type(form) is not int or form not in FORMS:
        raise UnreadableRecord(f"its form is {_quoted(form)}, and this release reads {sorted(FORMS)}")
    if lacking := [key for key in _KEYS if key not in value]:
        raise UnreadableRecord(f"it lacks `{lacking[0]}`")
    if foreign := [key for key in value if key not in _KEYS]:
        raise UnreadableRecord(f"it has a foreign key, {_quoted(foreign[0])}")
    if value["dialect"] != dialect:
        raise UnreadableRecord(f"it is about the dialect {_quoted(value['dialect'])}, not {dialect}")
    scheme_key = value["scheme"]
    if not isinstance(scheme_key, list) or not all(isinstance(part, str | bool) for part in scheme_key):
        raise UnreadableRecord("its scheme is no list of texts")
    earlier = scheme.earlier(tuple(scheme_key))
    if earlier is None:
        text = _quoted(" ".join(map(str, scheme_key)))
        raise UnreadableRecord(f"its versions are of another scheme, {text}")
    state, offered, accepted, opened = (
        read_anew(read_versions(value[name], earlier, name), earlier, scheme)
        for name in ("state", "offered", "accepted", "open")
    )
    if not (offered <= accepted <= opened):
        raise UnreadableRecord("`offered` is not in `accepted`, or `accepted` not in `open`")
    if any(unbroken(each, scheme) != each for each in (state, offered)):
        raise UnreadableRecord("`state` or `offered` has a gap")
    seq = value["seq"]
    if type(seq) is not int or not 1 <= seq <= MAX_SEQ:
        raise UnreadableRecord(f"its seq is {_quoted(seq)}, not a whole number from 1")
    return AgreedRecord(seq, read_rule(value["rule"]), state, offered, accepted, opened, tuple(scheme_key))


def write_versions(versions: VersionSet, scheme: Scheme) -> list[object]:
    """The versions as a JSON list: `[low, high]` ranges (integers, X.Y), or one by one (dates, names)."""
    if scheme.contiguous:
        return [[scheme.format(one.low), scheme.format(one.high)] for one in versions.ranges]
    return [scheme.format(version) for version in versions]


def read_versions(value: object, scheme: Scheme, name: str) -> VersionSet:
    """Read the set of versions under the key `name` of a stored value. Raises `UnreadableRecord`."""
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise UnreadableRecord(f"`{name}` is no list of at most {MAX_ITEMS} items")
    if not scheme.contiguous:
        return VersionSet.only(*(read_version(item, scheme, name) for item in value))
    return VersionSet.of([_read_range(item, scheme, name) for item in value]) if value else NO_VERSIONS


def read_version(value: object, scheme: Scheme, name: str) -> Version:
    """Read one version of a stored value. Raises `UnreadableRecord`."""
    version = scheme.parse(value) if isinstance(value, str) else None
    if version is None:
        raise UnreadableRecord(f"{_quoted(value)} in `{name}` is not a version of the form {scheme.example}")
    return version


def read_rule(value: object) -> str:
    """Read the offer policy with its number from a stored value. Raises `UnreadableRecord`."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_RULE or not value.isprintable():
        raise UnreadableRecord(f"its rule is {_quoted(value)}")
    return value


def form_for_all(forms: Collection[Collection[int]], at_least: int = FORM) -> int | None:
    """The lowest record format from `at_least` on that this release and all live replicas read, or None."""
    common = frozenset.intersection(*map(frozenset, forms)) if forms else frozenset()
    lowest = min((form for form in common if form >= at_least), default=None)
    return lowest if lowest in FORMS else None


def _writing_scheme(record: AgreedRecord, scheme: Scheme) -> Scheme:
    earlier = scheme.earlier(record.scheme_key) if record.scheme_key else None
    texts = map(scheme.format, record.state | record.open)
    return scheme if earlier is None or any(earlier.parse(text) is None for text in texts) else earlier


def _read_range(item: object, scheme: Scheme, name: str) -> VersionRange:
    if not isinstance(item, list) or len(item) != 2:
        raise UnreadableRecord(f"`{name}` has {_quoted(item)} in place of a range")
    low, high = (read_version(end, scheme, name) for end in item)
    if low.major != high.major or low > high:
        raise UnreadableRecord(f"{_quoted(item)} in `{name}` does not run upwards inside one major version")
    return VersionRange(low, high)


def _quoted(value: object) -> str:
    """A value from the store as text for an error message: short, and without control characters."""
    return repr(str(value)[:_MAX_QUOTED])
