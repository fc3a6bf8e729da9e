"""The command line of the bench: what to run, the report, the exit code.

The exit code says whether everything ran without an error, never whether it was fast.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from bench.lineup import Peer, lineup, loop_name, missing_packages
from bench.processes import BenchError, detect_cores
from bench.report import (
    Conditions,
    Entry,
    aligned,
    markdown,
    notes,
    paired,
    put_between_markers,
    target_results,
    versions,
)
from bench.rounds import Plan, run_rounds

README = Path(__file__).parent.parent / "README.md"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description="Compares the gateway with nginx, HAProxy, Envoy, an aiohttp proxy and a bare TCP relay.",
    )
    add = parser.add_argument
    add("--seconds", type=_positive, default=6, help="length of each measured run (default 6)")
    add("--warm-up", type=_positive, default=1, help="seconds of load before it (default 1)")
    add("--rounds", type=_positive, default=3, help="number of runs, of which the median counts (default 3)")
    add("--connections", type=_positive, default=32, help="connections of wrk (default 32)")
    add(
        "--only",
        metavar="NAMES",
        help="measure only these, comma-separated: gateway,earlier,nginx,haproxy,envoy,aiohttp,relay",
    )
    add(
        "--heads",
        choices=("repeated", "unique"),
        default="repeated",
        help="unique: every request has its own ids and token",
    )
    add(
        "--earlier", metavar="DIR", type=Path, help="another checkout, whose gateway is measured as `earlier`"
    )
    add("--loop", choices=("uvloop", "asyncio"), help="event loop of the Python programs")
    add(
        "--gateway-command",
        metavar="COMMAND",
        help="the gateway to measure instead of this checkout; {config} is its file",
    )
    add("--markdown", metavar="FILE", type=Path, help="write the table as Markdown")
    add("--readme", action="store_true", help="write it into README.md, between its markers")
    add("--smoke", action="store_true", help="one second each, to check correctness and errors only")
    chosen = parser.parse_args(arguments)
    if chosen.readme and (chosen.smoke or chosen.only or chosen.gateway_command or chosen.earlier):
        parser.error(
            "--readme is for a whole measurement: without --smoke, --only, --gateway-command and --earlier"
        )
    if chosen.smoke:
        chosen.seconds = chosen.warm_up = chosen.rounds = 1
    if chosen.earlier is not None:
        chosen.earlier = chosen.earlier.resolve()
        if not (chosen.earlier / "gateway" / "__main__.py").is_file():
            parser.error(f"not a checkout of this project: {chosen.earlier}")
    chosen.loop = loop_name(chosen.loop)
    known = {peer.name: peer for peer in lineup(chosen.loop, chosen.gateway_command, chosen.earlier)}
    names = chosen.only.split(",") if chosen.only else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such peer: {', '.join(unknown)} (there are {', '.join(known)})")
    chosen.peers = [peer for name, peer in known.items() if name in names]
    return chosen


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _stop(number: int, _frame: FrameType | None) -> None:
    """Leave every context, so that no process remains. Ignore further signals, so that this completes."""
    for other in STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def require_packages(peers: list[Peer]) -> None:
    """Check that everything needed is installed.

    Raises:
        BenchError: something is missing; the text lists all of it.
    """
    if missing := missing_packages(peers):
        raise BenchError(
            f"not installed: {', '.join(missing)}\n"
            f"on Debian: apt-get install {' '.join(missing)} (their services need not run)"
        )


def show(entries: list[Entry], conditions: Conditions, smoke: bool) -> None:
    print(aligned(entries))
    print()
    if smoke:
        print("Smoke run of one second each: the figures mean nothing.")
    else:
        for sentence in paired(entries) + target_results(entries) + notes(entries, conditions):
            print(sentence)
        print(f"{versions(entries)}.")
    for entry in entries:
        for problem in entry.problems:
            print(f"{entry.peer.name} failed: {problem}")
        if entry.errors:
            print(f"{entry.peer.name}: {entry.errors} requests ended in errors")


def write(text: str, chosen: argparse.Namespace, complete: bool) -> None:
    """Write the Markdown table to the requested files. The README never gets an incomplete one.

    Raises:
        BenchError: it could not be written.
    """
    try:
        if chosen.markdown:
            chosen.markdown.write_text(text)
        if chosen.readme and not complete:
            raise BenchError("README.md is unchanged, because not everything ran without errors")
        if chosen.readme:
            put_between_markers(README, text)
    except (OSError, ValueError) as error:
        raise BenchError(str(error)) from error


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    cores = detect_cores()
    plan = Plan(
        chosen.rounds, chosen.seconds, chosen.warm_up, chosen.connections, chosen.heads, chosen.loop, cores
    )
    conditions = Conditions(plan.rounds, plan.seconds, plan.connections, plan.heads, cores.note)
    passed, wrote = 0, True
    try:
        require_packages(chosen.peers)
        entries = run_rounds(chosen.peers, plan)
        passed = sum(entry.passed for entry in entries)
        show(entries, conditions, chosen.smoke)
        write(markdown(entries, conditions), chosen, passed == len(entries))
    except BenchError as error:
        wrote = False
        print(f"bench: {error}", file=sys.stderr)
    failed = len(chosen.peers) - passed
    if chosen.smoke:
        print(f"{passed} passed, {failed} failed")
    return 1 if failed or not wrote else 0


if __name__ == "__main__":
    sys.exit(main())
