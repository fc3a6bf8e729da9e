"""Two fronts side by side: what became of the same clients behind the gateway, and behind something else.

Both halves are made by one function, line by line, so that what stands beside each other is the same fact.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from gateway.demo import drawing
from gateway.demo.drawing import LARGE_HEIGHT, Glyphs, Part, clean, clipped, cut, fitted, line, pad, wrap
from gateway.demo.scene import BackendScene, FrontScene, ServiceScene
from gateway.demo.view_parts import (
    BAD,
    BOLD,
    DIM,
    DOUBT,
    GOOD,
    OFFER,
    OFFERED,
    PLAIN,
    UNOFFERED,
    backends_line,
    client_rows,
    count,
    freshness,
    phase_style,
    state_style,
)

WIDEST_NAME: Final = 12
WIDEST_NOTE: Final = len("upgrading")
REASONS: Final = 3
"""Reasons for losses that are shown at least, if there is room for anything."""


def columns(fronts: Sequence[FrontScene], width: int, room: int | None, glyphs: Glyphs) -> list[Text]:
    """The fronts beside each other, in at most `room` lines; None: as many as they need."""
    half = max(0, (width - 1) // 2)
    halves = [_half(each, fronts, half, room, glyphs) for each in fronts]
    lines = []
    for left, right in zip_longest(*halves, fillvalue=None):
        made = Text(no_wrap=True, overflow="crop", end="")
        made.append_text(left or Text())
        made.append(" " * max(0, half - made.cell_len))
        made.append(glyphs.separator, DIM)
        made.append_text(right or Text())
        lines.append(clipped(made, width))
    return lines if room is None else lines[:room]


def _half(
    front: FrontScene, fronts: Sequence[FrontScene], width: int, room: int | None, glyphs: Glyphs
) -> list[Text]:
    """The lines of one front. Each block is as high as the same block of the other front."""
    title = [line(fitted([(f" {clean(front.name, glyphs)}", BOLD)], width, glyphs), width)]
    score = _score(front, width, glyphs)
    clients = client_rows(front.clients, None, width, glyphs)
    rows = max(len(each.clients) for each in fronts) + 1
    clients += [Text()] * (rows - len(clients))
    reasons = max(REASONS, *(2 * len(each.losses) for each in fronts))
    pairs = list(zip_longest(*(each.services for each in fronts)))
    sizes = [max(len(each.backends) for each in pair if each) for pair in pairs]
    short = len(title) + LARGE_HEIGHT + 3 * len(pairs) + rows
    full = len(title) + LARGE_HEIGHT + sum(3 + size for size in sizes) + rows
    blanks = 3 + len(pairs) if room is None else 0
    detailed = room is None or room >= full + REASONS
    if room is not None:
        left = room - (full if detailed else short)
        reasons = min(reasons, max(0, left))
        blanks = 3 + len(pairs) if left - reasons >= 3 + len(pairs) else 0
    blank = [Text()] if blanks else []
    lines = [*blank, *title, *score]
    for number, size in enumerate(sizes):
        service = front.services[number] if number < len(front.services) else None
        lines += [*blank, *_service(service, size if detailed else None, width, glyphs)]
    return [*lines, *blank, *clients, *blank, *_reasons(front, reasons, width, glyphs)]


def _score(front: FrontScene, width: int, glyphs: Glyphs) -> list[Text]:
    """The number that counts, large, and what it is out of."""
    style = BAD if front.lost else GOOD
    mark = glyphs.bad if front.lost else glyphs.good
    digits = drawing.large(front.lost, glyphs)
    if len(digits[0]) > width // 2:
        digits = ["", "", ""]
    lost = f"{mark} lost {front.lost:,}"
    total = f" of {count(front.requests, 'requests')}"
    if len(lost) + len(total) > width - len(digits[0]) - 3:
        total = f" of {front.requests:,}"
    beside: list[list[Part]] = [
        [(lost, style), (total, PLAIN)],
        [(count(front.answered, "answered"), PLAIN)],
        [(count(front.refused, "refused, and told why"), PLAIN)],
    ]
    return [
        line(fitted([(f" {drawn}  " if drawn else " ", style), *words], width, glyphs), width)
        for drawn, words in zip(digits, beside, strict=True)
    ]


def _service(service: ServiceScene | None, backends: int | None, width: int, glyphs: Glyphs) -> list[Text]:
    """Name, phase and offer; its bar; the backends, each on a line of its own (`backends` of them), or all on
    one (None)."""
    if service is None:
        return [Text()] * (3 + (backends or 0))
    style, thick = (OFFER, OFFERED) if service.phase else (DOUBT, PLAIN)
    head: list[Part] = [
        (f" {clean(service.name, glyphs)}", BOLD),
        (f"  {clean(service.phase, glyphs)}", phase_style(service.phase)),
    ]
    lines = [
        drawing.spread(head, [(f"{cut(_offer(service), width * 2 // 3, glyphs)} ", style)], width, glyphs)
    ]
    offered = [(each.begin, each.end) for each in service.offer_bars]
    if backends is None:
        bar = drawing.offer_bar(offered, max(0, width - 2), glyphs)
        return [*lines, line([(f" {bar}", style)], width), backends_line(service, width, glyphs)]
    name = max((min(cell_len(clean(each.name, glyphs)), WIDEST_NAME) for each in service.backends), default=0)
    axis = max(0, width - name - WIDEST_NOTE - 5)
    labels = drawing.label_line([(each.at, each.text) for each in service.labels], axis, glyphs)
    gutter = " " * (name + 2)
    bar = drawing.offer_bar(offered, axis, glyphs)
    lines += [line([(f"{gutter}{labels}", DIM)], width), line([(f"{gutter}{bar}", style)], width)]
    for each in service.backends:
        bars = [(bar.begin, bar.end) for bar in each.bars]
        span = drawing.span_bar(bars, offered, axis, glyphs, (thick, UNOFFERED))
        head = [(f" {pad(each.name, name, glyphs)} ", PLAIN), *span, ("  ", PLAIN), _note(each, glyphs)]
        lines.append(line(head, width))
    return [*lines, *[Text()] * (backends - len(service.backends))]


def _offer(service: ServiceScene) -> str:
    """The offer. Where nobody makes one, what a client was shown last: the next may be shown another."""
    if service.phase:
        return service.offer
    return f"last shown {service.offer}" if service.offer else "nothing shown yet"


def _note(backend: BackendScene, glyphs: Glyphs) -> Part:
    """What is to be said about a backend in a word: what was done to it, else how fresh it is."""
    if backend.state not in ("running", "") or not backend.freshness:
        return pad(backend.state, WIDEST_NOTE, glyphs), state_style(backend.state)
    text, style = freshness(backend.freshness, glyphs)
    return pad(text, WIDEST_NOTE, glyphs), style


def _reasons(front: FrontScene, lines: int, width: int, glyphs: Glyphs) -> list[Text]:
    """Why requests were lost."""
    if not front.lost:
        return [line([(f" {glyphs.good} nothing was lost", "green")], width)][:lines]
    shown = front.losses[:lines]
    if len(front.losses) > lines > 1:
        rest = sum(number for _, number in front.losses[lines - 1 :])
        shown = (*front.losses[: lines - 1], ("for other reasons", rest))
    size = max((len(f"{number:,}") for _, number in shown), default=0)
    found: list[Text] = []
    for reason, number in shown:
        head = f" {number:>{size},}{glyphs.times} "
        words = wrap(reason, max(1, width - len(head)), glyphs, 2 if 2 * len(shown) <= lines else 1)
        for index, part in enumerate(words or [""]):
            first = " " * len(head) if index else head
            found.append(line([(first, BAD), (part, PLAIN)], width))
    return found
