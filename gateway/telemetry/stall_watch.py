"""Tells when the event loop stands still for more than a second, and in which call.

    event loop: notes the time, four times a second      <---  a thread: looks at it as often

While the loop stands still it cannot tell anything itself, so a thread does, with the stack of the loop's
thread at that moment. When the loop turns again, a line says how long it took. If the whole process was
stopped (SIGSTOP, a frozen machine, others had the processor), no stack is to blame: one line says so
afterwards. A call into C that keeps Python's lock holds up this thread as well; then the stack is the one in
which that call ended. Before the process serves anybody a stall harms nobody: it is information, without a
stack. Sheds nothing and ends nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, final

from gateway.telemetry.process_log import with_stack
from gateway.telemetry.stacks import stack_of

STALL: Final = 1.0
"""Seconds that the event loop may stand still."""

INTERVAL: Final = 0.25
"""Seconds between two looks, and between two times that the loop notes."""

MAX_PAUSE: Final = 60.0
"""A stall that lasts is told again after 2, 4, 8 seconds and so on; after this at the latest."""

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
        self._noted = self._looked = clock()
        """When the loop noted the time last, and when the thread looked last."""
        self._cpu_noted = cpu()
        self._next = stall
        """How long the loop must have stood still to be told of."""
        self._reported = False
        """The thread has told of this stall."""
        self._serving = self._harms = False
        """Somebody is served: now, and when the loop noted the time last."""
        self._ident = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skewgate-stall", daemon=True)

    def start(self) -> None:
        """A process that still forks must not own a thread."""
        self._ident = threading.get_ident()
        self._looked = self._clock()
        self._set_timer()
        self._thread.start()

    def begin_serving(self) -> None:
        """From now on a stall holds up requests."""
        self._serving = True

    def close(self) -> None:
        """Waits for the thread, which never waits for the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    # --- in the event loop ----------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._noted, self._cpu_noted = self._clock(), self._cpu()
        self._harms = self._serving
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._note)

    def _note(self) -> None:
        """The loop turns."""
        held = self._clock() - self._noted - self._interval
        if held > self._stall:
            cpu = self._cpu() - self._cpu_noted
            level = logging.WARNING if self._harms else logging.INFO
            if not self._reported and cpu < held / 2:
                sentence = "this process did not run for %.1f s: it was stopped, or others had the processor"
                _log.log(level, sentence, held)
            else:
                sentence = "the event loop turns again after %.1f s (%.1f s of processor time)"
                _log.log(level, sentence, held, cpu)
        self._reported, self._next = False, self._stall
        self._set_timer()

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self._check_loop()

    def _check_loop(self) -> None:
        """Tell of a loop that stands still. If this thread stood still as well, and nothing was computed,
        the whole process did, and the loop has not had its turn yet."""
        now, before = self._clock(), self._looked
        self._looked = now
        held = now - self._noted - self._interval
        if held <= self._next:
            return
        if now - before > self._interval + self._stall and self._cpu() - self._cpu_noted < held / 2:
            return
        self._next = held + min(held, MAX_PAUSE)
        self._reported = True
        if not self._harms:
            _log.info("the event loop has stood still for %.1f s, before anybody is served", held)
            return
        frame = sys._current_frames().get(self._ident)  # noqa: SLF001 - documented, and the only way
        _log.error(
            "the event loop has stood still for %.1f s, and with it every request",
            held,
            extra=with_stack(stack_of(frame)),
        )
