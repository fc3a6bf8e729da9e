"""The picture of the demonstration: a `Scene` becomes lines for a terminal of a size.

`screen` is what a terminal shows while the demonstration runs, `summary` what stays on it. No line is wider
than asked for and there are never more lines: what has no room is left out, the least important first.
Nothing is told by a colour alone. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from gateway.demo import drawing, view_compare
from gateway.demo.command import Command
from gateway.demo.drawing import UNICODE, Glyphs, Part, clean, clipped, cut, fitted, line, pad, spread, wrap
from gateway.demo.scene import BackendScene, ClientScene, Event, FrontScene, Scene, ServiceScene
from gateway.demo.view_parts import (
    BAD,
    BOLD,
    DIM,
    DOUBT,
    OFFER,
    OFFERED,
    PLAIN,
    UNOFFERED,
    backends_line,
    client_rows,
    count,
    event_style,
    freshness,
    lost_words,
    phase_style,
    state_style,
)

MARGIN: Final = " "
GAP: Final = 2
"""Cells between two columns."""
AXIS: Final = 30
"""Cells that the axis should have before a column of less importance gets room."""
SHORTEST_AXIS: Final = 16
EVENTS: Final = 26
"""Cells that the event log needs at least."""
WIDEST_NAME: Final = 16
WIDEST_RANGE: Final = 20
WIDEST_FRESHNESS: Final = len("? unknown")
WIDEST_STATE: Final = len("upgrading")
NOT_KNOWN: Final = "not known"
FEWEST_CLIENT_LINES: Final = 2


def screen(scene: Scene, width: int, height: int, glyphs: Glyphs = UNICODE) -> Text:
    """What a terminal of `width` x `height` cells shows. Fits any size."""
    tail = [_keys_line(scene, width, glyphs)]
    body = _body(scene, width, height - len(tail), glyphs, _curl_lines(scene, width, glyphs))
    filled = [*body, *[Text()] * max(0, height - len(body) - len(tail)), *tail]
    return _joined(filled[-height:] if height > 0 else [])


def summary(scene: Scene, width: int, glyphs: Glyphs = UNICODE) -> Text:
    """What stays on the terminal after the end: the last picture without keys and commands, in as many lines
    as it needs, and what each front has lost."""
    lines = [*_body(scene._replace(paused=False), width, None, glyphs, ()), Text()]
    for front in scene.fronts:
        name = f"{cut(front.name, max(8, width // 2), glyphs)}: "
        of = f" of {count(front.requests, 'requests')}"
        parts = [(MARGIN, PLAIN), (name, BOLD), *lost_words(front.lost, glyphs), (of, PLAIN)]
        lines.append(line(fitted(parts, width, glyphs), width))
    return _joined(lines)


def _joined(lines: Iterable[Text]) -> Text:
    made = Text(no_wrap=True, overflow="crop", end="")
    for number, each in enumerate(lines):
        made.append("\n" if number else "")
        made.append_text(each)
    return made


def _body(scene: Scene, width: int, height: int | None, glyphs: Glyphs, curls: Sequence[Text]) -> list[Text]:
    """The lines above the keys, at most `height`."""
    head = [_title_line(scene, width, glyphs), _step_line(scene, width, glyphs)]
    room = None if height is None else max(0, height - len(head))
    if len(scene.fronts) > 1:
        body = view_compare.columns(scene.fronts[:2], width, room, glyphs)
        left = 0 if room is None else room - len(body) - 1
        if left > FEWEST_CLIENT_LINES:
            body += [Text(), *_event_lines(scene.events, width, left, glyphs)]
    else:
        body = _one_front(scene, width, room, glyphs, curls)
    lines = [*head, *body]
    return lines if height is None else lines[: max(0, height)]


# -- head and foot


def _title_line(scene: Scene, width: int, glyphs: Glyphs) -> Text:
    length = "" if scene.length is None else f" of {scene.length:g}"
    paused: list[Part] = [(" PAUSED ", "bold black on yellow"), ("  ", PLAIN)] if scene.paused else []
    time: list[Part] = [(f"{scene.seconds:.1f}{length} s ", DIM)]
    rights: Sequence[Sequence[Part]] = (
        [*paused, (f"seed {scene.seed}   ", DIM), *time],
        [*paused, *time],
        paused,
        [],
    )
    what = "rolling upgrade, live"
    if len(scene.fronts) > 1:
        what = "one upgrade, the same clients, twice"
    left: list[Part] = [(f"{MARGIN}skewgate demo", BOLD), (f"   {what}", PLAIN)]
    if scene.page and not _page_at_foot(scene, width, glyphs):
        left = [(f"{MARGIN}skewgate", BOLD), (f"  {clean(scene.page, glyphs)}", PLAIN)]
    room = width - _cells(left) - 1
    right = next((each for each in rights if _cells(each) <= room), [])
    return spread(left, right, width, glyphs)


def _cells(parts: Iterable[Part]) -> int:
    return sum(cell_len(text) for text, _ in parts)


def _keys(scene: Scene) -> list[Part]:
    parts: list[Part] = [(MARGIN, PLAIN)]
    for command in Command:
        label = "go on" if scene.paused and command is Command.PAUSE else command.label
        parts += [(command.key, OFFER), (f" {label}", DIM), ("  ", PLAIN)]
    return parts[:-1]


def _page_at_foot(scene: Scene, width: int, glyphs: Glyphs) -> bool:
    """Whether the page has room beside the keys. It is needed whole."""
    return _cells(_keys(scene)) + 1 + cell_len(clean(scene.page, glyphs)) <= width


def _step_line(scene: Scene, width: int, glyphs: Glyphs) -> Text:
    left: list[Part] = [(f"{MARGIN}{glyphs.step} ", OFFER), (clean(scene.step, glyphs), BOLD)]
    if len(scene.fronts) != 1:
        return line(fitted(left, width, glyphs), width)
    front = scene.fronts[0]
    right: list[Part] = [(f"{count(front.requests, 'requests')}   ", DIM), *lost_words(front.lost, glyphs)]
    return spread(left, [*right, (" ", PLAIN)], width, glyphs)


def _keys_line(scene: Scene, width: int, glyphs: Glyphs) -> Text:
    keys, page = _keys(scene), clean(scene.page, glyphs)
    if page and _page_at_foot(scene, width, glyphs):
        keys += [(" " * (width - _cells(keys) - cell_len(page)), PLAIN), (page, PLAIN)]
    return line(keys, width)


def _curl_lines(scene: Scene, width: int, glyphs: Glyphs) -> list[Text]:
    """The commands, with what they get if there is room for it: whoever copies one needs all of it."""
    commands = [clean(each, glyphs) for each in (scene.curl_served, scene.curl_refused)]
    longest = max(map(cell_len, commands))
    room = width - len(MARGIN) - GAP - longest
    pairs = (("200", f"406{glyphs.becomes}200"), ("now", "later"))
    labels = next((pair for pair in pairs if max(map(len, pair)) <= room), ("", ""))
    column = max(map(len, labels))
    lines = []
    for label, style, command in zip(labels, ("green", DOUBT), commands, strict=True):
        if command:
            head = f"{MARGIN}{label.ljust(column)}{' ' * GAP}" if column else ""
            lines.append(line(fitted([(head, style), (command, PLAIN)], width, glyphs), width))
    return lines


# -- one front


class _Columns(NamedTuple):
    """Widths in cells. 0: left out."""

    service: int
    name: int
    axis: int
    range: int
    freshness: int
    state: int
    release: int
    rate: int


def _one_front(
    scene: Scene, width: int, room: int | None, glyphs: Glyphs, curls: Sequence[Text]
) -> list[Text]:
    """Services, clients with the event log, commands to copy: as many lines as there is room for."""
    if not scene.fronts:
        return []
    front = scene.fronts[0]
    columns = _columns(front, width, glyphs)
    services = [_service_lines(each, columns, width, glyphs) for each in front.services]
    clients = len(front.clients) + 1
    wanted = sum(map(len, services)) + clients
    if room is None:
        return _stacked(services, _panel(scene, width, clients, glyphs), (), 1)
    if wanted + len(curls) > room:
        curls = ()
    if wanted > room:
        services = [_compact_service(each, columns, width, glyphs) for each in front.services]
    left = room - sum(map(len, services)) - len(curls)
    blanks = 1 if left - clients >= len(services) + 1 + bool(curls) else 0
    panel = left - blanks * (len(services) + 1 + bool(curls))
    lines = _panel(scene, width, panel, glyphs) if panel >= FEWEST_CLIENT_LINES else []
    lines += [Text()] * (panel - len(lines) if curls else 0)  # so that the commands stand at the foot
    return _stacked(services, lines, curls, blanks)


def _stacked(
    services: Sequence[Sequence[Text]], panel: Sequence[Text], curls: Sequence[Text], blanks: int
) -> list[Text]:
    blank = [Text()] * blanks
    lines: list[Text] = []
    for each in services:
        lines += [*blank, *each]
    lines += [*blank, *panel]
    return [*lines, *blank, *curls] if curls else lines


def _columns(front: FrontScene, width: int, glyphs: Glyphs) -> _Columns:
    """The widths of the columns that all services share. What matters least has room only if the axis has."""
    backends = [each for service in front.services for each in service.backends]
    ranges = [each.serves or NOT_KNOWN for each in backends] + [each.offer for each in front.services]
    known = any(each.freshness for each in backends)
    name = min(_widest(["offer", *(each.name for each in backends)], glyphs), WIDEST_NAME, max(4, width // 5))
    axis = width - len(MARGIN) - 2 - name - GAP
    sizes = {
        "range": min(_widest(ranges, glyphs), WIDEST_RANGE, max(6, width // 5)),
        "freshness": WIDEST_FRESHNESS if known else 0,
        "state": WIDEST_STATE,
        "rate": max(5, _widest([_rate(each) for each in backends], glyphs)),
        "release": min(_widest([each.release for each in backends], glyphs), WIDEST_RANGE),
    }
    chosen = dict.fromkeys(sizes, 0)
    for column, size in sizes.items():
        least = AXIS if column == "release" else SHORTEST_AXIS
        if size and axis - size - GAP >= least:
            chosen[column] = size
            axis -= size + GAP
    service = min(_widest([each.name for each in front.services], glyphs), width // 3)
    return _Columns(service=service, name=name, axis=max(0, axis), **chosen)


def _widest(texts: Sequence[str], glyphs: Glyphs) -> int:
    """Cells of the widest of `texts`; 0: there is none."""
    return max((cell_len(clean(each, glyphs)) for each in texts), default=0)


def _service_lines(service: ServiceScene, columns: _Columns, width: int, glyphs: Glyphs) -> list[Text]:
    return [
        *_offer_lines(service, columns, width, glyphs),
        *(_backend_line(each, service, columns, width, glyphs) for each in service.backends),
    ]


def _compact_service(service: ServiceScene, columns: _Columns, width: int, glyphs: Glyphs) -> list[Text]:
    """The same where lines are scarce: the backends on one of them."""
    return [
        *_offer_lines(service, columns, width, glyphs),
        backends_line(service, width, glyphs),
    ]


def _offer_lines(service: ServiceScene, columns: _Columns, width: int, glyphs: Glyphs) -> list[Text]:
    """What is offered, the phase, what holds it; the axis; the bar of the offer."""
    held = clean(service.held, glyphs) or "nothing holds the offer"
    head: list[Part] = [
        (f"{MARGIN}{pad(service.name, columns.service, glyphs)}  ", BOLD),
        (f"{cut(service.phase, WIDEST_NAME, glyphs)}  ", phase_style(service.phase)),
        (held, PLAIN if service.held else DIM),
    ]
    gutter = " " * (3 + columns.name + GAP - 1)
    labels = drawing.label_line([(each.at, each.text) for each in service.labels], columns.axis, glyphs)
    bar = drawing.offer_bar([(each.begin, each.end) for each in service.offer_bars], columns.axis, glyphs)
    offer = [
        (f"{MARGIN} {pad('offer', columns.name, glyphs)}{' ' * GAP}", OFFER),
        (bar, OFFER),
        (" " * GAP + cut(service.offer, max(columns.range, WIDEST_RANGE), glyphs), OFFER),
    ]
    return [
        line(fitted(head, width, glyphs), width),
        line([(gutter + labels, DIM)], width),
        line(fitted(offer, width, glyphs), width),
    ]


def _backend_line(
    backend: BackendScene, service: ServiceScene, columns: _Columns, width: int, glyphs: Glyphs
) -> Text:
    gap = (" " * GAP, PLAIN)
    offered = [(each.begin, each.end) for each in service.offer_bars]
    bars = [(each.begin, each.end) for each in backend.bars]
    fresh, fresh_style = freshness(backend.freshness, glyphs)
    parts: list[Part] = [
        (f"{MARGIN} {pad(backend.name, columns.name, glyphs)}", PLAIN),
        gap,
        *drawing.span_bar(bars, offered, columns.axis, glyphs, (OFFERED, UNOFFERED)),
    ]
    cells = (
        (columns.range, backend.serves or NOT_KNOWN, PLAIN if backend.serves else DIM, False),
        (columns.freshness, fresh, fresh_style, False),
        (columns.state, backend.state, state_style(backend.state), False),
        (columns.release, backend.release, DIM, False),
        (columns.rate, _rate(backend), PLAIN if backend.rate else DIM, True),
    )
    for size, text, style, right in cells:
        if size:
            parts += [gap, (pad(text, size, glyphs, right=right), style)]
    return line(parts, width)


def _rate(backend: BackendScene) -> str:
    return f"{backend.rate:,.0f}/s"


# -- clients and events


def _panel(scene: Scene, width: int, height: int, glyphs: Glyphs) -> list[Text]:
    """Clients on the left, the event log on the right, `height` lines."""
    clients = scene.fronts[0].clients
    table = client_rows(clients, None, width, glyphs)
    left = max(each.cell_len for each in table)
    programs = max((cell_len(clean(each.program, glyphs)) for each in clients), default=0) + GAP
    if left + programs + 2 * EVENTS < width:
        table = client_rows(clients, programs, width, glyphs)
        left = max(each.cell_len for each in table)
    room = width - left - 3 - GAP
    if room < EVENTS:
        return table[:height]
    events = _log(scene.events, clients, room, height, glyphs)
    lines = []
    for number in range(max(len(table), len(events))):
        made = table[number].copy() if number < len(table) else Text()
        if number < len(events):
            made.append(" " * (left + 1 + GAP - made.cell_len))
            made.append_text(events[number])
        lines.append(clipped(made, width))
    return lines[:height]


def _log(
    events: Sequence[Event], clients: Sequence[ClientScene], width: int, height: int, glyphs: Glyphs
) -> list[Text]:
    """The head of the event log, the newest loss if there is one, and the newest events."""
    lines = [line([("events", BOLD)], width)]
    losers = [each for each in clients if each.last_loss]
    if losers:
        text = f"lost: {losers[-1].kind}: {losers[-1].last_loss}"
        for number, part in enumerate(wrap(text, width - 2, glyphs)):
            lines.append(line([(f"{' ' if number else glyphs.bad} {part}", BAD)], width))
    return [*lines, *_event_lines(events, width, height - len(lines), glyphs)]


def _event_lines(events: Sequence[Event], width: int, height: int, glyphs: Glyphs) -> list[Text]:
    """As many of the newest events as `height` lines take, the newest last. Long ones take two lines."""
    lines: list[Text] = []
    for event in reversed(events):
        time = f"{event.seconds:5.1f} "
        mark, style = event_style(event.kind, glyphs)
        made = []
        for number, part in enumerate(wrap(event.text, max(1, width - len(time) - 2), glyphs)):
            head = " " * (len(time) + 2) if number else f"{time}{mark} "
            made.append(line([(head, DIM if style == PLAIN else style), (part, style)], width))
        if len(lines) + len(made) > height:
            break
        lines = [*made, *lines]
    return lines
