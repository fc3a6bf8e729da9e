"""JSON documents and paths into them: `$.versions[*].id`, `$[0]["min version"]`.

The paths are a small strict part of RFC 9535, enough for documents of versions: member names, list indexes
and every item of a list. There are no filters, no descendants and no slices, so no path costs more than one
walk over the document. Nothing here knows a version, and nothing from the network makes it raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from gateway.core.http.json_body import Json

Step: TypeAlias = str | int | None
"""A step of a JSON path: the name of a member, the index of a list, or every item (None)."""

LONGEST: Final = 256
"""Longest JSON path in characters; real ones have at most fifty."""
DEEPEST: Final = 16
"""Largest number of steps in a JSON path."""

_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[(?:(?P<index>0|[1-9][0-9]{0,5})|(?P<all>\*)|"""
    r"""(?P<quote>["'])(?P<quoted>[^"'\\]{1,64})(?P=quote))\]""",
    re.ASCII,
)


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class JsonPath:
    """The path of a value in a JSON document. A step `[*]` leads to several values."""

    steps: tuple[Step, ...]

    @classmethod
    def read(cls, text: str) -> JsonPath:
        """Read a JSON path such as `$.a[0].b`. Raises `ValueError`, whose text never quotes the path."""
        if not text.startswith("$"):
            raise ValueError("a JSON path begins with `$`")
        if len(text) > LONGEST:
            raise ValueError(f"a JSON path has at most {LONGEST} characters")
        steps: list[Step] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise ValueError(f"not a valid JSON path from character {at + 1} on")
            at = found.end()
            index, name = found["index"], found["name"] or found["quoted"]
            steps.append(int(index) if index is not None else name)
        if len(steps) > DEEPEST:
            raise ValueError(f"a JSON path has at most {DEEPEST} steps")
        return cls(tuple(steps))

    def write(self) -> str:
        """The JSON path as an operator writes it."""
        return "$" + "".join(map(_written, self.steps))

    def find(self, document: Json) -> list[Json]:
        """The values in a document to which the path leads, in order."""
        found = [document]
        for step in self.steps:
            found = [value for node in found for _, value in _children(node, step)]
        return found

    def change(self, document: Json, changed: Callable[[Json], Json]) -> int:
        """Replace each value at the path by `changed(value)`, in place, but not `$` itself; gives a count."""
        if not self.steps:
            return 0
        count = 0
        for holder in JsonPath(self.steps[:-1]).find(document):
            for key, value in _children(holder, self.steps[-1]):
                holder[key] = changed(value)  # type: ignore[index]
                count += 1
        return count

    @property
    def list_and_item(self) -> tuple[JsonPath, JsonPath] | None:
        """The JSON path, split at its last `[*]`: to the list, and from its items on; None: it has none."""
        last = next((at for at in range(len(self.steps) - 1, -1, -1) if self.steps[at] is None), None)
        if last is None:
            return None
        return JsonPath(self.steps[:last]), JsonPath(self.steps[last + 1 :])


def _written(step: Step) -> str:
    if step is None or isinstance(step, int):
        return "[*]" if step is None else f"[{step}]"
    return f".{step}" if _NAME.fullmatch(step) else f'["{step}"]'


def _children(node: Json, step: Step) -> Iterator[tuple[str | int, Json]]:
    if isinstance(node, dict):
        if isinstance(step, str) and step in node:
            yield step, node[step]
    elif isinstance(node, list):
        if step is None:
            yield from enumerate(node)
        elif isinstance(step, int) and step < len(node):
            yield step, node[step]


def dump(document: Json) -> bytes | None:
    """A document of versions as compact JSON; None: it holds NaN or infinity, which JSON does not have."""
    try:
        return json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError:  # a lone surrogate is a ValueError, too
        return None
