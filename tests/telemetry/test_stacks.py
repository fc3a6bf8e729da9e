"""SIGQUIT: where every thread and every task is, also while the loop stands still."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from gateway.runtime import process
from gateway.telemetry import stacks
from gateway.telemetry.process_log import _STACK
from gateway.telemetry.stacks import capture_stacks


async def innermost(event: asyncio.Event) -> None:
    await event.wait()


async def numbers(event: asyncio.Event) -> AsyncIterator[int]:
    await innermost(event)
    yield 1


async def outermost(event: asyncio.Event) -> None:
    await innermost(event)


def stack(records: list[logging.LogRecord], message: str) -> str:
    (found,) = (getattr(each, _STACK) for each in records if each.getMessage() == message)
    return str(found)


async def test_a_task_is_shown_down_to_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    event = asyncio.Event()

    async def count() -> None:
        async for _ in numbers(event):
            pass

    tasks = [
        asyncio.create_task(outermost(event), name="first"),
        asyncio.create_task(count(), name="second"),
    ]
    await asyncio.sleep(0)
    capture_stacks(asyncio.get_running_loop())()
    event.set()
    await asyncio.gather(*tasks)

    shown = stack(caplog.records, "task first")
    places = [shown.index(f", in {name}\n") for name in ("outermost", "innermost", "wait")]
    assert places == sorted(places)
    shown = stack(caplog.records, "task second")
    assert ", in count\n" in shown
    assert "waits for async_generator_asend" in shown, "Python tells no more"
    assert caplog.messages[0].endswith(f"of tasks: {len(asyncio.all_tasks()) + 2}")


async def test_sigquit_shows_a_loop_that_stands_still(caplog: pytest.LogCaptureFixture) -> None:
    before, blocked = signal.getsignal(signal.SIGQUIT), threading.Event()

    def hold_the_loop_up() -> None:
        os.kill(os.getpid(), signal.SIGQUIT)
        assert blocked.wait(10), "the signal has set it"

    def look(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        log_stacks = capture_stacks(loop)

        def dump() -> None:
            log_stacks()
            blocked.set()

        return dump

    thread = threading.Thread(target=blocked.wait, name="waiting")
    thread.start()
    with process.handle_signals(lambda: None, capture=look):
        hold_the_loop_up()
        thread.join()
        await asyncio.sleep(0)
    assert signal.getsignal(signal.SIGQUIT) is before
    assert ", in hold_the_loop_up\n" in stack(caplog.records, "thread MainThread")
    assert ", in wait\n" in stack(caplog.records, "thread waiting")


async def test_a_storm_of_sigquit_neither_nests_nor_holds_the_loop() -> None:
    dumps = 0

    def dump() -> None:
        nonlocal dumps
        dumps += 1
        if dumps < 3:
            os.kill(os.getpid(), signal.SIGQUIT)

    with process.handle_signals(lambda: None, capture=lambda _loop: dump):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGQUIT)
    assert dumps == 1


async def test_a_loop_that_stands_still_is_shown_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the time of the loop stands still with it (uvloop)."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
    dumps = 0

    def dump() -> None:
        nonlocal dumps
        dumps += 1

    with process.handle_signals(lambda: None, capture=lambda _loop: dump):
        os.kill(os.getpid(), signal.SIGQUIT)
        for thread in threading.enumerate():
            if thread.name == "skewgate-stacks":
                thread.join()
        monkeypatch.setattr(process, "ONE_DUMP", -1.0)  # the time has passed
        os.kill(os.getpid(), signal.SIGQUIT)
        monkeypatch.undo()
    assert dumps == 2


async def test_a_dump_waits_for_the_log_without_the_thread_that_was_interrupted() -> None:
    """The main thread has one lock of a log and another thread the other: both would wait for ever."""
    written, held, lock = threading.Event(), threading.Event(), threading.Lock()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.set()

    handler, logger = Handler(), logging.getLogger("skewgate.stacks")

    def log() -> None:
        handler.acquire()
        held.set()
        with lock:
            handler.release()

    thread = threading.Thread(target=log)
    logger.addHandler(handler)
    try:
        with process.handle_signals(lambda: None, capture=capture_stacks):
            with lock:
                thread.start()
                held.wait()
                os.kill(os.getpid(), signal.SIGQUIT)
            thread.join()
        assert written.is_set()
    finally:
        logger.removeHandler(handler)


async def test_without_a_thread_the_loop_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dumped = asyncio.Event()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with process.handle_signals(lambda: None, capture=lambda _loop: dumped.set):
        os.kill(os.getpid(), signal.SIGQUIT)
        await dumped.wait()


async def test_of_very_many_tasks_the_rest_is_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MAX_TASKS", 2)
    event = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(innermost(event))
        await asyncio.sleep(0)
        capture_stacks(asyncio.get_running_loop())()
        event.set()
    assert caplog.messages[-1].endswith(" more tasks are not shown")
    assert sum(message.startswith("task ") for message in caplog.messages) == 2


@pytest.mark.processes
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stop_signal_during_a_dump_is_one_signal(loop: str) -> None:
    """uvloop calls a handler of its own twice; the second call would end the process without a drain."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    program = """
import asyncio, os, subprocess
from gateway.runtime import process

def dump():
    subprocess.run(["kill", "-TERM", str(os.getpid())], check=True)

async def main():
    for _ in range(20):
        stop = asyncio.Event()
        with process.handle_signals(stop.set, capture=lambda loop: dump):
            other = await asyncio.create_subprocess_exec("kill", "-QUIT", str(os.getpid()))
            await other.wait()
            await stop.wait()
            for _ in range(10):
                await asyncio.sleep(0)
    print("drained")

process.run_in_loop(main())
"""
    environ = {**os.environ, "SKEWGATE_LOOP": loop}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (0, "drained\n"), ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_dump_while_tasks_begin_and_end_does_not_end_the_process(loop: str) -> None:
    """Python 3.12.1 ends by a segmentation fault when it is asked for the coroutine of an eager task that has
    ended, and aiohttp has such tasks. Another thread that had seen the task before did that."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    program = """
import asyncio, os, signal, sys, time
from gateway.runtime import process
from gateway.telemetry.stacks import capture_stacks

process.ONE_DUMP = -1.0
sys.setswitchinterval(1e-5)
eager = {"eager_start": True} if sys.version_info >= (3, 12) else {}

async def short():
    time.sleep(0.0002)

async def main():
    loop = asyncio.get_running_loop()
    with process.handle_signals(lambda: None, capture=capture_stacks):
        for _ in range(150):
            os.kill(os.getpid(), signal.SIGQUIT)
            for _ in range(20):
                await asyncio.Task(short(), loop=loop, **eager)
    print("lives")

process.run_in_loop(main())
"""
    environ = {**os.environ, "SKEWGATE_LOOP": loop}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (0, "lives\n"), ended.stderr[-2000:]
    assert "SIGQUIT: stacks" in ended.stderr


async def test_a_task_that_is_interrupted_is_said_to_run(caplog: pytest.LogCaptureFixture) -> None:
    async def within() -> None:
        capture_stacks(asyncio.get_running_loop())()

    async def around() -> None:
        await within()

    await asyncio.create_task(around(), name="busy")
    assert stack(caplog.records, "task busy").endswith("in around\n    await within()\n  runs\n")
