"""Draws the picture of README.md, for light and dark pages: `.venv/bin/python docs/images/demo.py`.

It shows a real run: demo.txt beside this file is the output of `./run demo --compare --for 60 --seed 7`. To
record another one, write its output there, draw again, and copy the headline and the setting into README.md;
a test compares them. This script imports nothing of the demonstration; it parses those lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER: Final = Path(__file__).parent
RECORDING: Final = FOLDER / "demo.txt"

STEP: Final = re.compile(r"^ *([\d.]+) s  step: +(\S+) (stops for|is upgraded)", re.MULTILINE)
SECOND: Final = re.compile(
    r"^ *([\d.]+) s  baremetal (\S+) .* lost (\d+)\b.* \| .*: baremetal shows (.*), lost (\d+)$", re.MULTILINE
)
SUMMARY: Final = re.compile(
    r"^  (\S.*): (\d+) requests, \d+ answered, (\d+) refused, lost (\d+)\n((?:    .*\n)+)", re.MULTILINE
)
LENGTH: Final = re.compile(r"^Summary after (\d+) s", re.MULTILINE)
REASONS: Final = re.compile(r"([^,]+?) \((\d+)\)")

SCHEMES: Final = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1f2328",
        "muted": "#59636e",
        "old": "#c8d1da",
        "new": "#0a58ca",
        "good": "#1a7f37",
        "bad": "#c21c2b",
    },
    "dark": {
        "paper": "#0d1117",
        "ink": "#f0f6fc",
        "muted": "#9aa4af",
        "old": "#3d444d",
        "new": "#1f6feb",
        "good": "#4ac26b",
        "bad": "#ff7b72",
    },
}


class Server(NamedTuple):
    """A server, with the seconds at which it stopped for its upgrade and came back."""

    name: str
    stopped: float
    upgraded: float


class Front(NamedTuple):
    """The gateway or HAProxy, second by second and in total."""

    name: str
    shown: tuple[str, ...]
    """Range of versions that clients were shown last, by second."""
    losses: tuple[int, ...]
    """Number of lost requests by second."""
    requests: int
    refused: int
    """Number of requests for versions that were not on offer."""
    lost: int
    reasons: tuple[tuple[str, int], ...]


class Recording(NamedTuple):
    """A recorded run of the demonstration."""

    length: int
    """Length in seconds."""
    seconds: tuple[float, ...]
    """Times at which the lines about the fronts were printed."""
    servers: tuple[Server, ...]
    ours: Front
    balancer: Front


def read(text: str) -> Recording:
    """Read what the demonstration printed. Raises `ValueError` for anything else."""
    steps = {(name, what): float(at) for at, name, what in STEP.findall(text)}
    names = sorted({name for name, _ in steps})
    servers = [Server(name, steps[name, "stops for"], steps[name, "is upgraded"]) for name in names]
    lines = SECOND.findall(text)
    fronts = SUMMARY.findall(text)
    length = LENGTH.search(text)
    if not lines or len(fronts) != 2 or length is None:
        raise ValueError("not a recording of `demo --compare`")
    seconds, our_ranges, our_lost, balancer_ranges, balancer_lost = zip(*lines, strict=True)
    return Recording(
        int(length[1]),
        tuple(map(float, seconds)),
        tuple(servers),
        _front(fronts[0], our_ranges, our_lost),
        _front(fronts[1], balancer_ranges, balancer_lost),
    )


def _front(summary: Sequence[str], shown: Sequence[str], lost: Sequence[str]) -> Front:
    name, requests, refused, sum_of_lost, lines = summary
    sums = [0, *map(int, lost)]
    losses = tuple(after - before for before, after in pairwise(sums))
    reasons = lines.rpartition("    lost: ")[2] if "    lost: " in lines else ""
    return Front(
        name,
        tuple(shown),
        losses,
        int(requests),
        int(refused),
        int(sum_of_lost),
        tuple((reason.strip(), int(count)) for reason, count in REASONS.findall(reasons)),
    )


def headline(recording: Recording) -> str:
    """Return the result as one sentence."""
    ours, balancer = recording.ours, recording.balancer
    kept = f"{ours.lost} of {ours.requests:,}" if ours.lost else "none"
    lost = f"{balancer.name.split()[0]} lost {balancer.lost} of {balancer.requests:,} requests"
    return f"One rolling upgrade: {lost}, skewgate {kept}"


def setting(recording: Recording) -> str:
    """Describe the run in one sentence."""
    return (
        f"The same clients send requests through both for {recording.length} seconds, "
        f"while {len(recording.servers)} API servers are upgraded one by one."
    )


def draw(recording: Recording, colours: Mapping[str, str]) -> Figure:
    """Draw the fleet above and the two fronts below it, on one axis of time."""
    figure = Figure(figsize=(9.6, 7.0), facecolor=colours["paper"])
    fleet, balancer, ours = figure.subplots(3, 1, sharex=True, height_ratios=(1.5, 1.2, 1.2))
    figure.subplots_adjust(left=0.11, right=0.7, top=0.88, bottom=0.05, hspace=0.4)
    ink, muted = colours["ink"], colours["muted"]
    figure.text(0.025, 0.95, headline(recording), size=14.5, weight="bold", color=ink)
    figure.text(0.025, 0.915, setting(recording), size=9.5, color=muted)
    for axes in (fleet, balancer, ours):
        axes.set_facecolor(colours["paper"])
        axes.tick_params(colors=muted, labelsize=9, length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlim(0, recording.length)
    ours.xaxis.set_major_formatter("{x:.0f} s")
    _draw_fleet(fleet, recording, colours)
    _draw_front(balancer, recording.balancer, recording, colours)
    _draw_front(ours, recording.ours, recording, colours)
    return figure


def _draw_fleet(axes: Axes, recording: Recording, colours: Mapping[str, str]) -> None:
    names = [each.name for each in recording.servers]
    stopped = [each.stopped for each in recording.servers]
    upgraded = [each.upgraded for each in recording.servers]
    after = [recording.length - each for each in upgraded]
    axes.barh(names, stopped, 0.7, color=colours["old"], label="old release")
    axes.barh(names, after, 0.7, upgraded, color=colours["new"], label="new release")
    axes.invert_yaxis()
    axes.legend(
        bbox_to_anchor=(1.01, 1.05), loc="upper left", frameon=False, fontsize=9.5, labelcolor=colours["ink"]
    )
    _write_beside(axes, 0.66, "no bar: stopped for its upgrade", colours["muted"])


def _draw_front(axes: Axes, front: Front, recording: Recording, colours: Mapping[str, str]) -> None:
    """Draw the range that clients were shown as a line, and below it what was lost as bars."""
    ranges = sorted({*recording.ours.shown, *recording.balancer.shown}, key=_newest)
    most = max(*recording.ours.losses, *recording.balancer.losses, 1)
    colour = colours["bad" if front.lost else "good"]
    heights = [1 + ranges.index(each) for each in front.shown]
    axes.step(recording.seconds, heights, color=colour, linewidth=2, where="post")
    bars = [0.8 * each / most for each in front.losses]
    axes.bar(recording.seconds, bars, -0.8, align="edge", color=colour)
    axes.axhline(0, color=colours["old"], linewidth=1)
    axes.set_yticks(range(len(ranges) + 1), ["lost", *ranges])
    axes.set_ylim(-0.05, len(ranges) + 0.3)
    axes.set_title(front.name, loc="left", color=colours["ink"], size=11.5, weight="bold")
    moves = sum(before != after for before, after in pairwise(front.shown))
    facts = [f"of {front.requests:,} requests"]
    facts += [f"{count} times: {reason}" for reason, count in front.reasons]
    facts.append(f"{front.refused} more asked for versions that were not on offer")
    facts.append(f"the shown range changed {'once' if moves == 1 else f'{moves} times'}")
    lines = [line for fact in facts for line in wrap(fact, 36)]
    _write_beside(axes, 1.15, f"{front.lost} lost", colour, size=19, weight="bold")
    _write_beside(axes, 0.88, "\n".join(lines), colours["ink"])


def _write_beside(
    axes: Axes, height: float, words: str, colour: str, size: float = 9.5, weight: str = "normal"
) -> None:
    axes.text(
        1.03,
        height,
        words,
        color=colour,
        size=size,
        weight=weight,
        linespacing=1.5,
        va="top",
        transform=axes.transAxes,
    )


def _newest(versions: str) -> tuple[int, ...]:
    """Return the newest version of a range as numbers; smaller than any for `nothing yet`."""
    return tuple(map(int, re.findall(r"\d+", versions.rpartition("-")[2])))


def main(folder: Path = FOLDER) -> None:
    """Draw both pictures into a folder. The same recording always gives the same bytes."""
    mpl.rcParams["svg.hashsalt"] = "skewgate"
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["font.family"] = "DejaVu Sans"
    recording = read(RECORDING.read_text(encoding="utf-8"))
    for name, colours in SCHEMES.items():
        draw(recording, colours).savefig(folder / f"demo-{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
