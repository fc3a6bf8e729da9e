"""The object that stands on Chef replies under `X-Ops-Server-API-Version`, and the integers in it.

A brick of the Chef dialect, not a dialect. Reads what all three servers write, writes what Chef Server
writes; decides nothing, and never raises on anything that came from the network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gateway.core.dialect import Ask, AskKind, Bounds
from gateway.core.message import Header, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Version, WholeNumber

HEADER = "X-Ops-Server-API-Version"
HEADER_FOLDED = fold(HEADER)

INTEGER = WholeNumber()
ZERO = Version(0)
NO_VERSION = "-1"
"""In the reply's object: asked for what is no integer, or refused."""

# As Erlang's list_to_integer reads: a sign, leading zeros. It has no largest number; beyond 30 digits nothing
# could be on offer, and the client is refused either way.
_INTEGER = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,30})", re.ASCII)


class Said(NamedTuple):
    """A reply's version object, as far as it can be believed."""

    request: str | None
    """An integer in its shortest spelling, or None when it was none."""
    response: str | None
    """The same."""
    versions: VersionSet
    """The backend's own range; empty when it does not make one."""


def read_integer(text: str) -> int | None:
    """What Erlang's list_to_integer makes of `text`; None where it fails (``, `1.0`, `latest`, `1, 1`)."""
    match = _INTEGER.fullmatch(text)
    return None if match is None else int(match[1] + (match[2] or "0"))


@lru_cache(maxsize=256)  # the same few objects stand on every reply of a fleet
def read_object(text: str) -> Said:
    """The object of a reply's header. Chef Server writes strings, chef-zero numbers, too."""
    told = load_object(text)
    return Said(
        _integer(told.get("request_version")),
        _integer(told.get("response_version")),
        range_between(told, "min_version", "max_version"),
    )


def load_object(text: str | bytes) -> Mapping[str, object]:
    """The JSON object that `text` is; an empty one for anything else."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _integer(value: object) -> str | None:
    """The shortest spelling of a number or of the text of one."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    number = read_integer(str(value))  # json reads no number that is too long to be written again
    return None if number is None else str(number)


def range_between(told: Mapping[str, object], lowest: str, highest: str) -> VersionSet:
    """The versions between two members of an object; empty unless both are versions and run upwards."""
    low, high = (INTEGER.parse(_integer(told.get(key)) or "") for key in (lowest, highest))
    return VersionSet() if low is None or high is None or low > high else VersionSet.between(low, high)


def agreed(lines: tuple[str, ...]) -> str:
    """The text that all lines agree on; empty when they do not."""
    return lines[0] if lines and lines.count(lines[0]) == len(lines) else ""


def asked_of(ask: Ask | None) -> str:
    """The `request_version` of a reply that the gateway makes."""
    if ask is None or ask.kind is AskKind.SILENT:
        return "0"
    return NO_VERSION if ask.version is None else INTEGER.format(ask.version)


def answered_as(status: int, asked: str) -> str:
    """The `response_version` that erchef gives: -1 on every 406, whatever it is about."""
    return NO_VERSION if status == 406 else asked


def write_object(bounds: Bounds, asked: str, answered: str) -> Header:
    """The reply's header: compact, in this order, all values strings."""
    told = {
        "min_version": INTEGER.format(bounds.lowest),
        "max_version": INTEGER.format(bounds.highest),
        "request_version": asked,
        "response_version": answered,
    }
    return (HEADER, compact(told).decode("ascii"))


def compact(told: Mapping[str, object]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode("ascii")
