"""The picture of a demonstration: one upgrade, and what each front told its clients and lost meanwhile.

All rows share one axis of time: the fleet at the top, then a card for each front, the gateway last. The same
recording always gives the same bytes. Names and reasons may come from outside: `svg` escapes them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from gateway.demo import svg
from gateway.demo.recording import Recording, Result, Stage, Track
from gateway.demo.svg import Scheme

WIDTH: Final = 960.0
EDGE: Final = 24.0
LEFT: Final = 120.0
"""Where time begins; labels of rows end before it."""
RIGHT: Final = 656.0
"""Where time ends."""
SUMS: Final = 684.0
"""Where the column of sums begins."""
SUMS_WIDTH: Final = WIDTH - EDGE - 16 - SUMS

HEAD: Final = 88.0
"""Height of the headline and the sentence below it."""
ROW: Final = 26.0
"""From one server to the next."""
BAR: Final = 20.0
MAX_TRACKS: Final = 8
BETWEEN: Final = 8.0
"""Between the servers of two services."""
CARD: Final = 214.0
GAP: Final = 14.0
FOOT: Final = 62.0

HIGH, LOW = 105.0, 149.0
"""In a card: where the highest and the lowest range are drawn."""
LANE: Final = 190.0
"""In a card: the line from which losses rise."""
LANE_HEIGHT: Final = 22.0
MAX_LEVELS: Final = 4
"""Ranges that have a height of their own. Further ones share the last."""
MAX_REASONS: Final = 3

_RULES: Final = """text{font-size:13px}
.headline{font-size:20px;font-weight:700}
.name{font-size:16px;font-weight:700}
.sum{font-size:34px;font-weight:700}
.small{font-size:12px}
polyline,path{fill:none}
.offer{stroke-width:2.5;stroke-linejoin:round}
.guide{stroke-width:1;stroke-dasharray:2 4}
.rail{stroke-width:1}
.loss{stroke-width:2}
.down{stroke-width:1.5;stroke-dasharray:4 3}
.card{stroke-width:1}"""
_LIGHT: Final = {
    "text": "fill:#1f2328",
    ".muted": "fill:#59636e",
    ".bad": "fill:#c21c2b",
    ".good": "fill:#1a7f37",
    ".paper": "fill:#ffffff",
    ".card": "fill:#f6f8fa;stroke:#d1d9e0",
    ".old": "fill:#c8d1da",
    ".new": "fill:#0a58ca",
    ".on-old": "fill:#1f2328",
    ".on-new": "fill:#ffffff",
    ".down": "fill:none;stroke:#c21c2b",
    ".guide": "stroke:#9aa4ae",
    ".rail": "stroke:#d1d9e0",
    ".loss": "stroke:#c21c2b",
    ".offer": "stroke:#b35900",
    ".offer.calm": "stroke:#1a7f37",
}
_DARK: Final = {
    "text": "fill:#f0f6fc",
    ".muted": "fill:#9aa4af",
    ".bad": "fill:#ff7b72",
    ".good": "fill:#4ac26b",
    ".paper": "fill:#0d1117",
    ".card": "fill:#151b23;stroke:#3d444d",
    ".old": "fill:#3d444d",
    ".new": "fill:#1f6feb",
    ".on-old": "fill:#f0f6fc",
    ".on-new": "fill:#ffffff",
    ".down": "fill:none;stroke:#ff7b72",
    ".guide": "stroke:#6e7681",
    ".rail": "stroke:#3d444d",
    ".loss": "stroke:#ff7b72",
    ".offer": "stroke:#e3913c",
    ".offer.calm": "stroke:#4ac26b",
}

BOLD: Final = 1.16
"""How much wider bold letters are."""

_NUMBERS: Final = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")


def draw(recording: Recording, scheme: Scheme = Scheme.BOTH) -> str:
    """The picture as the text of an SVG file."""
    tracks = recording.tracks[:MAX_TRACKS]
    rows = _rows(tracks)
    cards_at = (rows[-1] if rows else HEAD) + ROW + 14
    order = [*range(1, len(recording.results)), 0]
    height = cards_at + len(order) * (CARD + GAP) + FOOT
    content = [
        svg.style(_RULES, _LIGHT, _DARK, scheme),
        svg.rectangle((0, 0), (WIDTH, height), "paper", 10),
        svg.text((EDGE, 41), svg.cut(headline(recording), WIDTH - 2 * EDGE, BOLD * 20), "headline"),
        svg.text((EDGE, 66), setting(recording), "muted"),
        *_fleet(recording, tracks, rows),
    ]
    for place, number in enumerate(order):
        content += _card(recording, number, cards_at + place * (CARD + GAP))
    content += _foot(recording, height - FOOT - GAP)
    return svg.document((WIDTH, height), headline(recording), description(recording), content)


# -- sentences


def headline(recording: Recording) -> str:
    """Who lost what, in one sentence."""
    ours, *others = recording.results
    parts = [f"{_short(each.name)} lost {_count(each.lost)} of {each.requests} requests" for each in others]
    if not others:
        parts = [f"{_short(ours.name)} lost {_count(ours.lost)} of {ours.requests} requests"]
    else:
        parts.append(f"{_short(ours.name)} {_count(ours.lost)}")
    return f"One rolling upgrade: {', '.join(parts)}"


def setting(recording: Recording) -> str:
    """What happens to the fleet, and who sends requests."""
    count = len(recording.tracks)
    several = _NUMBERS[count] if count < len(_NUMBERS) else "Many"
    both = len(recording.results) > 1
    clients = "The same clients send requests through both at once," if both else "Clients send requests"
    return f"{several} API servers are upgraded one by one. {clients} for {recording.seconds:.0f} seconds."


def description(recording: Recording) -> str:
    """The picture in words, for those who do not see it."""
    words = [setting(recording)]
    for number, each in enumerate(recording.results):
        words.append(f"{each.name}: {each.lost} of {each.requests} requests were lost.")
        words += [f"{count} times: {reason}." for reason, count in each.losses[:MAX_REASONS]]
        words.append(_moves(recording, number))
    return " ".join(words)


def _moves(recording: Recording, number: int) -> str:
    """How often the range moved that clients see."""
    offers = [each.offers[number] for each in recording.samples if each.offers[number]]
    count = sum(before != after for before, after in pairwise(offers))
    if not count:
        return "The range that clients see never moved."
    often = "once" if count == 1 else "twice" if count == 2 else f"{count} times"
    return f"The range that clients see moved {often}."


def _short(name: str) -> str:
    """The name without version and method: `HAProxy` of `HAProxy 2.6.12, round robin`."""
    return re.sub(r"\s+[0-9.]+$", "", name.split(",", 1)[0].strip())


def _count(number: int) -> str:
    return str(number) if number else "none"


def _range(text: str) -> str:
    """A range of numbers with a dash as printers have it."""
    return text.replace("-", "\N{EN DASH}") if re.fullmatch(r"[0-9.]+-[0-9.]+", text) else text


def _order(text: str) -> tuple[tuple[int, ...], str]:
    """By the numbers in a range."""
    return tuple(int(each) for each in re.findall(r"[0-9]{1,9}", text)), text


# -- the fleet


def _x(recording: Recording, seconds: float) -> float:
    return LEFT + (RIGHT - LEFT) * min(1.0, seconds / max(recording.seconds, 0.1))


def _rows(tracks: Sequence[Track]) -> list[float]:
    """The upper edge of each server's row. Servers of one service stand together."""
    rows: list[float] = []
    for number, track in enumerate(tracks):
        extra = BETWEEN if number and track.service != tracks[number - 1].service else 0
        rows.append(rows[-1] + ROW + extra if rows else HEAD)
    return rows


def _fleet(recording: Recording, tracks: Sequence[Track], rows: Sequence[float]) -> Iterator[str]:
    """A row for each server: what it ran when."""
    for top, track in zip(rows, tracks, strict=True):
        first = next(each for each in tracks if each.service == track.service).stages[0].release
        yield svg.text((LEFT - 10, top + 14.5), svg.cut(track.name, LEFT - EDGE - 10, 13), "", anchor="end")
        ends = [*(each.begin for each in track.stages[1:]), recording.seconds]
        for stage, end in zip(track.stages, ends, strict=True):
            yield from _stage(recording, stage, end, top, "old" if stage.release == first else "new")
    yield from _legend(tracks)


def _stage(recording: Recording, stage: Stage, end: float, top: float, age: str) -> Iterator[str]:
    begin, finish = _x(recording, stage.begin), _x(recording, end)
    width = max(1.0, finish - begin)
    if stage.state != "running":
        yield svg.rectangle((begin + 1, top + 2), (max(1.0, width - 2), BAR - 4), "down", 2)
        return
    yield svg.rectangle((begin, top), (width, BAR), age, 3)
    for words in (f"{stage.release}: {_range(stage.serves)}", _range(stage.serves), ""):
        if len(words) * 12 * svg.WIDEST < width - 12 or not words:
            break
    if words:
        yield svg.text((begin + 8, top + 14.5), words, f"small on-{age}")


def _legend(tracks: Sequence[Track]) -> Iterator[str]:
    failed = any(stage.state in {"killed", "hanging"} for track in tracks for stage in track.stages)
    down = "stopped, killed or hanging" if failed else "stopped for its upgrade"
    rows = (("old", "old release"), ("new", "new release"), ("down", down))
    for number, (kind, words) in enumerate(rows):
        top = HEAD + number * ROW
        yield svg.rectangle((SUMS, top + 3), (22, 14), kind, 3)
        yield svg.text((SUMS + 32, top + 14.5), words, "muted")
    top = HEAD + len(rows) * ROW
    yield svg.strokes([(SUMS + 7, top + 6, top + 18), (SUMS + 15, top, top + 18)], "loss")
    yield svg.text((SUMS + 32, top + 14.5), "lost: no answer, or against", "muted")
    yield svg.text((SUMS + 32, top + 31), "what the same client was shown", "muted")
    top += 2 * ROW - 6
    yield svg.strokes([(SUMS + 11, top, top + 18)], "guide")
    yield svg.text((SUMS + 32, top + 14.5), "back with the new release", "muted")


def _returns(recording: Recording) -> list[float]:
    """When servers came back with another release, in seconds."""
    return sorted(
        after.begin
        for track in recording.tracks
        for before, after in pairwise(track.stages)
        if after.state == "running" != before.state
    )


# -- the cards


def _card(recording: Recording, number: int, top: float) -> Iterator[str]:
    result = recording.results[number]
    inside = EDGE + 16
    yield svg.rectangle((EDGE, top), (WIDTH - 2 * EDGE, CARD), "card", 8)
    yield svg.text((inside, top + 28), svg.cut(result.name, SUMS - inside - 20, 16), "name")
    for row, words in enumerate(_KNOWING if not number else _PLAIN):
        yield svg.text((inside, top + 48 + row * 17), words, "muted")
    guides = [(_x(recording, at), top + HIGH - 9, top + LANE) for at in _returns(recording)]
    yield svg.strokes(guides, "guide")
    yield from _offers(recording, number, top)
    yield from _lane(recording, number, top)
    yield from _sums(recording, number, top)


_PLAIN: Final = (
    "Sends each request to the next server. Each server tells clients its own range,",
    "so the next server may refuse what the one before has offered.",
)
_KNOWING: Final = (
    "Learns which versions each server serves. Tells all clients what all servers serve,",
    "and sends a request only to a server that serves its version.",
)


def _levels(recording: Recording) -> dict[str, float]:
    """For each range that somebody was told its height in a card. The same in all cards."""
    found = sorted({each for sample in recording.samples for each in sample.offers if each}, key=_order)
    steps = min(len(found), MAX_LEVELS) - 1
    if steps < 1:
        return dict.fromkeys(found, (HIGH + LOW) / 2)
    return {each: LOW - (LOW - HIGH) * min(place, steps) / steps for place, each in enumerate(found)}


def _offers(recording: Recording, number: int, top: float) -> Iterator[str]:
    """The range that clients see, over time."""
    levels = _levels(recording)
    caption = svg.cut(
        f"The version range that clients of the service {recording.service} see", RIGHT - LEFT, 12
    )
    yield svg.text((LEFT, top + HIGH - 16), caption, "small muted")
    for words, height in list(levels.items())[:MAX_LEVELS]:
        yield svg.line((LEFT, top + height), (RIGHT, top + height), "rail")
        label = svg.cut(_range(words), LEFT - EDGE - 22, 12)
        yield svg.text((LEFT - 10, top + height + 4), label, "small", anchor="end")
    kind = "offer" if number else "offer calm"
    points: list[svg.Point] = []
    for sample in recording.samples:
        offer = sample.offers[number]
        x = _x(recording, sample.seconds)
        if not offer:
            continue
        y = top + levels[offer]
        if points and points[-1][1] != y:
            points.append((x, points[-1][1]))
        if not points or points[-1][1] != y or points[-1][0] != x:
            points.append((x, y))
    if points:
        points.append((RIGHT, points[-1][1]))
        yield svg.path(_corners(points), kind)


def _corners(points: Sequence[svg.Point]) -> list[svg.Point]:
    """Without points in the middle of a straight line."""
    corners = list(points[:1])
    for here, after in pairwise(points[1:]):
        if not (corners[-1][1] == here[1] == after[1] or corners[-1][0] == here[0] == after[0]):
            corners.append(here)
    return [*corners, points[-1]]


def _lane(recording: Recording, number: int, top: float) -> Iterator[str]:
    """When requests were lost: a stroke for each sample, the higher the more."""
    base = top + LANE
    yield svg.text((LEFT - 10, base), "lost", "small", anchor="end")
    yield svg.line((LEFT, base), (RIGHT, base), "rail")
    losses = [
        (after.seconds, after.lost[number] - before.lost[number])
        for before, after in pairwise(recording.samples)
    ]
    most = max([4, *(count for _, count in losses)])
    yield svg.strokes(
        [
            (_x(recording, at), base - 3 - (LANE_HEIGHT - 3) * count / most, base)
            for at, count in losses
            if count > 0
        ],
        "loss",
    )


def _sums(recording: Recording, number: int, top: float) -> Iterator[str]:
    """The column on the right: how many were lost, and why."""
    result = recording.results[number]
    yield svg.text((SUMS, top + 46), f"{result.lost} lost", "sum bad" if result.lost else "sum good")
    yield svg.text((SUMS, top + 68), f"of {result.requests} requests", "muted")
    if result.refused:
        yield svg.text((SUMS, top + 86), f"beside that, {result.refused} refused: never shown", "muted")
    baseline = top + 110
    for words, kind in _notes(recording, result, number):
        for row in svg.wrapped(words, SUMS_WIDTH, 13, 2):
            if baseline > top + CARD - 10:
                return
            yield svg.text((SUMS, baseline), row, kind)
            baseline += 17
        baseline += 3


def _notes(recording: Recording, result: Result, number: int) -> Iterator[tuple[str, str]]:
    for reason, count in result.losses[:MAX_REASONS]:
        yield f"{count} \N{MULTIPLICATION SIGN} {reason}", ""
    yield _moves(recording, number), "muted"


def _foot(recording: Recording, top: float) -> Iterator[str]:
    """The axis of time, and how to make such a picture."""
    step = next(each for each in (1, 2, 5, 10, 30, 60, 300, 3600, 86_400) if recording.seconds / each <= 10)
    for number in range(int(recording.seconds / step) + 1):
        x = _x(recording, number * step)
        yield svg.text((x, top + 18), f"{number * step} s", "small muted", anchor="middle")
    option = " --compare" if len(recording.results) > 1 else ""
    made = f"skewgate demo{option} --for {recording.seconds:.0f} --seed {recording.seed} --svg FILE"
    yield svg.text(
        (WIDTH - EDGE, top + 50), f"Drawn by the demonstration itself: {made}", "small muted", anchor="end"
    )
