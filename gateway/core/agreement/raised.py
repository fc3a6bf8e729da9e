"""The floor that is set at run time: by a command, or by the clock when an enforced sunset comes.

The clock raises a floor and never lowers one. It does so once for each sunset, which is therefore kept beside
the floor, in the state file or in the store that replicas share: so a later `lower` stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, final

from gateway.core.agreement.ladder import Vote
from gateway.core.agreement.record import UnreadableRecord, read_version
from gateway.core.fleet.lifecycle import Line
from gateway.core.versions.version import Scheme, Version


@final
@dataclass(frozen=True, slots=True)
class Raised:
    """The floor that was set at run time, and the last sunset that the clock has enforced."""

    floor: Version | None = None
    """Lowest version on offer in place of the configuration's floor; None: that one holds, or none."""
    by: Line | None = None
    """Sunset by which the clock raised the floor; None: a command did."""
    enforced: Line | None = None
    """Sunset (without link) for which the clock need not raise the floor any more."""

    def commanded(self, floor: Version | None) -> Raised:
        """The raised floor after an operator's command; None lowers it."""
        return Raised(floor, enforced=self.enforced)

    def at_sunset(self, sunset: Line | None, configured: Version | None) -> Raised:
        """The raised floor after an enforced sunset has come; this same object if nothing changes. If the
        `configured` floor is as high, nothing is to be remembered: no command could lower that."""
        if sunset is None or sunset == self.enforced:
            return self
        floor = configured if self.floor is None else self.floor
        if floor is None or floor < sunset.below:
            return Raised(sunset.below, sunset, sunset)
        return self if self.floor is None else replace(self, enforced=sunset)

    def by_votes(self, votes: Iterable[Vote | None]) -> Raised:
        """The raised floor after the sunset that has come by the votes of all live replicas."""
        passed = {vote and (vote.passed, vote.least) for vote in votes}
        sunsets = {each and each[0] for each in passed}
        least = max((each[1] for each in passed if each and each[1] is not None), default=None)
        return self.at_sunset(sunsets.pop() if len(sunsets) == 1 else None, least)


NOT_RAISED: Final = Raised()


def write_raised(raised: Raised, scheme: Scheme) -> dict[str, object]:
    """The raised floor as JSON values, for the store and the state file."""
    return {
        "version": None if raised.floor is None else scheme.format(raised.floor),
        "by": "command" if raised.by is None else write_sunset(raised.by, scheme),
        "enforced": raised.enforced and write_sunset(raised.enforced, scheme),
    }


def read_raised(value: object, scheme: Scheme) -> Raised:
    """Read a raised floor from a JSON value. Raises `UnreadableRecord`."""
    if not isinstance(value, dict) or value.keys() != {"version", "by", "enforced"}:
        raise UnreadableRecord("it is no raised floor")
    version, by, enforced = value["version"], value["by"], value["enforced"]
    return Raised(
        None if version is None else read_version(version, scheme, "raised"),
        None if by == "command" else read_sunset(by, scheme),
        None if enforced is None else read_sunset(enforced, scheme),
    )


def write_sunset(sunset: Line, scheme: Scheme) -> list[object]:
    """The sunset as a JSON list of the lowest version that stays, and the day."""
    return [scheme.format(sunset.below), sunset.day.isoformat()]


def read_sunset(value: object, scheme: Scheme) -> Line:
    """Read an enforced sunset from a JSON value. Raises `UnreadableRecord`."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        with suppress(ValueError):
            return Line(read_version(value[0], scheme, "sunset"), date.fromisoformat(value[1]))
    raise UnreadableRecord("it is no sunset")
