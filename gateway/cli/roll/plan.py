"""The plan of a rolling upgrade: which members of a service are upgraded, in which order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, final

from gateway.runtime.terminal import span


@final
class Planned(NamedTuple):
    """One member that is to be upgraded."""

    name: str
    url: str
    range: str

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the command for this member."""
        return [word.replace("{name}", self.name).replace("{url}", self.url) for word in command]


@final
class Plan(NamedTuple):
    """Members to upgrade, the oldest version first, and those that are left alone."""

    members: Sequence[Planned]
    skipped: list[str]
    """Names of members that somebody else has drained."""


def make_plan(service: Mapping[str, Any], finished: Collection[str], by: str = "") -> Plan:
    """Plan the upgrade of a service of `/status`. Members in `finished` are done, whatever they show.
    `by`: the name that this upgrade gives to its drains; what it has left drained comes first."""
    backends: Mapping[str, Any] = service["backends"]
    held_by = service["offer"]["held_by"]
    left = {name: each for name, each in backends.items() if name not in finished}
    own = {name for name, each in left.items() if each.get("drained_by") == by}
    skipped = [name for name, each in left.items() if each["drained"] and name not in own]

    def order(name: str) -> tuple[object, ...]:
        highest = left[name]["max"] or ""
        numbers = tuple(map(int, re.findall("[0-9]+", highest)))
        # Names have no order here, but the oldest are those that hold the offer.
        return name not in own, name not in held_by, numbers, highest

    members = sorted(left.keys() - {*skipped}, key=lambda name: (order(name), list(left).index(name)))
    return Plan([_planned(name, left[name]) for name in members], skipped)


def _planned(name: str, backend: Mapping[str, Any]) -> Planned:
    return Planned(name, backend["url"], span(backend["min"], backend["max"], "no version"))
