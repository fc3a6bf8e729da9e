"""Tree -> document: the model reads every key by itself, and each complaint finds its place in the file.

Whatever does not fit is reported, then taken out of the tree, so that the checks behind this one (`checks`)
still see all the rest: every problem at once. Nothing here knows a key's meaning beyond the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.settings.model import UNSUPPORTED, Document
from gateway.settings.problem import Problem, Severity, quoted
from gateway.settings.reading import shape_of
from gateway.settings.schema import Path, keys_of
from gateway.settings.section import OTHER_SHAPE, TEXT_SHAPE
from gateway.settings.yaml_tree import Entry, MappingNode, Mark, Node, Scalar, SequenceNode, plain

MAX_PASSES: Final = 16
"""Each pass takes out at least one level of what does not fit; no file is as deep."""

Location = tuple[str | int, ...]


@final
@dataclass(slots=True)
class Findings:
    """Collects problems by the node that they are about."""

    problems: list[Problem] = field(default_factory=list)
    dropped: set[Location] = field(default_factory=set)
    """What was taken out because it does not fit: a default stands there that nobody meant."""

    def doubtful(self, *path: str) -> bool:
        """Whether something at, above or below `path` was taken out, so that nothing follows from its
        value."""
        return any(each[: len(path)] == path[: len(each)] for each in self.dropped)

    def add(
        self,
        node: Node | None,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Complain about a node, unless it was complained about before."""
        if node is not None and node.broken:
            return
        if isinstance(node, Scalar) and node.variables and code in {"bad-value", "wrong-type", "unsupported"}:
            source = "the value comes from the environment: " + ", ".join(node.variables)
            hint = f"{hint}; {source}" if hint else source
        mark = node.mark if node is not None else Mark()
        self.problems.append(
            Problem(mark.line, mark.column, code, message, hint or None, severity, mark.width)
        )

    def refused(self, node: Node | None, error: Exception, hint: str | None = None) -> None:
        """A text that core or a dialect refused. Its words quote the text, which may come from the
        environment."""
        secret = isinstance(node, Scalar) and node.variables
        self.add(node, "bad-value", "this cannot be read" if secret else str(error), hint)


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """What a location of the model's complaint stands for in the tree."""

    holder: MappingNode | SequenceNode | None
    key: Scalar | None
    node: Node


def read_document(
    root: MappingNode, model: type[Document], schema: dict[str, Any], findings: Findings
) -> Document | None:
    """The document without what does not fit. `root` is left as the document has it; None should never
    come."""
    for number in range(MAX_PASSES):
        try:
            return model.model_validate(plain(root))
        except ValidationError as error:
            complaints = error.errors(include_url=False, include_input=False)
        if number == 0:
            known = [path for path, _, _ in keys_of(schema)]
            misspelt = _misspelt(complaints)
            for complaint in complaints:
                if complaint["type"] != "missing" or complaint["loc"] not in misspelt.values():
                    _report(root, complaint, known, misspelt, findings)
        _prune(root, [(complaint["loc"], complaint["type"]) for complaint in complaints], findings)
    return None


def _misspelt(complaints: Iterable[ErrorDetails]) -> dict[Location, Location]:
    """Unknown keys that are nearly the name of a key missing beside them: one mistake, told once."""
    missing = [complaint["loc"] for complaint in complaints if complaint["type"] == "missing"]
    found: dict[Location, Location] = {}
    for complaint in complaints:
        if complaint["type"] == "extra_forbidden":
            *above, key = complaint["loc"]
            beside = [str(each[-1]) for each in missing if list(each[:-1]) == above]
            if close := get_close_matches(str(key), beside, n=1):
                found[complaint["loc"]] = (*above, close[0])
    return found


def _locate(root: Node, location: Location) -> _Place:
    """Follow a location as far as it leads; where the model read one shape as another, the outermost node is
    meant."""
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
    complaint: ErrorDetails,
    known: Sequence[Path],
    misspelt: Mapping[Location, Location],
    findings: Findings,
) -> None:
    location = complaint["loc"]
    place = _locate(root, location)
    context = complaint.get("ctx", {})
    match complaint["type"]:
        case "missing":
            key = str(location[-1])
            findings.add(
                _missing_at(place),
                "missing-key",
                f"the key {quoted(key)} is missing here",
                f"add `{key}: ...`",
            )
        case "extra_forbidden":
            if not place.node.broken:
                _report_unknown(place, location, known, misspelt.get(location), findings)
        case "model_type" | "dict_type" | "mapping_type":
            _report_shape(place, "a mapping", findings)
        case "tuple_type" | "list_type":
            _report_shape(place, "a list", findings)
        case "too_short":
            if plain(place.node) == []:  # else each item that was taken out has been told
                findings.add(place.node, "bad-value", "the list is empty", "at least one item belongs here")
        case "bad-value" | "wrong-type" | "unsupported" as code:
            node = place.key if location[-1] == "[key]" else place.node
            findings.add(node, code, context["said"], context["hint"])
        case _:
            findings.add(place.node, "bad-value", complaint["msg"][:1].lower() + complaint["msg"][1:])


def _missing_at(place: _Place) -> Node:
    """A missing key is shown at the key that should hold it, or where the list's item begins."""
    if place.node.broken or place.key is None:
        mark = place.node.mark
        return Scalar("", Mark(mark.line, mark.column), broken=place.node.broken)
    return place.key


def _report_shape(place: _Place, wanted: str, findings: Findings) -> None:
    shape = shape_of(plain(place.node))
    hint = "remove the key to get its defaults" if shape == "nothing" else None
    findings.add(place.node, "wrong-type", f"{wanted} is expected here, not {shape}", hint)


def _report_unknown(
    place: _Place, location: Location, known: Sequence[Path], meant: Location | None, findings: Findings
) -> None:
    generic = _generic(location, known)
    key = str(location[-1])
    if ".".join("*" if part == "[]" else part for part in generic) in UNSUPPORTED:
        findings.add(
            place.key, "unsupported", f"the key {quoted(key)} is not supported in this release", "remove it"
        )
        return
    here = sorted({path[-1] for path in known if path[:-1] == generic[:-1]})
    elsewhere = sorted({_spoken(path[:-1]) for path in known if path[-1] == key and path[-1] != "*"})
    if close := [str(meant[-1])] if meant else get_close_matches(key, here, n=1):
        hint = f"did you mean `{close[0]}`?"
    elif elsewhere:
        hint = f"`{key}` stands under {' or '.join(elsewhere[:3])}"
    elif here:
        hint = "known here: " + ", ".join(here)
    else:
        hint = "nothing may stand here"
    findings.add(place.key, "unknown-key", f"there is no key {quoted(key)} here", hint)


def _generic(location: Location, known: Iterable[Path]) -> Path:
    """The location with `*` for names that are free, `[]` for numbers, and without tags."""
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


def _spoken(path: Path) -> str:
    words = ".".join("NAME" if part == "*" else part for part in path).replace(".[]", "[]")
    return f"`{words}`" if words else "the top level"


def _fillers() -> dict[str, Node]:
    """Stand-ins for required keys, so that the rest can still be checked. Nothing is ever said about them."""
    at = Mark()
    return {
        "listen": Scalar("127.0.0.1:0", at, broken=True),
        "address": Scalar("127.0.0.1:0", at, broken=True),
        "services": MappingNode(at, broken=True),
        "dialect": Scalar("?", at, broken=True),
        "backends": SequenceNode(at, broken=True),
        "url": Scalar("http://stand.in:1", at, broken=True),
    }


def _prune(root: MappingNode, complaints: Sequence[tuple[Location, str]], findings: Findings) -> None:
    """Take out what does not fit. Places are looked up before anything moves."""
    doomed: list[Node] = []
    for location, kind in complaints:
        place = _locate(root, location)
        if location[-1] == "[key]" and isinstance(place.holder, MappingNode):
            _rename(place.holder, place.node)
        elif kind != "missing":
            doomed.append(place.node)
            findings.dropped.add(location)
        elif isinstance(place.node, MappingNode) and (filler := _fillers().get(str(location[-1]))):
            place.node.entries[str(location[-1])] = Entry(
                Scalar(str(location[-1]), Mark(), broken=True), filler
            )
        else:
            doomed.append(place.node)
    _take_out(root, {id(node) for node in doomed})


def _rename(holder: MappingNode, node: Node) -> None:
    """A name that cannot stand makes way for one that can; what stands below it is still looked at."""
    for number, (name, entry) in enumerate(list(holder.entries.items())):
        if entry.value is node:
            del holder.entries[name]
            holder.entries[f"stand-in-{number}"] = entry


def _take_out(node: Node, doomed: set[int]) -> None:
    if isinstance(node, MappingNode):
        for name in [name for name, entry in node.entries.items() if id(entry.value) in doomed]:
            del node.entries[name]
        for entry in node.entries.values():
            _take_out(entry.value, doomed)
    elif isinstance(node, SequenceNode):
        node.items[:] = [item for item in node.items if id(item) not in doomed]
        for item in node.items:
            _take_out(item, doomed)
