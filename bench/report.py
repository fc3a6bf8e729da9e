"""The results as tables for the terminal and for docs/performance.md, with the table of targets.

It writes no file except the given page, and only between its markers.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.figure import BUSY, CPU
from bench.machine import interpreter, machine
from bench.results import Entry, Results, ratios
from bench.targets import TARGETS, Target, met

START, END = "<!-- bench:start -->", "<!-- bench:end -->"
Row = tuple[str, ...]
#: In a cell without a figure.
NOTHING = "-"


@dataclass(frozen=True)
class Conditions:
    """The parameters of all runs, for the line above the tables."""

    rounds: int
    seconds: int
    connections: int
    cores_note: str
    #: Peers that did not run, and why.
    left_out: tuple[str, ...] = ()


def table(results: Results) -> list[Row]:
    """The figures of a scenario: medians, errors, and the comparison of the gateway with each peer."""
    columns = results.scenario.load.columns
    several = len(results.scenario.settings) > 1
    growths = (f"itself to {results.scenario.base}",) if several else ()
    heading = ("proxy", *(column.heading for column in columns), *growths, *_comparisons(results), "errors")
    rows = [heading]
    for entry in results.entries:
        if not entry.runs:
            rows.append((entry.label, "did not run", *[""] * (len(heading) - 2)))
            continue
        figures = [column.text(entry.median(column.name)) for column in columns]
        grown = [_growth(results, entry)] if several else []
        shares = [_share(results, build, entry, several) for build in _comparisons(results).values()]
        rows.append((entry.label, *figures, *grown, *shares, str(entry.errors)))
    return rows


def _comparisons(results: Results) -> dict[str, str]:
    """The builds of the gateway that ran, by the heading of their comparison."""
    builds = [build for build in ("gateway", "compiled") if results.of(build)]
    return {f"{build} to it": build for build in builds}


def _growth(results: Results, entry: Entry) -> str:
    """A peer's main figure divided by that of the same peer at the size that all are compared with."""
    name, base = results.scenario.unit.name, results.scenario.base
    spread = ratios(entry.figures(name), results.values(name, entry.peer.name, results.with_size(base)))
    return spread.text(2) if spread and entry.setting.size != base else ""


def _share(results: Results, build: str, entry: Entry, several: bool) -> str:
    """A build's main figure divided by that of a peer, by round; of the same size if there are several."""
    name = results.scenario.unit.name
    setting = entry.setting if several else None
    spread = ratios(results.values(name, build, setting), entry.figures(name))
    return spread.text(2) if spread and entry.peer.name != build else ""


def target_table(all_results: Iterable[Results]) -> list[Row]:
    """One row for each target of a scenario that was run."""
    found = {results.scenario.name: results for results in all_results}
    rows: list[Row] = [("figure", "interpreted", "compiled", "target (interpreted; compiled)", "met")]
    for target in TARGETS:
        if (results := found.get(target.scenario)) is None:
            continue
        interpreted, compiled = (target.measured(results, build) for build in ("gateway", "compiled"))
        if interpreted is None and compiled is None:
            continue
        texts = [spread.text(target.digits) if spread else NOTHING for spread in (interpreted, compiled)]
        limits = [_limit(target, limit) for limit in (target.interpreted, target.compiled)]
        rows.append((target.figure, *texts, "; ".join(limits), met(target, interpreted, compiled)))
    return rows


def _limit(target: Target, limit: float | None) -> str:
    return NOTHING if limit is None else f"≤ {limit:.{target.digits}f}"


def aligned(rows: list[Row]) -> str:
    """A table for the terminal: names on the left, figures on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(rows: list[Row]) -> str:
    heading, *others = rows
    rule = "|---|" + "---:|" * (len(heading) - 1)
    return "\n".join([_line(heading), rule, *map(_line, others)])


def _line(row: Row) -> str:
    return "| " + " | ".join(row) + " |"


def title(results: Results) -> str:
    return f"{results.scenario.name}: {results.scenario.title}"


def notes(all_results: list[Results], conditions: Conditions) -> list[str]:
    """What the reader must know about the figures: the machine, the programs, and the limits."""
    entries = [entry for results in all_results for entry in results.entries]
    found = [
        f"{machine()}; {conditions.cores_note}.",
        f"{interpreter()} for all Python programs; {_versions(entries)}.",
        *conditions.left_out,
    ]
    foreign = max((entry.foreign for entry in entries), default=0.0)
    if foreign > 0.05:
        found.append(
            f"Other work on the cores in use took up to {foreign:.0%} of one core during a run:"
            " the figures are only an indication."
        )
    idle = sorted({entry.peer.name for entry in entries if _had_slack(entry)})
    if idle:
        found.append(
            f"Not saturated, because load, backends or other work were the limit: {', '.join(idle)}"
            " (their rates are lower bounds, and a proxy with slack spends a little more CPU on a request)."
        )
    return found


def _had_slack(entry: Entry) -> bool:
    return bool(entry.runs) and entry.scenario.unit is CPU and entry.median(BUSY.name) < 90


def _versions(entries: list[Entry]) -> str:
    """Every program once, with what a gateway says about itself."""
    found = {}
    for entry in entries:
        build = ", ".join(f"{name} {value}" for name, value in entry.build.items() if name != "version")
        if entry.version:
            found[entry.peer.name] = entry.version + (f" ({build})" if build else "")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def text(all_results: list[Results], conditions: Conditions) -> str:
    """Everything for the terminal."""
    parts = [f"{title(results)}\n{aligned(table(results))}" for results in all_results]
    if len(targets := target_table(all_results)) > 1:
        parts.append(f"targets: median of all rounds (with the range)\n{aligned(targets)}")
    parts.append("\n".join(notes(all_results, conditions)))
    return "\n\n".join(parts)


def markdown(all_results: list[Results], conditions: Conditions) -> str:
    """The same for a page: the first scenario in full, a row for each of the others, the targets."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    first, *others = all_results
    heading = (
        f"Measured {today} by `bench/run`: median of {conditions.rounds} runs of {conditions.seconds} s each,"
        f" {conditions.connections} connections, one process and one core per proxy, keep-alive on both"
        f" sides, the gateway with metrics on. {first.scenario.title[0].upper()}{first.scenario.title[1:]}:"
    )
    paragraphs = [heading, as_markdown(table(first))]
    if others:
        paragraphs += ["Other loads:", as_markdown(_summary(others))]
    if len(targets := target_table(all_results)) > 1:
        paragraphs += ["Ratios, each made within a round, with their range:", as_markdown(targets)]
    paragraphs.append("\n".join(f"- {note}" for note in notes(all_results, conditions)))
    return "\n\n".join(paragraphs) + "\n"


def _summary(all_results: list[Results]) -> list[Row]:
    """The main figure of each scenario and setting, for the gateway and for the best nginx."""
    rows: list[Row] = [("load", "figure", "gateway", "compiled", "nginx")]
    for results in all_results:
        unit, settings = results.scenario.unit, results.scenario.settings
        for setting in settings:
            label = results.scenario.title
            label = f"{setting.label}, {label}" if len(settings) > 1 else label
            figures = []
            for name in ("gateway", "compiled", "nginx"):  # and nginx-unbuffered and its like
                peers = [
                    peer for peer in results.scenario.peers if peer == name or peer.startswith(f"{name}-")
                ]
                found = [entry for peer in peers for entry in results.of(peer, setting)]
                figures.append(
                    unit.text(min(entry.median(unit.name) for entry in found)) if found else NOTHING
                )
            rows.append((label, unit.heading, *figures))
    return rows


def put_between_markers(path: Path, new: str) -> None:
    """Replace the text between the two markers.

    Raises:
        ValueError: a marker is missing, or their order is wrong.
    """
    page = path.read_text()
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{path.name} has no {START} followed by {END}")
    path.write_text(f"{before}{START}\n{new}{END}{after}")
