"""Styles, words and rows that all pictures of the demonstration share.

A colour means one thing everywhere: green is well, yellow is on its way or in doubt, red is a loss, cyan is
the offer. Each is said by a word or a sign, too. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from gateway.demo.drawing import Glyphs, Part, clean, fitted, line, pad
from gateway.demo.scene import ClientScene, ServiceScene

PLAIN: Final = ""
BOLD: Final = "bold"
DIM: Final = "dim"
GOOD: Final = "bold green"
DOUBT: Final = "yellow"
BAD: Final = "bold red"
OFFER: Final = "bold cyan"
OFFERED: Final = "cyan"
UNOFFERED: Final = "dim"

WIDEST_KIND: Final = 14

_PHASES: Final = {"uniform": "green", "mixed": DOUBT, "capped": DOUBT, "stabilizing": DOUBT, "unknown": BAD}
_STATES: Final = {"running": DIM, "upgrading": DOUBT, "killed": BAD, "hanging": BAD}


def phase_style(phase: str) -> str:
    """Of a phase of the upgrade."""
    return _PHASES.get(phase, PLAIN)


def state_style(state: str) -> str:
    """Of what was done to a backend."""
    return _STATES.get(state, PLAIN)


def freshness(word: str, glyphs: Glyphs) -> Part:
    """The sign and the word, with their style. Nothing known: nothing."""
    known: dict[str, tuple[str, str]] = {
        "fresh": (glyphs.fresh, "green"),
        "stale": (glyphs.stale, DOUBT),
        "lost": (glyphs.lost, "red"),
        "unknown": (glyphs.unknown, DOUBT),
    }
    sign, style = known.get(word, ("", PLAIN))
    return (f"{sign} {clean(word, glyphs)}" if sign else clean(word, glyphs)), style


def event_style(kind: str, glyphs: Glyphs) -> Part:
    """The sign of a kind of events, and its style."""
    kinds: dict[str, Part] = {
        "step": (glyphs.step, BOLD),
        "offer": (glyphs.up, OFFERED),
        "lost": (glyphs.bad, BAD),
    }
    return kinds.get(kind, (glyphs.dot, PLAIN))


def count(number: int, noun: str) -> str:
    """`1,234 requests`"""
    return f"{number:,} {noun}"


def lost_words(lost: int, glyphs: Glyphs) -> list[Part]:
    """How many requests were lost, and by a sign whether that is well."""
    if lost:
        return [(f"{glyphs.bad} lost {lost:,}", BAD)]
    return [(f"{glyphs.good} lost 0", GOOD)]


def backends_line(service: ServiceScene, width: int, glyphs: Glyphs) -> Text:
    """The names of all backends on one line, with the freshness and the state of those that are not well."""
    parts: list[Part] = [(" ", PLAIN)]
    for backend in service.backends:
        sign, style = freshness(backend.freshness, glyphs)
        unwell = backend.state not in ("running", "")
        if unwell:
            parts.append((f" {clean(backend.name, glyphs)}", PLAIN))
            parts.append((f" {clean(backend.state, glyphs)} ", state_style(backend.state)))
        elif backend.freshness in ("fresh", ""):
            parts.append((f" {clean(backend.name, glyphs)} ", PLAIN))
        else:
            parts += [(f" {clean(backend.name, glyphs)}", PLAIN), (f" {sign} ", style)]
    return line(fitted(parts, width, glyphs), width)


class _Column(NamedTuple):
    """Numbers of the table of clients."""

    name: str
    cells: tuple[str, ...]
    styles: tuple[str, ...]

    @property
    def size(self) -> int:
        return max(map(len, (self.name, *self.cells)))


def client_rows(
    clients: Sequence[ClientScene], programs: int | None, width: int, glyphs: Glyphs
) -> list[Text]:
    """A head, and a row for each kind of clients, in `width` cells. `programs`: cells for what such a client
    is, or None. Where there is no room for all columns, that of the losses is the last to go."""
    columns = [
        _column("answered", [each.answered for each in clients], (PLAIN, PLAIN)),
        _column("refused", [each.refused for each in clients], (DIM, PLAIN)),
        _column("lost", [each.lost for each in clients], ("green", BAD)),
    ]
    kind = max([len("clients"), *(min(cell_len(clean(c.kind, glyphs)), WIDEST_KIND) for c in clients)])
    taken = 1 + kind + (programs or 0)
    while len(columns) > 1 and taken + sum(each.size + 1 for each in columns) > width:
        columns.pop(0)
    gap = " " * (2 if taken + sum(each.size + 2 for each in columns) <= width else 1)
    rows = [_first_cells("clients", "", kind, programs, BOLD, glyphs)]
    rows += [
        _first_cells(each.kind, each.program, kind, programs, BAD if each.lost else PLAIN, glyphs)
        for each in clients
    ]
    for column in columns:
        cells, styles = (column.name, *column.cells), (DIM, *column.styles)
        for row, text, style in zip(rows, cells, styles, strict=True):
            row += [(gap, PLAIN), (text.rjust(column.size), style)]
    return [line(row, width) for row in rows]


def _column(name: str, numbers: Sequence[int], styles: tuple[str, str]) -> _Column:
    """`styles`: of zero, and of another number."""
    return _Column(
        name, tuple(f"{each:,}" for each in numbers), tuple(styles[bool(each)] for each in numbers)
    )


def _first_cells(
    kind: str, program: str, size: int, programs: int | None, style: str, glyphs: Glyphs
) -> list[Part]:
    cells: list[Part] = [(" ", PLAIN), (pad(kind, size, glyphs), style)]
    return cells if programs is None else [*cells, (pad(f"  {program}", programs, glyphs), DIM)]
