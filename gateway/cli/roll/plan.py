"""The plan of a rolling upgrade: which members of a service are upgraded, in which order."""

from __future__ import annotations

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


def make_plan(
    service: Mapping[str, Any], finished: Collection[str] = (), by: str = ""
) -> tuple[list[Planned], list[str]]:
    """Plan the upgrade of a service of `/status`: the members to upgrade, the oldest version first, and the
    names of those that somebody else has drained. Members in `finished` are done, whatever they show.
    `by`: the name that this upgrade gives to its drains; what it has left drained comes first."""
    backends: Mapping[str, Any] = service["backends"]
    done = set(finished)
    left = [name for name in service["oldest_first"] if name not in done]
    own = [name for name in left if backends[name].get("drained_by") == by]
    skipped = [name for name in left if backends[name]["drained"] and name not in own]
    names = own + [name for name in left if not backends[name]["drained"]]
    pairs = ((name, backends[name]) for name in names)
    return [
        Planned(name, each["url"], span(each["min"], each["max"], "no version")) for name, each in pairs
    ], skipped
