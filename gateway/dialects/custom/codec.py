"""Versions in JSON documents and response headers: read from backends, written for clients.

The codecs turn a backend's advertisement into the set of versions that it serves, and write the offer in its
place. Nothing here knows an option, and nothing from the network makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from gateway.core.dialect import Advertisement, Links
from gateway.core.http.json_body import MAX_VALUES, Json
from gateway.core.http.message import Header, all_values, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version
from gateway.dialects.custom.json_path import JsonPath
from gateway.dialects.custom.locations import Affixes

MOST_LISTED: Final = 1000
"""Largest number of versions that are written into one list. A range could have a million."""

MOST_READ: Final = 1000
"""Largest number of versions in a list, and of values in a document that may be versions. The oldest APIs
have not half as many."""

_DIGIT: Final = re.compile(r"\d")
"""Pattern for a digit of any script, because the readers of clients may accept it."""


@final
@dataclass(frozen=True, slots=True)
class VersionCodec:
    """Codec of versions: reads and writes their spelling in one document, or one set of headers."""

    scheme: Scheme
    affixes: Affixes

    def read(self, value: object) -> Version | None:
        """The version in a value of a document or a header; None: it is no version."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            return None
        text = self.affixes.read(str(value))
        return None if text is None else self.scheme.parse(text)

    def write(self, version: Version, like: Json = "") -> str | int:
        """Write a version as documents and headers spell it, as a number if the old value `like` is one."""
        text = self.affixes.write(self.scheme.format(version))
        return int(text) if isinstance(like, int) and text.isdecimal() else text

    def read_range(self, low: Version | None, high: Version | None) -> VersionSet:
        """The range from a minimum to a maximum version; empty: the two make no range."""
        if low is None or high is None or low.major != high.major or low > high:
            return VersionSet()
        return VersionSet.between(low, high)

    def read_list(self, values: Iterable[object]) -> VersionSet:
        """The versions in a list, without other values. Empty for more than `MOST_READ` values."""
        found = {self.read(value) for value in values} - {None}
        if len(found) > MOST_READ:
            return VersionSet()
        return VersionSet.only(*(version for version in found if version is not None))


@final
@dataclass(frozen=True, slots=True)
class DocumentCodec:
    """Codec of a JSON document: the places of its versions. A field is None if it has no such one."""

    codec: VersionCodec
    minimum: JsonPath | None = None
    maximum: JsonPath | None = None
    listed: JsonPath | None = None
    links: JsonPath | None = None
    lowest: Version | None = None
    """The oldest version that every server serves, if no document says it; takes the place of `minimum`."""

    @property
    def has_versions(self) -> bool:
        """Whether the document has a place for versions."""
        return any(place is not None for place in (self.listed, self.minimum, self.lowest, self.maximum))

    def read(self, document: Json) -> VersionSet:
        """The versions that the document advertises; empty: it holds none that are valid."""
        if self.listed is not None:
            return self.codec.read_list(self.listed.find(document))
        low = self.lowest if self.minimum is None else self._one(self.minimum, document)
        high = None if self.maximum is None else self._one(self.maximum, document)
        return self.codec.read_range(low, high)

    def _one(self, path: JsonPath, document: Json) -> Version | None:
        found = {self.codec.read(value) for value in path.find(document)}
        return found.pop() if len(found) == 1 else None

    def can_be_rewritten(self, document: Json, offered: VersionSet) -> bool:
        """Whether every value in a document that may be a version can be replaced. A float or an object
        cannot, nor a list without any version that this codec reads, nor a document that would take long to
        rewrite (threats R-B12)."""
        ends = [value for path in (self.minimum, self.maximum) if path for value in path.find(document)]
        if len(ends) > MOST_READ or any(isinstance(value, float | list | dict) for value in ends):
            return False
        if self.listed is None:
            return True
        to_list, in_item = self._list_and_item(self.listed)
        found = [items for items in to_list.find(document) if items is not None]
        lists = [items for items in found if isinstance(items, list)]
        if len(lists) < len(found) or sum(map(len, lists)) > MOST_READ:
            return False
        if len(lists) > 1 and _adds(in_item, offered) and len(lists) * _size(offered) > MAX_VALUES:
            return False
        return all(self._is_list(items, in_item) for items in lists)

    def _is_list(self, items: list[Json], in_item: JsonPath) -> bool:
        """Whether a list holds versions: an item has one, or no item has a value that may be one."""
        values = [value for item in items for value in in_item.find(item)]
        return not any(map(_may_be_version, values)) or any(self.codec.read(value) for value in values)

    def rewrite(
        self, document: Json, offered: VersionSet, links: Links, others: Iterable[DocumentCodec] = ()
    ) -> bool:
        """Write the offer over the versions of a document. False: it has none. `others`: other spellings
        in it."""
        changed = 0
        for path, version in ((self.minimum, offered.lowest), (self.maximum, offered.highest)):
            if path is not None:
                codecs = tuple(other.codec for other in others if path in (other.minimum, other.maximum))
                changed += path.change(document, partial(self._replace, version, codecs))
        if self.listed is not None:
            changed += self._rewrite_lists(self.listed, document, offered)
        if self.links is not None:
            changed += self.links.change(
                document, lambda value: links.rewrite(value) if isinstance(value, str) else value
            )
        return changed > 0

    def _replace(self, version: Version, others: tuple[VersionCodec, ...], value: Json) -> Json:
        """Replace one value of a document by a version, unless it cannot be one (`null`, a word)."""
        stays = not _may_be_version(value) or any(other.read(value) for other in others)
        if self.codec.read(value) is None and stays:
            return value
        return self.codec.write(version, value)

    @staticmethod
    def _list_and_item(path: JsonPath) -> tuple[JsonPath, JsonPath]:
        parts = path.list_and_item
        assert parts is not None, "the option reader accepts only paths with a list"
        return parts

    def _rewrite_lists(self, path: JsonPath, document: Json, offered: VersionSet) -> int:
        """Leave only items on offer in a document's lists; complete bare versions. Gives a count of lists."""
        to_list, in_item = self._list_and_item(path)
        adds, count = _adds(in_item, offered), 0
        for items in to_list.find(document):
            if not isinstance(items, list):
                continue
            with_version = [(item, version) for item in items if (version := self._one(in_item, item))]
            if with_version:
                count += 1
                items[:] = (
                    self._whole_offer(with_version, offered)
                    if adds
                    else [item for item, version in with_version if version in offered]
                )
        return count

    def _whole_offer(self, present: list[tuple[Json, Version]], offered: VersionSet) -> list[Json]:
        """Items of a list for every version on offer, written like the first one that is present."""
        like, first = present[0]
        falling = len(present) > 1 and first > present[-1][1]
        return [self.codec.write(version, like) for version in sorted(offered, reverse=falling)]


def rewrite(document: Json, codecs: Sequence[DocumentCodec], offered: VersionSet, links: Links) -> bool:
    """Write the offer over all versions of a JSON document, in place. False: it cannot be done."""
    if not all(codec.can_be_rewritten(document, offered) for codec in codecs):
        return False
    changed = [codec.rewrite(document, offered, links, codecs) for codec in codecs]
    return any(changed)


def _may_be_version(value: Json) -> bool:
    if value is None or isinstance(value, bool):
        return False
    return not isinstance(value, str) or _DIGIT.search(value) is not None


def _adds(in_item: JsonPath, offered: VersionSet) -> bool:
    """Whether a list gets the versions on offer that it lacks: it has bare versions, and not too many."""
    return not in_item.steps and _size(offered) <= MOST_LISTED


def _size(versions: VersionSet) -> int:
    return sum(len(version_range) for version_range in versions.ranges)


@final
@dataclass(frozen=True, slots=True)
class ResponseCodec:
    """Codec of response headers that hold versions. A field is None if the API has no such header."""

    codec: VersionCodec
    served: str | None = None
    minimum: str | None = None
    maximum: str | None = None
    listed: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all response headers of the API that hold versions."""
        return tuple(filter(None, (self.served, self.minimum, self.maximum, self.listed)))

    @property
    def advertises(self) -> bool:
        """Whether the API's response headers show the versions that a backend serves."""
        return self.listed is not None or (self.minimum is not None and self.maximum is not None)

    def read_served(self, headers: Mapping[str, str]) -> Version | None:
        return self._one(self.served, headers)

    def has_range(self, headers: Mapping[str, str]) -> bool:
        """Whether a backend's response has any of the API's range headers."""
        names = filter(None, (self.minimum, self.maximum, self.listed))
        return any(all_values(headers, normalize_name(name)) for name in names)

    def read_advertisement(self, headers: Mapping[str, str]) -> Advertisement | None:
        """The versions that response headers advertise; None: they hold none that are valid."""
        if self.listed is not None:
            lines = all_values(headers, normalize_name(self.listed))
            items = (item.strip(" \t") for line in lines for item in line.split(","))
            versions = self.codec.read_list(items)
        else:
            low, high = self._one(self.minimum, headers), self._one(self.maximum, headers)
            versions = self.codec.read_range(low, high)
        return Advertisement(versions) if versions else None

    def _one(self, name: str | None, headers: Mapping[str, str]) -> Version | None:
        """The version on which all lines of a response header agree; None: there is none."""
        lines = set() if name is None else set(all_values(headers, normalize_name(name)))
        return self.codec.read(lines.pop()) if len(lines) == 1 else None

    def write(self, served: Version | None, offered: VersionSet | None) -> tuple[Header, ...]:
        """The response headers for a client: the served version and the offer. None: without that line."""
        lines: list[Header] = []
        if self.served is not None and served is not None:
            lines.append((self.served, str(self.codec.write(served))))
        if offered is not None:
            ends = (self.minimum, offered.lowest), (self.maximum, offered.highest)
            lines += [(name, str(self.codec.write(version))) for name, version in ends if name is not None]
            if self.listed is not None:
                lines.append((self.listed, self._list(offered)))
        return tuple(lines)

    def _list(self, offered: VersionSet) -> str:
        """The offer as a list for a header. Of a range with more than `MOST_LISTED`, only the two ends."""
        versions = [offered.lowest, offered.highest]
        if _size(offered) <= MOST_LISTED:
            versions = list(offered)
        return ", ".join(str(self.codec.write(version)) for version in versions)
