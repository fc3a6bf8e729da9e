"""Versions as ordered integers, and the schemes that read and write them.

A `Version` is a tuple of whole numbers, never a float and never the client's text: 1.10 > 1.9. A `Scheme` is
strict when it reads (ASCII digits, no sign, no leading zero, no blank) and canonical when it writes, so that
gateway and backend never read one text as two versions. Nothing here knows a header.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import date
from typing import final

from gateway.errors import VersionTextError

_NUMBER = r"(?:0|[1-9][0-9]{0,5})"  # threats V6: at most six ASCII digits a part


@final
class Version(tuple[int, ...]):
    """A version: `Version(1, 31)` is 1.31, `Version(2)` is 2. Compares and hashes as a tuple. All versions
    of one scheme have as many parts. The last part counts in steps of one; the others are the major."""

    __slots__ = ()

    def __new__(cls, *parts: int) -> Version:
        return super().__new__(cls, parts)

    def __getnewargs__(self) -> tuple[int, ...]:
        """Arguments of the constructor for `copy` and `pickle`."""
        return tuple(self)

    @property
    def major(self) -> tuple[int, ...]:
        """The major version: all parts but the last."""
        return self[:-1]

    @property
    def minor(self) -> int:
        """The minor version: the last part."""
        return self[-1]

    def step(self, by: int) -> Version:
        """The version `by` steps away in the same major."""
        return Version(*self[:-1], self[-1] + by)

    def __repr__(self) -> str:
        return f"Version({', '.join(map(str, self))})"


class Scheme(ABC):
    """Version scheme: spelling and order of the versions of one API."""

    name: str
    """Name of the scheme in the configuration: `integer`, `major.minor`, `semver`, `date`, `named`."""
    contiguous: bool
    """Whether an offer is one unbroken range (integers, X.Y). If not, it is a set (dates, names, X.Y.Z)."""

    @property
    def key(self) -> tuple[object, ...]:
        """Key of the scheme: equal for two schemes that read every text as the same version."""
        return (self.name,)

    def earlier(self, key: tuple[object, ...]) -> Scheme | None:
        """The scheme of `key`, if this one reads all of its versions in the same order; None: it does not."""
        return self if key == self.key else None

    @abstractmethod
    def parse(self, text: str) -> Version | None:
        """Read the canonical spelling of a version; None: `text` is anything else. Never raises."""

    @abstractmethod
    def format(self, version: Version) -> str:
        """Write the canonical spelling of a version."""

    def require(self, text: str) -> Version:
        """Read a version or raise `VersionTextError`: for an operator's text, not a client's."""
        version = self.parse(text)
        if version is None:
            raise VersionTextError(f"{text!r} is not a version of the form {self.example}")
        return version

    @property
    @abstractmethod
    def example(self) -> str:
        """Example of a version, for messages."""


@final
class MajorMinor(Scheme):
    """Version scheme X.Y, as in the OpenStack microversion family."""

    name = "major.minor"
    contiguous = True
    example = "1.31"
    _pattern = re.compile(rf"({_NUMBER})\.({_NUMBER})", re.ASCII)

    def parse(self, text: str) -> Version | None:
        match = self._pattern.fullmatch(text)
        return Version(int(match[1]), int(match[2])) if match else None

    def format(self, version: Version) -> str:
        return f"{version[0]}.{version[1]}"


@final
class WholeNumber(Scheme):
    """Version scheme of whole numbers from 0, as in Chef Server (RFC 041)."""

    name = "integer"
    contiguous = True
    example = "3"
    _pattern = re.compile(_NUMBER, re.ASCII)

    def parse(self, text: str) -> Version | None:
        return Version(int(text)) if self._pattern.fullmatch(text) else None

    def format(self, version: Version) -> str:
        return str(version[0])


@final
class Semantic(Scheme):
    """Version scheme X.Y.Z of semver.org, releases only. Not countable: an offer is a set (decision 0017)."""

    name = "semver"
    contiguous = False
    example = "1.4.2"
    _pattern = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})", re.ASCII)

    def parse(self, text: str) -> Version | None:
        match = self._pattern.fullmatch(text)
        return Version(*map(int, match.groups())) if match else None

    def format(self, version: Version) -> str:
        return ".".join(map(str, version))


@final
class CalendarDate(Scheme):
    """Version scheme of dates: `2024-01-31`, without `day` `2024-01`. An API serves only some dates."""

    name = "date"
    contiguous = False

    def __init__(self, *, day: bool = True) -> None:
        self.day = day
        self._pattern = re.compile(r"([0-9]{4})-([0-9]{2})" + (r"-([0-9]{2})" if day else ""), re.ASCII)

    def parse(self, text: str) -> Version | None:
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        parts = tuple(int(group) for group in match.groups())
        try:
            date(parts[0], parts[1], parts[2] if self.day else 1)
        except ValueError:
            return None
        return Version(*parts)

    def format(self, version: Version) -> str:
        return "-".join((f"{version[0]:04d}", *(f"{part:02d}" for part in version[1:])))

    @property
    def key(self) -> tuple[object, ...]:
        return (self.name, self.day)

    @property
    def example(self) -> str:
        return "2024-01-31" if self.day else "2024-01"


@final
class Named(Scheme):
    """Version scheme of names in a declared order, oldest first: `v1alpha1`, `v1beta1`. Matching is exact."""

    name = "named"
    contiguous = False

    def __init__(self, names: tuple[str, ...]) -> None:
        if not names or len(set(names)) != len(names):
            raise VersionTextError("a named scheme needs at least one name, each once, oldest first")
        self.names = names
        self._order = {name: index for index, name in enumerate(names)}

    def parse(self, text: str) -> Version | None:
        index = self._order.get(text)
        return None if index is None else Version(index)

    def format(self, version: Version) -> str:
        return self.names[version[0]]

    @property
    def key(self) -> tuple[object, ...]:
        return (self.name, *self.names)

    def earlier(self, key: tuple[object, ...]) -> Scheme | None:
        """The earlier scheme of `key`, if this one has only gained names; None: it has not."""
        names = tuple(name for name in self.names if name in key[1:])
        return Named(names) if names and (self.name, *names) == key else None

    @property
    def example(self) -> str:
        return self.names[-1]
