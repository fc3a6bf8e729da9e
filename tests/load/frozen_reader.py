"""A process whose standard output and standard error are pipes with readers that can stop.

What it does: a thread for each pipe reads it into a file. While a pipe is `frozen` nobody reads it and it is
full, so that the next byte that the process writes there must wait, as for a log collector that hangs.

Rules: what fills a pipe is no line of the process, and is left out of what it has written.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.real.processes import Process

FILLER: Final = b"# not a line of this process #####\n"
LOOK: Final = 100
"""Milliseconds after which a reader looks whether it must end."""


class Pipe:
    """One pipe and its reader, which appends to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_end, self.write_end = os.pipe()
        self._reading = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=path.name, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Inside, nobody reads and there is no room for one byte."""
        with self._reading:
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
        self._ended.set()
        self._thread.join()
        os.close(self._read_end)

    def _run(self) -> None:
        with self._path.open("ab") as file:
            while True:
                ended = self._ended.is_set()
                readable = select.select((self._read_end,), (), (), 0 if ended else LOOK / 1000)[0]
                with self._reading:
                    data = os.read(self._read_end, 65536) if readable else b""
                file.write(data)
                file.flush()
                if ended and not data:
                    return


class PipedProcess(Process):
    """A program whose output is read by `out` and `err`."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, command, folder, environment)
        errors = folder / f"{name}.err"
        self.logs = [self.output, errors]
        self.out, self.err = Pipe(self.output), Pipe(errors)

    def start(self) -> None:
        self._popen = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.out.write_end,
            stderr=self.err.write_end,
            start_new_session=True,
        )

    def end_reading(self) -> None:
        """Read what is left. The process has ended."""
        self.out.end()
        self.err.end()

    def written(self) -> bytes:
        """What it has written to its standard output."""
        return self.output.read_bytes().replace(FILLER, b"")
