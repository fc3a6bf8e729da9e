"""One layout for configurations: text in, text out. Neither a value nor a comment changes.

    tokens of YAML -> the pieces of each line -> indentation, gaps, quotation marks -> text

Two blanks for each level, lists one level deeper than their key, one blank after `:`, `-` and `,`, at most
one empty line in a row. A text that other tools read as a number or a date (1.90) gets quotation marks. Line
breaks stay where they are, and so does the inside of texts and of `[ ]` and `{ }` of several lines: it only
moves with what it belongs to. What comes out is parsed again, and compared. This module opens no file and
knows no key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

import yaml

from gateway.errors import LayoutError

INDENT: Final = 2
_LINE: Final = re.compile("(?P<text>[^\n\r\x85\u2028\u2029]*)(?P<end>\r\n|[\n\r\x85\u2028\u2029]|\\Z)")
_NUMBER: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"  # 1.90
    r"|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # base 60, in YAML 1.1
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
    re.ASCII,
)
"""What YAML 1.1 or 1.2 reads as a number with a fraction or an exponent, as minutes, or as a date."""

_OPEN: Final = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
_CLOSE: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
_MARKS: Final = (yaml.ValueToken, yaml.BlockEntryToken, yaml.KeyToken)


class NotYaml(ValueError):
    """The text is not YAML, or YAML that no configuration may contain: `check` says where."""


@dataclass(slots=True)
class _Block:
    """A list or a mapping in block style: the column where its items begin, and where they shall."""

    old: int
    new: int
    is_list: bool = False
    in_place: bool = False
    """A list whose dashes stand below the key, not deeper. YAML has no token for its begin and its end."""

    @property
    def shift(self) -> int:
        return self.new - self.old


@dataclass(slots=True)
class _Piece:
    """A token, or what stands of it on one line."""

    text: str
    column: int
    token: yaml.Token
    continued: bool = False


@dataclass(slots=True)
class _Line:
    """One line of the file. `blocks` are those that are open at its begin, the innermost last."""

    text: str
    end: str
    pieces: list[_Piece] = field(default_factory=list)
    blocks: tuple[_Block, ...] = ()
    own: _Block | None = None
    """The block of which an item begins on this line."""
    in_flow: bool = False
    verbatim: _Block | None = None
    """Content of a block scalar, which moves as this block does."""


def laid_out(text: str) -> str:
    """`text` in the one layout. Raises `NotYaml`, and `LayoutError` for a text that this module misreads."""
    text = text.removeprefix("\ufeff")
    before = _events(text)
    result = "".join(_written(_read(text)))
    try:
        same = _events(result) == before
    except NotYaml:
        same = False
    if not same:
        raise LayoutError("this file is left as it is: another layout would change what it means")
    return result


def _events(text: str) -> list[tuple[str, str | None]]:
    """What the text means: kinds of events, and the texts of scalars. Raises `NotYaml`."""
    found = []
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if (
                isinstance(event, yaml.AliasEvent)
                or getattr(event, "anchor", None)
                or getattr(event, "tag", None)
            ):
                raise NotYaml
            found.append((type(event).__name__, getattr(event, "value", None)))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as problem:
        raise NotYaml from problem
    if sum(name == "DocumentStartEvent" for name, _ in found) != 1:
        raise NotYaml
    return found


# -- reading: which tokens are on which line, and in which blocks


def _read(text: str) -> list[_Line]:
    lines = [_Line(found["text"], found["end"]) for found in _LINE.finditer(text)]
    reader = _Reader(text, lines)
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        reader.take(token)
    return lines


@final
class _Reader:
    """Takes the tokens in their order, and knows which blocks are open."""

    def __init__(self, text: str, lines: list[_Line]) -> None:
        self._text = text
        self._lines = lines
        self._blocks: list[_Block] = []
        self._flow = 0
        self._line = 0

    def take(self, token: yaml.Token) -> None:
        start, end = token.start_mark, token.end_mark
        if isinstance(token, yaml.BlockEndToken):
            # Comments behind the last item still belong to the block.
            self._advance(start.line if start.index >= len(self._text) else start.line - 1)
            self._leave_list()
            self._blocks.pop()
            return
        self._advance(start.line)
        if isinstance(token, yaml.BlockMappingStartToken | yaml.BlockSequenceStartToken):
            self._enter(start.column, is_list=isinstance(token, yaml.BlockSequenceStartToken))
            return
        if not self._flow:
            self._begin_item(token)
        if start.index < end.index:
            self._add(token)
        self._flow += isinstance(token, _OPEN) - isinstance(token, _CLOSE)

    def _enter(self, column: int, *, is_list: bool, in_place: bool = False) -> None:
        new = self._blocks[-1].new + INDENT if self._blocks else 0
        self._blocks.append(_Block(column, new, is_list, in_place))

    def _leave_list(self) -> None:
        if self._blocks and self._blocks[-1].in_place:
            self._blocks.pop()

    def _begin_item(self, token: yaml.Token) -> None:
        if isinstance(token, yaml.KeyToken):
            self._leave_list()
        elif isinstance(token, yaml.BlockEntryToken) and self._blocks and not self._blocks[-1].is_list:
            self._enter(self._blocks[-1].old, is_list=True, in_place=True)
        line = self._lines[token.start_mark.line]
        if not line.pieces and isinstance(token, _MARKS) and self._blocks:
            line.own = self._blocks[-1]

    def _advance(self, number: int) -> None:
        """The lines up to this one are in the blocks that are open now."""
        while self._line < number:
            self._line += 1
            line = self._lines[self._line]
            line.blocks, line.in_flow = tuple(self._blocks), self._flow > 0

    def _add(self, token: yaml.Token) -> None:
        start, end = token.start_mark, token.end_mark
        first = self._lines[start.line]
        if start.line == end.line:
            first.pieces.append(_Piece(self._text[start.index : end.index], start.column, token))
            return
        if getattr(token, "style", None) in ("|", ">"):
            # The head alone, and perhaps a comment behind it, which stays as a comment.
            head = first.text[start.column :].split(" ", 1)[0].split("\t", 1)[0]
            first.pieces.append(_Piece(head, start.column, token))
            last = end.line if end.column or end.index == len(self._text) else end.line - 1
            self._advance(last)
            for line in self._lines[start.line + 1 : last + 1]:
                line.verbatim = self._blocks[-1] if self._blocks else _Block(0, 0)
            return
        first.pieces.append(_Piece(first.text[start.column :].rstrip(), start.column, token))
        self._advance(end.line)
        for number in range(start.line + 1, end.line + 1):
            line = self._lines[number]
            text = line.text[: end.column] if number == end.line else line.text
            stripped = text.lstrip(" \t")
            line.blocks, line.in_flow = tuple(self._blocks), True
            if stripped or number == end.line:
                line.pieces.append(_Piece(stripped, len(text) - len(stripped), token, continued=True))
            else:
                line.pieces.append(_Piece("", 0, token, continued=True))


# -- writing


def _written(lines: list[_Line]) -> Iterator[str]:
    """The lines as they shall be."""
    while lines and not lines[-1].text.strip() and lines[-1].verbatim is None:
        lines.pop()
    remark: tuple[int, int] | None = None  # where the comment of the line before was, and is
    empty = True
    for number, line in enumerate(lines):
        end = "\n" if line.end in ("\r\n", "\r", "\x85") else line.end
        if line.verbatim is not None:
            yield _moved(line.text, line.verbatim.shift) + end
            remark, empty = None, False
        elif line.pieces:
            text, remark = _with_pieces(line)
            yield text + (end or "\n")
            empty = False
        elif line.text.strip():
            column = len(line.text) - len(line.text.lstrip(" \t"))
            if remark is None or remark[0] != column:
                remark = None
                new = _comment_column(lines, number, column)
            else:
                new = remark[1]
            yield " " * new + line.text.strip() + (end or "\n")
            empty = False
        else:
            remark = None
            if not empty:
                yield end
            empty = True


def _moved(text: str, shift: int) -> str:
    """A line of a block scalar, deeper or less deep. Blanks alone are content, as far as they go beyond."""
    if shift >= 0:
        return " " * shift + text if text else text
    return text[-shift:] if not text[:-shift].strip(" ") else text


def _with_pieces(line: _Line) -> tuple[str, tuple[int, int] | None]:
    """The line, and where its comment was and is."""
    first = line.pieces[0]
    block = line.blocks[-1] if line.blocks else None
    if line.own is not None:
        indent = line.own.new
    elif line.in_flow or first.continued:
        shift = block.shift if block is not None else 0
        # A text goes on deeper than its block begins, so that nothing in it looks like a document's end.
        indent = max(first.column + shift, block.new + 1 if first.continued and block is not None else 0)
    else:
        indent = block.new + INDENT if block is not None else 0
    text = " " * indent if first.text else ""
    before: _Piece | None = None
    for piece in line.pieces:
        text += " " * _gap(before, piece) + _quoted(piece)
        before = piece
    last = line.pieces[-1]
    end = last.column + len(last.text)
    rest = line.text[end:]
    if not rest.strip():
        # The blanks at the end of a line inside quotation marks may be escaped.
        return (text + rest if _goes_on(line) else text), None
    gap = len(rest) - len(rest.lstrip(" \t"))
    column = max(len(text) + min(gap, 2), end + gap + indent - first.column)
    return text.ljust(column) + rest.strip(), (end + gap, column)


def _goes_on(line: _Line) -> bool:
    token = line.pieces[-1].token
    return (
        isinstance(token, yaml.ScalarToken)
        and token.style in ("'", '"')
        and not line.text.rstrip().endswith(token.style)
    )


def _gap(before: _Piece | None, piece: _Piece) -> int:
    """Blanks between two pieces of one line."""
    if before is None:
        return 0
    if isinstance(piece.token, (yaml.FlowEntryToken, *_CLOSE)) or isinstance(before.token, _OPEN):
        return 0
    if isinstance(piece.token, yaml.ValueToken):
        return 0
    if isinstance(before.token, (*_MARKS, yaml.FlowEntryToken)):
        return 1
    return max(1, piece.column - before.column - len(before.text))


def _quoted(piece: _Piece) -> str:
    token = piece.token
    whole = isinstance(token, yaml.ScalarToken) and token.plain and token.value == piece.text
    return f'"{piece.text}"' if whole and _NUMBER.fullmatch(piece.text) else piece.text


def _comment_column(lines: list[_Line], number: int, column: int) -> int:
    """Where a comment on a line of its own shall begin: where an item does beside which it stood."""
    line = lines[number]
    if line.in_flow:
        block = line.blocks[-1] if line.blocks else None
        return max(0, column + block.shift) if block is not None else column
    following = next((later for later in lines[number + 1 :] if later.pieces), None)
    blocks = list(line.blocks)
    if following is not None and following.own is not None:
        blocks.append(following.own)
    exact = [block for block in blocks if block.old == column]
    if exact:
        return exact[-1].new
    above = [block for block in blocks if block.old < column]
    return max(above, key=lambda block: block.old).new if above else 0
