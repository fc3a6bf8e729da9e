"""The object in the header `X-Ops-Server-API-Version`, and the integers in requests and in that object.

It reads what all three servers write, and writes what Chef Server writes. It makes no decision, and never
raises on input from the network. It is no dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gateway.core.dialect import RequestedKind, RequestedVersion
from gateway.core.http.json_body import read_json
from gateway.core.http.message import Header, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version, WholeNumber

HEADER = "X-Ops-Server-API-Version"
HEADER_FOLDED = normalize_name(HEADER)

INTEGER = WholeNumber()
ZERO = Version(0)
NO_VERSION = "-1"
"""Value in the version object for a requested version that was refused or no integer."""

_LONGEST_OBJECT = 1024
"""Longest version object in characters; those of real servers have at most 110."""

# The grammar of Erlang's list_to_integer: a sign, leading zeros. Erlang has no largest number. A number of
# more than 30 digits cannot be on offer, so the client is refused either way.
_INTEGER = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,30})", re.ASCII)


class VersionObject(NamedTuple):
    """The versions in the JSON object of Chef's version header in a response, as far as they are valid."""

    request: str | None
    """The object's `request_version` as an integer in its shortest spelling; None: it is no integer."""
    response: str | None
    """The object's `response_version` as an integer in its shortest spelling; None: it is no integer."""
    versions: VersionSet
    """The backend's own range in the object; empty: the object has no valid one."""


def read_integer(text: str) -> int | None:
    """The integer that Erlang's list_to_integer reads; None where it fails (``, `1.0`, `latest`, `1, 1`)."""
    match = _INTEGER.fullmatch(text)
    return None if match is None else int(match[1] + (match[2] or "0"))


def read_object(text: str) -> VersionObject:
    """The version object in a response's header. Its values are strings; chef-zero also writes numbers."""
    return _read_object(text if len(text) <= _LONGEST_OBJECT else "")  # it must not fill the cache


@lru_cache(maxsize=256)  # every response of a fleet carries one of the same few objects
def _read_object(text: str) -> VersionObject:
    members = load_object(text)
    return VersionObject(
        _integer(members.get("request_version")),
        _integer(members.get("response_version")),
        read_range(members, "min_version", "max_version"),
    )


def load_object(text: str | bytes) -> Mapping[str, object]:
    """The JSON object in `text`; empty for anything else, and outside the limits of `read_json`."""
    members = read_json(text)
    return members if isinstance(members, dict) else {}


def _integer(value: object) -> str | None:
    """The shortest spelling of an integer that is given as a number or as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    number = read_integer(str(value))  # `read_json` has refused a number that is too long for str()
    return None if number is None else str(number)


def read_range(members: Mapping[str, object], lowest: str, highest: str) -> VersionSet:
    """The range between two members of a version object; empty unless both are versions and in order."""
    low, high = (INTEGER.parse(_integer(members.get(key)) or "") for key in (lowest, highest))
    return VersionSet() if low is None or high is None or low > high else VersionSet.between(low, high)


def request_version_text(requested: RequestedVersion | None) -> str:
    """The `request_version` in a response that the gateway makes itself."""
    if requested is None or requested.kind is RequestedKind.NONE:
        return "0"
    return NO_VERSION if requested.version is None else INTEGER.format(requested.version)


def response_version_text(status: int, request_version: str) -> str:
    """The `response_version` that erchef writes: -1 on every 406, whatever it is about."""
    return NO_VERSION if status == 406 else request_version


def write_object(offered: VersionSet, request_version: str, response_version: str) -> Header:
    """The response header with the version object: compact, in this order, all values strings."""
    members = {
        "min_version": INTEGER.format(offered.lowest),
        "max_version": INTEGER.format(offered.highest),
        "request_version": request_version,
        "response_version": response_version,
    }
    return (HEADER, compact_json(members).decode("ascii"))


def compact_json(members: Mapping[str, object]) -> bytes:
    """The members of an object as JSON without blanks, as erchef writes it."""
    return json.dumps(members, separators=(",", ":")).encode("ascii")
