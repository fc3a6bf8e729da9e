"""Reads the tree of a file by the kinds of its keys, in one walk that reports every problem.

    tree of nodes + section  ->  value, and problems at their nodes

A refused value is reported at its node and removed from the tree. Its default is used in its place, or a
filler if the key is required, so that one run reports every problem. The only keys that this module knows by
name are those with a filler, and three in hints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, TypeVar, final

from gateway.errors import TextRefused
from gateway.keys.kinds import Either, Key, Kind, ListOf, Section, Table, Text
from gateway.keys.texts import VERSION, VERSIONS
from gateway.settings.schema import Path, dotted_path
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import NUMBER, quoted
from gateway.settings.yaml.tree import (
    Location,
    MappingEntry,
    MappingNode,
    Node,
    Position,
    Scalar,
    SequenceNode,
    shape_of,
)

MAX_LISTED: Final = 10
"""Largest number of list items that a hint writes as one text. Of a longer list it shows the form."""
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*", re.ASCII)
LISTENER: Final = "`listen[]"
AGREEMENT: Final = "`agreement"

T = TypeVar("T")


class _Refused:
    """Marker that stands for the value of a node that was refused."""


_REFUSED: Final = _Refused()


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Location of a node in the configuration file."""

    location: Location = ()
    path: Path = ()
    """Path of the node's key: its location with `*` for names that the operator chooses, `[]` for indexes."""
    key: Scalar | None = None
    """The key of the file whose value the node is; None: it is the whole file or a list item."""
    form: str = ""

    def entry(self, name: str, key: Scalar | None, generic: str = "", form: str = "") -> _Place:
        """The location of a mapping's entry in the file. `generic`: its name in `path`, if not `name`."""
        return _Place((*self.location, name), (*self.path, generic or name), key, form)

    def item(self, index: int) -> _Place:
        return _Place((*self.location, index), (*self.path, "[]"))


def read_whole(
    root: MappingNode,
    section: Section[T],
    known: Callable[[], Sequence[Path]],
    folder: str,
    findings: Findings,
) -> T | None:
    """The value of a whole file, without the parts that were refused, which are removed from `root`, too.
    None: a required key without a filler has no value. `known` gives every key that exists, for hints."""
    found = _Reader(known, folder, findings).section(section, root, _Place())
    return None if isinstance(found, _Refused) else found


@final
class _Reader:
    def __init__(self, known: Callable[[], Sequence[Path]], folder: str, findings: Findings) -> None:
        self._find_known = known
        self._folder = folder
        self._findings = findings
        self._faults = 0
        """Number of mistakes found in the file so far, reported or not."""

    @cached_property
    def _known(self) -> Sequence[Path]:
        return self._find_known()

    def value(self, kind: Kind[Any], node: Node, place: _Place) -> Any:  # noqa: ANN401 - that of the kind
        """The value of a node of the file, by the kind of its key; `_REFUSED`: it is not valid."""
        match kind:
            case Either():
                return self.value(kind.text if isinstance(node, Scalar) else kind.other, node, place)
            case Text():
                return self.text(kind, node, place)
            case ListOf():
                return self.items(kind, node, place)
            case Table():
                return self.table(kind, node, place)
            case Section():
                return self.section(kind, node, place)
            case _:
                raise TypeError(f"{kind} is no kind that a file can hold")

    def text(self, kind: Text[Any], node: Node, place: _Place) -> Any:  # noqa: ANN401 - as above
        if not isinstance(node, Scalar):
            message = f"a text is expected here, not {shape_of(node)}"
            self._findings.add(node, "wrong-type", message, _as_one_text(kind, node))
        elif not (node.text or kind.may_be_empty):
            self._findings.bad_value(node, "the value is empty", "remove the key to use its default")
        else:
            is_bare = node.plain and len(node.written) == node.position.width  # no tag is before it
            if kind in {VERSION, VERSIONS} and is_bare and _DECIMAL.fullmatch(node.written):
                message = f"other tools read {node.written} as the number {float(node.written)}"
                self._findings.warn(node, NUMBER, message, f'write "{node.written}"')
            try:
                return kind.read_in(self._folder, node.text)
            except TextRefused as refused:
                message, hint = refused.message, refused.hint
                self._findings.add(node, "bad-value", message, hint, quoting=refused.quoting)
        return self._refuse(place)

    def items(self, kind: ListOf, node: Node, place: _Place) -> Any:  # noqa: ANN401 - as above
        if not isinstance(node, SequenceNode):
            return self._refuse_shape(node, place, "a list", ())
        values, good, faultless = [], [], 0
        for index, item in enumerate(node.items):
            before = self._faults
            value = self.value(kind.item, item, place.item(index))
            faultless += self._faults == before
            if value is not _REFUSED:
                values.append(value)
                good.append(item)
        if faultless < kind.least:
            if not node.items:
                self._findings.bad_value(node, "the list is empty", "add at least one item")
            return self._refuse(place)
        if node.items and not good:
            node.broken = True  # each of its items has been reported
        node.items[:] = good
        return kind.into(values)

    def table(self, kind: Table, node: Node, place: _Place) -> Any:  # noqa: ANN401 - as above
        if not isinstance(node, MappingNode):
            return self._refuse_shape(node, place, "a mapping", self._keys_below(place))
        self._replace_bad_names(kind.name, node)
        values = {}
        for name, entry in list(node.entries.items()):
            value = self.value(kind.item, entry.value, place.entry(name, entry.key, "*"))
            if value is _REFUSED:
                del node.entries[name]
            else:
                values[kind.name.read(name)] = value
        return values

    def section(self, section: Section[T], node: Node, place: _Place) -> T | _Refused:
        """The value of a mapping; refused if a required key has neither a value nor a filler."""
        if not isinstance(node, MappingNode):
            return self._refuse_shape(node, place, "a mapping", self._keys_below(place))
        missing = [name for name, key in section.keys.items() if key.is_required and name not in node.entries]
        misspelt = self._remove_unknown(section, missing, node, place)
        for name in missing:
            self._faults += 1
            if name not in misspelt:
                message = f"the key {quoted(name)} is missing"
                hint = f"add `{name}: {section.keys[name].form or '...'}`"
                self._findings.add(_shown_for(node, place), "missing-key", message, hint)
        values = {name: self._value_of(name, key, node, place) for name, key in section.keys.items()}
        values = {name: value for name, value in values.items() if value is not _REFUSED}
        if any(key.is_required and name not in values for name, key in section.keys.items()):
            return _REFUSED
        return section.make(**values)

    def _value_of(self, name: str, key: Key, node: MappingNode, place: _Place) -> Any:  # noqa: ANN401 - as above
        """The value of a key in the file, or of the placeholder for it; `_REFUSED` without either."""
        if (entry := node.entries.get(name)) is not None:
            value = self.value(key.kind, entry.value, place.entry(name, entry.key, form=key.form))
            if value is not _REFUSED:
                return value
            del node.entries[name]
        if not key.is_required or (filler := _fillers().get(name)) is None:
            return _REFUSED
        node.entries[name] = MappingEntry(Scalar(name, Position(), broken=True), filler)
        return self.value(key.kind, filler, place.entry(name, None))

    def _refuse(self, place: _Place) -> _Refused:
        self._faults += 1
        self._findings.dropped.add(place.location)
        return _REFUSED

    def _refuse_shape(self, node: Node, place: _Place, expected: str, keys: Sequence[str]) -> _Refused:
        shape = shape_of(node)
        hint = None
        if place.form:
            hint = f"write `{place.path[-1]}: {place.form}`"
        elif shape == "nothing":
            hint = "remove the key to use its defaults"
        elif expected == "a list":
            hint = "write it in brackets: [ ]" if shape == "a text" else None
        elif isinstance(node, Scalar) and "url" in keys and not node.substituted:
            hint = f"write {{url: {quoted(node.written)}}}"
        elif 0 < len(keys) <= 5:
            hint = f"write its keys in braces: {{{', '.join(f'{key}: ...' for key in keys)}}}"
        elif keys:
            hint = "write its keys below it: see docs/configuration.md"
        self._findings.add(node, "wrong-type", f"{expected} is expected here, not {shape}", hint)
        return self._refuse(place)

    def _remove_unknown(
        self, section: Section[Any], missing: Sequence[str], node: MappingNode, place: _Place
    ) -> set[str]:
        """Report and remove unknown keys of a mapping. Returns keys in `missing` that were only misspelt."""
        misspelt = set()
        for name in [name for name in node.entries if name not in section.keys]:
            entry = node.entries.pop(name)
            close = get_close_matches(name, missing, n=1)
            misspelt.update(close)
            if not entry.value.broken:
                self._report_unknown(section, place.entry(name, entry.key), close)
            self._refuse(place.entry(name, entry.key))
        return misspelt

    def _report_unknown(self, section: Section[Any], place: _Place, close: list[str]) -> None:
        """Report a key that `section` does not have. `close`: the missing key that it resembles."""
        key = place.path[-1]
        if key in section.whole_file:
            message = f"the key {quoted(key)} has no meaning in a service: {section.whole_file[key]}"
            hint = f"write it in the `{place.path[-2]}` of the whole file"
            self._findings.add(place.key, "not-per-service", message, hint)
        else:
            hint = self._hint_for(place, close)
            self._findings.add(place.key, "unknown-key", f"there is no key {quoted(key)} here", hint)

    def _hint_for(self, place: _Place, close: list[str]) -> str:
        *above, key = place.path
        here = sorted({path[-1] for path in self._known if list(path[:-1]) == above})
        if close := close or get_close_matches(key, here, n=1):
            return f"did you mean `{close[0]}`?"
        elsewhere = sorted(
            {_section_name(path[:-1]) for path in self._known if path[-1] == key and path[-1] != "*"},
            # Clients' own first, and what few files have last.
            key=lambda name: (not name.startswith(LISTENER), name.startswith(AGREEMENT), name),
        )
        if elsewhere:
            hint = f"`{key}` belongs under {' or '.join(elsewhere[:3])}"
            if elsewhere[0] == f"{LISTENER}`":
                hint += f"; `listen` is a list then, of {{address: HOST:PORT, {key}: ...}}"
            return hint
        return "known keys: " + ", ".join(here) if here else "no key is allowed here"

    def _keys_below(self, place: _Place) -> list[str]:
        return sorted(
            {path[-1] for path in self._known if path[:-1] == place.path and path[-1] not in {"*", "[]"}}
        )

    def _replace_bad_names(self, kind: Text[str], node: MappingNode) -> None:
        """Replace invalid names in a mapping by valid ones, so that what is below them is still checked."""
        for number, (name, entry) in enumerate(list(node.entries.items())):
            try:
                if not name:
                    raise TextRefused("the value is empty", "remove the key to use its default")
                kind.read(name)
            except TextRefused as refused:
                self._faults += 1
                self._findings.bad_value(entry.key, refused.message, refused.hint)
                del node.entries[name]
                node.entries[f"placeholder-{number}"] = entry


def _shown_for(node: Node, place: _Place) -> Node:
    """The node at which a missing key is reported: the key around it, or the start of the list item."""
    if node.broken or place.key is None:
        at = node.position
        return Scalar("", Position(at.line, at.column, file=at.file), broken=node.broken)
    return place.key


def _as_one_text(kind: Text[Any], node: Node) -> str:
    """A hint that shows how to write a list as one text; empty for a mapping."""
    if not isinstance(node, SequenceNode):
        return ""
    texts = [item.written for item in node.items if isinstance(item, Scalar) and not item.substituted]
    if kind.has_commas and texts and len(texts) == len(node.items):
        return 'write "1.1, 1.2"' if len(texts) > MAX_LISTED else f'write "{", ".join(texts)}"'
    return "write it without brackets"


def _section_name(path: Path) -> str:
    return f"`{dotted_path(path)}`" if path else "the top level"


def _fillers() -> dict[str, Node]:
    """Placeholders, never reported, for required keys without a value, so that the rest can be checked."""
    at = Position()
    text = Scalar("placeholder", at, broken=True)
    pair = {key: MappingEntry(Scalar(key, at, broken=True), text) for key in ("certificate", "key")}
    return {
        "listen": Scalar("127.0.0.1:0", at, broken=True),
        "address": Scalar("127.0.0.1:0", at, broken=True),
        "services": MappingNode(at, broken=True),
        "dialect": Scalar("?", at, broken=True),
        "backends": SequenceNode(at, broken=True),
        "certificates": SequenceNode(at, [MappingNode(at, pair, broken=True)], broken=True),
        "certificate": text,
        "key": text,
    }
