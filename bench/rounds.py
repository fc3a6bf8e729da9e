"""The rounds: every peer is started, checked, warmed up, measured and ended, one at a time.

It prints only its progress, on stderr. report.py interprets the figures.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.check import check_loop, read_metrics, requests_counted, wait_until_ready
from bench.lineup import Peer, Slot, backends_command
from bench.load import drive
from bench.processes import (
    BenchError,
    Child,
    Cores,
    cores_busy,
    ended_children_cpu,
    free_port,
    running,
    wait_for_port,
)
from bench.report import Entry, Run

READY_SECONDS = 20.0


@dataclass(frozen=True)
class Plan:
    """How long, how often, with how many connections and which heads, on which event loop and cores."""

    rounds: int
    seconds: int
    warm_up: int
    connections: int
    heads: str
    loop: str
    cores: Cores


@dataclass(frozen=True)
class Testbed:
    """The backends behind all peers, and a directory for files."""

    directory: Path
    backends: Child
    old: int
    new: int

    def slot(self) -> Slot:
        return Slot(self.directory, free_port(), free_port(), self.old, self.new)


@dataclass(frozen=True)
class Clocks:
    """CPU seconds: of the proxy, of all processes of the bench, and of the cores for any program."""

    proxy: float
    ours: float
    cores: float


@contextlib.contextmanager
def prepared(cores: Cores) -> Iterator[Testbed]:
    """Run the backends. They and the directory are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="skewgate-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # nginx's worker is another user when its master is root
        old, new = free_port(), free_port()
        command = backends_command(Slot(directory, 0, 0, old, new))
        with running("backends", command, cores.backends, directory / "backends.log", {}) as backends:
            for port in (old, new):
                wait_for_port(backends, port, READY_SECONDS)
            yield Testbed(directory, backends, old, new)


def run_rounds(peers: list[Peer], plan: Plan) -> list[Entry]:
    """Run every peer once in each round. The order rotates by one, so that none is always first.

    Raises:
        BenchError: the backends did not run. The problems of a peer are in its entry instead.
    """
    entries = [Entry(peer, "", [], []) for peer in peers]
    with prepared(plan.cores) as testbed:
        for number in range(plan.rounds):
            turn = number % len(entries)
            for entry in entries[turn:] + entries[:turn]:
                testbed.backends.check_alive()
                if not entry.problems:
                    progress = _run_one(entry, testbed, plan)
                    print(f"round {number + 1}: {entry.peer.name}: {progress}", file=sys.stderr, flush=True)
    return entries


def _run_one(entry: Entry, testbed: Testbed, plan: Plan) -> str:
    """Add one run of one peer to its entry. Return a line of progress."""
    try:
        entry.version = entry.version or entry.peer.version()
        run = measure(entry.peer, testbed, plan)
    except BenchError as error:
        entry.problems.append(str(error))
        return f"failed: {error}"
    entry.runs.append(run)
    return f"{run.rate:,.0f} requests/s, {run.cpu:.1f} µs, {run.errors} errors"


def measure(peer: Peer, testbed: Testbed, plan: Plan) -> Run:
    """Start a peer, check it, warm it up, measure it, and end it.

    Raises:
        BenchError: it did not start, failed a check, or could not be loaded.
    """
    slot = testbed.slot()
    log = testbed.directory / f"{peer.name}.log"
    core = plan.cores.load
    with running(peer.name, peer.command(slot), plan.cores.proxy, log, peer.environment) as child:
        wait_for_port(child, slot.port, READY_SECONDS)
        wait_until_ready(child, slot.port, READY_SECONDS)
        for check in peer.checks:
            check(peer.name, slot.port)
        drive(slot.port, plan.connections, plan.warm_up, core, plan.heads)
        counted = _counted(peer, slot, plan)
        before = _read_clocks(child, testbed, plan.cores)
        load = drive(slot.port, plan.connections, plan.seconds, core, plan.heads)
        after = _read_clocks(child, testbed, plan.cores)
        memory = child.usage().memory
        child.check_alive()
        if counted is not None and (_counted(peer, slot, plan) or 0) - counted < load.requests:
            raise BenchError(f"{peer.name}: its metrics counted fewer requests than wrk got responses")
    cpu = after.proxy - before.proxy
    foreign = (after.cores - before.cores) - (after.ours - before.ours)
    return Run(
        rate=load.requests / load.seconds,
        cpu=cpu * 1e6 / load.requests,
        p50=load.p50,
        p99=load.p99,
        memory=memory / 2**20,
        busy=cpu / load.seconds,
        foreign=max(0.0, foreign) / load.seconds,
        errors=load.status_errors + load.socket_errors,
    )


def _read_clocks(proxy: Child, testbed: Testbed, cores: Cores) -> Clocks:
    used = proxy.usage().cpu
    return Clocks(used, used + testbed.backends.usage().cpu + ended_children_cpu(), cores_busy(cores.used))


def _counted(peer: Peer, slot: Slot, plan: Plan) -> int | None:
    """The number of requests in the gateway's own metrics; None for other peers."""
    if peer.name != "gateway":
        return None
    metrics = read_metrics(peer.name, slot.admin)
    check_loop(peer.name, metrics, plan.loop)
    return requests_counted(metrics)
