"""The command line of the bench: what to run, the report, the exit code.

The exit code says whether everything ran without an error, never whether it was fast.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from bench import options, report
from bench.compiled import missing_build
from bench.lineup import Peer, lineup, loop_name, missing_packages
from bench.processes import BenchError, allow_open_files, detect_cores
from bench.report import Conditions
from bench.results import Results
from bench.rounds import Plan, run_scenario
from bench.testbed import testbed

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
#: Peers that every scenario of a smoke run has: their configurations differ between scenarios.
ALWAYS = ("gateway", "nginx")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _stop(number: int, _frame: FrameType | None) -> None:
    """Leave every context, so that no process remains. Ignore further signals, so that this completes."""
    for other in STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def choose_peers(chosen: argparse.Namespace) -> tuple[list[Peer], tuple[str, ...]]:
    """The peers to run, and why others are left out.

    Raises:
        BenchError: there is no such peer, or a program is missing; the text lists all of them.
    """
    known = {peer.name: peer for peer in lineup(loop_name(chosen.loop), chosen.earlier)}
    if unknown := [name for name in chosen.only if name not in known]:
        raise BenchError(f"no such peer: {', '.join(unknown)} (there are {', '.join(known)})")
    wanted = {name for scenario in chosen.scenarios for name in scenario.peers}
    peers = [peer for name, peer in known.items() if name in wanted and name in (chosen.only or known)]
    programs = {scenario.program for scenario in chosen.scenarios} | {"wrk"}
    if missing := missing_packages(programs | {peer.program for peer in peers if peer.program}):
        raise BenchError(
            f"not installed: {', '.join(missing)}\n"
            f"on Debian: apt-get install {' '.join(missing)} (their services need not run)"
        )
    if any(peer.name == "compiled" for peer in peers) and (why := missing_build(make=not chosen.smoke)):
        return [peer for peer in peers if peer.name != "compiled"], (f"compiled is left out: {why}",)
    return peers, ()


def run(chosen: argparse.Namespace, peers: list[Peer], plan: Plan) -> list[Results]:
    """Run all scenarios, with those of the peers that are in each.

    In a smoke run, all but two are only in the first scenario that has them.
    """
    found: list[Results] = []
    with testbed(plan.cores) as backends:
        for scenario in chosen.scenarios:
            seen = {entry.peer.name for results in found for entry in results.entries}
            taking_part = [
                peer
                for peer in peers
                if peer.name in scenario.peers
                and not (plan.smoke and peer.name in seen and peer.name not in ALWAYS)
            ]
            if taking_part:
                found.append(run_scenario(scenario, taking_part, backends, plan))
    return found


def show(found: list[Results], conditions: Conditions, smoke: bool) -> None:
    print(report.text(found, conditions))
    if smoke:
        print("Smoke run of one second each: the figures mean nothing.")
    for results in found:
        for entry in results.entries:
            for problem in entry.problems:
                print(f"{results.scenario.name}: {entry.label} failed: {problem}")
            if entry.errors:
                print(f"{results.scenario.name}: {entry.label}: {entry.errors} requests ended in errors")


def write(text: str, chosen: argparse.Namespace, complete: bool) -> None:
    """Write the Markdown tables to the requested files. docs/performance.md never gets incomplete ones.

    Raises:
        BenchError: they could not be written.
    """
    try:
        if chosen.markdown:
            chosen.markdown.write_text(text)
        if chosen.page and not complete:
            raise BenchError("docs/performance.md is unchanged, because not everything ran without errors")
        if chosen.page:
            report.put_between_markers(PAGE, text)
    except (OSError, ValueError) as error:
        raise BenchError(str(error)) from error


def main(arguments: list[str] | None = None) -> int:
    chosen = options.read(arguments)
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    allow_open_files()
    cores = detect_cores()
    plan = Plan(
        chosen.rounds,
        chosen.seconds,
        chosen.warm_up,
        chosen.connections,
        loop_name(chosen.loop),
        cores,
        chosen.smoke,
    )
    passed, failed = 0, 1
    try:
        peers, left_out = choose_peers(chosen)
        conditions = Conditions(plan.rounds, plan.seconds, plan.connections, cores.note, left_out)
        found = run(chosen, peers, plan)
        outcomes = [entry.passed for results in found for entry in results.entries]
        passed, failed = sum(outcomes), len(outcomes) - sum(outcomes)
        show(found, conditions, chosen.smoke)
        write(report.markdown(found, conditions), chosen, bool(outcomes) and not failed)
    except BenchError as error:
        failed += 1
        print(f"bench: {error}", file=sys.stderr)
    if chosen.smoke:
        print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
