"""What a picture of the demonstration is drawn with: characters, cells of one width, bars, labels, digits.

Nothing here knows what is shown. Texts may come from outside, so each goes through `clean`, and becomes a
part of a `rich.text.Text`, never markup. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gateway.runtime.terminal import plain

Part = tuple[str, str]
"""A text and its style, as rich spells styles."""

LONGEST: Final = 1000
"""Characters of a text from outside that are looked at. No line shows more."""


class Glyphs(NamedTuple):
    """The characters beside letters and digits."""

    unicode: bool
    offer: Sequence[str]
    """Bar of the offer, by half cells: none, right, left, both."""
    span: Sequence[str]
    """Bar of a backend, by the level of the left half cell times 3 plus that of the right one."""
    fresh: str
    stale: str
    lost: str
    unknown: str
    good: str
    bad: str
    step: str
    up: str
    dot: str
    becomes: str
    separator: str
    times: str
    ellipsis: str
    blocks: Sequence[str]
    """Of large digits, by half cells one above the other: none, lower, upper, both."""


UNICODE: Final = Glyphs(
    unicode=True,
    offer=" ▐▌█",
    span=" ╶╺╴─╼╸╾━",
    fresh="●",
    stale="◐",
    lost="○",
    unknown="?",
    good="✓",
    bad="✗",
    step="▸",
    up="▴",
    dot="·",
    becomes="→",
    separator="│",
    times="×",  # noqa: RUF001 - the sign is meant
    ellipsis="…",
    blocks=" ▄▀█",
)
ASCII: Final = Glyphs(
    unicode=False,
    offer=" ###",
    span=" -=--====",
    fresh="*",
    stale="~",
    lost="x",
    unknown="?",
    good="+",
    bad="!",
    step=">",
    up="^",
    dot="-",
    becomes=">",
    separator="|",
    times="x",
    ellipsis="...",
    blocks=(),
)

UNOFFERED: Final = 1
"""Level of a half cell: served, and not on offer."""
OFFERED: Final = 2
"""Level of a half cell: served, and on offer."""

_DIGITS: Final = {
    "0": ("111", "101", "101", "101", "111"),
    "1": ("010", "110", "010", "010", "111"),
    "2": ("111", "001", "111", "100", "111"),
    "3": ("111", "001", "111", "001", "111"),
    "4": ("101", "101", "111", "001", "001"),
    "5": ("111", "100", "111", "001", "111"),
    "6": ("111", "100", "111", "101", "111"),
    "7": ("111", "001", "001", "010", "010"),
    "8": ("111", "101", "111", "101", "111"),
    "9": ("111", "101", "111", "001", "111"),
}
LARGE_HEIGHT: Final = 3
"""Lines of a large number."""


def glyphs_for(encoding: str | None) -> Glyphs:
    """The characters that a stream with `encoding` can show. None: not known, so ASCII."""
    everything = "".join("".join(each) for each in UNICODE if not isinstance(each, bool))
    try:
        everything.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def clean(text: str, glyphs: Glyphs) -> str:
    """`text` on one line, without what controls a terminal, and without what takes no room: a thousand
    accents on one letter would run over the lines above it."""
    if text.isascii() and text.isprintable():
        return text[:LONGEST]
    text = unicodedata.normalize("NFC", plain(text[:LONGEST]))[:LONGEST]
    if not glyphs.unicode:
        return text.encode("ascii", "replace").decode()
    return "".join(character for character in text if cell_len(character))


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """`text`, clean, in at most `width` cells: an ellipsis stands for what has no room."""
    text = clean(text, glyphs)
    if cell_len(text) <= width:
        return text
    room = width - len(glyphs.ellipsis)
    if room < 1:
        return set_cell_size(text, max(0, width))
    return set_cell_size(text, room).rstrip() + glyphs.ellipsis


def pad(text: str, width: int, glyphs: Glyphs, *, right: bool = False) -> str:
    """`text`, clean and cut, in exactly `width` cells; `right`: it stands at their end."""
    text = cut(text, width, glyphs)
    room = " " * (width - cell_len(text))
    return room + text if right else text + room


def wrap(text: str, width: int, glyphs: Glyphs, lines: int = 2) -> list[str]:
    """`text`, clean, on at most `lines` lines of at most `width` cells, broken at blanks if there are any."""
    rest = clean(text, glyphs).strip()
    found: list[str] = []
    while rest and len(found) < lines - 1 and cell_len(rest) > width > 0:
        head = _head(rest, width)
        if rest[len(head) : len(head) + 1] != " " and " " in head:
            head = head[: head.rindex(" ")]
        found.append(head.rstrip())
        rest = rest[len(head) :].strip() if head.strip() else ""
    return [*found, cut(rest, width, glyphs)] if rest else found


def _head(text: str, width: int) -> str:
    """As much of `text` as `width` cells take, and at least one character."""
    taken = 0
    for index, character in enumerate(text):
        taken += cell_len(character)
        if taken > width:
            return text[: max(1, index)]
    return text


def line(parts: Iterable[Part], width: int) -> Text:
    """One line of at most `width` cells. The parts are clean."""
    made = Text(no_wrap=True, overflow="crop", end="")
    for text, style in parts:
        made.append(text, style)
    return clipped(made, width)


def clipped(made: Text, width: int) -> Text:
    """`made`, of which at most `width` cells are left."""
    if made.cell_len > width:
        made.truncate(max(0, width), overflow="crop")
    return made


def spread(left: Sequence[Part], right: Sequence[Part], width: int, glyphs: Glyphs) -> Text:
    """`left` at the beginning of a line, `right` at its end. The end has priority."""
    taken = sum(cell_len(text) for text, _ in right)
    room = max(0, width - taken)
    made = line(fitted(left, room - 2, glyphs), room)
    made.append(" " * max(0, room - made.cell_len))
    for text, style in right:
        made.append(text, style)
    return clipped(made, width)


def fitted(parts: Sequence[Part], width: int, glyphs: Glyphs) -> list[Part]:
    """`parts`, of which the one that has no room is cut, and those after it are left out."""
    found: list[Part] = []
    for text, style in parts:
        if width <= 0:
            break
        short = cut(text, width, glyphs) if cell_len(text) > width else text
        found.append((short, style))
        width -= cell_len(text)
    return found


# -- bars and labels


def halves(bars: Iterable[tuple[float, float]], width: int) -> list[bool]:
    """For each half cell of an axis of `width` cells, whether one of `bars` (shares, 0 to 1) takes it. Each
    bar takes at least one."""
    total = 2 * width
    taken = [False] * total
    for begin, end in bars:
        first = min(max(round(begin * total), 0), total - 1)
        last = max(min(round(end * total), total), first + 1)
        taken[first:last] = [True] * (last - first)
    return taken


def offer_bar(bars: Iterable[tuple[float, float]], width: int, glyphs: Glyphs) -> str:
    """The bar of the offer, `width` cells."""
    if width <= 0:
        return ""
    taken = halves(bars, width)
    return "".join(
        glyphs.offer[2 * left + right] for left, right in zip(taken[::2], taken[1::2], strict=True)
    )


def span_bar(
    bars: Iterable[tuple[float, float]],
    offered: Sequence[tuple[float, float]],
    width: int,
    glyphs: Glyphs,
    styles: tuple[str, str],
) -> list[Part]:
    """The bar of a backend, `width` cells: thick where it is on offer, thin where it is not. The first of
    `styles` is that of the thick part. Without an offer everything is thick."""
    if width <= 0:
        return []
    served = halves(bars, width)
    on_offer = halves(offered, width) if offered else [True] * len(served)
    levels = [
        (OFFERED if also else UNOFFERED) if each else 0 for each, also in zip(served, on_offer, strict=True)
    ]
    thick, thin = styles
    parts: list[Part] = []
    for left, right in zip(levels[::2], levels[1::2], strict=True):
        style = thick if OFFERED in (left, right) else thin
        character = glyphs.span[3 * left + right]
        if parts and parts[-1][1] == style:
            parts[-1] = (parts[-1][0] + character, style)
        else:
            parts.append((character, style))
    return parts


def label_line(labels: Sequence[tuple[float, str]], width: int, glyphs: Glyphs) -> str:
    """The labels of an axis of `width` cells, each over its place. Those at the ends have priority, then the
    lower ones; a label without room is left out."""
    cells = [" "] * max(0, width)
    for at, text in [*labels[-1:], *labels[:1], *labels[1:-1]]:
        name = clean(text, glyphs)
        size = cell_len(name)
        if not 0 < size <= width or size != len(name):
            continue
        begin = min(max(round(at * width - size / 2), 0), width - size)
        around = cells[max(0, begin - 1) : begin + size + 1]
        if all(cell == " " for cell in around):
            cells[begin : begin + size] = name
    return "".join(cells)


def large(number: int, glyphs: Glyphs) -> list[str]:
    """A number in digits of three lines. Without characters for it: the number alone, on the middle one."""
    text = str(max(0, number))
    if not glyphs.blocks:
        return [" " * len(text), text, " " * len(text)]
    lines = []
    for upper in range(0, 6, 2):
        drawn = []
        for digit in text:
            rows = (*_DIGITS[digit], "000")
            pairs = zip(rows[upper], rows[upper + 1], strict=True)
            drawn.append("".join(glyphs.blocks[2 * int(above) + int(below)] for above, below in pairs))
        lines.append(" ".join(drawn))
    return lines
