"""The process around the gateway: its event loop, its signals, and that its standard streams are open.

The loop: SKEWGATE_LOOP=asyncio or uvloop; without it, uvloop if it is installed. Only this module imports
uvloop, and only if it is chosen, because it is an optional dependency. Signals: this module only installs
handlers; the caller decides what a stop or a reload does. File descriptors: the share of the admin listener.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from gateway.errors import SettingsError
from gateway.terminal import print_error

VARIABLE: Final = "SKEWGATE_LOOP"
ASYNCIO: Final = "asyncio"
UVLOOP: Final = "uvloop"

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
SECOND_STOP_EXIT: Final = 1
"""The exit code after a second stop signal: requests are cut off, which is a failure."""

IGNORED: Final = "%s means nothing here and is ignored"

MAX_ADMIN_CONNECTIONS: Final = 64
MIN_ADMIN_CONNECTIONS: Final = 8

_log = logging.getLogger("skewgate")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
Result = TypeVar("Result")


def chosen_loop() -> str:
    """The loop's name. Raises `SettingsError` if the variable names an unknown one, or one not installed."""
    wanted = os.environ.get(VARIABLE, "")
    installed = find_spec(UVLOOP) is not None
    if wanted not in ("", ASYNCIO, UVLOOP):
        raise SettingsError(f"{VARIABLE} must be {ASYNCIO} or {UVLOOP}, not {wanted!r}")
    if wanted == UVLOOP and not installed:
        raise SettingsError(f"{VARIABLE} is {UVLOOP}, which is not installed")
    return wanted or (UVLOOP if installed else ASYNCIO)


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` in a loop of the chosen kind. Raises what `chosen_loop` and `main` raise."""
    try:
        factory: LoopFactory = (
            import_module(UVLOOP).new_event_loop if chosen_loop() == UVLOOP else asyncio.new_event_loop
        )
    except SettingsError:
        main.close()
        raise
    # Modules imported by now are never freed, and a request leaves no reference cycles behind: collecting
    # less often saves 2 % of the CPU per request (measured).
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def open_standard_streams() -> None:
    """Open those that are closed (`>&-`) on /dev/null. Otherwise the next socket gets the number, and what is
    written to the stream goes there (threats R-B8)."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:  # always the lowest free number
        pass
    os.close(fd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # Python's way to say that it was closed
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def admin_connections() -> int:
    """The number of connections to the admin listener, out of a reserve of its own: neither they nor clients
    of the data plane can take the others' descriptors (threats R-B7). At most an eighth of all."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_ADMIN_CONNECTIONS
    return max(MIN_ADMIN_CONNECTIONS, min(MAX_ADMIN_CONNECTIONS, soft // 8))


@contextmanager
def handle_signals(
    stop: Callable[[], None],
    reload: Callable[[], None] | None = None,
    reopen: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Inside, SIGTERM and SIGINT call `stop`, and a second one ends the process; SIGHUP calls `reload` and
    SIGUSR1 `reopen`. SIGUSR2 means nothing, and neither do those without a function: one line says so.
    Without a handler each of them would end the process."""
    loop = asyncio.get_running_loop()
    stopping = False

    def on_stop_signal() -> None:
        nonlocal stopping
        if stopping:
            print_error("second stop signal: exiting at once")
            logging.shutdown()  # waits until the line is written, but not for long
            os._exit(SECOND_STOP_EXIT)
        stopping = True
        stop()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_stop_signal)
    others = {signal.SIGHUP: reload, signal.SIGUSR1: reopen, signal.SIGUSR2: None}
    for number, function in others.items():
        loop.add_signal_handler(number, function or partial(_log.info, IGNORED, number.name))
    try:
        yield
    finally:
        for number in (*STOP_SIGNALS, *others):
            loop.remove_signal_handler(number)
