"""YAML text -> a tree of nodes that know where they stand.

Built from PyYAML's events, not its values: a scalar stays the text that was written (`1.90`, `off`), every
problem of form is collected, and what one text can say in two ways is refused: duplicate keys, tags, anchors
and aliases (so no alias bomb can exist), several documents. Nothing here knows a key's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

import yaml

from gateway.settings.problem import Problem, quoted, split_lines

MAX_CHARACTERS: Final = 1024 * 1024
"""A configuration of a thousand services is below this; whatever is above is not one."""
MAX_DEPTH: Final = 32
"""The deepest key of the configuration stands at 6."""

_REFERENCE: Final = re.compile(r"\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>:-(?P<default>[^}]*))?\})?")


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """Where something stands. Lines and columns count from 1, in characters."""

    line: int = 1
    column: int = 1
    width: int = 1


@dataclass(slots=True)
class Scalar:
    """One text, `${NAME}` already replaced."""

    text: str
    mark: Mark
    plain: bool = True
    """Neither quoted nor a block: what other readers may take for a number or a word of YAML's own."""
    written: str = ""
    """As it stands in the file: what messages may quote."""
    variables: tuple[str, ...] = ()
    """The environment variables that went into `text`."""
    broken: bool = False
    """Already complained about: whatever else its text looks like is no finding."""


@dataclass(slots=True)
class Entry:
    """One key with its value."""

    key: Scalar
    value: Node


@dataclass(slots=True)
class MappingNode:
    """Keys and values, in file order."""

    mark: Mark
    entries: dict[str, Entry] = field(default_factory=dict)
    broken: bool = False


@dataclass(slots=True)
class SequenceNode:
    """A list."""

    mark: Mark
    items: list[Node] = field(default_factory=list)
    broken: bool = False


Node: TypeAlias = Scalar | MappingNode | SequenceNode
Plain: TypeAlias = "str | dict[str, Plain] | list[Plain]"


def plain(node: Node) -> Plain:
    """The tree as texts, dicts and lists."""
    if isinstance(node, MappingNode):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node.text


def child(node: Node | None, *path: str | int) -> Node | None:
    """The node below `node` at `path`, None where there is none."""
    for part in path:
        if isinstance(node, MappingNode) and isinstance(part, str) and part in node.entries:
            node = node.entries[part].value
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            return None
    return node


def read_tree(text: str, environ: Mapping[str, str]) -> tuple[Node | None, list[Problem]]:
    """The tree of `text`, or None when it cannot be read at all; and what is wrong with its form. Never
    raises."""
    if len(text) > MAX_CHARACTERS:
        message = f"the file is larger than {MAX_CHARACTERS} characters"
        return None, [Problem(1, 1, "too-large", message)]
    builder = _Builder(text, environ)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if not builder.feed(event):
                break
    except yaml.reader.ReaderError as error:
        builder.problems.append(_unreadable_character(text, error))
        return None, builder.problems
    except yaml.MarkedYAMLError as error:
        builder.problems.append(_syntax_problem(text, error))
        return None, builder.problems
    except (ValueError, OverflowError):
        # PyYAML lets the escape "\U00110000" through to chr().
        builder.problems.append(Problem(1, 1, "yaml-syntax", "a text holds an escape that is no character"))
        return None, builder.problems
    if builder.root is None and not builder.problems:
        builder.problems.append(
            Problem(1, 1, "empty-file", "the file holds no configuration", "it needs `listen` and `services`")
        )
    return builder.root, builder.problems


@final
class _Builder:
    """Takes the parser's events one by one and keeps the path of open nodes."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.text = text
        self.environ = environ
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[tuple[MappingNode | SequenceNode, Scalar | None]] = []
        # One more for each open node below a key that cannot be used: its content is read and dropped.
        self._dropping = 0
        self._drop_next = False
        self._documents = 0

    def feed(self, event: yaml.Event) -> bool:
        """Take one event; False when reading on would tell nothing more."""
        mark = self._mark(event)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._complain(
                    mark, "multiple-documents", "a second document starts here", "one file, one document"
                )
                return False
        elif isinstance(event, yaml.AliasEvent):
            self._complain(
                mark,
                "alias",
                "anchors and aliases are not read",
                "write the value again where it is needed, or take it from a ${VARIABLE}",
            )
            self._take(Scalar("", mark, broken=True))
        elif isinstance(event, yaml.NodeEvent):
            self._check_properties(event, mark)
            if isinstance(event, yaml.ScalarEvent):
                self._take(self._scalar(event, mark))
            else:
                return self._enter(event, mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._leave()
        return True

    def _enter(self, event: yaml.NodeEvent, mark: Mark) -> bool:
        node = MappingNode(mark) if isinstance(event, yaml.MappingStartEvent) else SequenceNode(mark)
        if len(self._open) + self._dropping >= MAX_DEPTH:
            self._complain(mark, "too-deep", f"more than {MAX_DEPTH} levels inside each other")
            self.root = None
            return False
        if self._dropping:
            self._dropping += 1
        elif self._take(node):
            self._open.append((node, None))
        else:
            self._dropping = 1
        return True

    def _leave(self) -> None:
        if self._dropping:
            self._dropping -= 1
        else:
            self._open.pop()

    def _take(self, node: Node) -> bool:
        """Put a node where it belongs; False when its place is one whose content is dropped."""
        if self._dropping:
            return False
        if not self._open:
            self.root = node
            return True
        holder, key = self._open[-1]
        if isinstance(holder, SequenceNode):
            holder.items.append(node)
            return True
        if self._drop_next:  # the value of a key that cannot be used
            self._drop_next = False
            return False
        if key is None:
            return self._take_key(holder, node)
        self._open[-1] = (holder, None)
        holder.entries[key.text] = Entry(key, node)
        return True

    def _take_key(self, holder: MappingNode, node: Node) -> bool:
        if not isinstance(node, Scalar):
            self._complain(node.mark, "bad-key", "a key must be a plain word")
        elif node.text in holder.entries:
            self._complain(
                node.mark,
                "duplicate-key",
                f"{quoted(node.text)} stands here a second time",
                f"the first one is in line {holder.entries[node.text].key.mark.line}",
            )
        elif not node.broken:
            self._open[-1] = (holder, node)
            return True
        self._drop_next = True
        return False

    def _check_properties(self, event: yaml.NodeEvent, mark: Mark) -> None:
        if event.anchor is not None:
            self._complain(mark, "alias", "anchors and aliases are not read", "remove it")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._complain(
                mark, "tag", "tags are not read: every value is the text that was written", "remove the tag"
            )

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> Scalar:
        node = Scalar(event.value, mark, plain=event.style is None, written=event.value)
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self._complain(mark, "bad-character", "half of a surrogate pair is no character")
            node.broken = True
        in_key = bool(self._open) and isinstance(self._open[-1][0], MappingNode) and self._open[-1][1] is None
        if "${" in event.value and not in_key and not self._dropping and not self._drop_next:
            self._substitute(node, event)
        return node

    def _substitute(self, node: Scalar, event: yaml.ScalarEvent) -> None:
        """Replace every `${NAME}`. What comes out of the environment is not looked at again."""
        places = self._references(event, node.mark)
        names: list[str] = []

        def value_of(found: re.Match[str]) -> str:
            mark = next(places)
            name = found["name"]
            if name is None:
                node.broken = True
                self._complain(
                    mark, "bad-variable", "`${` begins no variable", "write ${NAME} or ${NAME:-default}"
                )
                return ""
            names.append(name)
            value = self.environ.get(name)
            if found["rest"] is not None:
                return value or found["default"]  # as in a shell: unset or empty
            if value is None:
                node.broken = True
                self._complain(
                    Mark(mark.line, mark.column, len(name) + 3),
                    "unset-variable",
                    f"the environment has no {name}",
                    f"set it, or give a default: ${{{name}:-...}}",
                )
                return ""
            return value

        text = _REFERENCE.sub(value_of, event.value)
        node.text = "" if node.broken else text
        node.variables = tuple(names)

    def _references(self, event: yaml.ScalarEvent, fallback: Mark) -> Iterator[Mark]:
        """Where each `${` of a scalar stands; the scalar's own place when escapes hide it."""
        start, end = event.start_mark, event.end_mark
        assert start is not None  # the parser marks every event that comes from a text
        assert end is not None
        source = self.text[start.index : end.index]
        at = source.find("${")
        while at >= 0:
            before = split_lines(source[:at])
            column = len(before[-1]) + 1 + (start.column if len(before) == 1 else 0)
            yield Mark(start.line + len(before), column, 2)
            at = source.find("${", at + 2)
        while True:
            yield fallback

    def _mark(self, event: yaml.Event) -> Mark:
        start, end = event.start_mark, event.end_mark
        if start is None:
            return Mark()
        width = end.column - start.column if end is not None and end.line == start.line else 1
        return Mark(start.line + 1, start.column + 1, max(1, width))

    def _complain(self, mark: Mark, code: str, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(mark.line, mark.column, code, message, hint, width=mark.width))


def _unreadable_character(text: str, error: yaml.reader.ReaderError) -> Problem:
    before = split_lines(text[: error.position])
    return Problem(
        len(before),
        len(before[-1]) + 1,
        "bad-character",
        f"the character U+{ord(text[error.position]):04X} may not stand in YAML",
    )


_SYNTAX_HINTS: Final = (
    ("cannot start any token", "YAML indents with blanks; a text that starts with one of @ ` % needs quotes"),
    ("mapping values are not allowed", "a text that holds `: ` needs quotes; check the indentation, too"),
    ("could not find expected ':'", "a key needs a colon and a blank behind it: `key: value`"),
    ("expected the node content", "a value is missing here, or it needs quotation marks"),
    ("chomping or indentation", 'a text that starts with > or | needs quotation marks: ">=1.58"'),
    ("block end", "the indentation does not match any line above"),
    ("expected ',' or", "a bracket or brace is not closed"),
    ("unexpected end of stream", "a quotation mark is not closed"),
)


def _syntax_problem(text: str, error: yaml.MarkedYAMLError) -> Problem:
    """PyYAML's words without its excerpt of the file, which may hold a secret."""
    mark = error.problem_mark or error.context_mark
    said = re.sub(
        r"'[^']*'", lambda found: found[0] if len(found[0]) <= 20 else "a text", error.problem or ""
    )
    message = said or error.context or "this is not YAML"
    hint = next((hint for words, hint in _SYNTAX_HINTS if words in message), None)
    if mark and text[: mark.index].endswith("$"):
        hint = 'inside [ ] and { } a variable needs quotation marks: "${NAME}"'
    if error.context_mark and mark and error.context_mark.line != mark.line:
        opened = f"it began in line {error.context_mark.line + 1}"
        hint = f"{hint}; {opened}" if hint else opened
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(line, column, "yaml-syntax", message, hint)
