"""Nothing that could be served is lost under faults: slow peers, frozen logs, no resolver, partitions …

The gateway, four fake backends and the clients run in networks of their own (`namespace`). The faults follow
a schedule from a seed, each alone and then several at a time. Afterwards, every request is judged by the
rules in `ledger`. What could be served meanwhile is written at each fault in `schedule`. There is one run
without TLS, one with TLS on both sides, and both again behind two workers (`schedule.COURSES`).

SKEWGATE_FAULT_SEED=7       another schedule
"""

from __future__ import annotations

import os
import sys
from math import inf
from typing import Final, NamedTuple

import pytest

from tests.kit.waiting import wait_until
from tests.load import figures as run_figures
from tests.load import namespace
from tests.load.fault_testbed import EXIT_LIMIT, FAULT_RECORD, SLOW_REQUESTS, FaultRecord
from tests.load.ledger import End, Judgement, Ledger
from tests.load.records import Request, read_lines
from tests.load.schedule import COURSES, RESOLVER, Fault
from tests.load.slow_peers import ERRANDS
from tests.load.testbed import REQUESTS
from tests.real.gateway_process import CHECKOUT
from tests.real.processes import Process

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]

SEED: Final = int(os.environ.get("SKEWGATE_FAULT_SEED", "1"))
LIMIT: Final = 200.0
"""Seconds for the whole run. The longest needs 65."""
MINIMUM_RATE: Final = 100
"""Requests per second that the test requires, outages included."""
SHOWN: Final = 50
"""Breaches that are printed."""
PROMPT: Final = 2.0
"""Seconds that a bystander may wait where no fault excuses it. It needs a twentieth on an idle machine."""


class FaultRun(NamedTuple):
    """A run that has ended, and why it ended early; empty: it did not."""

    course: str
    """One of `COURSES`."""
    requests: list[Request]
    record: FaultRecord
    judgement: Judgement
    problem: str


@pytest.fixture(scope="module", params=COURSES)
def fault_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FaultRun:
    course: str = request.param
    folder = tmp_path_factory.mktemp("faults")
    missing = namespace.missing_programs()
    assert not missing, f"missing: {', '.join(missing)}; as root on Debian: .ci/packages"
    command = [sys.executable, "-m", "tests.load.faults", str(folder), str(SEED), course]
    process = Process(
        "fault-run", namespace.isolated(command), folder, {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    )
    process.start()
    try:
        wait_until(lambda: not process.is_running, "the end of the run", LIMIT)
    finally:
        code = process.stop()
    requests = [
        request for name in (REQUESTS, SLOW_REQUESTS) for request in read_lines(folder / name, Request)
    ]
    record = FaultRecord.load(folder / FAULT_RECORD)
    judgement = Ledger(
        requests,
        record.executions,
        record.samples,
        outages=record.outages,
        serving=record.serving,
        crowds=record.crowds,
        prompt=PROMPT,
        delays=record.delays,
    ).judge()
    return FaultRun(course, requests, record, judgement, process.log_tail() if code else "")


def test_nothing_that_could_be_served_is_lost_under_faults(fault_run: FaultRun, figures: list[str]) -> None:
    course, requests, record, judgement, problem = fault_run
    figures += ["", f"faults, {course}, schedule {SEED}: {len(requests)} requests"]
    figures += run_figures.report(requests, record, judgement)

    assert not problem, problem
    first = "\n".join(str(judgement).splitlines()[:SHOWN])
    assert not judgement.breaches, f"{len(judgement.breaches)} breaches, of which the first are:\n{first}"


def test_the_faults_were_real(fault_run: FaultRun) -> None:
    """A run in which nothing happened would prove nothing."""
    course, requests, record, judgement, _ = fault_run
    due = [act.fault for group in COURSES[course].schedule(SEED) for act in group]

    assert sorted(name for name, _ in record.faults) == sorted(fault.name for fault in due)
    assert run_figures.rate(requests) >= MINIMUM_RATE
    served = [request for request in requests if judgement.ends[request.ident] is End.SERVED]
    assert sum(request.answered == request.ident for request in served) > len(served) * 0.9
    assert {End.SERVED, End.REFUSED, End.TIMED_OUT} <= set(judgement.ends.values())
    assert all(record.queries.get(fault.name) for fault in {*RESOLVER} & {*due}), record.queries
    assert record.facts["newcomers closed"] > 0
    assert sum(request.slow for request in requests) == due.count(Fault.SLOW_PEERS) * 2 * len(ERRANDS)


def test_no_line_of_the_access_log_is_missing_without_a_word(fault_run: FaultRun) -> None:
    _, requests, record, *_ = fault_run
    due = sum(request.status > 0 for request in requests)

    assert record.facts["log lines"] + record.facts.get("log lines dropped", 0) >= due


def test_the_gateway_ends_in_time_although_no_name_server_answers(fault_run: FaultRun) -> None:
    assert fault_run.record.facts.get("seconds to exit", inf) <= EXIT_LIMIT
