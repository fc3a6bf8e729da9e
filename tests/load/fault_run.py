r"""One fault run as a process, which is the first one of namespaces of its own.

    unshare --net --mount --pid --fork --kill-child --mount-proc \
        python -m tests.load.fault_run FOLDER SEED COURSE

What it does: it starts the testbed in FOLDER, puts the faults of the schedule on it, ends everything, and
writes what happened into `FOLDER/faults.json`. The requests are in `FOLDER/requests.jsonl`.
COURSE is one of `schedule.COURSES`.

Rules: it judges nothing. Whatever goes wrong, the record until then is written.
"""

from __future__ import annotations

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from tests.load import faults
from tests.load.fault_testbed import FAULT_RECORD, FaultTestbed
from tests.load.namespace import FarNetwork, use_loopback, use_resolver
from tests.load.schedule import COURSES, Act, Course, Group
from tests.real.processes import LOOPBACK


def run(folder: Path, seed: int, course: Course) -> None:
    """Run everything."""
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
        faults.put(testbed, act, f"{seed}/{act.fault.name}")

    with ThreadPoolExecutor(len(group)) as pool:
        for future in [pool.submit(perform, act) for act in group]:
            future.result()


STARTED = monotonic()

if __name__ == "__main__":
    # The first process of a namespace ignores every signal for which it has no handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(Path(sys.argv[1]), int(sys.argv[2]), COURSES[sys.argv[3]])
