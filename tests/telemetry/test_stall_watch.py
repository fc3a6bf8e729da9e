"""A loop that stands still is told of while it does, with its stack; a stopped process is not."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import final

import pytest

from gateway.telemetry.process_log import _STACK
from gateway.telemetry.stall_watch import MAX_PAUSE, StallWatch
from tests.kit.waiting import PATIENCE, until

TIMEOUT = PATIENCE


@final
class Events(logging.Handler):
    """What the watch tells, and a way to wait for it in a thread that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.came = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.came.release()

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def events() -> Iterator[Events]:
    log, handler = logging.getLogger("skewgate.stall"), Events()
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def hold_the_loop_up(events: Events, times: int) -> None:
    for _ in range(times):
        assert events.came.acquire(timeout=TIMEOUT), "never told"


async def test_a_loop_that_stands_still_is_told_of_with_its_stack(events: Events) -> None:
    watch = StallWatch(stall=0.03, interval=0.01)
    watch.begin_serving()
    watch.start()
    hold_the_loop_up(events, 2)  # blocks: it is told of again while it lasts
    await asyncio.to_thread(events.came.acquire, timeout=TIMEOUT)
    watch.close()

    first, second, last = events.records
    assert first.getMessage().startswith("the event loop has been blocked for 0.")
    assert (first.levelname, last.levelname) == ("ERROR", "WARNING")
    for record in (first, second):
        assert ", in hold_the_loop_up\n" in getattr(record, _STACK)
    assert last.getMessage().startswith("the event loop runs again after 0.")


async def test_a_loop_that_turns_is_not_told_of(events: Events) -> None:
    watch = StallWatch(stall=0.2, interval=0.001)
    noted = watch._noted
    watch.start()
    for _ in range(1000):
        await asyncio.sleep(0)
    await until(lambda: watch._noted > noted)
    watch.close()
    watch.close()
    assert events.texts == []


@final
class Clock:
    """Time and processor time that a test sets."""

    def __init__(self) -> None:
        self.now = self.cpu = 100.0

    def watch(self) -> StallWatch:
        watch = StallWatch(clock=lambda: self.now, cpu=lambda: self.cpu)
        watch.begin_serving()
        return watch


async def test_a_process_that_was_stopped_is_not_a_stall(events: Events) -> None:
    """SIGSTOP: both wake up late, in any order, and nothing was computed."""
    clock = Clock()
    watch = clock.watch()
    watch._set_timer()
    clock.now += 60
    clock.cpu += 0.01
    watch._check_loop()
    watch._note()
    assert events.texts == ["this process did not run for 59.8 s: it was stopped, or got no CPU time"]
    watch.close()


async def test_a_call_that_keeps_pythons_lock_is_a_stall(events: Events) -> None:
    """The thread could not look meanwhile, but something was computed."""
    clock = Clock()
    watch = clock.watch()
    watch._ident = threading.get_ident()
    watch._set_timer()
    clock.now += 5
    clock.cpu += 4.9
    watch._check_loop()
    watch._note()
    assert events.texts == [
        "the event loop has been blocked for 4.8 s, and all requests with it",
        "the event loop runs again after 4.8 s (4.9 s of CPU time)",
    ]
    watch.close()


async def test_a_stall_that_lasts_is_told_of_ever_less_often(events: Events) -> None:
    clock = Clock()
    watch = clock.watch()
    watch._set_timer()
    for _ in range(4 * 600):
        clock.now += 0.25
        watch._check_loop()
    told = [float(text.split(" s,")[0].rpartition(" ")[2]) for text in events.texts]
    assert told[:4] == [1.2, 2.8, 5.8, 11.8]
    pauses = [after - before for before, after in pairwise(told)]
    assert all(before <= after + 0.3 for before, after in pairwise(pauses))
    assert max(pauses) <= MAX_PAUSE + 0.5
    watch._note()
    for _ in range(2):
        clock.now += 0.75
        watch._check_loop()
    assert events.texts[-1] == "the event loop has been blocked for 1.2 s, and all requests with it"
    watch.close()


async def test_R3_N9_before_anybody_is_served_a_stall_is_information(events: Events) -> None:
    clock = Clock()
    watch = StallWatch(clock=lambda: clock.now, cpu=lambda: clock.cpu)
    watch._ident = threading.get_ident()
    watch._set_timer()
    clock.now += 5
    clock.cpu += 4.9
    watch._check_loop()
    watch.begin_serving()  # in the same turn of the loop, which began before
    watch._note()
    assert [(record.levelname, record.getMessage()) for record in events.records] == [
        ("INFO", "the event loop has been blocked for 4.8 s, before clients are served"),
        ("INFO", "the event loop runs again after 4.8 s (4.9 s of CPU time)"),
    ]
    assert not hasattr(events.records[0], _STACK)

    clock.now += 5
    clock.cpu += 4.9
    watch._check_loop()
    watch._note()
    assert [record.levelname for record in events.records[2:]] == ["ERROR", "WARNING"]
    watch.close()
