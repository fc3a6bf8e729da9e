"""What was measured, as a table for the terminal and one for the README; the targets judged in words.

Writes no file but the README it is given, and only between its markers.
"""

import datetime
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.lineup import Peer

START, END = "<!-- bench:start -->", "<!-- bench:end -->"
HEADINGS = (
    "proxy",
    "requests/s",
    "CPU µs/request",
    "gateway's CPU to it",
    "p50 ms",
    "p99 ms",
    "memory MiB",
    "core busy",
    "errors",
)


@dataclass(frozen=True)
class Run:
    """One measured run of one peer; `foreign` is what other work took of the cores in use (1.0: one core)."""

    rate: float
    cpu: float
    p50: float
    p99: float
    memory: float
    busy: float
    foreign: float
    errors: int


@dataclass
class Entry:
    """A peer, its version, its runs, and why it has none."""

    peer: Peer
    version: str
    runs: list[Run]
    problems: list[str]

    def middle(self, what: str) -> float:
        return median(float(getattr(run, what)) for run in self.runs)

    def spread(self, what: str) -> float:
        """The largest figure of all runs divided by the smallest."""
        figures = [float(getattr(run, what)) for run in self.runs]
        return max(figures) / min(figures)

    @property
    def errors(self) -> int:
        return sum(run.errors for run in self.runs)

    @property
    def passed(self) -> bool:
        return bool(self.runs) and not self.problems and self.errors == 0


@dataclass(frozen=True)
class Conditions:
    """How the runs were made, for the line above the table."""

    rounds: int
    seconds: int
    connections: int
    heads: str
    cores_note: str


def ratio(entries: list[Entry], to: Entry) -> float | None:
    """The gateway's CPU per request divided by another's; None when one of them has no figure."""
    gateway = next((entry for entry in entries if entry.peer.name == "gateway"), None)
    if gateway is None or not gateway.runs or not to.runs:
        return None
    return gateway.middle("cpu") / to.middle("cpu")


def paired(entries: list[Entry]) -> list[str]:
    """The gateway's CPU per request to an earlier checkout's, round by round.

    Two runs of one round meet the machine in the same state, so the median of these ratios is more precise
    than the ratio of medians.
    """
    found = {entry.peer.name: entry.runs for entry in entries}
    pairs = list(zip(found.get("gateway", []), found.get("earlier", []), strict=False))
    if not pairs:
        return []
    ratios = sorted(now.cpu / before.cpu for now, before in pairs)
    span = f"{ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} rounds"
    return [f"CPU per request to the earlier checkout's, paired: median {median(ratios):.3f} ({span})."]


def rows(entries: list[Entry]) -> list[tuple[str, ...]]:
    table = []
    for entry in entries:
        if not entry.runs:
            table.append((entry.peer.name, "did not run", *[""] * (len(HEADINGS) - 2)))
            continue
        share = ratio(entries, entry)
        table.append(
            (
                entry.peer.name,
                f"{entry.middle('rate'):,.0f}",
                f"{entry.middle('cpu'):.1f}",
                "" if share is None or entry.peer.name == "gateway" else f"{share:.2f}",
                f"{entry.middle('p50'):.2f}",
                f"{entry.middle('p99'):.2f}",
                f"{entry.middle('memory'):.0f}",
                f"{entry.middle('busy'):.0%}",
                str(entry.errors),
            )
        )
    return table


def aligned(entries: list[Entry]) -> str:
    """Names to the left, figures to the right."""
    table = [HEADINGS, *rows(entries)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def judged(entries: list[Entry]) -> list[str]:
    """Each target as a sentence; a target without figures is said to be unmeasured."""
    sentences = []
    for entry in entries:
        if entry.peer.target is None:
            continue
        share = ratio(entries, entry)
        aim = f"at most {entry.peer.target:.2f} of {entry.peer.name}'s"
        if share is None:
            sentences.append(f"CPU per request {aim}: not measured.")
        else:
            result = "reached" if share <= entry.peer.target else "missed"
            sentences.append(f"CPU per request {aim}: {result}, it is {share:.2f}.")
    return sentences


def notes(entries: list[Entry], conditions: Conditions) -> list[str]:
    """What a reader must know to trust the figures, or not to."""
    found = [f"{machine()}; {conditions.cores_note}; {conditions.heads} heads."]
    foreign = max((run.foreign for entry in entries for run in entry.runs), default=0.0)
    if foreign > 0.05:
        found.append(
            f"Other work on the cores in use took up to {foreign:.0%} of one core during a run:"
            " the figures are indicative only."
        )
    uneven = [entry.peer.name for entry in entries if entry.runs and entry.spread("rate") > 1.25]
    if uneven:
        found.append(
            f"Rates differed by more than a quarter between rounds: {', '.join(uneven)}"
            " (CPU per request suffers less from that)."
        )
    idle = [entry.peer.name for entry in entries if entry.runs and entry.middle("busy") < 0.9]
    if idle:
        found.append(
            f"Not saturated, because load, backends or other work were the limit: {', '.join(idle)}"
            " (their rates are lower bounds, and a proxy with slack spends a little more CPU on a request)."
        )
    return found


def versions(entries: list[Entry]) -> str:
    names = ", ".join(f"{entry.peer.name} {entry.version}" for entry in entries)
    return f"{names}; {platform.python_implementation()} {platform.python_version()}"


def machine() -> str:
    """Processor, cores and system, as Linux tells them."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def markdown(entries: list[Entry], conditions: Conditions) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    heading = (
        f"Measured {today} by `bench/run`: median of {conditions.rounds} runs of {conditions.seconds} s each,"
        f" {conditions.connections} connections, one process and one core per proxy, keep-alive on both"
        " sides; the gateway with metrics on and access log off."
    )
    lines = [
        heading,
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---|" + "---:|" * (len(HEADINGS) - 1),
        *("| " + " | ".join(row) + " |" for row in rows(entries)),
        "",
        *(f"- {sentence}" for sentence in judged(entries)),
        *(f"- {note}" for note in notes(entries, conditions)),
        f"- {versions(entries)}.",
    ]
    return "\n".join(lines) + "\n"


def put_between_markers(readme: Path, text: str) -> None:
    """Replaces what stands between the two markers.

    Raises:
        ValueError: the markers are not there, once each and in order.
    """
    page = readme.read_text()
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{readme.name} has no {START} followed by {END}")
    readme.write_text(f"{before}{START}\n{text}{END}{after}")
