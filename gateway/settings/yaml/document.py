"""From the tree to the document: the model reads every key, and each error gets a position in the file.

What the model refuses is reported and then removed from the tree. So the checks that follow (`checks`) still
see the rest, and one run reports every problem. This module knows no more about a key than the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, final
from unicodedata import category

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.settings.model.document import RENAMED, Document
from gateway.settings.model.fields import FOLDER, OTHER_SHAPE, TEXT_SHAPE, shape_of
from gateway.settings.model.limits import NOT_PER_SERVICE
from gateway.settings.schema import Path, keys_of
from gateway.settings.yaml.problem import Problem, Severity, quoted
from gateway.settings.yaml.tree import (
    MappingEntry,
    MappingNode,
    Node,
    Position,
    Scalar,
    SequenceNode,
    plain,
)

MAX_PASSES: Final = 16
"""Each pass removes at least one level of what the model refuses. No configuration has so many levels."""

NO_BREAK: Final = "\u00a0\u202f\u2007"
"""Blanks that are none to YAML."""

LISTENER: Final = "`listen[]"
AGREEMENT: Final = "`agreement"

Location = tuple[str | int, ...]


@final
@dataclass(slots=True)
class Findings:
    """Collects problems, each at the position of the node that it is about."""

    problems: list[Problem] = field(default_factory=list)
    dropped: set[Location] = field(default_factory=set)
    """What was removed because the model refuses it, without tags. The model has a default there,
    which nobody wrote."""
    check_files: bool = True
    """Whether the files that the configuration names are read, too."""
    filename: str = ""
    """Of the configuration, for messages about another file."""
    note_file: Callable[[str], None] = lambda path: None
    """Called with each file that a check is about to read."""

    def is_dropped(self, *path: str) -> bool:
        """Whether something at, above or below `path` was removed, so that its value means nothing."""
        return any(dropped[: len(path)] == path[: len(dropped)] for dropped in self.dropped)

    def is_any_dropped(self, *keys: str) -> bool:
        """Whether something was removed at or below these keys, wherever in the file they are."""
        size = len(keys)
        return any(path[at : at + size] == keys for path in self.dropped for at in range(len(path)))

    def add(
        self,
        node: Node | None,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Report a problem of a node, unless one of it was reported before."""
        if node is not None and node.broken:
            return
        if isinstance(node, Scalar) and severity is Severity.ERROR:
            more = _invisible(node) or _source(node, code)
            hint = f"{hint}; {more}" if hint and more else hint or more
        position = node.position if node is not None else Position()
        self.problems.append(
            Problem(
                *(position.line, position.column, code, message, hint or None, severity, position.width),
                position.file,
            )
        )

    def line_of(self, node: Node, beside: Node | None) -> str:
        """Where `node` is, for a message that is shown at `beside`."""
        line, file = node.position.line, node.position.file
        same = beside is None or file == beside.position.file
        return f"line {line}" if same else f"line {line} of {file or self.filename}"

    def refused(self, node: Node | None, error: Exception, hint: str | None = None) -> None:
        """Report a text that `core` or a dialect refused. The message of the error quotes the text, so it is
        not shown when the text comes from the environment."""
        secret = isinstance(node, Scalar) and node.substituted
        self.add(node, "bad-value", "not a valid value" if secret else str(error), hint)


def _source(node: Scalar, code: str) -> str:
    """Where a refused text came from, if not from this place."""
    if code not in {"bad-value", "wrong-type"}:
        return ""
    parts = [f"the environment: {', '.join(node.variables)}"] if node.variables else []
    parts += [f"the file {quoted(path)}" for path in node.files]
    return f"the value comes from {' and '.join(parts)}" if parts else ""


def _invisible(node: Scalar) -> str:
    """A character that nobody sees, as it comes with a text from a web page or a chat."""
    found = next((each for each in node.written if category(each) == "Cf" or each in NO_BREAK), None)
    return f"it has an invisible character, U+{ord(found):04X}: write the text anew" if found else ""


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """What a location of the model's error means in the tree."""

    holder: MappingNode | SequenceNode | None
    key: Scalar | None
    node: Node


def read_document(
    root: MappingNode,
    model: type[Document],
    schema: Callable[[], dict[str, Any]],
    folder: str,
    findings: Findings,
) -> Document | None:
    """The document without what the model refuses. `root` is changed in the same way. None should never
    happen. `schema`: of the model, made only where something is refused; it costs more than a short file.
    `folder`: where relative paths begin."""
    for number in range(MAX_PASSES):
        try:
            return model.model_validate(plain(root), context={FOLDER: folder})
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        if number == 0:
            known = [path for path, _, _ in keys_of(schema())]
            misspelt = _misspelt(errors)
            for details in errors:
                if details["type"] != "missing" or details["loc"] not in misspelt.values():
                    _report(root, details, known, misspelt, findings)
        _prune(root, [(details["loc"], details["type"]) for details in errors], findings)
    return None


def _misspelt(errors: Iterable[ErrorDetails]) -> dict[Location, Location]:
    """Unknown keys that are similar to a missing key of the same mapping: one mistake, reported once."""
    missing = [details["loc"] for details in errors if details["type"] == "missing"]
    found: dict[Location, Location] = {}
    for details in errors:
        if details["type"] == "extra_forbidden":
            *above, key = details["loc"]
            beside = [str(location[-1]) for location in missing if list(location[:-1]) == above]
            if close := get_close_matches(str(key), beside, n=1):
                found[details["loc"]] = (*above, close[0])
    return found


def _locate(root: Node, location: Location) -> _Place:
    """Follow a location as far as possible. Where the model read one shape as another, the result is the
    outermost node."""
    place = _Place(None, None, root)
    for part in location:
        node = place.node
        if isinstance(node, MappingNode) and part in node.entries:
            entry = node.entries[str(part)]
            place = _Place(node, entry.key, entry.value)
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            place = _Place(node, None, node.items[part])
        elif part not in {TEXT_SHAPE, OTHER_SHAPE, "[key]"}:
            break
    return place


def _report(
    root: MappingNode,
    details: ErrorDetails,
    known: Sequence[Path],
    misspelt: Mapping[Location, Location],
    findings: Findings,
) -> None:
    location = details["loc"]
    place = _locate(root, location)
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            key = str(location[-1])
            findings.add(
                _missing_at(place),
                "missing-key",
                f"the key {quoted(key)} is missing",
                f"add `{key}: ...`",
            )
        case "extra_forbidden":
            if not place.node.broken:
                _report_unknown(place, location, known, misspelt.get(location), findings)
        case "model_type" | "dict_type" | "mapping_type":
            _report_shape(place, "a mapping", _keys_below(location, known), findings)
        case "tuple_type" | "list_type":
            _report_shape(place, "a list", (), findings)
        case "too_short":
            if plain(place.node) == []:  # otherwise each item that was removed has been reported
                findings.add(place.node, "bad-value", "the list is empty", "add at least one item")
        case "bad-value" | "wrong-type" as code:
            node = place.key if location[-1] == "[key]" else place.node
            findings.add(node, code, context["message"], context["hint"])
        case _:
            findings.add(place.node, "bad-value", details["msg"][:1].lower() + details["msg"][1:])


def _missing_at(place: _Place) -> Node:
    """The node at which a missing key is shown: the key that should contain it, or the list item's start."""
    if place.node.broken or place.key is None:
        at = place.node.position
        return Scalar("", Position(at.line, at.column, file=at.file), broken=place.node.broken)
    return place.key


def _report_shape(place: _Place, expected: str, keys: Sequence[str], findings: Findings) -> None:
    shape = shape_of(plain(place.node))
    hint = None
    if shape == "nothing":
        hint = "remove the key to use its defaults"
    elif expected == "a list":
        hint = "write it in brackets: [ ]" if shape == "a text" else None
    elif isinstance(place.node, Scalar) and "url" in keys and not place.node.substituted:
        hint = f"write {{url: {quoted(place.node.written)}}}"
    elif 0 < len(keys) <= 5:
        hint = f"write its keys in braces: {{{', '.join(f'{key}: ...' for key in keys)}}}"
    elif keys:
        hint = "write its keys below it: see docs/configuration.md"
    findings.add(place.node, "wrong-type", f"{expected} is expected here, not {shape}", hint)


def _report_unknown(
    place: _Place, location: Location, known: Sequence[Path], meant: Location | None, findings: Findings
) -> None:
    generic = _generic(location, known)
    key = str(location[-1])
    dotted = ".".join("*" if part == "[]" else part for part in generic)
    if dotted in RENAMED:
        findings.add(place.key, "unknown-key", f"the key {quoted(key)} was replaced", RENAMED[dotted])
        return
    reason = NOT_PER_SERVICE.get(dotted.removeprefix("services.*.")) if generic[:1] == ("services",) else None
    if reason is not None:
        group = generic[-2]
        findings.add(
            place.key,
            "not-per-service",
            f"the key {quoted(key)} has no meaning in a service: {reason}",
            f"write it in the `{group}` of the whole file",
        )
        return
    here = sorted({path[-1] for path in known if path[:-1] == generic[:-1]})
    elsewhere = sorted(
        {_parent_name(path[:-1]) for path in known if path[-1] == key and path[-1] != "*"},
        # Clients' own first, and what few files have last.
        key=lambda name: (not name.startswith(LISTENER), name.startswith(AGREEMENT), name),
    )
    if close := [str(meant[-1])] if meant else get_close_matches(key, here, n=1):
        hint = f"did you mean `{close[0]}`?"
    elif elsewhere:
        hint = f"`{key}` belongs under {' or '.join(elsewhere[:3])}"
        if elsewhere[0] == f"{LISTENER}`":
            hint += f"; `listen` is a list then, of {{address: HOST:PORT, {key}: ...}}"
    elif here:
        hint = "known keys: " + ", ".join(here)
    else:
        hint = "no key is allowed here"
    findings.add(place.key, "unknown-key", f"there is no key {quoted(key)} here", hint)


def _keys_below(location: Location, known: Sequence[Path]) -> list[str]:
    generic = _generic(location, known)
    return sorted({path[-1] for path in known if path[:-1] == generic and path[-1] not in {"*", "[]"}})


def _generic(location: Location, known: Iterable[Path]) -> Path:
    """The location with `*` for names that the operator chooses, `[]` for numbers, and without tags."""
    paths = set(known)
    parents = {path[:length] for path in paths for length in range(len(path) + 1)}
    generic: Path = ()
    for part in location:
        if part in {TEXT_SHAPE, OTHER_SHAPE} and (*generic, str(part)) not in parents:
            continue
        if isinstance(part, int):
            generic = (*generic, "[]")
        elif (*generic, part) not in parents and (*generic, "*") in parents:
            generic = (*generic, "*")
        else:
            generic = (*generic, part)
    return generic


def _parent_name(path: Path) -> str:
    dotted = ".".join("NAME" if part == "*" else part for part in path).replace(".[]", "[]")
    return f"`{dotted}`" if dotted else "the top level"


def _fillers() -> dict[str, Node]:
    """Placeholders for required keys, so that the rest can still be checked. They are never reported."""
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


def _prune(root: MappingNode, errors: Sequence[tuple[Location, str]], findings: Findings) -> None:
    """Remove what the model refuses. All places are looked up before the first node is removed."""
    refused: list[Node] = []
    badly_named: list[tuple[MappingNode, Node]] = []
    for location, kind in errors:
        place = _locate(root, location)
        if location[-1] == "[key]" and isinstance(place.holder, MappingNode):
            badly_named.append((place.holder, place.node))
        elif kind != "missing":
            refused.append(place.node)
            findings.dropped.add(tuple(part for part in location if part not in {TEXT_SHAPE, OTHER_SHAPE}))
        elif isinstance(place.node, MappingNode) and (filler := _fillers().get(str(location[-1]))):
            place.node.entries[str(location[-1])] = MappingEntry(
                Scalar(str(location[-1]), Position(), broken=True), filler
            )
        else:
            refused.append(place.node)
    for holder, node in badly_named:
        _rename(holder, node, findings)
    _remove(root, {id(node) for node in refused})


def _rename(holder: MappingNode, node: Node, findings: Findings) -> None:
    """Replace an invalid name by a valid one, so that the content below it is still checked."""
    for number, (name, entry) in enumerate(list(holder.entries.items())):
        if entry.value is node:
            valid = f"placeholder-{number}"
            del holder.entries[name]
            holder.entries[valid] = entry
            findings.dropped |= {
                tuple(valid if part == name else part for part in path) for path in findings.dropped
            }


def _remove(node: Node, refused: set[int]) -> None:
    """Remove the nodes with these identities from the tree below `node`."""
    if isinstance(node, MappingNode):
        for name in [name for name, entry in node.entries.items() if id(entry.value) in refused]:
            del node.entries[name]
        for entry in node.entries.values():
            _remove(entry.value, refused)
    elif isinstance(node, SequenceNode):
        if node.items and all(id(item) in refused for item in node.items):
            node.broken = True  # it was not empty: each of its items has been reported
        node.items[:] = [item for item in node.items if id(item) not in refused]
        for item in node.items:
            _remove(item, refused)
