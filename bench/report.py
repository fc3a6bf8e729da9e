"""The results as a table for the terminal and one for the README, with a sentence about each target.

It writes no file except the given README, and only between its markers.
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
    """One measured run of one peer. `foreign`: use of these cores by other programs (1.0: one core)."""

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
    """A peer, its version, its runs, and the problems because of which it has none."""

    peer: Peer
    version: str
    runs: list[Run]
    problems: list[str]

    def median(self, figure: str) -> float:
        return median(float(getattr(run, figure)) for run in self.runs)

    def spread(self, figure: str) -> float:
        """The largest figure of all runs divided by the smallest."""
        figures = [float(getattr(run, figure)) for run in self.runs]
        return max(figures) / min(figures)

    @property
    def errors(self) -> int:
        return sum(run.errors for run in self.runs)

    @property
    def passed(self) -> bool:
        return bool(self.runs) and not self.problems and self.errors == 0


@dataclass(frozen=True)
class Conditions:
    """The parameters of all runs, for the line above the table."""

    rounds: int
    seconds: int
    connections: int
    heads: str
    cores_note: str


def ratio(entries: list[Entry], to: Entry) -> float | None:
    """The gateway's CPU per request divided by another peer's; None: one of them has no figure."""
    gateway = next((entry for entry in entries if entry.peer.name == "gateway"), None)
    if gateway is None or not gateway.runs or not to.runs:
        return None
    return gateway.median("cpu") / to.median("cpu")


def paired(entries: list[Entry]) -> list[str]:
    """The gateway's CPU per request divided by that of an earlier checkout, round by round.

    The two runs of a round have the machine in the same state. So the median of these ratios is more precise
    than the ratio of the medians.
    """
    found = {entry.peer.name: entry.runs for entry in entries}
    pairs = list(zip(found.get("gateway", []), found.get("earlier", []), strict=False))
    if not pairs:
        return []
    ratios = sorted(now.cpu / before.cpu for now, before in pairs)
    span = f"{ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} rounds"
    return [
        f"CPU per request divided by the earlier checkout's, paired: median {median(ratios):.3f} ({span})."
    ]


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
                f"{entry.median('rate'):,.0f}",
                f"{entry.median('cpu'):.1f}",
                "" if share is None or entry.peer.name == "gateway" else f"{share:.2f}",
                f"{entry.median('p50'):.2f}",
                f"{entry.median('p99'):.2f}",
                f"{entry.median('memory'):.0f}",
                f"{entry.median('busy'):.0%}",
                str(entry.errors),
            )
        )
    return table


def aligned(entries: list[Entry]) -> str:
    """The table for the terminal: names on the left, figures on the right."""
    table = [HEADINGS, *rows(entries)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def target_results(entries: list[Entry]) -> list[str]:
    """One sentence for each target, also for one without figures."""
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
    """The limits of the figures, for the reader."""
    found = [f"{machine()}; {conditions.cores_note}; {conditions.heads} heads."]
    foreign = max((run.foreign for entry in entries for run in entry.runs), default=0.0)
    if foreign > 0.05:
        found.append(
            f"Other work on the cores in use took up to {foreign:.0%} of one core during a run:"
            " the figures are only an indication."
        )
    uneven = [entry.peer.name for entry in entries if entry.runs and entry.spread("rate") > 1.25]
    if uneven:
        found.append(
            f"Rates differed by more than a quarter between rounds: {', '.join(uneven)}"
            " (CPU per request suffers less from that)."
        )
    idle = [entry.peer.name for entry in entries if entry.runs and entry.median("busy") < 0.9]
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
    """Processor, cores and kernel."""
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
        *(f"- {sentence}" for sentence in target_results(entries)),
        *(f"- {note}" for note in notes(entries, conditions)),
        f"- {versions(entries)}.",
    ]
    return "\n".join(lines) + "\n"


def put_between_markers(readme: Path, text: str) -> None:
    """Replace the text between the two markers.

    Raises:
        ValueError: a marker is missing, or their order is wrong.
    """
    page = readme.read_text()
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{readme.name} has no {START} followed by {END}")
    readme.write_text(f"{before}{START}\n{text}{END}{after}")
