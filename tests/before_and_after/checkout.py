"""A checkout of the project. Its code runs in its own environment, in processes of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gateway.runtime import compiled

LONGEST: Final = 600.0
"""Seconds for one command; thousands of files take a minute."""


class Checkout(NamedTuple):
    """One side of a comparison."""

    side: str
    """`old` or `new`."""
    root: Path

    def python(self, *arguments: str | Path) -> list[str]:
        """A command line of its Python, which finds its package and nothing beside it."""
        return [str(self.root / ".venv" / "bin" / "python"), "-P", *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        """Nothing of ours gets into what is compared. Sets have the same order on both sides."""
        kept = ("PATH", "HOME", "LANG", "TMPDIR")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PYTHONPATH": str(self.root),
            "PYTHONHASHSEED": "0",
            compiled.VARIABLE: os.environ.get(compiled.VARIABLE, "0"),
        }

    def start(self, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.python(*arguments),
            cwd=cwd or self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
        )

    def output(self, *arguments: str | Path, codes: Sequence[int] = (0,), cwd: Path | None = None) -> str:
        """What a command prints."""
        return ended(self.start(*arguments, cwd=cwd), codes)


def ended(process: subprocess.Popen[str], codes: Sequence[int] = (0,)) -> str:
    """The output of a process, once it has ended. Raises `RuntimeError` where it ended with another code."""
    try:
        out, err = process.communicate(timeout=LONGEST)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode not in codes:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{err[-3000:]}")
    return out


def both(
    old: Checkout, new: Checkout, *arguments: str | Path, codes: Sequence[int] = (0,)
) -> tuple[str, str]:
    """The outputs of the same command in both, which run at the same time."""
    first, second = old.start(*arguments), new.start(*arguments)
    try:
        return ended(first, codes), ended(second, codes)
    finally:
        end(first, second)


def end(*processes: subprocess.Popen[str]) -> None:
    """Kill those that have not ended: another one has failed."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()
