"""Drawing in SVG: shapes and texts as lines of XML, and the colours of light and dark.

An image made of them loads nothing, runs nothing and has no font of its own. Texts may come from outside:
they are escaped here, and nowhere else. Pure; nothing here knows what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from gateway.runtime.terminal import plain

FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif'
"""Those that systems have. None is loaded."""
WIDEST: Final = 0.56
"""Width of a character on average, in parts of the font's size: as in the widest of these fonts."""
LONGEST: Final = 200
"""Characters of a text from outside that are looked at. No line shows more."""

LONGEST_DESCRIPTION: Final = 4000
"""Characters of what is for those who do not see the image."""

Point = tuple[float, float]


class Scheme(StrEnum):
    """For which background an image is made."""

    LIGHT = "light"
    DARK = "dark"
    BOTH = "both"
    """The viewer's preference decides when it is shown."""


def number(value: float) -> str:
    """With one decimal at most: `12`, `12.5`."""
    return f"{value:.1f}".removesuffix(".0")


def safe(value: str) -> str:
    """A text as it may stand in XML: one line, without control characters, escaped."""
    return escape(plain(value[:LONGEST]))


def cut(value: str, width: float, size: float) -> str:
    """`value`, as much of it as fits into `width` at that font size."""
    value = value[:LONGEST]
    room = max(1, int(width / (size * WIDEST)))
    return value if len(value) <= room else value[: room - 1].rstrip() + "…"


def wrapped(value: str, width: float, size: float, lines: int) -> list[str]:
    """`value` in at most so many lines of that width."""
    room = max(1, int(width / (size * WIDEST)))
    rows = [""]
    for word in value[:LONGEST].split():
        longer = f"{rows[-1]} {word}".strip()
        if len(longer) <= room or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    if len(rows) > lines:
        rows = [*rows[: lines - 1], " ".join(rows[lines - 1 :])]
    return [cut(row, width, size) for row in rows]


def text(at: Point, value: str, kind: str, *, anchor: str = "start") -> str:
    """A line of text, its baseline at `at`. `kind`: classes. `anchor`: `start`, `middle` or `end`."""
    x, y = at
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{number(x)}" y="{number(y)}" class="{kind}"{where}>{safe(value)}</text>'


def rectangle(at: Point, size: Point, kind: str, radius: float = 0) -> str:
    """A box; `at` is its upper left corner."""
    (x, y), (width, height) = at, size
    corner = f' rx="{number(radius)}"' if radius else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        f'{corner} class="{kind}"/>'
    )


def line(begin: Point, end: Point, kind: str) -> str:
    """A straight line."""
    return path((begin, end), kind)


def path(points: Sequence[Point], kind: str) -> str:
    """A line through all points."""
    steps = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f'<polyline points="{steps}" class="{kind}"/>'


def strokes(places: Iterable[tuple[float, float, float]], kind: str) -> str:
    """Upright lines, as one shape: each is an x and two y."""
    steps = "".join(f"M{number(x)} {number(top)}V{number(bottom)}" for x, top, bottom in places)
    return f'<path d="{steps}" class="{kind}"/>' if steps else ""


def style(rules: str, light: Mapping[str, str], dark: Mapping[str, str], scheme: Scheme) -> str:
    """The style sheet. `light` and `dark` have the rules of colours, by selector."""
    first = dark if scheme is Scheme.DARK else light
    sheet = [rules, *(f"{selector}{{{rule}}}" for selector, rule in first.items())]
    if scheme is Scheme.BOTH:
        second = "".join(f"{selector}{{{rule}}}" for selector, rule in dark.items())
        sheet.append(f"@media(prefers-color-scheme:dark){{{second}}}")
    return "<style>" + escape("\n".join(sheet)) + "</style>"


def document(size: Point, title: str, description: str, content: Iterable[str]) -> str:
    """The whole image. `title` and `description` are for those who do not see it."""
    width, height = (number(each) for each in size)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-labelledby="title description" font-family={quoteattr(FONT)}>'
    )
    words = [
        f'<title id="title">{safe(title)}</title>',
        f'<desc id="description">{escape(plain(description[:LONGEST_DESCRIPTION]))}</desc>',
    ]
    return "\n".join([head, *words, *(each for each in content if each), "</svg>"]) + "\n"
