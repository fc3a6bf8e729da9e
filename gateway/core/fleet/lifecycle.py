"""The announced end of versions: the lines below which they are deprecated, or are to end.

A day is announced before it has come and afterwards, so nothing here reads a clock. Only brown-outs refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, final

from gateway.core.days import midnight
from gateway.core.fleet.brownouts import Schedule, Window, moment
from gateway.core.http.message import Header
from gateway.core.versions.version import Scheme, Version

ANNOUNCED: Final = frozenset({"deprecation", "sunset"})
"""Response headers (normalized) that stay as a backend sends them, in place of the gateway's own."""


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A version, and the day (00:00 UTC) from which something holds for all versions below it."""

    below: Version
    day: date
    link: str | None = None

    @property
    def timestamp(self) -> int:
        """Beginning of the line's day in seconds since the epoch."""
        return midnight(self.day)


@final
@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Announcements about the old versions of a service. At least one of both lines is there."""

    deprecated: Line | None = None
    sunset: Line | None = None
    brownouts: tuple[Schedule, ...] = ()
    """Windows in which deprecated versions are refused. They do not overlap, and need `deprecated`."""
    unsafe: bool = False
    """Whether brown-outs refuse requests that may change something, too."""
    enforce: bool = False
    """Whether the floor rises when the day of `sunset` comes."""

    @property
    def lines(self) -> Mapping[str, Line]:
        """The lines that are there, by their keys in the configuration."""
        both = {"deprecated": self.deprecated, "sunset": self.sunset}
        return {name: line for name, line in both.items() if line is not None}

    @property
    def below(self) -> Version:
        """The version below which the end of every version is announced."""
        return max(line.below for line in self.lines.values())

    def headers(self, version: Version, taken: Collection[str]) -> tuple[Header, ...]:
        """Response headers that announce the end of `version`. `taken`: names (normalized) not to write."""
        found: list[Header] = []
        for key, line in self.lines.items():
            name = "Sunset" if key == "sunset" else "Deprecation"
            if version < line.below and name.lower() not in taken:
                by_rfc8594 = f"{line.day:%a, %d %b %Y} 00:00:00 GMT"
                found.append((name, by_rfc8594 if key == "sunset" else f"@{line.timestamp}"))
                if line.link is not None and "link" not in taken:
                    found.append(("Link", f'<{line.link}>; rel="{name.lower()}"'))
        return tuple(found)

    def window_at(self, time: float) -> Window | None:
        """The brown-out at a time, or else the next one; None: there is none any more."""
        found = (each.window_at(time) for each in self.brownouts)
        return min((window for window in found if window is not None), default=None)

    def brownout_at(self, time: float) -> Window | None:
        """The brown-out at a time; None: there is none."""
        for each in self.brownouts:  # for every request at such a version
            window = each.window_at(time)
            if window is not None and window.begin <= time:
                return window
        return None

    def refusal(self, until: float, scheme: Scheme) -> str:
        """Sentences for a client that a brown-out refuses: why, until when, and where to read more."""
        line = self.deprecated
        assert line is not None, "brown-outs are of deprecated versions"
        below, link = scheme.format(line.below), f" See {line.link}" if line.link else ""
        why = f"API versions below {below} are deprecated since {line.day}"
        return f"{why}, and refused until {moment(until)} (brown-out).{link}"

    def sentence(self, scheme: Scheme, now: float) -> str:
        """The announcements for people: `below 1.20 deprecated from 2026-01-01; below 1.10 sunset on …`, and
        the brown-out at this time or the next one."""
        verbs = {"deprecated": "deprecated from", "sunset": "sunset on"}
        lines = self.lines.items()
        found = [f"below {scheme.format(each.below)} {verbs[key]} {each.day}" for key, each in lines]
        if (window := self.window_at(now)) is not None:
            begins = "" if window.begin <= now else f" from {moment(window.begin)}"
            found.append(f"brown-out{begins} until {moment(window.end)}")
        return "; ".join(found)
