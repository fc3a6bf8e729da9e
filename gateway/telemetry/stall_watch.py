"""Reports when the event loop is blocked for more than a second, and in which call.

    event loop: notes the time, four times a second      <---  a thread: checks it as often

A blocked loop cannot report anything, so a thread does, with the stack of the loop's thread. When the loop
runs again, a log line gives the duration. If the whole process was stopped (SIGSTOP, a frozen machine, no CPU
time), one line says so afterwards. A call into C that keeps Python's lock blocks this thread as well; the
stack is then that after the call. A stall before clients are served is logged at `info`, without a stack.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, final

from gateway.runtime.timer import Timer
from gateway.telemetry.process_log import with_stack
from gateway.telemetry.stacks import stack_of

STALL: Final = 1.0
"""Seconds for which the event loop may be blocked without a report."""

INTERVAL: Final = 0.25
"""Seconds between two checks by the thread, and between two times that the event loop notes."""

MAX_PAUSE: Final = 60.0
"""Maximum seconds between two reports of one stall, which come after 1, 2, 4, 8 seconds and so on."""

_log = logging.getLogger("skewgate.stall")


@final
class StallWatch:
    """Watches the running event loop from `start` to `close`, both called in it."""

    def __init__(
        self,
        *,
        stall: float = STALL,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._stall, self._interval = stall, interval
        self._clock, self._cpu = clock, cpu
        self._noted = self._checked = clock()
        """Time that the event loop noted last, and time of the watching thread's last check."""
        self._cpu_noted = cpu()
        self._next = stall
        """Duration of a stall of the event loop at which the next report is due."""
        self._reported = False
        """Whether the watching thread has reported the present stall."""
        self._serving = self._harms = False
        """Whether clients are served: now, and when the event loop noted the time last."""
        self._ident = 0
        self._timer = Timer()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skewgate-stall", daemon=True)

    def start(self) -> None:
        """Starts the watching thread. Not earlier: a process that still forks must not own one."""
        self._ident = threading.get_ident()
        self._checked = self._clock()
        self._set_timer()
        self._thread.start()

    def begin_serving(self) -> None:
        """Marks that a stall of the event loop holds up requests from now on."""
        self._serving = True

    def close(self) -> None:
        """Ends the watching thread, and waits for it; it never waits for the event loop."""
        self._timer.cancel()
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- in the event loop ----------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._noted, self._cpu_noted = self._clock(), self._cpu()
        self._harms = self._serving
        self._timer.set(self._interval, self._note)

    def _note(self) -> None:
        """Notes the time, in the event loop, after logging the end of a stall if there was one."""
        held = self._clock() - self._noted - self._interval
        if held > self._stall:
            cpu = self._cpu() - self._cpu_noted
            level = logging.WARNING if self._harms else logging.INFO
            if not self._reported and cpu < held / 2:
                sentence = "this process did not run for %.1f s: it was stopped, or got no CPU time"
                _log.log(level, sentence, held)
            else:
                sentence = "the event loop runs again after %.1f s (%.1f s of CPU time)"
                _log.log(level, sentence, held, cpu)
        self._reported, self._next = False, self._stall
        self._set_timer()

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self._check_loop()

    def _check_loop(self) -> None:
        """Reports a blocked event loop, unless this thread was stopped too: then the whole process was."""
        now, before = self._clock(), self._checked
        self._checked = now
        held = now - self._noted - self._interval
        if held <= self._next:
            return
        if now - before > self._interval + self._stall and self._cpu() - self._cpu_noted < held / 2:
            return
        self._next = held + min(held, MAX_PAUSE)
        self._reported = True
        if not self._harms:
            _log.info("the event loop has been blocked for %.1f s, before clients are served", held)
            return
        frame = sys._current_frames().get(self._ident)  # noqa: SLF001 - documented, and the only way
        _log.error(
            "the event loop has been blocked for %.1f s, and all requests with it",
            held,
            extra=with_stack(stack_of(frame)),
        )
