"""The process around the gateway: its event loop, its garbage collector and its signals.

Only this module imports uvloop, an optional dependency, and only if `compiled.chosen_loop` chooses it. It
installs signal handlers; the caller decides what a stop or a reload does.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar, final

from gateway.errors import SettingsError
from gateway.runtime.compiled import UVLOOP, chosen_loop
from gateway.runtime.terminal import print_error

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
ONE_DUMP: Final = 1.0
"""Seconds after a dump of stacks in which SIGQUIT is ignored: a storm of signals must not hold the loop."""
SECOND_STOP_EXIT: Final = 1
"""The exit code after a second stop signal: requests are cut off, which is a failure."""

_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock that also counts while the machine sleeps, on Linux; elsewhere the monotonic clock."""

IGNORED: Final = "%s means nothing here and is ignored"

THRESHOLDS: Final = (20_000, 50, 100)
"""Thresholds of the garbage collector in a process that runs a gateway and nothing else."""

MAX_ADMIN_CONNECTIONS: Final = 64
MIN_ADMIN_CONNECTIONS: Final = 8

_log = logging.getLogger("skewgate")

CaptureStacks = Callable[[asyncio.AbstractEventLoop], Callable[[], None]]
"""Function that captures stacks in the loop's thread; any thread may call what it returns, to write them."""
Result = TypeVar("Result")


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` in an event loop of the chosen kind. Raises what `chosen_loop` and `main` raise."""
    try:
        factory = (import_module(UVLOOP) if chosen_loop() == UVLOOP else asyncio).new_event_loop
    except SettingsError:
        main.close()
        raise
    # Modules imported by now are never freed, and a request leaves no reference cycles behind: collecting
    # less often saves 2 % of the CPU per request (measured). Nothing is collected before: imports leave some
    # 2,000 objects behind, which no memory shows, and to find them takes 45 ms, a tenth of a start.
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.unraisablehook = without_odd_names(sys.unraisablehook)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def without_odd_names(
    show: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], None]:
    """A hook for unraisable exceptions that calls `show`, but not for server names of clients that are no
    ASCII: such a handshake is refused and counted anyway; its tracebacks would let clients fill the log."""

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not (
            isinstance(unraisable.exc_value, UnicodeDecodeError) and isinstance(unraisable.object, bytes)
        ):
            show(unraisable)

    return hook


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the garbage collector while a configuration is read and put in force. For the objects of a
    thousand services a run takes 0.1 s, in which no request moves (measured)."""
    if gc.get_threshold() == THRESHOLDS:
        gc.collect()  # among what came since `keep_for_long`, so it is quick
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def keep_for_long() -> None:
    """Exempt all present objects from garbage collection, in a process that runs a gateway and nothing else.
    They are still freed by their reference counts: reading a configuration makes no cycles, as a test
    checks."""
    if gc.get_threshold() == THRESHOLDS:
        gc.freeze()


async def end_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait until they have ended. A task that is None is ignored."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def boot_time() -> float:
    """The time, in seconds, for deadlines of replicas: its clock also counts while the machine sleeps."""
    return time.clock_gettime(_BOOT_CLOCK)


def admin_connections() -> int:
    """The maximum of admin connections, at most an eighth of all descriptors. It is a reserve of its own:
    neither operators nor clients can take the others' descriptors (threats R-B7)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_ADMIN_CONNECTIONS
    return max(MIN_ADMIN_CONNECTIONS, min(MAX_ADMIN_CONNECTIONS, soft // 8))


def exit_at_once() -> NoReturn:
    """End the process at once, after a second stop signal."""
    print_error("second stop signal: exiting at once")
    logging.shutdown()  # waits until the line is written, but not for long
    os._exit(SECOND_STOP_EXIT)


@contextmanager
def handle_signals(
    stop: Callable[[], None],
    reload: Callable[[], None] | None = None,
    reopen: Callable[[], None] | None = None,
    capture: CaptureStacks | None = None,
    *,
    take_over: Callable[[], None] | None = None,
    always: bool = False,
    before_exit: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Handles the signals of this process inside the context. Without a handler each would end the process.

    SIGTERM, SIGINT   `stop`. A second one calls `before_exit` and ends the process, unless `always` is set:
                      then each calls `stop`, which decides.
    SIGHUP            `reload`
    SIGUSR1           `reopen`
    SIGUSR2           `take_over`
    SIGQUIT           `capture`, wherever the program is and also when the loop stands still. What it returns
                      is called in a thread. One at a time, and at most one a second.

    A signal without a function is logged and ignored.
    """
    loop = asyncio.get_running_loop()
    stopping, dumps = False, None if capture is None else _Dumps(capture, loop)

    def on_stop_signal(_number: int, _frame: FrameType | None) -> None:
        # Not by `loop.add_signal_handler`: a signal that comes while uvloop handles another one (a SIGHUP, a
        # dump) it tells twice, and the second time would end the process without a drain.
        loop.call_soon_threadsafe(stop_or_exit)

    def stop_or_exit() -> None:
        nonlocal stopping
        if stopping and not always:
            before_exit()
            exit_at_once()
        stopping = True
        stop()

    others = {signal.SIGHUP: reload, signal.SIGUSR1: reopen, signal.SIGUSR2: take_over}
    for number, function in others.items():
        loop.add_signal_handler(number, function or partial(_log.info, IGNORED, number.name))
    before = {number: signal.signal(number, on_stop_signal) for number in STOP_SIGNALS}
    if dumps is not None:
        before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, dumps.on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in others:
            loop.remove_signal_handler(number)
        if dumps is not None:
            dumps.finish()


@final
class _Dumps:
    """The handler of SIGQUIT: captures stacks and writes them from a thread.

    The signal may interrupt the main thread while it holds a lock of the log, for which a thread waits that
    holds a lock that the dump needs. So the main thread never waits for the writing thread.
    """

    def __init__(self, capture: CaptureStacks, loop: asyncio.AbstractEventLoop) -> None:
        self._capture, self._loop = capture, loop
        self._dump: Callable[[], None] = _nothing
        self._dumping = False
        self._dumped_at = float("-inf")
        self._thread: threading.Thread | None = None

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        # The time of a loop that stands still may stand still as well.
        if self._dumping or time.monotonic() < self._dumped_at + ONE_DUMP:
            return
        self._dumping = True
        try:
            self._dump = self._capture(self._loop)
        except Exception as error:  # noqa: BLE001 - it would be raised in whatever the signal has interrupted
            self._dump = partial(_log.error, "SIGQUIT: the tasks cannot be seen: %r", error)
        self._thread = threading.Thread(target=self._run, name="skewgate-stacks", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: when the loop turns, nobody is interrupted
            self._thread = None
            self._loop.call_soon_threadsafe(self._run)

    def finish(self) -> None:
        """Wait until a dump of stacks has ended, a second at most."""
        if self._thread is not None:
            self._thread.join(ONE_DUMP)

    def _run(self) -> None:
        try:
            self._dump()
        finally:
            self._dump, self._dumping, self._dumped_at = _nothing, False, time.monotonic()


def _nothing() -> None:
    """Does nothing: takes the place of a dump of stacks while there is none."""
