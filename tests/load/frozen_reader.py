"""A process whose standard output and standard error are pipes with readers that can stop.

What it does: a `cat` for each pipe reads it into a file. While a pipe is `frozen` nobody reads it and it is
full, so that the next byte that the process writes there must wait, as for a log collector that hangs.

Rules: what fills a pipe is no line of the process, and is left out of what it has written.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.real.processes import Process, stopped

FILLER: Final = b"# not a line of this process #####\n"


class Pipe:
    """One pipe and its reader, which appends to `path`."""

    def __init__(self, path: Path) -> None:
        read_end, self.write_end = os.pipe()
        with path.open("ab") as file:
            self._reader = subprocess.Popen(["cat"], stdin=read_end, stdout=file)
        os.close(read_end)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, nobody reads and there is no room for one byte."""
        with stopped([self._reader.pid]):
            # A descriptor of its own: without blocking, and the one of the process stays as it is.
            own = os.open(f"/proc/self/fd/{self.write_end}", os.O_WRONLY | os.O_NONBLOCK)
            try:
                for filler in (FILLER * 100, FILLER, b"\n"):
                    with contextlib.suppress(BlockingIOError):
                        while os.write(own, filler):
                            pass
            finally:
                os.close(own)
            yield

    def end(self) -> None:
        """Read what is left, and end."""
        os.close(self.write_end)
        self._reader.wait()


class PipedProcess(Process):
    """A program whose output is read by `out` and `err`."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, command, folder, environment)
        errors = folder / f"{name}.err"
        self.logs = [self.output, errors]
        self.out, self.err = Pipe(self.output), Pipe(errors)
        self.streams = self.out.write_end, self.err.write_end

    def end_reading(self) -> None:
        """Read what is left. The process has ended."""
        self.out.end()
        self.err.end()

    def written(self) -> bytes:
        """What it has written to its standard output."""
        return self.output.read_bytes().replace(FILLER, b"")
