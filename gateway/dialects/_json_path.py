"""JSON documents and paths into them: `$.versions[*].id`, `$[0]["min version"]`. A brick, not a dialect.

A small strict part of RFC 9535, which is all that telling versions needs: names, places in a list, and every
item of one. No filters, no descent, no slices: no path can cost more than one walk over the document. Nothing
here knows a version, and nothing that came from the network makes it raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, final

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | None"
Step: TypeAlias = str | int | None
"""A member's name, a place in a list, or every item (None)."""

LONGEST: Final = 256
"""Characters of a path; real ones have at most fifty."""
DEEPEST: Final = 16
"""Steps of a path."""

_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[(?:(?P<at>0|[1-9][0-9]{0,5})|(?P<all>\*)|"""
    r"""(?P<quote>["'])(?P<quoted>[^"'\\]{1,64})(?P=quote))\]""",
    re.ASCII,
)


@final
@dataclass(frozen=True, slots=True)
class JsonPath:
    """Where in a document something stands; several places where a step is `[*]`."""

    steps: tuple[Step, ...]

    @classmethod
    def read(cls, text: str) -> JsonPath:
        """Read `$.a[0].b`. Raises `ValueError`, whose text never quotes the path."""
        if not text.startswith("$"):
            raise ValueError("a JSON path begins with `$`")
        if len(text) > LONGEST:
            raise ValueError(f"a JSON path has at most {LONGEST} characters")
        steps: list[Step] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise ValueError(f"what stands from character {at + 1} on is no step of a JSON path")
            at = found.end()
            place, name = found["at"], found["name"] or found["quoted"]
            steps.append(int(place) if place is not None else name)
        if len(steps) > DEEPEST:
            raise ValueError(f"a JSON path has at most {DEEPEST} steps")
        return cls(tuple(steps))

    def find(self, document: Json) -> list[Json]:
        """Every value that stands there, in order."""
        found = [document]
        for step in self.steps:
            found = [value for each in found for _, value in _below(each, step)]
        return found

    def change(self, document: Json, changed: Callable[[Json], Json]) -> int:
        """Put `changed(value)` where each value stands, in place; gives how many there were.

        The document itself, `$`, cannot be changed: then 0.
        """
        if not self.steps:
            return 0
        count = 0
        for holder in JsonPath(self.steps[:-1]).find(document):
            for key, value in _below(holder, self.steps[-1]):
                holder[key] = changed(value)  # type: ignore[index]
                count += 1
        return count

    @property
    def list_and_item(self) -> tuple[JsonPath, JsonPath] | None:
        """The path to the list of the last `[*]`, and from an item of it on; None without any."""
        last = next((at for at in range(len(self.steps) - 1, -1, -1) if self.steps[at] is None), None)
        if last is None:
            return None
        return JsonPath(self.steps[:last]), JsonPath(self.steps[last + 1 :])


def _below(node: Json, step: Step) -> Iterator[tuple[str | int, Json]]:
    """Where one step leads from `node`: nowhere, to one value, or to each item."""
    if isinstance(node, dict):
        if isinstance(step, str) and step in node:
            yield step, node[step]
    elif isinstance(node, list):
        if step is None:
            yield from enumerate(node)
        elif isinstance(step, int) and step < len(node):
            yield step, node[step]


def load(body: bytes) -> Json:
    """The document that `body` is; None for anything else (and for `null`, which tells nothing either)."""
    try:
        document: Json = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document


def dump(document: Json) -> bytes | None:
    """The document as compact JSON; None when it holds NaN or infinity, which are no JSON, or nests too
    deeply to be written."""
    try:
        return json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # a lone surrogate is a ValueError, too
        return None
