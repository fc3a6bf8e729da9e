"""The announced end of versions: the lines below which they are deprecated, or are to end.

A day is announced before it has come and afterwards, so nothing here reads a clock. Nothing is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, final

from gateway.core.days import midnight
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

    def sentence(self, scheme: Scheme) -> str:
        """The announcements for people: `below 1.20 deprecated from 2026-01-01; below 1.10 sunset on …`."""
        verbs = {"deprecated": "deprecated from", "sunset": "sunset on"}
        found = self.lines.items()
        return "; ".join(f"below {scheme.format(each.below)} {verbs[key]} {each.day}" for key, each in found)
