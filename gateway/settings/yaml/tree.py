"""Reads YAML text into a tree of nodes that know their positions.

The tree is built from PyYAML's events, not from its values, so a scalar stays the text that was written
(`1.90`, `off`). Ambiguous or dangerous YAML is refused: duplicate keys, tags, anchors and aliases (so no
alias bomb can exist), several documents. This module knows the meaning of no key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, final

import yaml

from gateway.settings.files import SourceError
from gateway.settings.yaml.problem import Problem, quoted, split_lines

MAX_CHARACTERS: Final = 1024 * 1024
"""Longest configuration in characters. One of a thousand services is shorter."""
MAX_DEPTH: Final = 32
"""Deepest nesting in a file. The deepest key of the configuration is at level 6."""

_REFERENCE: Final = re.compile(
    r"\$\{(?:FILE:(?!-)(?P<file>[^}]*)\}"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-(?P<default>[^}]*))?\})?"
)

MERGE: Final = "<<"
"""Key by which YAML 1.1 adds the keys of another mapping."""
_INSTEAD_OF_ALIASES: Final = (
    "write the value where it is needed, or as ${VARIABLE}; `include` reads services from further files"
)

ReadValue: TypeAlias = Callable[[str], str]
"""Function that reads the file of a `${FILE:PATH}` and returns its value. Raises `SourceError`."""


@final
@dataclass(frozen=True, slots=True)
class Position:
    """Position in a configuration file. Lines and columns count from 1, in characters."""

    line: int = 1
    column: int = 1
    width: int = 1
    file: str = ""
    """Path of an included file; empty: the main file."""


@dataclass(slots=True)
class Scalar:
    """A node that is a text, in which each `${NAME}` and `${FILE:PATH}` has been replaced."""

    text: str
    position: Position
    plain: bool = True
    """Whether the text is neither quoted nor a block: other readers may take it for a number or boolean."""
    written: str = ""
    """The text as it is in the file, with variables in place. Messages may quote only this one."""
    variables: tuple[str, ...] = ()
    """Environment variables whose values are part of `text`."""
    files: tuple[str, ...] = ()
    """Paths of the files whose content is part of `text`."""
    broken: bool = False
    """Whether a problem with the node was already reported. Then no other is."""

    @property
    def substituted(self) -> bool:
        """Whether a part of the text comes from a variable or a file, so that no message may show it."""
        return bool(self.variables or self.files)


@dataclass(slots=True)
class MappingEntry:
    """A key of a mapping in the file, with its value."""

    key: Scalar
    value: Node


@dataclass(slots=True)
class MappingNode:
    """A node that is a mapping, with its keys in file order."""

    position: Position
    entries: dict[str, MappingEntry] = field(default_factory=dict)
    broken: bool = False


@dataclass(slots=True)
class SequenceNode:
    """A node that is a list of nodes, with its position."""

    position: Position
    items: list[Node] = field(default_factory=list)
    broken: bool = False


Node: TypeAlias = Scalar | MappingNode | SequenceNode
Location: TypeAlias = tuple[str | int, ...]
"""The keys and list indexes that lead to a node of the file."""
Plain: TypeAlias = "str | dict[str, Plain] | list[Plain]"


def plain(node: Node) -> Plain:
    """The node and all below it as texts, dictionaries and lists."""
    if isinstance(node, MappingNode):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node.text


def shape_of(node: Node) -> str:
    """The shape of a node in words, for messages: a mapping, a list, a text or nothing."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return "a text" if node.text else "nothing"


def child(node: Node | None, *path: str | int) -> Node | None:
    """The node at `path` below `node`; None: there is none."""
    for part in path:
        if isinstance(node, MappingNode) and isinstance(part, str) and part in node.entries:
            node = node.entries[part].value
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            return None
    return node


def read_tree(
    text: str,
    environ: Mapping[str, str],
    read_value: ReadValue | None = None,
    *,
    file: str = "",
    variables: Collection[str] | None = None,
) -> tuple[Node | None, list[Problem]]:
    """The tree of a YAML text (None: it cannot be read at all), and every problem of form. Never raises.

    `read_value` reads `${FILE:PATH}`, `file` is for positions, `variables` may be read (None: all).
    """
    if len(text) > MAX_CHARACTERS:
        message = f"the file is larger than {MAX_CHARACTERS} characters"
        return None, [Problem(1, 1, "too-large", message, file=file)]
    builder = _Builder(text, environ, read_value, file, variables)
    root, problems = None, builder.problems
    try:
        root = builder.root()
        if root is None:
            hint = "it needs `listen` and `services`"
            problems.append(Problem(1, 1, "empty-file", "the file contains no configuration", hint))
    except _TooDeepError as error:
        builder.report(error.position, "too-deep", f"more than {MAX_DEPTH} nested levels")
    except yaml.reader.ReaderError as error:
        problems.append(_unreadable_character(text, error))
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(text, error))
    except (ValueError, OverflowError):
        # PyYAML lets the escape "\U00110000" through to chr().
        message = "an escape sequence does not name a character"
        problems.append(Problem(1, 1, "yaml-syntax", message))
    return root, [replace(problem, file=file) for problem in problems] if file else problems


class _TooDeepError(Exception):
    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position


@final
@dataclass(slots=True)
class _Builder:
    text: str
    environ: Mapping[str, str]
    read_value: ReadValue | None
    file: str
    variables: Collection[str] | None
    problems: list[Problem] = field(default_factory=list)
    _events: Iterator[yaml.Event] = field(init=False)

    def __post_init__(self) -> None:
        self._events = iter(yaml.parse(self.text, Loader=yaml.SafeLoader))

    def root(self) -> Node | None:
        """The root of the first YAML document; None: it is empty. Raises the parser's errors."""
        root = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message, hint = "a second document starts here", "write one document per file"
                    self.report(self._position(event), "multiple-documents", message, hint)
                    break
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, 0)
        return root

    def _node(self, event: yaml.Event, depth: int, *, used: bool = True) -> Node:
        """The node that begins with `event`. `used`: False for a key that cannot be used, which is only
        skipped."""
        assert isinstance(event, yaml.NodeEvent)
        position = self._position(event)
        if isinstance(event, yaml.AliasEvent):
            self._report_alias(position)
            return Scalar("", position, broken=True)
        self._check_tag(event, position)
        has_anchor = event.anchor is not None
        if has_anchor:
            self._report_alias(position)
        if isinstance(event, yaml.ScalarEvent):
            scalar = self._scalar(event, position, used=used)
            scalar.broken |= has_anchor and used  # a key keeps its meaning
            return scalar
        if depth >= MAX_DEPTH:
            raise _TooDeepError(position)
        if isinstance(event, yaml.SequenceStartEvent):
            sequence = SequenceNode(position, broken=has_anchor)
            while not isinstance(first := next(self._events), yaml.SequenceEndEvent):
                sequence.items.append(self._node(first, depth + 1, used=used))
            return sequence
        mapping = MappingNode(position, broken=has_anchor)
        while not isinstance(first := next(self._events), yaml.MappingEndEvent):
            key = self._node(first, depth + 1, used=False)
            usable = self._usable(key, mapping) if used else None
            value = self._node(next(self._events), depth + 1, used=usable is not None)
            if usable is not None:
                mapping.entries[usable.text] = MappingEntry(usable, value)
                mapping.broken |= usable.text == MERGE and value.broken  # other keys come from elsewhere
        return mapping

    def _usable(self, key: Node, mapping: MappingNode) -> Scalar | None:
        if not isinstance(key, Scalar):
            self.report(key.position, "bad-key", "a key must be a text")
            return None
        if key.text in mapping.entries:
            hint = f"the first one is in line {mapping.entries[key.text].key.position.line}"
            self.report(key.position, "duplicate-key", f"the key {quoted(key.text)} is already set", hint)
            return None
        return None if key.broken else key

    def _report_alias(self, position: Position) -> None:
        """Report the first anchor or alias of the file: the others follow from it."""
        if not any(problem.code == "alias" for problem in self.problems):
            self.report(position, "alias", "anchors and aliases are not supported", _INSTEAD_OF_ALIASES)

    def _check_tag(self, event: yaml.NodeEvent, position: Position) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None:
            message = "tags are not supported: every value is read as the text that was written"
            self.report(position, "tag", message, "remove the tag")

    def _scalar(self, event: yaml.ScalarEvent, position: Position, *, used: bool) -> Scalar:
        node = Scalar(event.value, position, plain=event.style is None, written=event.value)
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self.report(position, "bad-character", "half of a surrogate pair is not a character")
            node.broken = True
        if "${" in event.value and used:
            self._substitute(node, event)
        return node

    def _substitute(self, node: Scalar, event: yaml.ScalarEvent) -> None:
        """Replace every `${NAME}` and `${FILE:PATH}` in a text. Values are not searched for further ones."""
        positions = self._reference_positions(event, node.position)
        names: list[str] = []
        files: list[str] = []

        def value_of(found: re.Match[str]) -> str:
            position = next(positions)
            if found["file"] is not None:
                files.append(found["file"])
                return self._file_value(node, found["file"], position)
            name = found["name"]
            if name is None:
                node.broken = True
                hint = "write ${NAME}, ${NAME:-default} or ${FILE:PATH}"
                self.report(position, "bad-variable", "`${` does not begin a variable", hint)
                return ""
            names.append(name)
            if self.variables is not None and name not in self.variables:
                node.broken = True
                self.report(
                    Position(position.line, position.column, len(name) + 3),
                    "not-allowed",
                    f"an included file may not read the environment variable {name}",
                    f"add {name} to `include.environment` of the main file",
                )
                return ""
            value = self.environ.get(name)
            if found["rest"] is not None:
                return value or found["default"]  # as in a shell: unset or empty
            if value is None:
                node.broken = True
                self.report(
                    Position(position.line, position.column, len(name) + 3),
                    "unset-variable",
                    f"the environment variable {name} is not set",
                    f"set it, or give a default: ${{{name}:-...}}; a secret needs a file: ${{FILE:/path}}",
                )
                return ""
            return value

        text = _REFERENCE.sub(value_of, event.value)
        node.text = "" if node.broken else text
        node.variables = tuple(names)
        node.files = tuple(files)

    def _file_value(self, node: Scalar, path: str, position: Position) -> str:
        at = Position(position.line, position.column, len(path) + len("${FILE:}"))
        if not path or self.read_value is None:
            message = "`${FILE:}` names no file" if not path else "no file is read here"
            self.report(at, "bad-variable", message, "write ${FILE:/path/of/the/file}")
        else:
            try:
                return self.read_value(path)
            except SourceError as error:
                self.report(at, error.code, f"{quoted(path)}: {error}", error.hint)
        node.broken = True
        return ""

    def _reference_positions(self, event: yaml.ScalarEvent, fallback: Position) -> Iterator[Position]:
        """The position of each `${` in a scalar, or the scalar's own if escapes hide it."""
        start, end = event.start_mark, event.end_mark
        assert start is not None  # the parser gives a position to every event of a text
        assert end is not None
        source = self.text[start.index : end.index]
        at = source.find("${")
        while at >= 0:
            before = split_lines(source[:at])
            column = len(before[-1]) + 1 + (start.column if len(before) == 1 else 0)
            yield Position(start.line + len(before), column, 2, self.file)
            at = source.find("${", at + 2)
        while True:
            yield fallback

    def _position(self, event: yaml.Event) -> Position:
        start, end = event.start_mark, event.end_mark
        if start is None:
            return Position(file=self.file)
        width = end.column - start.column if end is not None and end.line == start.line else 1
        return Position(start.line + 1, start.column + 1, max(1, width), self.file)

    def report(self, position: Position, code: str, message: str, hint: str | None = None) -> None:
        self.problems.append(
            Problem(position.line, position.column, code, message, hint, width=position.width)
        )


def _unreadable_character(text: str, error: yaml.reader.ReaderError) -> Problem:
    before = split_lines(text[: error.position])
    return Problem(
        len(before),
        len(before[-1]) + 1,
        "bad-character",
        f"the character U+{ord(text[error.position]):04X} is not allowed in YAML",
    )


_SYNTAX_HINTS: Final = (
    (r"'\t' that cannot start", "indent with spaces, not tabs"),
    ("cannot start any token", "a text that starts with @, ` or % needs quotation marks"),
    (
        "mapping values are not allowed",
        "a text that contains `: ` needs quotation marks; also check the indentation",
    ),
    ("expected alphabetic or numeric", 'a text that starts with * or & needs quotation marks: "*.yaml"'),
    ("could not find expected ':'", "a key needs a colon and a space after it: `key: value`"),
    ("expected the node content", "a value is missing here, or it needs quotation marks"),
    ("chomping or indentation", 'a text that starts with > or | needs quotation marks: ">=1.58"'),
    ("block end", "the indentation does not match any line above"),
    ("expected ',' or", "a bracket or brace is not closed"),
    ("unexpected end of stream", "a quotation mark is not closed"),
)


_BRACKET_IN_TEXT: Final = re.compile(r"[\w.$]\[(\*\]?)?$")
"""Pattern for the end of a text such as `$.a[*]`, up to where the parser stopped."""


def _syntax_problem(text: str, error: yaml.MarkedYAMLError) -> Problem:
    """A syntax error of PyYAML as a problem, without its excerpt of the file, which may contain a secret."""
    mark = error.problem_mark or error.context_mark
    problem_text = re.sub(
        r"'[^']*'", lambda found: found[0] if len(found[0]) <= 20 else "a text", error.problem or ""
    )
    message = problem_text or error.context or "not valid YAML"
    hint = next((hint for part, hint in _SYNTAX_HINTS if part in message), None)
    if mark and _BRACKET_IN_TEXT.search(text[max(0, mark.index - 60) : mark.index + 1]):
        hint = 'inside [ ] and { } a text with a bracket in it needs quotation marks: "$.a[*]"'
    if mark and text[: mark.index].endswith("$"):
        hint = 'inside [ ] and { } a variable needs quotation marks: "${NAME}"'
    if error.context_mark and mark and error.context_mark.line != mark.line:
        opened = f"it began in line {error.context_mark.line + 1}"
        hint = f"{hint}; {opened}" if hint else opened
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(line, column, "yaml-syntax", message, hint)
