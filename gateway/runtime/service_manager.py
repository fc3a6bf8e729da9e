"""Notifications to systemd, or another manager behind NOTIFY_SOCKET: sd_notify(3), without its library.

    READY        it serves                       STOPPING   the drain begins
    RELOADING    a reload begins; READY ends it  STATUS     one line for `systemctl status`
    MAINPID      another process has taken over, and notifies from now on
    WATCHDOG     the event loop runs, twice in each interval that the manager allows

Without NOTIFY_SOCKET nothing is sent. It never raises, and blocks only at the end, for MAINPID. If the socket
is full, the newest state of each kind is sent with the next tick. This module decides nothing about the
gateway.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from enum import Enum, auto
from struct import Struct
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import Final, final

from gateway.runtime.timer import Timer

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
INTERVAL: Final = 5.0
"""Seconds between two messages to the service manager, unless its watchdog wants more of them."""
MAX_STATUS: Final = 500
"""Maximum characters of the status line for the service manager."""
LAST_TIME: Final = Struct("@ll").pack(10, 0)
"""The timeval for which, at most, the end waits until the service manager takes the last message."""
DRAIN_SLACK: Final = 5.0
"""Seconds that the process may need after a drain, for the last state and the last log lines."""

_log = logging.getLogger("skewgate")


class Moment(Enum):
    """Moment of a reload that the service manager is told: its beginning or its end."""

    BEGIN = auto()
    END = auto()


@final
class ServiceManager:
    """Notifier of the service manager of this process (systemd), if `environ` names one."""

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        self._socket: socket.socket | None = None
        self._address = ""
        self.interval = INTERVAL
        self._watched = False
        self._unsent: dict[str, str] = {}
        self._status: Callable[[], str] = str
        self._sent_status = ""
        self._timer = Timer()
        self._ready = False
        self._reloading = False
        self._failed = False
        self.variables = {name: environ[name] for name in (SOCKET, WATCHDOG) if name in environ}
        """Environment variables by which a process that takes over finds the service manager."""
        address = environ.get(SOCKET, "")
        if not address:
            return
        if address[0] not in "/@":
            _log.warning("%s is neither a path nor an abstract address: nothing is sent there", SOCKET)
            return
        self._address = "\0" + address[1:] if address[0] == "@" else address
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        if seconds := _watchdog(environ, os.getpid() if pid is None else pid):
            self.interval, self._watched = min(INTERVAL, seconds / 2), True

    def ready(self, status: Callable[[], str]) -> None:
        """Notify the service manager that this process serves. From now on, `status` is sent at each tick."""
        if self._socket is None:
            return
        self._status, self._ready = status, True
        self._send({"READY": "1", **self._news()})
        self._timer.set(self.interval, self._tick)

    def reloading(self, moment: Moment) -> None:
        """Notify the service manager that a reload begins, or has ended."""
        if not self._ready:
            return
        self._reloading = moment is Moment.BEGIN
        if self._reloading:
            self._unsent.pop("READY", None)
            now = clock_gettime_ns(CLOCK_MONOTONIC) // 1000
            self._send({"RELOADING": "1", "MONOTONIC_USEC": str(now), "STATUS": "reloading"})
            self._sent_status = ""
        else:
            self._send({"READY": "1", **self._news()})

    def stopping(self, drain: float) -> None:
        """Notify the service manager that this process ends within `drain` seconds and a few more."""
        if self._socket is None or "MAINPID" in self._unsent:
            return
        self._ready = False
        self._unsent.clear()
        usec = int((drain + DRAIN_SLACK) * 1_000_000)
        status = "draining: requests in flight are finished"
        self._send({"STOPPING": "1", "STATUS": status, "EXTEND_TIMEOUT_USEC": str(usec)})

    def hand_over(self, pid: int) -> None:
        """Notify the service manager that process `pid` has taken over, and stop notifying it."""
        self._ready = False
        self._unsent.clear()
        self._send({"MAINPID": str(pid)})

    def close(self) -> None:
        """Stop notifying the service manager, and close the socket to it. Waits until it knows the process
        that has taken over: with the end of its main process it would end that one, too."""
        self._timer.cancel()
        if self._socket is not None and "MAINPID" in self._unsent:
            # Not Python's own timeout: poll(2) does not know whether there is room at the other end.
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, LAST_TIME)
            self._send({})
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tick(self) -> None:
        lines = {"WATCHDOG": "1"} if self._watched else {}
        if self._ready and not self._reloading:
            lines |= self._news()
        self._timer.set(self.interval, self._tick)
        self._send(lines)

    def _news(self) -> dict[str, str]:
        """The status line for the service manager, if it has changed since it was sent."""
        text = "".join(each if each.isprintable() else " " for each in self._status())[:MAX_STATUS]
        if text == self._sent_status:
            return {}
        self._sent_status = text
        return {"STATUS": text}

    def _send(self, lines: Mapping[str, str]) -> None:
        """Send lines to the service manager in one message, with those that could not be sent before."""
        wanted = {**self._unsent, **lines}
        if self._socket is None or not wanted:
            return
        self._unsent = {}
        text = "\n".join(f"{name}={value}" for name, value in wanted.items())
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            # A late watchdog line would say nothing about the loop at that time.
            self._unsent = {name: value for name, value in wanted.items() if name != "WATCHDOG"}
            if not self._failed and not isinstance(error, BlockingIOError):
                _log.warning("the service manager cannot be notified: %s", error.strerror or error)
                self._failed = True
        else:
            self._failed = False
            if "MAINPID" in wanted:
                self.close()


def _watchdog(environ: Mapping[str, str], pid: int) -> float:
    """Seconds in which systemd's watchdog wants a message from this process; 0: there is no watchdog."""
    try:
        usec = int(environ.get(WATCHDOG, ""))
        wanted = int(environ.get("WATCHDOG_PID", pid))
    except ValueError:
        return 0.0
    return usec / 1_000_000 if usec > 0 and wanted == pid else 0.0
