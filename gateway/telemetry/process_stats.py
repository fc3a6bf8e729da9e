"""Statistics of this process from the kernel: CPU time, memory, file descriptors, start time.

Linux only; elsewhere unreadable values are None, and their series are left out. The library's own reader
lists all descriptors in the event loop: 0.1 s for a hundred thousand connections. Here the kernel gives their
number, and before Linux 6.2, where it does not, a thread counts them. Under systemd the unit hides all of
/proc but the processes (`ProcSubset=pid`): the boot time is then computed from the clocks.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")


class ProcessStats(NamedTuple):
    """Statistics of this process at one moment."""

    cpu_seconds: float
    started_at: float | None
    """Start time of the process in seconds since the epoch."""
    virtual_bytes: int | None
    resident_bytes: int | None
    open_fds: int | None
    max_fds: float
    """Limit of the process's open file descriptors; infinite if there is none."""


def read_stats(proc: Path = PROC) -> ProcessStats:
    """Reads the process's statistics in some 50 µs; `open_fds` is None if counting them would take longer."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    started_at, virtual_bytes, resident_bytes = _stat(proc)
    return ProcessStats(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        started_at=started_at,
        virtual_bytes=virtual_bytes,
        resident_bytes=resident_bytes,
        open_fds=_known_descriptors(proc),
        max_fds=float("inf") if soft == resource.RLIM_INFINITY else soft,
    )


async def collect_stats(proc: Path = PROC) -> ProcessStats:
    """Reads all statistics of the process. The event loop goes on while descriptors are counted."""
    stats = read_stats(proc)
    if stats.open_fds is None:
        stats = stats._replace(open_fds=await asyncio.to_thread(count_descriptors, proc))
    return stats


def count_descriptors(proc: Path = PROC) -> int | None:
    """Counts the process's open descriptors one by one, which takes a microsecond each."""
    try:
        with os.scandir(proc / "self" / "fd") as found:
            return sum(1 for _ in found) - 1  # without the descriptor of this scan
    except OSError:
        return None


def _known_descriptors(proc: Path) -> int | None:
    """Reads the number of open descriptors from the size of their folder, which is 0 on older kernels."""
    try:
        return (proc / "self" / "fd").stat().st_size or None
    except OSError:
        return None


def _stat(proc: Path) -> tuple[float | None, int | None, int | None]:
    """Reads start time, virtual and resident memory of the process (`/proc/self/stat`, proc_pid_stat(5))."""
    try:
        # The name of the program may have blanks and parentheses; the fields follow the last parenthesis.
        fields = (proc / "self" / "stat").read_bytes().rpartition(b")")[2].split()
        after_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        virtual_bytes, resident_bytes = int(fields[20]), int(fields[21]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None, None, None
    boot_time = _boot_time(proc)
    return None if boot_time is None else boot_time + after_boot, virtual_bytes, resident_bytes


def _boot_time(proc: Path) -> float | None:
    try:
        with (proc / "stat").open("rb") as file:
            return next(float(line.split()[1]) for line in file if line.startswith(b"btime "))
    except OSError:
        return _boot_time_of_clocks()
    except (ValueError, IndexError, StopIteration):
        return None


@cache
def _boot_time_of_clocks() -> float | None:
    """Computes the machine's boot time once: one that moves with each scrape would look like a restart."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
