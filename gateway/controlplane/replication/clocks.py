"""The clocks by which a replica counts: one that goes on while the machine sleeps, and the wall's.

    CLOCK_BOOTTIME    deadlines, in this process and in its workers: one clock for the whole machine
    wall clock        only what a state file says to a process after another start of the machine

A deadline that was counted by a clock that stops with the machine would not have passed after a night in
which the others have gone on. Nothing here waits for a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, final
from uuid import uuid4

from gateway.core.agreement.attachment import LastAttached

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Only Linux has the first one. Elsewhere the other one counts while the machine sleeps, or a machine that
sleeps is no place for a replica."""


@final
class Clocks(NamedTuple):
    """What time it is."""

    boot_time: Callable[[], float]
    """Seconds of a clock that also counts while the machine sleeps, the same for all processes."""
    wall: Callable[[], float]
    """Seconds since 1970."""
    boot: str
    """Which start of the machine `boot_time` counts from."""

    def last_attached(self, boot_time: float) -> LastAttached:
        """A moment of `boot_time`, for a state file."""
        return LastAttached(self.boot, boot_time, self.wall() - (self.boot_time() - boot_time))

    def wall_of(self, boot_time: float) -> float:
        """A moment of `boot_time`, for people."""
        return self.wall() - (self.boot_time() - boot_time)


def boot_time() -> float:
    """Seconds of the clock of deadlines."""
    return time.clock_gettime(_CLOCK)


def system_clocks() -> Clocks:
    """Those of this machine."""
    boot = uuid4().hex  # where it cannot be known, no process believes the boot time of another one
    with suppress(OSError, UnicodeDecodeError):
        boot = _BOOT_ID.read_text("ascii").strip() or boot
    return Clocks(boot_time, time.time, boot)
