"""Ends the processes that a test has started and left behind, whoever their parent is by then.

A process inherits two variables from the test that starts it: `MARK`, which names the run and the process of
pytest, and pytest's own PYTEST_CURRENT_TEST, which names the test and its phase. So the processes of a test
are found even where it was killed before it could clean up, and where their own parent has died.

- What a test starts in its call ends with the test.
- What its fixtures start may serve further tests. It ends with the process of pytest at the latest.

Only Linux shows the variables of other processes, in /proc. Elsewhere nothing is found.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "PYTEST_PROCESS_MARK"
"""Environment variable of everything that a test starts: the run, and the worker of pytest-xdist."""

_CURRENT_TEST: Final = "PYTEST_CURRENT_TEST"
_PROCESSES: Final = Path("/proc")


class Started(NamedTuple):
    """A process that a test has started."""

    pid: int
    test: str
    """The id of the test."""
    in_call: bool
    """Whether the test itself started it, not one of its fixtures."""
    command: str

    def __str__(self) -> str:
        return f"{self.test} left process {self.pid}: {self.command[:200]}"


def mark(run: str, worker: str) -> str:
    """Returns the value of `MARK` for a worker of pytest-xdist; `worker` is `master` without it."""
    return f"{run}/{worker}"


def for_several_tests(environment: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the environment of a process that serves further tests although a test starts it, when it first
    needs it. `environment`: as for `subprocess`."""
    return {**(os.environ if environment is None else environment), _CURRENT_TEST: "several tests (setup)"}


def running() -> frozenset[int]:
    """Returns the ids of all processes of the machine."""
    try:
        return frozenset(int(name) for name in os.listdir(_PROCESSES) if name.isdigit())  # noqa: PTH208 - the hot one
    except OSError:
        return frozenset()


def started(mark: str, among: frozenset[int] | None = None) -> Iterator[Started]:
    """Yields the processes with `mark` that run, among those `among` (all by default)."""
    for pid in running() if among is None else among:
        if pid == os.getpid():
            continue
        try:
            environment = (_PROCESSES / str(pid) / "environ").read_bytes()
            command = (_PROCESSES / str(pid) / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        variables = dict(each.split(b"=", 1) for each in environment.split(b"\0") if b"=" in each)
        if variables.get(MARK.encode()) != mark.encode():
            continue
        test, _, phase = variables.get(_CURRENT_TEST.encode(), b"").decode(errors="replace").rpartition(" ")
        yield Started(
            pid, test, phase == "(call)", command.replace(b"\0", b" ").decode(errors="replace").strip()
        )


def end(processes: Iterator[Started]) -> list[Started]:
    """Kills `processes`, and returns those that were there to be killed."""
    ended = []
    for process in processes:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except OSError:
            continue
        ended.append(process)
    return ended
