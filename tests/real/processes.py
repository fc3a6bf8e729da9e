"""Processes that the group starts: each in its own process group, with its output in a file.

What it does: it starts and ends processes, and tells whether they respond to HTTP.

Rules: only processes that were started here are signalled, by the id of their own group. A wait is for the
event itself. It ends early when the process has died, with the end of its logs in the error.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.kit import started_processes
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import wait_until

PAUSE = 0.05  # seconds between two checks of a condition
START_LIMIT = 60.0  # seconds; a server needs 3 on an idle machine
STOP_LIMIT = 15.0  # seconds before a server that ignores SIGTERM is killed


class StartFailed(RuntimeError):
    """A process died or did not respond in time. The text ends with the end of its logs."""


class Process:
    """One program: its command line, its working folder, and the file for its output."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.environment = None if environment is None else dict(environment)
        self.output = folder / f"{name}.out"
        self.logs = [self.output]
        self.streams: tuple[int, int] | None = None
        """Standard output and standard error, when they are not to go to the file."""
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._popen is not None and self._popen.returncode is None and not self._has_ended()

    @property
    def pid(self) -> int:
        """Of the one that was started last."""
        assert self._popen is not None
        return self._popen.pid

    def start(self) -> None:
        with self.output.open("ab") as output:
            stdout, stderr = self.streams or (output, subprocess.STDOUT)
            self._popen = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=started_processes.for_several_tests(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def stop(self) -> int | None:
        """SIGTERM to the process group, then SIGKILL. Return the exit code; None: it never ran."""
        if self._popen is None or self._popen.returncode is not None:
            return None if self._popen is None else self._popen.returncode
        self.request_stop()
        end = time.monotonic() + STOP_LIMIT
        while not self._has_ended() and time.monotonic() < end:
            time.sleep(PAUSE)
        # Also when the leader has ended by itself: its group may have children left. The leader has not been
        # waited for yet, so the id still belongs to this group.
        self.signal(signal.SIGKILL)
        return self._popen.wait()

    def request_stop(self) -> None:
        if self.is_running:
            self.signal(signal.SIGTERM)

    def terminate(self) -> int:
        """Send SIGTERM to this process only, as an operator does. Return its exit code.

        Raises StartFailed when it does not end in time, and kills it.
        """
        assert self._popen is not None
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.stop()
            raise StartFailed(
                f"{self.name} did not end within {STOP_LIMIT:.0f} s of SIGTERM\n{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """Send SIGKILL to this process only: its children live on."""
        assert self._popen is not None
        self._popen.kill()
        self._popen.wait()

    def wait_until(self, ready: Callable[[], object], state: str, limit: float = START_LIMIT) -> None:
        """Wait until `ready` is true. Raises StartFailed when the process dies first or the time is up."""
        end = time.monotonic() + limit
        while not ready():
            if not self.is_running:
                raise StartFailed(f"{self.name} ended before it was {state}\n{self.log_tail()}")
            if time.monotonic() > end:
                raise StartFailed(f"{self.name}: not {state} after {limit:.0f} s\n{self.log_tail()}")
            time.sleep(PAUSE)

    def log_tail(self, length: int = 3000) -> str:
        """The end of each of its logs."""
        parts = []
        for log in self.logs:
            text = log.read_text("utf-8", "replace") if log.exists() else ""
            if text.strip():
                parts.append(f"--- the end of {log.name} ---\n{text[-length:]}")
        return "\n".join(parts) or "(the logs are empty)"

    def _has_ended(self) -> bool:
        """True when the process has ended. It is not waited for, so that its id stays reserved."""
        assert self._popen is not None
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """Signal its process group. Nothing happens when the group has ended."""
        assert self._popen is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)


def stop_all(processes: Iterable[Process]) -> None:
    """End all of these. All get SIGTERM before the first is waited for."""
    started = list(processes)
    for process in started:
        process.request_stop()
    for process in started:
        process.stop()


@contextlib.contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Inside, these processes stand still."""
    found = list(pids)
    try:
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: {*map(state_of, found)} == {"T"}, f"processes {found} stopped")
        yield
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def state_of(pid: int) -> str:
    """One letter, as in proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def send(
    port: int, target: str, headers: Mapping[str, str] = MappingProxyType({}), method: str = "GET"
) -> Response:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request(method, target, headers=dict(headers))
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read())
    finally:
        connection.close()


def responds(port: int, path: str = "/") -> bool:
    """True when a server on this port of loopback responds to HTTP with a status below 500."""
    try:
        return send(port, path).status < 500
    except (OSError, http.client.HTTPException):
        return False
