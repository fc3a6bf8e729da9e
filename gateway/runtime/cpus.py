"""The number of CPUs that this process may use, by its affinity and the quotas of its control groups.

A container that may use two CPUs of a machine with 64 has an affinity of 64 and a quota. Linux only knows
both; elsewhere all CPUs count. Imports nothing of ours.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path("/")


def usable_cpus(root: Path = ROOT) -> int:
    """The number of CPUs that this process may use, at least 1. `root`: the folder of `proc` and `sys`."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(root)]))


def _quotas(root: Path) -> list[int]:
    """The CPU quotas of this process's control group and of those above it (version 2), in CPUs."""
    found = []
    group = _group(root)
    if group is not None:
        for each in (group, *group.parents):
            try:
                quota, period = (root / "sys/fs/cgroup" / each / "cpu.max").read_text("ascii").split()
                if quota != "max":
                    found.append(-(-int(quota) // int(period)))
            except (OSError, ValueError, ZeroDivisionError):
                continue  # the topmost group has no limit, and an unreadable one sets none here
    return found


def _group(root: Path) -> PurePosixPath | None:
    """The path of this process's control group, relative to where they are mounted; None: it has none."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    paths = [path for number, _, path in (line.split(":", 2) for line in lines) if number == "0"]
    return PurePosixPath(paths[0].lstrip("/")) if paths else None
