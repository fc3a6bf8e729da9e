"""Processes that the group starts: each in a process group of its own, its output in a file, ended by id.

What it does: `Process.start`, `Process.stop`, waiting for HTTP to answer, and a free port.

Rules: only what was started here is ever signalled, and by its own group's id. Whoever waits, waits for
the thing itself and gives up early when the process has died, with its last words in the error.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
PAUSE = 0.05  # seconds between two looks at something that is not there yet
START_LIMIT = 60.0  # seconds: a server needs 3 on an idle machine
STOP_LIMIT = 15.0  # seconds before a server that ignores SIGTERM is killed

_taken: set[int] = set()


class StartFailed(RuntimeError):
    """A process died or did not answer in time. The text ends with the end of its logs."""


def free_port() -> int:
    """A loopback port that nothing listens on and that was not handed out before.

    Below the range from which the system takes ports for outgoing connections, so that it stays free
    while the server behind it is down."""
    for _ in range(1000):
        port = random.randrange(12_000, 30_000)
        if port in _taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((LOOPBACK, port))
                _taken.add(port)
                return port
    raise StartFailed("no free port on loopback between 12000 and 30000")


class Process:
    """One program: its command line, the folder it runs in and the file that gets all it prints."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.environment = None if environment is None else dict(environment)
        self.output = folder / f"{name}.out"
        self.logs = [self.output]
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.returncode is None and not self._has_ended()

    def start(self) -> None:
        with self.output.open("ab") as output:
            self._popen = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> int | None:
        """SIGTERM to the process group, SIGKILL after a while; its exit code, None if it never ran."""
        if self._popen is None or self._popen.returncode is not None:
            return None if self._popen is None else self._popen.returncode
        self.ask_to_end()
        end = time.monotonic() + STOP_LIMIT
        while not self._has_ended() and time.monotonic() < end:
            time.sleep(PAUSE)
        # Also when the leader has gone by itself: children of its group may have stayed. It has not been
        # waited for yet, so the group's id still means this group and no other.
        self.signal(signal.SIGKILL)
        return self._popen.wait()

    def ask_to_end(self) -> None:
        """SIGTERM to the process group, and no waiting: `stop` does that."""
        if self.is_running:
            self.signal(signal.SIGTERM)

    def terminate(self) -> int:
        """SIGTERM to this process alone, as an operator sends it; its exit code.

        Raises StartFailed when it does not end in time (and kills it)."""
        assert self._popen is not None
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise StartFailed(
                f"{self.name} did not end within {STOP_LIMIT:.0f} s of SIGTERM\n{self.last_words()}"
            ) from None

    def wait_until(self, ready: Callable[[], object], what: str, limit: float = START_LIMIT) -> None:
        """Until `ready` is true; StartFailed when the process dies first or the time is up."""
        end = time.monotonic() + limit
        while not ready():
            if not self.is_running:
                raise StartFailed(f"{self.name} ended before {what}\n{self.last_words()}")
            if time.monotonic() > end:
                raise StartFailed(f"{self.name}: not {what} after {limit:.0f} s\n{self.last_words()}")
            time.sleep(PAUSE)

    def last_words(self, length: int = 3000) -> str:
        """The end of each of its logs."""
        parts = []
        for log in self.logs:
            text = log.read_text("utf-8", "replace") if log.exists() else ""
            if text.strip():
                parts.append(f"--- the end of {log.name} ---\n{text[-length:]}")
        return "\n".join(parts) or "(it wrote nothing)"

    def _has_ended(self) -> bool:
        """True once the process is over; it is left unwaited for, so that its id stays its own."""
        assert self._popen is not None
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """To its process group; nothing happens when it has gone."""
        assert self._popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)


def stop_all(processes: Iterable[Process]) -> None:
    """Every one of them ended; all are asked before any is waited for."""
    started = list(processes)
    for process in started:
        process.ask_to_end()
    for process in started:
        process.stop()


def answers(port: int, path: str = "/") -> bool:
    """True when something on this loopback port answers HTTP with anything below 500."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_for(ready: Callable[[], object], what: str, limit: float = 20.0) -> None:
    """Until `ready` is true; AssertionError that says `what` was waited for when the time is up."""
    end = time.monotonic() + limit
    while not ready():
        assert time.monotonic() < end, f"after {limit:.0f} s still not so: {what}"
        time.sleep(PAUSE)
