"""Printing for the verbs of the command: tables, colours on a terminal, error lines.

Texts from outside (a backend's error, a client's path) go through `plain`, so that nobody can write escape
sequences into an operator's terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TextIO, TypeAlias, final


class Style(StrEnum):
    """Style of text on a terminal: the escape sequence with which it begins."""

    PLAIN = ""
    BOLD = "\x1b[1m"
    DIM = "\x1b[2m"
    RED = "\x1b[31m"
    GREEN = "\x1b[32m"
    YELLOW = "\x1b[33m"


_END: Final = "\x1b[0m"

TableCell: TypeAlias = str | tuple[str, Style]
"""A table's cell, with or without a style of its own."""


@final
class Paint:
    """Colours text for one stream: only on a terminal with colours, and not if NO_COLOR is set."""

    def __init__(self, stream: TextIO) -> None:
        self.on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, style: Style) -> str:
        return f"{style}{text}{_END}" if self.on and style and text else text


def plain(text: object) -> str:
    """Text for a terminal: on one line, without characters that control it."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 request`, `2 requests`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def span(low: object, high: object, nothing: str = "nothing") -> str:
    """A range of versions as one text: `1.1-1.58`, or `2023-10..2024-04` if versions contain dashes."""
    if low is None or high is None:
        return nothing
    if low == high:
        return str(low)
    return f"{low}{'..' if '-' in f'{low}{high}' else '-'}{high}"


def table(header: Sequence[str], rows: Sequence[Sequence[TableCell]], paint: Paint) -> str:
    """A table of aligned columns, two spaces apart. Ends without a newline."""
    texts = [[plain(cell[0] if isinstance(cell, tuple) else cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    lines = [paint(_line(header, widths), Style.BOLD)]
    for row, cells in zip(texts, rows, strict=True):
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        padded[-1] = row[-1]
        painted = [
            paint(text, cell[1]) if isinstance(cell, tuple) else text
            for text, cell in zip(padded, cells, strict=True)
        ]
        lines.append("  ".join(painted).rstrip())
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def open_standard_streams() -> None:
    """Open closed standard streams (`>&-`) on /dev/null. Otherwise the next socket would get the descriptor,
    and output to the stream would go there (threats R-B8)."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:  # always the lowest free number
        pass
    os.close(fd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # Python's way to say that it was closed
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def print_error(sentence: object) -> None:
    """Print one sentence on standard error, after the program's name."""
    print(f"skewgate: {sentence}", file=sys.stderr, flush=True)
