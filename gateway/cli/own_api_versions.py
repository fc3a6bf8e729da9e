"""Search for versions in JSON documents of an unknown API, for `init`: where they are, how they are written.

Pure; nothing here raises on what a server sent. Only names that a JSON path writes without quotation marks
are followed, so a server cannot inject text into the written file through a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.core.http.json_body import Json
from gateway.core.versions.version import (
    CalendarDate,
    MajorMinor,
    Named,
    Scheme,
    Semantic,
    Version,
    WholeNumber,
)

MOST: Final = 1000
"""Maximum number of versions in one field, the same as for probes."""
DEEPEST: Final = 4
"""Maximum depth of JSON objects that are searched for versions."""

_SCHEMES: Final[Sequence[Scheme]] = (
    CalendarDate(),
    CalendarDate(day=False),
    Semantic(),
    MajorMinor(),
    WholeNumber(),
)
_SPELLED: Final = re.compile(r"([A-Za-z][A-Za-z._-]{0,15})?([0-9][0-9.-]{0,31})", re.ASCII)
"""Pattern of a version with the text before it."""
_STAGED: Final = re.compile(r"v([0-9]{1,4})(?:(alpha|beta)([0-9]{1,4}))?", re.ASCII)
"""Pattern of a version name in Kubernetes' style, such as v1beta2."""
_STAGES: Final = {"alpha": 0, "beta": 1, None: 2}

Steps: TypeAlias = tuple[str | None, ...]
"""Path into a JSON document: names, and None for every item of a list."""


class Notation(NamedTuple):
    """Notation of versions: a scheme, and a prefix such as `v`."""

    scheme: Scheme
    before: str = ""

    def read(self, text: str) -> Version | None:
        return self.scheme.parse(text[len(self.before) :]) if text.startswith(self.before) else None

    def canonical(self, texts: Sequence[str]) -> list[str]:
        """Return the versions among `texts`, oldest first, without the prefix."""
        found = {version for text in texts if (version := self.read(text)) is not None}
        return [self.scheme.format(version) for version in sorted(found)]

    @property
    def spelling(self) -> str:
        return f"{self.before}{{version}}"


def notation_of(texts: Sequence[str]) -> Notation | None:
    """Return the notation in which all of `texts` are versions; None if there is none."""
    spelled = [_SPELLED.fullmatch(text) for text in texts]
    if texts and all(spelled):
        before = {found[1] or "" for found in spelled if found}
        inner = [found[2] for found in spelled if found]
        if len(before) == 1:
            for scheme in _SCHEMES:
                if all(scheme.parse(text) is not None for text in inner):
                    return Notation(scheme, before.pop())
    staged = {text: found for text in texts if (found := _STAGED.fullmatch(text))}
    if not texts or len(staged) < len(set(texts)):
        return None
    ranks = {text: (int(found[1]), _STAGES[found[2]], int(found[3] or 0)) for text, found in staged.items()}
    if len(set(ranks.values())) < len(ranks):
        return None  # v1 and v01
    return Notation(Named(tuple(sorted(ranks, key=lambda text: ranks[text]))))


class VersionField(NamedTuple):
    """A field of a document, or a pair of fields, that holds versions."""

    kind: str
    """Kind of the field: `list`, `range` (the oldest version first), or `single` (perhaps a release)."""
    paths: tuple[Steps, ...]
    texts: tuple[str, ...]


_ITEM_KEYS: Final = ("version", "api_version", "apiVersion", "id", "name", "number")
_OLDEST: Final = frozenset({"min", "minimum", "oldest", "lowest", "earliest"})
_NEWEST: Final = frozenset({"max", "maximum", "newest", "highest", "latest", "current"})
_SINGLE: Final = frozenset({"version", "api version", "latest version", "newest version", "current version"})
_OTHERS: Final = frozenset(
    {
        *("deprecated", "retired", "removed", "sunset", "unsupported", "history", "python", "client", "sdk"),
        *("database", "db", "schema", "package", "packages", "dependencies", "go", "java", "node", "php"),
    }
)
"""Words in the name of a field whose version is not that of the API."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.ASCII)


def words_of(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words: `MinAPIVersion` and `Min-API-Version` have the same ones."""
    return tuple(word.lower() for word in _WORD.findall(name))


def version_fields(node: Json, steps: Steps = (), *, named: bool) -> Iterator[VersionField]:
    """Find all fields that may hold versions of the API. `steps`: path of `node` in its document. `named`:
    whether a name above it says that it is about versions; otherwise a name below has to."""
    if isinstance(node, list):
        yield from _in_list(node, steps, named=named)
    if not isinstance(node, dict):
        return
    yield from _ranges(node, steps, named=named)
    for key, value in node.items():
        words = words_of(key)
        if _NAME.fullmatch(key) is None or not _OTHERS.isdisjoint(words):
            continue
        if (text := _text(value)) is not None:
            is_single = " ".join(words) in _SINGLE or (named and words == ("number",))
            if is_single and notation_of([text]) is not None:
                yield VersionField("single", ((*steps, key),), (text,))
        elif len(steps) < DEEPEST:
            yield from version_fields(value, (*steps, key), named=named or "version" in key.lower())


def _in_list(items: list[Json], steps: Steps, *, named: bool) -> Iterator[VersionField]:
    texts = [text for item in items if (text := _text(item)) is not None]
    if not items or len(items) > MOST:
        return
    if len(texts) == len(items):
        if named or all(text.startswith("v") for text in texts):
            yield VersionField("list", ((*steps, None),), tuple(texts))
        return
    for key in _ITEM_KEYS:
        texts = [text for item in items if isinstance(item, dict) and (text := _text(item.get(key)))]
        if len(texts) == len(items) and (named or "version" in key.lower()):
            yield VersionField("list", ((*steps, None, key),), tuple(texts))


def _ranges(node: dict[str, Json], steps: Steps, *, named: bool) -> Iterator[VersionField]:
    """Find pairs such as `minimum` and `maximum`, or `MinAPIVersion` and `ApiVersion`."""
    texts = {
        key: text
        for key, value in node.items()
        if _NAME.fullmatch(key) and _OTHERS.isdisjoint(words_of(key)) and (text := _text(value)) is not None
    }
    for low, oldest in texts.items():
        rest = [word for word in words_of(low) if word not in _OLDEST]
        if len(rest) == len(words_of(low)) or not (named or "version" in rest):
            continue
        highs = [
            key
            for key in texts
            if key != low
            and rest == [word for word in words_of(key) if word not in _NEWEST]
            and (rest or words_of(key))
        ]
        if highs:
            high = max(highs, key=lambda key: not _NEWEST.isdisjoint(words_of(key)))
            yield VersionField("range", ((*steps, low), (*steps, high)), (oldest, texts[high]))


def _text(value: object) -> str | None:
    """Return a value that may be a version as text, else None. Floats are excluded: 1.10 would become 1.1."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    return text if 0 < len(text) <= 64 else None
