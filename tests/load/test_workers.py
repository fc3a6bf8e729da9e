"""Workers that are killed or hang, and a main process that is killed or replaced, under load.

Never does one worker refuse what another one offers: all clients together, on all connections, see an offer
that only rises but where the fleet or an operator takes it back (`ledger`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.load.conftest import WORKERS
from tests.load.fleet import NAMES, NEW, OLD
from tests.load.ledger import End
from tests.load.records import Death, Span
from tests.load.test_nothing_lost import evaluate, restart
from tests.load.testbed import Testbed
from tests.real.processes import Process

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]

KILLS = 2
"""Of each worker."""
RELOADS = 20


@pytest.fixture
def workers() -> int:
    """Those of the testbed: never one process."""
    return WORKERS


def test_workers_and_their_parent_may_be_killed_or_replaced(testbed: Testbed, figures: list[str]) -> None:
    """In the middle of an upgrade. Only what a killed worker was doing at that moment is lost."""
    try:
        with counters_only_rise(testbed):
            with testbed.step("a worker is killed, each in turn"):
                for slot in [*range(WORKERS)] * KILLS:
                    end_worker(testbed, slot, signal.SIGKILL)
            with testbed.step("a worker hangs, and is killed by its main process"):
                end_worker(testbed, 0, signal.SIGSTOP)
            with testbed.step("reload storm"):
                reload_storm(testbed)
        with testbed.step("the gateway is taken over while the fleet is upgraded"):
            restart(testbed, NAMES[0], NEW)
            testbed.wait_for_offer(OLD, "mixed")
            take_over(testbed)
            upgrade_the_rest(testbed)
        with testbed.step("its main process is killed"):
            kill_parent(testbed)
            testbed.wait_for_offer(NEW, "uniform")
            testbed.wait_for_traffic()
        with testbed.step("taken over once more"):
            take_over(testbed)
            testbed.wait_for_traffic()
    finally:
        judgement = evaluate(testbed, figures)

    assert not judgement.breaches, f"{len(judgement.breaches)} breaches:\n{judgement}"
    ends = [judgement.ends[request.ident] for request in testbed.requests()]
    killed = sum(death.killed for death in testbed.deaths)
    figures.append(f"{killed} processes of the gateway killed: {ends.count(End.DISCONNECTED)} disconnected")
    assert killed == KILLS * WORKERS + 1


def end_worker(testbed: Testbed, slot: int, how: signal.Signals) -> None:
    """Return when another one serves in its slot. With SIGSTOP it ends later, but does nothing any more."""
    pid = testbed.worker_pids()[slot]
    testbed.deaths.append(Death(monotonic(), killed=True))
    os.kill(pid, how)

    def is_replaced(document: dict[str, Any]) -> bool:
        return any(
            worker["slot"] == slot and worker["pid"] != pid and worker["state"] == "serving"
            for worker in document["workers"]
        )

    testbed.poller.until_document(is_replaced, f"another worker in slot {slot}")
    testbed.wait_for_traffic()


def reload_storm(testbed: Testbed) -> None:
    """Every reload is in force in all workers, or joined with the next one."""
    for number in range(RELOADS):
        testbed.configure(weight=1 + number % 3)
        testbed.send_sighup()
    wait_until(lambda: testbed.reloads("success") >= 1, "a reload")
    testbed.configure()
    testbed.command("reload")
    testbed.wait_for_traffic()


def upgrade_the_rest(testbed: Testbed) -> None:
    for name in NAMES[1:]:
        restart(testbed, name, NEW)
    testbed.wait_for_offer(NEW, "uniform")
    testbed.wait_for_traffic()


def take_over(testbed: Testbed) -> None:
    """Replace the running gateway by a new process, as its own upgrade does."""
    before = testbed.gateway.process
    after = Process(f"{before.name}+", [*before.command, "--take-over"], before.folder, before.environment)
    with testbed.poller.interrupted():
        after.start()
        wait_until(lambda: not before.is_running, "the end of the old gateway")
        testbed.deaths.append(Death(monotonic(), killed=False))
        testbed.gateway.process = after
        after.wait_until(testbed.gateway.is_ready, "ready (/readyz 200)")
    assert before.stop() == 0
    testbed.wait_for_traffic()


def kill_parent(testbed: Testbed) -> None:
    """Its workers finish what they have, and accept nobody: until the next gateway serves nobody listens."""
    process = testbed.gateway.process
    with testbed.poller.interrupted():
        began = monotonic()
        process.kill()
        testbed.deaths.append(Death(began, killed=False))
        process.start()
        process.wait_until(testbed.gateway.is_ready, "ready (/readyz 200)")
        testbed.closed.append(Span(began, monotonic()))
    testbed.wait_for_traffic()


@contextmanager
def counters_only_rise(testbed: Testbed) -> Iterator[None]:
    """While workers come and go: read again and again, no counter is lower than before."""
    ended, falls = threading.Event(), list[str]()

    def read() -> None:
        before: dict[Any, float] = {}
        while not ended.wait(0.1):
            now = testbed.gateway.metrics().counters
            falls.extend(
                f"{key}: {before[key]} -> {now[key]}" for key in now if now[key] < before.get(key, 0)
            )
            before = now

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not falls, falls
