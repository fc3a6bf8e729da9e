"""The view of the demonstration on a terminal: turns a `Scene` into a layout that rich draws. Pure.

Two fronts are shown side by side. On a small terminal the least important parts are left out. Colours never
carry information alone.
"""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from gateway.demo.scene import BackendScene, FrontScene, KeyCommand, Scene, ServiceScene

ROOMY: Final = 24
"""Minimum height of the terminal, in lines, for blank lines and commands to copy."""
WIDE: Final = 110
"""Minimum width of a proxy's view, in columns, for the releases of servers and the programs of clients."""
NARROW: Final = 72
"""Minimum width of a proxy's view, in columns, for both the state of a server and its freshness."""
CLIENTS: Final = 42
"""Width of the table of clients, without their programs."""
PROGRAMS: Final = 30
"""Width of the column with the clients' programs."""

LEFT: Final = (0, 0, 0, 1)
RIGHT: Final = (0, 1, 0, 0)

OFFER: Final = "bold cyan"
GOOD: Final = "green"
DOUBT: Final = "yellow"
BAD: Final = "bold red"
DIM: Final = "dim"

PHASES: Final = {"uniform": GOOD, "mixed": DOUBT, "capped": DOUBT, "stabilizing": DOUBT, "unknown": BAD}
STATES: Final = {"running": GOOD, "upgrading": DOUBT, "killed": BAD, "hanging": BAD}
FRESHNESS: Final = {"fresh": GOOD, "stale": DOUBT, "down": BAD, "unknown": DOUBT}
EVENTS: Final = {"step": "bold", "offer": "cyan"}
"""Styles of texts: green is good, yellow is changing or in doubt, red is bad, cyan is the offer."""


def screen(scene: Scene, width: int, height: int) -> Layout:
    """Return the layout for a terminal of `width` x `height` cells."""
    alone, roomy = len(scene.fronts) == 1, height >= ROOMY
    foot = 3 if alone and roomy else 1
    room = height - 2 - foot
    body = _alone(scene, width, room, roomy=roomy) if alone else _side_by_side(scene, width, room)
    view = Layout()
    view.split_column(
        Layout(_head(scene), size=2), *body, Layout(_foot(scene, width, commands=foot > 1), size=foot)
    )
    return view


def _alone(scene: Scene, width: int, room: int, *, roomy: bool) -> list[Layout]:
    """Lay out the only front: its services, and its clients and the events below if there is room."""
    front, wide = scene.fronts[0], width >= WIDE
    wanted = _lines_of_services(front, roomy=roomy)
    parts = [Layout(_services(front, width, roomy=roomy), size=min(wanted, room))]
    if wanted < room:
        row = Layout()
        row.split_row(
            Layout(_clients(front, programs=wide), size=CLIENTS + PROGRAMS * wide),
            Layout(_events(scene, room - wanted), visible=width > CLIENTS + PROGRAMS),
        )
        parts.append(row)
    return parts


def _side_by_side(scene: Scene, width: int, room: int) -> list[Layout]:
    """Lay out two fronts side by side, and the events below if there is room."""
    wanted = max(map(_lines_of_front, scene.fronts))
    halves = Layout(size=min(wanted, room))
    halves.split_row(*(Layout(Padding(_front(each, width // 2), RIGHT)) for each in scene.fronts))
    return [halves, Layout(_events(scene, room - wanted))] if wanted < room else [halves]


def _head(scene: Scene) -> RenderableType:
    length = "" if scene.length is None else f" of {scene.length:g}"
    time = Text(f"{scene.seconds:.1f}{length} s", style=DIM)
    paused = Text(" PAUSED ", style="bold black on yellow")
    gateway = scene.fronts[0]
    sums = Text.assemble((f"{gateway.requests:,} requests  ", DIM), _lost(gateway))
    return Group(
        _line(Text.assemble(("skewgate", "bold"), f"  {scene.page}"), paused if scene.paused else time),
        _line(Text(f"step {scene.step}", style="bold"), sums if len(scene.fronts) == 1 else Text()),
    )


def _foot(scene: Scene, width: int, *, commands: bool) -> RenderableType:
    keys = Text()
    for command in KeyCommand:
        label = "continue" if scene.paused and command is KeyCommand.PAUSE else command.label
        keys.append(command.key, OFFER).append(f" {label}  ", DIM)
    line = _line(keys, Text(f"seed {scene.seed}" if width >= NARROW else "", style=DIM))
    if not commands:
        return line
    when = ("now   ", GOOD) if scene.is_newest_offered else ("later ", DOUBT)
    served = Text.assemble(("now   ", GOOD), scene.curl_served)
    newest = Text.assemble(when, scene.curl_newest)
    return Group(*(Padding(each, LEFT) for each in (served, newest)), line)


def _line(left: Text, right: Text) -> RenderableType:
    begin = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    line = Table(begin, Column(), box=None, show_header=False, expand=True, padding=RIGHT)
    line.add_row(left, right)
    return Padding(line, LEFT)


def _lost(front: FrontScene) -> Text:
    return Text(f"lost {front.lost:,}", style=BAD if front.lost else f"bold {GOOD}")


def _front(front: FrontScene, width: int) -> RenderableType:
    reasons = [
        Text(f" {number:,} times: {reason}", no_wrap=True, overflow="ellipsis")
        for reason, number in front.losses
    ]
    return Group(
        Rule(Text(front.name, style="bold"), align="left", style=DIM),
        Text.assemble(" ", _lost(front), f" of {front.requests:,} requests"),
        _services(front, width, roomy=False),
        _clients(front, programs=False),
        *reasons,
    )


def _lines_of_front(front: FrontScene) -> int:
    return 2 + _lines_of_services(front, roomy=False) + 1 + len(front.clients) + max(2, len(front.losses))


def _services(front: FrontScene, width: int, *, roomy: bool) -> RenderableType:
    """Draw all services. `roomy`: with a blank line above each."""
    above = 1 if roomy else 0
    return Group(*(Padding(_service(each, width), (above, 0, 0, 1)) for each in front.services))


def _lines_of_services(front: FrontScene, *, roomy: bool) -> int:
    return sum(2 + roomy + len(each.backends) for each in front.services)


def _service(service: ServiceScene, width: int) -> RenderableType:
    """Draw a service: its phase, its offer and its servers, with bars on a common axis for the ranges."""
    phase = service.phase or "makes no offer"
    held = service.held or ("nothing holds the offer" if service.phase else "")
    table = Table(
        Column(min_width=9, no_wrap=True),
        Column(ratio=1),
        Column(min_width=8, no_wrap=True),
        title=Text.assemble(
            (service.name, "bold"),
            (f"  {phase}  ", PHASES.get(phase, DIM)),
            (held, "" if service.held else DIM),
            no_wrap=True,
            overflow="ellipsis",
        ),
        title_justify="left",
        title_style="",
        box=None,
        expand=True,
        padding=RIGHT,
        show_header=False,
    )
    table.add_column(min_width=9, no_wrap=True)
    if width >= NARROW:
        table.add_column(min_width=9, no_wrap=True)
        table.add_column(min_width=7, no_wrap=True, justify="right")
    if width >= WIDE:
        table.add_column(min_width=15, no_wrap=True)
    label = "offer" if service.phase else "shown"
    table.add_row(Text(label, style=OFFER), _bar(service.share, OFFER), Text(service.offer, style=OFFER))
    for each in service.backends:
        table.add_row(*_backend(each, width))
    return table


def _backend(backend: BackendScene, width: int) -> list[RenderableType]:
    """Return the table cells of an API server, as many as `width` has room for."""
    state = Text(backend.state, style=STATES.get(backend.state, ""))
    known = Text(backend.freshness, style=FRESHNESS.get(backend.freshness, ""))
    is_well = backend.state == "running"
    cells: list[RenderableType] = [
        Text(backend.name),
        _bar(backend.share, GOOD if is_well else STATES.get(backend.state, "")),
        Text(backend.serves or "unknown", style="" if backend.serves else DIM),
    ]
    if width < NARROW:
        return [*cells, known if is_well and backend.freshness else state]
    cells += [known, state, Text(f"{backend.requests:,}", style=DIM)]
    return [*cells, Text(backend.release, style=DIM)] if width >= WIDE else cells


def _bar(share: float, style: str) -> RenderableType:
    """Draw a bar for a range that is this share of the new release's versions."""
    return ProgressBar(total=1.0, completed=share, complete_style=style, finished_style=style)


def _clients(front: FrontScene, *, programs: bool) -> RenderableType:
    table = Table(Column("clients", min_width=14, no_wrap=True), box=None, padding=RIGHT, header_style="bold")
    if programs:
        table.add_column("", min_width=PROGRAMS - 2, no_wrap=True, style=DIM)
    for name in ("answered", "refused", "lost"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in front.clients:
        table.add_row(
            Text(each.kind, style=BAD if each.lost else ""),
            *([each.program] if programs else []),
            Text(f"{each.answered:,}"),
            Text(f"{each.refused:,}", style="" if each.refused else DIM),
            Text(f"{each.lost:,}", style=BAD if each.lost else GOOD),
        )
    return Padding(table, LEFT)


def _events(scene: Scene, height: int) -> RenderableType:
    """Draw the latest loss of each client and the events, the newest first: old ones drop off at the end."""
    table = Table(Column("", justify="right", no_wrap=True), Column("events, the newest first"), box=None)
    table.header_style = "bold"
    for each in scene.fronts[0].clients:
        if each.last_loss:
            table.add_row("lost", Text(f"{each.kind}: {each.last_loss}"), style=BAD)
    for event in reversed(scene.events[-height:]):
        style = EVENTS.get(event.kind, "")
        table.add_row(Text(f"{event.seconds:.1f}", style=DIM), Text(event.text, style=style))
    return table
