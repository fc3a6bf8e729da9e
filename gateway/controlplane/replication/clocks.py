"""The clocks of a replica: one that goes on while the machine sleeps, and the wall clock.

    CLOCK_BOOTTIME    deadlines, in this process and in its workers: one clock for the whole machine
    wall clock        only what a state file says to a process after another start of the machine

A clock that stops with the machine would leave a deadline open after a night in which the others went on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, final
from uuid import uuid4

from gateway.core.agreement.attachment import LastAttached
from gateway.runtime.process import boot_time

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@final
class Clocks(NamedTuple):
    """Clocks of a replica, which tests replace."""

    boot_time: Callable[[], float]
    """Seconds of a clock that also counts while the machine sleeps, the same for all processes."""
    wall: Callable[[], float]
    """Seconds since 1970."""
    boot: str
    """Id of the start of the machine from which `boot_time` counts."""

    def last_attached(self, boot_time: float) -> LastAttached:
        """Convert a moment of `boot_time` into the form of the state file."""
        return LastAttached(self.boot, boot_time, self.wall_of(boot_time))

    def wall_of(self, boot_time: float) -> float:
        """Convert a moment of `boot_time` to Unix time."""
        return self.wall() - (self.boot_time() - boot_time)


def system_clocks() -> Clocks:
    """Return the clocks of this machine."""
    boot = uuid4().hex  # where it cannot be known, no process relies on the boot time of another one
    with suppress(OSError, UnicodeDecodeError):
        boot = _BOOT_ID.read_text("ascii").strip() or boot
    return Clocks(boot_time, time.time, boot)
