r"""The faults: how each is put on a running testbed, and taken away again; and one run of them as a process,
which is the first one of namespaces of its own.

    unshare --net --mount --pid --fork --kill-child --mount-proc \
        python -m tests.load.faults FOLDER SEED COURSE

What it does: `put` is one act of the schedule. It returns when the fault is over and every backend is known
again. `run` starts the testbed in FOLDER, puts the faults of the schedule on it, ends everything, and writes
what happened into `FOLDER/faults.pickle`. The requests are in `FOLDER/requests.jsonl`. COURSE is one of
`schedule.COURSES`.

Rules: a duration comes from the schedule. Everything else is waited for. Nothing is judged here. Whatever
goes wrong, the record until then is written.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, TypeAlias

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import wait_until
from tests.load.fault_testbed import CROWD, FAR, FAULT_RECORD, NEAR, OTHER_NAMES, SLOW_REQUESTS, FaultTestbed
from tests.load.namespace import FarNetwork, use_loopback, use_resolver
from tests.load.records import Delay, How, Span
from tests.load.schedule import COURSES, Act, Course, Fault, Group
from tests.real.processes import stopped

LOG_EVERY: Final = 0.2
"""Seconds from one log line that the test causes to the next."""
ERRANDS_LIMIT: Final = 40.0
"""Seconds within which the slow peers must be done. They need nine."""
LOG_SIGNAL: Final = signal.SIGHUP
"""The gateway reads its file again, and says so on standard error."""

Put: TypeAlias = Callable[[FaultTestbed, float, Random], None]


def put(testbed: FaultTestbed, act: Act, seed: str) -> None:
    """One act: the fault from its beginning until its consequences are over."""
    with testbed.fault(act.fault):
        FAULTS[act.fault](testbed, act.seconds, Random(seed))


def frozen_reader(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    """Nobody reads the access log and standard error, and the pipes are full. Both are written to."""
    end = monotonic() + seconds
    with testbed.output.out.frozen(), testbed.output.err.frozen():
        while monotonic() < end:
            testbed.output.signal(LOG_SIGNAL)
            time.sleep(LOG_EVERY)


def resolver_silent(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    with testbed.names.ignoring(Fault.RESOLVER_SILENT.name):
        time.sleep(seconds)


def resolver_denies(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    with testbed.names.denying(Fault.RESOLVER_DENIES.name):
        time.sleep(seconds)


def resolver_partly_silent(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    with testbed.names.ignoring(Fault.RESOLVER_PARTLY_SILENT.name, frozenset(OTHER_NAMES)):
        time.sleep(seconds)


def slow_peers(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    """They take the time that their errands take."""
    name = str(rng.randrange(10**6))
    process = testbed.helper("slow_peers", name, testbed.folder / SLOW_REQUESTS)
    try:
        wait_until(lambda: not process.is_running, "the end of every errand", ERRANDS_LIMIT)
    finally:
        code = process.stop()
    assert code == 0, process.log_tail()


def few_descriptors(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    began = monotonic()
    crowd = testbed.helper("crowd", CROWD * testbed.workers, rng.randrange(10**6))
    try:
        time.sleep(seconds)
        assert crowd.terminate() == 0, crowd.log_tail()
    finally:
        crowd.stop()
        testbed.record.crowds.append(Span(began, monotonic()))
    connected, closed = map(int, crowd.output.read_text().split()[-2:])
    testbed.count("newcomers connected", connected)
    testbed.count("newcomers closed", closed)


def backend_stopped(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    name = rng.choice(NEAR)
    backend, began = testbed.backends[name], monotonic()
    backend.hang()
    try:
        testbed.wait_until_noticed([name], How.HUNG, began)
        time.sleep(max(0.0, began + seconds - monotonic()))
    finally:
        backend.resume()
    testbed.wait_until_known(name)


def gateway_stopped(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    """All of its processes, as when a machine stands still."""
    with delaying(testbed), stopped({testbed.output.pid, *testbed.worker_pids().values()}):
        time.sleep(seconds)


def worker_stopped(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    pids = testbed.worker_pids()
    with delaying(testbed), stopped([pids[rng.choice(sorted(pids))]]):
        time.sleep(seconds)
    assert testbed.worker_pids() == pids, "a worker was replaced although it was back in time"


def parent_stopped(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    """It delays nobody."""
    pids = testbed.worker_pids()
    with stopped([testbed.output.pid]):
        time.sleep(seconds)
    assert testbed.worker_pids() == pids, "a worker was replaced because its main process had stood still"


@contextmanager
def delaying(testbed: FaultTestbed) -> Iterator[None]:
    """What happens inside may delay every request by the time that it takes."""
    began = monotonic()
    yield
    testbed.record.delays.append(Delay(Span(began, monotonic()), monotonic() - began))


def partition(testbed: FaultTestbed, seconds: float, rng: Random) -> None:
    """Packets to and from the far backends vanish."""
    began = monotonic()
    for name in FAR:
        testbed.backends[name].mark_hung()
    testbed.far.cut()
    try:
        testbed.wait_until_noticed(FAR, How.PARTITIONED, began)
        time.sleep(max(0.0, began + seconds - monotonic()))
    finally:
        testbed.far.restore()
    testbed.wait_until_known(*FAR)


FAULTS: Final[Mapping[Fault, Put]] = {
    Fault.FROZEN_READER: frozen_reader,
    Fault.RESOLVER_SILENT: resolver_silent,
    Fault.RESOLVER_DENIES: resolver_denies,
    Fault.RESOLVER_PARTLY_SILENT: resolver_partly_silent,
    Fault.SLOW_PEERS: slow_peers,
    Fault.FEW_DESCRIPTORS: few_descriptors,
    Fault.BACKEND_STOPPED: backend_stopped,
    Fault.GATEWAY_STOPPED: gateway_stopped,
    Fault.WORKER_STOPPED: worker_stopped,
    Fault.PARENT_STOPPED: parent_stopped,
    Fault.PARTITION: partition,
}


# --- a run -------------------------------------------------------------------------------------------------


def run(folder: Path, seed: int, course: Course) -> None:
    use_loopback()
    use_resolver(LOOPBACK, folder)
    with FarNetwork() as far:
        testbed = FaultTestbed(folder, far, tls=course.tls, workers=course.workers)
        try:
            with testbed.faulty():
                for number, group in enumerate(course.schedule(seed)):
                    run_group(testbed, group, f"{seed}/{number}")
                    testbed.wait_for_traffic()
                testbed.end_traffic()
                testbed.note_metrics()
                testbed.stop_gateway_without_resolver()
        finally:
            testbed.finish().save(folder / FAULT_RECORD)


def run_group(testbed: FaultTestbed, group: Group, seed: str) -> None:
    """All acts of a group, each at its time."""
    began = monotonic()

    def perform(act: Act) -> None:
        time.sleep(max(0.0, began + act.begin - monotonic()))
        print(f"{monotonic() - STARTED:6.1f} s: {act.fault.value.title}", flush=True)
        put(testbed, act, f"{seed}/{act.fault.name}")

    with ThreadPoolExecutor(len(group)) as pool:
        for future in [pool.submit(perform, act) for act in group]:
            future.result()


STARTED = monotonic()

if __name__ == "__main__":
    # The first process of a namespace ignores every signal for which it has no handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(Path(sys.argv[1]), int(sys.argv[2]), COURSES[sys.argv[3]])
