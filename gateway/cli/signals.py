"""Signals of a process that serves: the first SIGTERM or SIGINT asks it to finish, the second leaves at once.

Only installs handlers; what finishing means is the caller's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gateway.cli.printing import complain

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
IMPATIENT_EXIT: Final = 1
"""Leaving at once cuts requests, which is a failure."""


@contextmanager
def handled(stop: Callable[[], None], reload: Callable[[], None] | None = None) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT call `stop`, a second one ends the process; SIGHUP calls `reload`."""
    loop = asyncio.get_running_loop()
    asked = False

    def finish() -> None:
        nonlocal asked
        if asked:
            complain("asked twice to stop: leaving at once")
            os._exit(IMPATIENT_EXIT)
        asked = True
        stop()

    for number in STOPPING:
        loop.add_signal_handler(number, finish)
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        for number in (*STOPPING, signal.SIGHUP):
            loop.remove_signal_handler(number)
