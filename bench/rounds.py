"""The rounds of a scenario: in each, every peer is started, checked, warmed up, measured and ended, in every
setting, one at a time.

It prints only its progress, on stderr. report.py interprets the figures.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.admin import build_info, check_loop, metrics, requests_counted, wait_until_probed
from bench.check import check_exchanges, wait_until_ready
from bench.lineup import Peer
from bench.load import Load, Run, Subject
from bench.loads.wrk import Wrk
from bench.processes import (
    BenchError,
    Child,
    Cores,
    Usage,
    cores_busy,
    ended_children_cpu,
    own_cpu,
    running,
    wait_for_port,
)
from bench.results import Entry, Results
from bench.scenarios import Scenario
from bench.slot import Slot
from bench.testbed import Testbed

NO_USAGE = Usage(0.0, 0.0, 0)


@dataclass(frozen=True)
class Plan:
    """How long, how often and with how many connections, on which event loop and cores."""

    rounds: int
    seconds: int
    warm_up: int
    connections: int
    loop: str
    cores: Cores
    smoke: bool = False


def run_scenario(scenario: Scenario, peers: list[Peer], testbed: Testbed, plan: Plan) -> Results:
    """Run every peer of the scenario in all its settings, once in each round.

    Raises:
        BenchError: the backends do not run. The problems of a peer are in its entry instead.
    """
    settings = (scenario.smoke,) if plan.smoke else scenario.settings
    entries = [Entry(scenario, peer, setting) for setting in settings for peer in peers]
    for number in range(plan.rounds):
        for entry in order(entries, number):
            testbed.backends.check_alive()
            if not entry.problems:
                progress = _run_one(entry, testbed, plan, number)
                place = f"{scenario.name}, round {number + 1}: {entry.label}"
                print(f"{place}: {progress}", file=sys.stderr, flush=True)
    return Results(scenario, entries)


def order(entries: list[Entry], number: int) -> list[Entry]:
    """Another order in each round, so that none is always first or always after the same one."""
    turn = number % len(entries)
    turned = entries[turn:] + entries[:turn]
    return turned[::-1] if number % 2 else turned


def _run_one(entry: Entry, testbed: Testbed, plan: Plan, number: int) -> str:
    """Add one run of one peer to its entry. Return a line of progress."""
    try:
        run = _measure(entry, testbed, plan)
    except BenchError as error:
        entry.problems.append(str(error))
        return f"failed: {error}"
    entry.runs[number] = run
    figures = entry.scenario.load.columns
    texts = [f"{figure.text(run.figures[figure.name])} {figure.heading}" for figure in figures]
    return ", ".join([*texts, f"{run.errors} errors"])


def _measure(entry: Entry, testbed: Testbed, plan: Plan) -> Run:
    """Start a peer, check it, warm it up, measure it, and end it.

    Raises:
        BenchError: it did not start, failed a check, or could not be loaded.
    """
    peer, load = entry.peer, entry.scenario.load
    with testbed.slot(peer, entry.setting) as slot:
        with _started(entry, testbed, plan, slot) as child:
            for check in peer.checks(entry.setting):
                check(peer.name, slot)
            usage = child.usage if peer.command else lambda: NO_USAGE
            subject = Subject(slot, plan.cores.load, plan.connections, usage, peer.is_gateway)
            warmed = 0 if plan.smoke else _drive_checked(peer, _warming(load), subject, plan.warm_up).requests
            counted = _counted(entry, slot, plan)
            before = _clocks(subject, testbed, plan.cores)
            if plan.smoke:  # no figure counts, so that the checks may disturb it
                run = _drive_checked(peer, load, subject, plan.seconds)
            else:
                run = load.drive(subject, plan.seconds)
            after = _clocks(subject, testbed, plan.cores)
            child.check_alive()
            if (_counted(entry, slot, plan) - counted) < run.requests * peer.is_gateway:
                raise BenchError(f"{peer.name}: its metrics counted fewer requests than there were responses")
        if entry.setting.access_log:
            _check_log(peer, slot, warmed + run.requests)
    foreign = (after.cores - before.cores) - (after.ours - before.ours)
    entry.foreign = max(entry.foreign, foreign / (after.time - before.time))
    return run


@contextlib.contextmanager
def _started(entry: Entry, testbed: Testbed, plan: Plan, slot: Slot) -> Iterator[Child]:
    """Run the peer until it is ready, and during the block. Without a process of its own: the backends'."""
    peer, ready = entry.peer, entry.scenario.ready
    entry.version = entry.version or peer.version()
    if peer.command is None:
        yield testbed.backends
        return
    log = slot.directory / "output.log"
    with running(peer.name, peer.command(slot), plan.cores.proxy, log, peer.environment) as child:
        wait_for_port(child, slot.port, ready)
        wait_until_ready(child, slot, ready)
        if peer.is_gateway:
            wait_until_probed(child, slot.admin, ready)
        yield child


def _warming(load: Load) -> Wrk:
    """What warms a peer up: the load itself, if it is of many small requests."""
    return load if isinstance(load, Wrk) else Wrk()


def _drive_checked(peer: Peer, load: Load, subject: Subject, seconds: int) -> Run:
    """Load the peer, and compare responses with their requests meanwhile."""
    with ThreadPoolExecutor(1) as background:
        driven = background.submit(load.drive, subject, seconds)
        check_exchanges(peer.name, subject.slot, _warming(load).heads)
        run = driven.result()
    if run.errors:
        raise BenchError(f"{peer.name}: {run.errors} wrong responses or lost connections")
    return run


def _check_log(peer: Peer, slot: Slot, requests: int) -> None:
    with (slot.directory / "access.log").open("rb") as log:
        lines = sum(1 for _ in log)
    if lines < requests:
        raise BenchError(f"{peer.name}: its access log has {lines} lines after {requests} requests")


@dataclass(frozen=True)
class Clocks:
    """The time, and CPU seconds: of all processes of the bench, and of the cores for any program."""

    time: float
    ours: float
    cores: float


def _clocks(subject: Subject, testbed: Testbed, cores: Cores) -> Clocks:
    ours = subject.usage().cpu + testbed.usage_cpu() + ended_children_cpu() + own_cpu()
    return Clocks(time.monotonic(), ours, cores_busy(cores.used))


def _counted(entry: Entry, slot: Slot, plan: Plan) -> int:
    """The number of requests in the gateway's own metrics; 0 for other peers."""
    if not entry.peer.is_gateway:
        return 0
    text = metrics(entry.peer.name, slot.admin)
    check_loop(entry.peer.name, text, plan.loop)
    entry.build = build_info(text)
    return requests_counted(text)
