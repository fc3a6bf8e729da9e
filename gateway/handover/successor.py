"""Starts the gateway that takes over from this one, as a process with the same command line and environment.

    SIGUSR2  ->  Successor.start  ->  skewgate run … --take-over

So it has what this one has: user, sandbox, control group. The program is read from the disk again, so it is
the release that is installed now. Whether it comes up is up to it; if it does not, this process goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from typing import Final, final

from gateway.handover.inheritance import VARIABLES

OPTION: Final = "--take-over"
_LEFT_OUT: Final = frozenset({*VARIABLES, "WATCHDOG_PID"})
"""What the service manager has said about this process, and no other."""

log = logging.getLogger("skewgate.handover")


@final
class Successor:
    """One at a time. It is never ended from here: once it serves, it is the gateway."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._watched = -1
        """A descriptor that can be read once the process has ended."""

    def start(self) -> None:
        """Start it, unless one is on its way. Reports what goes wrong in the log."""
        if self._process is not None:
            log.warning("process %d is taking over already", self._process.pid)
            return
        if os.getpid() == 1:
            log.error("this is process 1, with whose end a container ends: replace the container instead")
            return
        arguments = [each for each in sys.orig_argv[1:] if each != OPTION]
        environ = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, *arguments, OPTION], stdin=subprocess.DEVNULL, env=environ
            )
            self._watched = os.pidfd_open(self._process.pid)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            log.error("no new gateway can be started: %s", reason)  # noqa: TRY400 - the reason says it all
            return
        log.info("started process %d, which is to take over", self._process.pid)
        asyncio.get_running_loop().add_reader(self._watched, self._ended)

    def close(self) -> None:
        """Watch it no more."""
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1
        if self._process is not None:
            self._process.returncode = self._process.poll() or 0  # it lives on: nobody waits for it here
            self._process = None

    def _ended(self) -> None:
        assert self._process is not None
        process, code = self._process, self._process.wait()
        self.close()
        log.error("process %d, which was to take over, has ended with exit code %d", process.pid, code)
