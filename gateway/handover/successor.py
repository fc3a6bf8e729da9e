"""The successor: a gateway process that takes over from this one, started with the same command line and
environment.

    SIGUSR2  ->  Successor.start  ->  launcher, ends at once  ->  skewgate run … --take-over

So it has the same user, sandbox and control group. It runs the release that is installed now, because the
program is read from the disk again. If it does not come up, this process goes on.

It is no child of this process. When a service manager stops a service, it waits only for its own children:
systemd kills any other main process at once, whatever it has in flight. So the successor must be an orphan,
whose parent is the service manager, before that learns of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final, final

from gateway.handover.inheritance import VARIABLES

OPTION: Final = "--take-over"
LAUNCHER: Final = """\
import os, sys
answer = int(sys.argv[1])
os.set_inheritable(answer, False)
os.write(answer, b"%d" % os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ))
"""
"""Python program that starts a successor and ends. Argument 1: descriptor to write the process id to."""
_LEFT_OUT: Final = frozenset({*VARIABLES, "WATCHDOG_PID"})
"""Environment variables that a successor does not get: they are about this process alone."""

log = logging.getLogger("skewgate.handover")


@final
class Successor:
    """Starts a successor of this process, one at a time. Never ends it: once it serves, it is the gateway."""

    def __init__(self) -> None:
        self._launcher: subprocess.Popen[bytes] | None = None
        self._pid = 0
        """The process id of the successor gateway; 0: not known yet."""
        self._watched = -1
        """The descriptor that is read next: the launcher's answer, then the pidfd of the successor."""

    def start(self) -> None:
        """Start a gateway process to take over from this one, unless one is on its way. Logs errors."""
        if self._watched >= 0:
            log.warning("process %s is taking over already", self._pid or "that was started")
            return
        if os.getpid() == 1:
            log.error("this is process 1, so the container stops when it ends: replace the container instead")
            return
        successor = [sys.executable, *(each for each in sys.orig_argv[1:] if each != OPTION), OPTION]
        environ = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        reading, writing = os.pipe()
        try:
            self._launcher = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-I", "-S", "-c", LAUNCHER, str(writing), *successor],
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=(writing,),
            )
        except OSError as error:
            os.close(reading)
            _failed((error.strerror or str(error)).lower())
            return
        finally:
            os.close(writing)
        self._watch(reading, self._launched)

    def close(self) -> None:
        """Stop watching the process that is to take over from this one, without ending it."""
        if self._watched >= 0:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = -1
        if self._launcher is not None:
            self._launcher.wait()  # it ends as soon as it has answered
            self._launcher = None
        self._pid = 0

    def _watch(self, descriptor: int, then: Callable[[], None]) -> None:
        self._watched = descriptor
        asyncio.get_running_loop().add_reader(descriptor, then)

    def _launched(self) -> None:
        """Read the new gateway's process id from the launcher, and watch that process for its end."""
        answer = os.read(self._watched, 32)
        self.close()
        if not answer:
            _failed("the launcher has failed")
            return
        pid = int(answer)
        log.info("started process %d, which takes over when it is ready", pid)
        try:
            watched = os.pidfd_open(pid)
        except OSError:
            _ended(pid)
            return
        self._pid = pid
        self._watch(watched, self._process_ended)

    def _process_ended(self) -> None:
        pid = self._pid
        self.close()
        _ended(pid)


def _failed(reason: str) -> None:
    log.error("cannot start a new gateway: %s", reason)


def _ended(pid: int) -> None:
    log.error("the new gateway (process %d) has ended before it took over; this one goes on", pid)
