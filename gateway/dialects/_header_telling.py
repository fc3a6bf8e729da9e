"""Where servers tell versions, and where clients are told them: JSON documents and reply headers.

Reads what a server tells into the set of versions that it serves, and writes the offer in its stead. A brick
of the `header` dialect: it knows no option, and nothing that came from the network makes it raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from gateway.core.dialect import Advert, Bounds, Links
from gateway.core.message import Header, all_values, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Scheme, Version
from gateway.dialects._header_places import Spelling
from gateway.dialects._json_path import Json, JsonPath

MOST_LISTED: Final = 1000
"""Versions that are written into one list; a range of whole numbers could have a million."""


MOST_READ: Final = 1000
"""Versions in a list that is believed. The longest lived APIs have not had half as many, and every refusal of
a version may list them all."""


@final
@dataclass(frozen=True, slots=True)
class Telling:
    """How versions are written in one place."""

    scheme: Scheme
    spelling: Spelling

    def read(self, value: object) -> Version | None:
        """The version that a value of a document or header is; None for anything else."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            return None
        text = self.spelling.read(str(value))
        return None if text is None else self.scheme.parse(text)

    def write(self, version: Version, like: Json = "") -> str | int:
        """The version as it is spelled here; a number where a number stood."""
        text = self.spelling.write(self.scheme.format(version))
        return int(text) if isinstance(like, int) and text.isdecimal() else text

    def between(self, low: Version | None, high: Version | None) -> VersionSet:
        """From one version to another; empty when that is no range."""
        if low is None or high is None or low.major != high.major or low > high:
            return VersionSet()
        return VersionSet.between(low, high)

    def among(self, values: Iterable[object]) -> VersionSet:
        """Those of the values that are versions: a list may also tell what is older than versions. One that
        is endless tells nothing."""
        found = {self.read(value) for value in values} - {None}
        if len(found) > MOST_READ:
            return VersionSet()
        return VersionSet.only(*(version for version in found if version is not None))


@final
@dataclass(frozen=True, slots=True)
class DocumentTelling:
    """Where in a document versions stand."""

    telling: Telling
    minimum: JsonPath | None = None
    maximum: JsonPath | None = None
    listed: JsonPath | None = None
    links: JsonPath | None = None

    def read(self, document: Json) -> VersionSet:
        """What the document says is served; empty when it says nothing that can be believed."""
        if self.listed is not None:
            return self.telling.among(self.listed.find(document))
        if self.minimum is None or self.maximum is None:
            return VersionSet()
        low, high = (self._one(path, document) for path in (self.minimum, self.maximum))
        return self.telling.between(low, high)

    def _one(self, path: JsonPath, document: Json) -> Version | None:
        found = {self.telling.read(value) for value in path.find(document)}
        return found.pop() if len(found) == 1 else None

    def rewrite(self, document: Json, bounds: Bounds, links: Links) -> bool:
        """Write the offer where the document tells versions, in place. False: it tells none."""
        changed = 0
        for path, version in ((self.minimum, bounds.lowest), (self.maximum, bounds.highest)):
            if path is not None:
                changed += path.change(document, partial(self._changed, version))
        if self.listed is not None:
            changed += self._rewrite_lists(self.listed, document, bounds)
        if self.links is not None:
            changed += self.links.change(
                document, lambda value: links.rewrite(value) if isinstance(value, str) else value
            )
        return changed > 0

    def _changed(self, version: Version, value: Json) -> Json:
        """What is no version (`null`, a word) stays: the offer does not speak for it."""
        return value if self.telling.read(value) is None else self.telling.write(version, value)

    def _rewrite_lists(self, path: JsonPath, document: Json, bounds: Bounds) -> int:
        parts = path.list_and_item
        assert parts is not None, "a path of lists was checked to have one"
        count = 0
        for items in parts[0].find(document):
            if isinstance(items, list) and any(self._one(parts[1], item) for item in items):
                items[:] = self._items(items, parts[1], bounds)
                count += 1
        return count

    def _items(self, items: list[Json], within: JsonPath, bounds: Bounds) -> list[Json]:
        """Only what is on offer stays. A list of bare versions also gets what it lacks, in its own order;
        objects cannot be invented."""
        told = [(item, self._one(within, item)) for item in items]
        if within.steps or _size(bounds.versions) > MOST_LISTED:
            return [item for item, version in told if version is not None and version in bounds.versions]
        like, versions = next(item for item, version in told if version), [each for _, each in told if each]
        falling = len(versions) > 1 and versions[0] > versions[-1]
        return [self.telling.write(version, like) for version in sorted(bounds.versions, reverse=falling)]


def _size(versions: VersionSet) -> int:
    return sum(len(each) for each in versions.ranges)


@final
@dataclass(frozen=True, slots=True)
class ReplyTelling:
    """Which reply headers tell versions. None: the API has no such header."""

    telling: Telling
    served: str | None = None
    minimum: str | None = None
    maximum: str | None = None
    listed: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every header that there is, canonical."""
        return tuple(filter(None, (self.served, self.minimum, self.maximum, self.listed)))

    @property
    def tells_range(self) -> bool:
        """Whether what a backend serves can be learned from its replies."""
        return self.listed is not None or (self.minimum is not None and self.maximum is not None)

    def read_served(self, headers: Mapping[str, str]) -> Version | None:
        return self._one(self.served, headers)

    def ranged(self, headers: Mapping[str, str]) -> bool:
        """Whether any header of the range is there."""
        names = filter(None, (self.minimum, self.maximum, self.listed))
        return any(all_values(headers, fold(name)) for name in names)

    def read_range(self, headers: Mapping[str, str]) -> Advert | None:
        """What the backend serves, as far as it says it in a way that can be believed."""
        if self.listed is not None:
            lines = all_values(headers, fold(self.listed))
            items = (item.strip(" \t") for line in lines for item in line.split(","))
            versions = self.telling.among(items)
        else:
            low, high = self._one(self.minimum, headers), self._one(self.maximum, headers)
            versions = self.telling.between(low, high)
        return Advert(versions) if versions else None

    def _one(self, name: str | None, headers: Mapping[str, str]) -> Version | None:
        """What all lines of a header agree on."""
        lines = set() if name is None else set(all_values(headers, fold(name)))
        return self.telling.read(lines.pop()) if len(lines) == 1 else None

    def write(self, served: Version | None, bounds: Bounds | None) -> tuple[Header, ...]:
        """The lines for a client: what was served, and the offer. None: not told."""
        lines: list[Header] = []
        if self.served is not None and served is not None:
            lines.append((self.served, str(self.telling.write(served))))
        if bounds is not None:
            ends = (self.minimum, bounds.lowest), (self.maximum, bounds.highest)
            lines += [(name, str(self.telling.write(version))) for name, version in ends if name is not None]
            if self.listed is not None:
                lines.append((self.listed, self._list(bounds)))
        return tuple(lines)

    def _list(self, bounds: Bounds) -> str:
        """Every version, or of a long range its two ends."""
        versions = [bounds.lowest, bounds.highest]
        if _size(bounds.versions) <= MOST_LISTED:
            versions = list(bounds.versions)
        return ", ".join(str(self.telling.write(version)) for version in versions)
